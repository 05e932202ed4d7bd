import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lmfcn import make_gaussians
from lmfcn.benchmark.tasks import (
    TASKS,
    SplitData,
    Subset,
    gaussians,
    inspect_images,
    open_images,
    split_by_counts,
    split_images,
)
from lmfcn.data.collection import ImageCollection
from lmfcn.data.image_files import CollectionError

NOWHERE = Path("nowhere")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The three folders with as few and as small images as the counts allow."""
    folder, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    rows = []
    for label in ("lung_aca", "lung_n", "lung_scc"):
        for number in range(212):
            path = write(folder / "lung" / label / f"{number}.png", random)
            rows.append({"path": path.relative_to(folder / "lung"), "label": label, "group": f"{label}-{number // 4}"})
    with (folder / "lung" / "groups.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, ["path", "label", "group"])
        table.writeheader()
        table.writerows(rows)
    for label in ("crazing", "patches"):
        for number in range(75):
            write(folder / "neu" / label / f"{number}.png", random)
    for label in range(22):
        for number in range(12):
            write(folder / "usptex" / f"c{label:03d}" / f"{number}.png", random)
    return folder


def write(path, random):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
    return path


def counts(part):
    return np.unique(part.labels, return_counts=True)[1].tolist()


def sides(parts):
    return parts.train, parts.validation, parts.test


def assert_no_group_on_two_sides(parts):
    train, validation, test = (set(part.images.groups.tolist()) for part in sides(parts))
    assert len(train | validation | test) == len(train) + len(validation) + len(test)


@pytest.mark.parametrize(
    ("task", "expected", "shape"),
    [
        ("lung", [[152] * 2, [48] * 2, [12] * 2], (64, 64, 3)),
        ("lung-128", [[152] * 2, [48] * 2, [12] * 2], (128, 128, 3)),
        ("lung-3", [[100] * 3, [52] * 3, [60] * 3], (64, 64, 3)),
        ("neu-10", [[10] * 2, [10] * 2, [55] * 2], (64, 64, 1)),
        ("neu-20", [[20] * 2, [20] * 2, [35] * 2], (64, 64, 1)),
        ("neu-50", [[50] * 2, [20] * 2, [5] * 2], (64, 64, 1)),
        ("usptex", [[6] * 20, [3] * 20, [3] * 20], (64, 64, 3)),
    ],
)
def test_sizes_and_counts(data, task, expected, shape):
    parts = TASKS[task](data, 1)
    assert all(part.images[0].shape == shape for part in sides(parts))
    if task.startswith("lung"):  # whole groups come as near as they can
        assert_no_group_on_two_sides(parts)
        assert np.abs(np.array([counts(part) for part in sides(parts)]) - expected).max() <= 4
    else:
        assert [counts(part) for part in sides(parts)] == expected
    assert parts.train.labels.tolist() == parts.train.images.labels.tolist()


def test_classes_of_the_tasks(data):
    assert np.unique(TASKS["lung"](data, 0).test.labels).tolist() == ["lung_aca", "lung_scc"]
    assert np.unique(TASKS["usptex"](data, 0).test.labels).tolist() == [f"c{number:03d}" for number in range(20)]


def test_gaussians_are_new_for_every_seed():
    first, again, other = (TASKS["gaussians"](NOWHERE, seed) for seed in (0, 0, 1))
    assert first.train.images.shape == (120, 64, 64)
    assert [len(part.labels) for part in sides(first)] == [120, 120, 300]
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()


def test_textures_are_split_by_blocks():
    pytest.importorskip("skimage")
    parts = TASKS["textures"](NOWHERE, 3)
    assert [counts(part) for part in sides(parts)] == [[20] * 3, [12] * 3, [32] * 3]
    assert parts.train.images[0].shape == (64, 64, 1)
    assert_no_group_on_two_sides(parts)
    groups = np.concatenate([part.images.groups for part in sides(parts)])
    assert sorted(np.unique(groups, return_counts=True)[1].tolist()) == [4] * 48


def test_a_tile_lies_in_the_block_that_its_group_names():
    pictures = pytest.importorskip("skimage.data")
    train = TASKS["textures"](NOWHERE, 0).train.images
    name, down, right = train.groups[0].split()
    block = getattr(pictures, name)()[128 * int(down) :, 128 * int(right) :][:128, :128]
    corners = [block[top : top + 64, left : left + 64] for top in (0, 64) for left in (0, 64)]
    assert any(np.array_equal(train[0][..., 0], corner) for corner in corners)


def test_a_split_depends_on_the_seed_alone():
    images = ImageCollection(np.arange(20 * 64, dtype=np.uint8).reshape(20, 8, 8), ["a"] * 10 + ["b"] * 10)
    first, again, other = (split_by_counts(images, (4, 2, None), seed) for seed in (0, 0, 1))
    assert [counts(part) for part in sides(first)] == [[4, 4], [2, 2], [4, 4]]
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()


def test_the_fingerprint_sees_pixels_labels_and_sides(textures):
    images, labels = textures
    part, relabelled = Subset(images, labels), Subset(images, 1 - labels)
    brighter = images.copy()
    brighter[0, 0, 0] += 1
    splits = [
        (part, part, part),
        (part, part, relabelled),
        (part, relabelled, part),
        (Subset(brighter, labels), part, part),
    ]
    assert len({SplitData(*subsets).fingerprint() for subsets in splits}) == 4


def test_options_of_the_gaussians():
    parts = gaussians(NOWHERE, 0, size=16, counts=(2, 3, 4))
    expected, _ = make_gaussians(2, 16, np.random.default_rng(0))
    assert np.array_equal(parts.train.images, expected)
    assert len(parts.test.labels) == 8


@pytest.mark.parametrize(("task", "path"), [("lung", "lung/groups.csv"), ("neu-10", "neu"), ("usptex", "usptex")])
def test_missing_data_are_named_with_their_place(tmp_path, task, path):
    with pytest.raises(ValueError, match=f"This task needs {tmp_path / path}, a .*, but there is nothing of that name"):
        TASKS[task](tmp_path, 0)


def test_incomplete_data_are_refused(tmp_path, random):
    for label in ("c001", "c002"):
        write(tmp_path / "usptex" / label / "1.png", random)
    with pytest.raises(ValueError, match="must hold at least 20 classes, got 2"):
        TASKS["usptex"](tmp_path, 0)
    (tmp_path / "lung").mkdir()
    table = tmp_path / "lung" / "groups.csv"
    table.write_text("path,label,group\na.png,lung_aca,1\n")
    with pytest.raises(ValueError, match="lack the classes lung_scc"):
        TASKS["lung"](tmp_path, 0)
    table.write_text("path,label\na.png,lung_aca\n")
    with pytest.raises(ValueError, match="must have a column 'group'"):
        TASKS["lung"](tmp_path, 0)


@pytest.fixture
def npz(tmp_path, random):
    """Return a function that writes arrays and returns their path."""

    def write(n=20, **more):
        images = random.integers(0, 256, (n, 16, 16), dtype=np.uint8)
        content = {"images": images, "labels": np.arange(n) % 2, **more}
        np.savez(tmp_path / "arrays.npz", **{name: values for name, values in content.items() if values is not None})
        return tmp_path / "arrays.npz"

    return write


def test_splits_keep_groups_together(npz):
    images = open_images(npz(40, groups=np.arange(40) // 4))
    for seed in range(3):
        parts = split_images(images, seed)
        groups = [set(part.images.groups.tolist()) for part in (parts.train, parts.validation, parts.test)]
        assert sum(map(len, groups)) == len(set.union(*groups)) == 10
    assert inspect_images(images, [0]).found.groups_per_class == {"0": 10, "1": 10}


def test_a_given_split_is_ignored_only_on_request(npz):
    path = npz(split=np.array(["train", "test"] * 10))
    with pytest.raises(ValueError, match=r"is already split \(test, train\), but .* with --ignore-split all images"):
        open_images(path)
    assert len(open_images(path, ignore_split=True)) == 20
    assert len(open_images(npz(split=np.array(["all"] * 20)))) == 20  # the name of a single list file


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"labels": None}, r"arrays.npz has no labels; a comparison needs the class of every image\."),
        ({"labels": np.zeros(20, dtype=int)}, r"must hold at least two classes, got one: 0\."),
        ({"labels": np.array([0] * 18 + [1] * 2)}, "Class 1 has 2 images, too few for the fractions"),
        ({"groups": np.arange(20) // 10}, "The 2 groups cannot be split"),
        ({"images": np.zeros((20, 4, 16), np.uint8)}, "Images must have at least 8x8 pixels, got 4x16"),
    ],
)
def test_data_that_cannot_be_compared_on_are_refused(npz, content, sentence):
    with pytest.raises(ValueError, match=sentence):
        inspect_images(open_images(npz(**content)), range(3))


def test_unreadable_images_are_named(tmp_path, random):
    for number in range(12):
        path = tmp_path / ("bark" if number % 2 else "wood") / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(random.integers(0, 256, (16, 16), dtype=np.uint8)).save(path)
    whole = (tmp_path / "bark" / "1.png").read_bytes()
    (tmp_path / "bark" / "1.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CollectionError, match=r"1\.png"):
        inspect_images(open_images(tmp_path), [0])


def test_leaks_are_counted_for_every_repeat(npz, random):
    images = random.integers(0, 256, (20, 16, 16), dtype=np.uint8)
    clean = inspect_images(open_images(npz(images=images)), range(4))
    assert clean.leak_sentence == "No image is the same or nearly the same as another."
    images[2] = images[0]
    found = open_images(npz(images=images), size=8)
    summary = inspect_images(found, range(4), split_duplicates=True)
    assert summary.size == 8
    assert len(summary.duplicates) == 1
    apart = [
        sum(part.images.sources.tolist().count(0) == 1 == part.images.sources.tolist().count(2) for part in parts) == 0
        for parts in ([p.train, p.validation, p.test] for p in (split_images(found, seed) for seed in range(4)))
    ]
    assert summary.n_leaks == [int(one) for one in apart]
    assert 0 < sum(summary.n_leaks) < 4
    counted = "Images that are the same as another or nearly the same: 2 in 1 group."
    assert summary.leak_sentence.startswith(
        f"{counted} Up to 1 of the groups is in more than one part of a split, so that test accuracies may be too good"
    )
    kept = inspect_images(found, range(4))
    assert kept.n_leaks == [0] * 4
    assert kept.leak_sentence == f"{counted} They stay on one side of every split."
    assert kept.groups[0] == kept.groups[2]
    assert len(set(kept.groups.tolist())) == 19


def test_near_identical_images_that_leave_too_few_groups_are_refused_with_a_way_out(npz, random):
    images = np.repeat(random.integers(0, 256, (2, 16, 16), dtype=np.uint8), 10, axis=0)
    with pytest.raises(ValueError, match=r"The 2 groups cannot be split .* give --split-duplicates"):
        inspect_images(open_images(npz(images=images)), [0])
    assert inspect_images(open_images(npz(images=images)), [0], split_duplicates=True).n_leaks == [2]
