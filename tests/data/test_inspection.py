import numpy as np
import pytest
from PIL import Image

from lmfcn.data.collections import ImageCollection
from lmfcn.data.inspection import inspect


@pytest.fixture
def sound(random):
    images = random.integers(0, 255, (12, 16, 16)).astype(np.uint8)
    return ImageCollection(
        images, labels=["a"] * 6 + ["b"] * 6, groups=[1, 1, 2, 2, 3, 3] + [9] * 6, split=["train"] * 12
    )


def test_a_sound_collection(sound):
    found = inspect(sound)
    assert found.fit_for_training
    assert found.classes == {"a": 6, "b": 6}
    assert found.groups_per_class == {"a": 3, "b": 1}
    assert dict(found.sizes) == {"16x16": 12}
    assert dict(found.forms) == {"1 x uint8": 12}
    assert dict(found.split) == {"train": 12}
    assert found.doubts == ["All images of class 'b' are in one group."]


def test_the_summary_of_a_collection_in_words(sound):
    text = str(sound.summary())
    assert text.splitlines()[:2] == ["12 images; classes: a (6), b (6)", "sizes: 16x16 (12)"]
    assert "All images of class 'b' are in one group." in text


def test_what_stands_in_the_way_is_named(tmp_path):
    Image.new("RGB", (20, 20)).save(tmp_path / "colour.png")
    Image.new("L", (5, 5)).save(tmp_path / "small.png")
    (tmp_path / "bad.png").write_bytes(b"bad")
    found = inspect(ImageCollection([tmp_path / name for name in ("colour.png", "small.png", "bad.png")], ["a"] * 3))
    assert not found.fit_for_training
    assert found.problems == [
        "1 files cannot be read; repair or remove them.",
        "There must be at least two classes, but there is 1.",
        "Class 'a' has 2 images; at least 3 are needed.",
        "Images differ in channels or depth (3 x uint8, 1 x uint8); give color='grey' or 'rgb'.",
        "1 images are smaller than 8x8 pixels.",
    ]


def test_damaged_pixels_are_found_only_when_decoded(tmp_path, random):
    path = tmp_path / "cut.jpg"
    Image.fromarray(random.integers(0, 255, (64, 64)).astype(np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:2000])
    collection = ImageCollection([path], ["a"])
    assert inspect(collection, pixels=False).unreadable == []
    assert "cut.jpg: is damaged" in str(inspect(collection).unreadable[0])


def test_duplicates_with_different_labels_and_imbalance(random):
    images = random.integers(0, 255, (40, 16, 16)).astype(np.uint8)
    images[39] = images[0]
    found = inspect(ImageCollection(images, ["many"] * 37 + ["few"] * 3))
    assert found.duplicates == ["image 0 and image 39 (identical files)"]
    assert found.doubts == [
        "The largest class has more than 10 times the images of the smallest.",
        "Images that are the same or nearly the same: 2 in 1 group.",
        "Of these groups, 1 has different labels.",
    ]
