import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lmfcn import make_gaussians
from lmfcn.data.collections import ImageCollection
from lmfcn.experiments.tasks import TASKS, Part, Parts, divide, gaussians

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


def test_textures_are_divided_by_blocks():
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


def test_a_division_depends_on_the_seed_alone():
    images = ImageCollection(np.arange(20 * 64, dtype=np.uint8).reshape(20, 8, 8), ["a"] * 10 + ["b"] * 10)
    first, again, other = (divide(images, (4, 2, None), seed) for seed in (0, 0, 1))
    assert [counts(part) for part in sides(first)] == [[4, 4], [2, 2], [4, 4]]
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()


def test_the_fingerprint_sees_pixels_labels_and_sides(textures):
    images, labels = textures
    part, relabelled = Part(images, labels), Part(images, 1 - labels)
    brighter = images.copy()
    brighter[0, 0, 0] += 1
    divisions = [
        (part, part, part),
        (part, part, relabelled),
        (part, relabelled, part),
        (Part(brighter, labels), part, part),
    ]
    assert len({Parts(*division).fingerprint() for division in divisions}) == 4


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
