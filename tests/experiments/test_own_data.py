import numpy as np
import pytest
from PIL import Image

from lmfcn.data.images import CollectionError
from lmfcn.experiments.own_data import look_at, open_images, parts_of


@pytest.fixture
def npz(tmp_path, random):
    """Return a function that writes arrays and returns their path."""

    def write(n=20, **more):
        images = random.integers(0, 256, (n, 16, 16), dtype=np.uint8)
        content = {"images": images, "labels": np.arange(n) % 2, **more}
        np.savez(tmp_path / "arrays.npz", **{name: values for name, values in content.items() if values is not None})
        return tmp_path / "arrays.npz"

    return write


def test_divisions_never_go_through_a_group(npz):
    images = open_images(npz(40, groups=np.arange(40) // 4))
    for seed in range(3):
        parts = parts_of(images, seed)
        groups = [set(part.images.groups.tolist()) for part in (parts.train, parts.validation, parts.test)]
        assert sum(map(len, groups)) == len(set.union(*groups)) == 10
    assert look_at(images, [0]).found.groups_per_class == {"0": 10, "1": 10}


def test_a_given_division_is_given_up_only_when_asked(npz):
    path = npz(split=np.array(["train", "test"] * 10))
    with pytest.raises(ValueError, match=r"is divided already \(test, train\), but .* with --ignore-split all images"):
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
        look_at(open_images(npz(**content)), range(3))


def test_unreadable_images_are_named(tmp_path, random):
    for number in range(12):
        path = tmp_path / ("bark" if number % 2 else "wood") / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(random.integers(0, 256, (16, 16), dtype=np.uint8)).save(path)
    whole = (tmp_path / "bark" / "1.png").read_bytes()
    (tmp_path / "bark" / "1.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CollectionError, match=r"1\.png"):
        look_at(open_images(tmp_path), [0])


def test_leaks_are_counted_for_every_repeat(npz, random):
    images = random.integers(0, 256, (20, 16, 16), dtype=np.uint8)
    clean = look_at(open_images(npz(images=images)), range(4))
    assert clean.leak_sentence == "No image is the same or nearly the same as another."
    images[2] = images[0]
    found = open_images(npz(images=images), size=8)
    summary = look_at(found, range(4))
    assert summary.size == 8
    assert len(summary.duplicates) == 1
    apart = [
        sum(part.images.sources.tolist().count(0) == 1 == part.images.sources.tolist().count(2) for part in parts) == 0
        for parts in ([p.train, p.validation, p.test] for p in (parts_of(found, seed) for seed in range(4)))
    ]
    assert summary.n_leaks == [int(one) for one in apart]
    assert 0 < sum(summary.n_leaks) < 4
    assert summary.leak_sentence.startswith(
        "Groups of images that are the same or nearly the same: 1; up to 1 of them is on two sides of a division, so"
        " that test accuracies may be too good."
    )
    kept = look_at(found, [seed for seed in range(4) if not apart[seed]])
    assert kept.leak_sentence.endswith("nearly the same: 1; none is on two sides of a division.")
