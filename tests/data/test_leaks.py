import tracemalloc
from itertools import combinations

import numpy as np
import pytest
from PIL import Image

from lmfcn.data.collection import ImageCollection
from lmfcn.data.image_files import CollectionError
from lmfcn.data.leaks import (
    Duplicates,
    LeakError,
    LeakWarning,
    check_split,
    describe_groups,
    duplicates_across,
    find_duplicates,
    inspect,
)
from lmfcn.data.splits import Split


@pytest.fixture
def files(tmp_path, random):
    """Six different images, then a copied file, the same pixels in another file, and a compressed version."""
    smooth = [
        np.asarray(Image.fromarray(random.integers(0, 255, (12, 12, 3)).astype(np.uint8)).resize((64, 64)))
        for _ in range(6)
    ]
    paths = []
    for i, pixels in enumerate(smooth):
        paths.append(tmp_path / f"{i}.png")
        Image.fromarray(pixels).save(paths[-1])
    (tmp_path / "copy.png").write_bytes(paths[0].read_bytes())
    Image.fromarray(smooth[1]).save(tmp_path / "pixels.bmp")
    Image.fromarray(smooth[2]).save(tmp_path / "near.jpg", quality=60)
    return [*paths, tmp_path / "copy.png", tmp_path / "pixels.bmp", tmp_path / "near.jpg"]


def test_duplicates_are_found_by_kind(files):
    found = find_duplicates(ImageCollection(files))
    assert found.identical_files == [(0, 6)]
    assert found.identical_pixels == [(1, 7)]
    assert found.near_duplicates == [(2, 8)]
    assert found.all_groups == [(0, 6), (1, 7), (2, 8)]


def test_different_and_constant_images_are_no_duplicates(random):
    noise = random.integers(0, 255, (30, 32, 32)).astype(np.uint8)
    noise[:3] = np.array([10, 11, 12])[:, None, None]
    found = find_duplicates(ImageCollection(noise))
    assert found.all_groups == []


def test_images_of_arrays_are_compared_by_pixels(random):
    images = random.integers(0, 255, (3, 16, 16)).astype(np.uint8)
    images[2] = images[0]
    assert find_duplicates(ImageCollection(images)).all_groups == [(0, 2)]


def test_copies_of_all_kinds_are_in_one_group(files, tmp_path):
    """Three identical files, the same pixels in another one, and a compressed version."""
    (tmp_path / "again.png").write_bytes(files[0].read_bytes())
    with Image.open(files[0]) as picture:
        picture.save(tmp_path / "same.bmp")
        picture.save(tmp_path / "near.jpg", quality=70)
    found = find_duplicates(
        ImageCollection([*files[:7], *(tmp_path / n for n in ("again.png", "same.bmp", "near.jpg"))])
    )
    assert found.identical_files == []
    assert found.identical_pixels == [(0, 6, 7, 8)]
    assert found.near_duplicates == [(0, 6, 7, 8, 9)]
    assert found.n_images == 5


def test_many_equal_images_are_one_group_in_little_memory():
    """Two thousand blank tiles; their two million pairs alone would take some hundred megabytes."""
    blank = ImageCollection(np.full((2_000, 8, 8), 255, np.uint8))
    tracemalloc.start()
    found = find_duplicates(blank)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.all_groups == [tuple(range(2_000))]
    assert peak < 10e6
    assert found.connected == []  # blank tiles need not have the same source
    assert found.sentence == ""
    assert describe_groups(blank, found) == ["image 0, image 1, image 2 and 1997 more (identical files)"]


def test_many_nearly_equal_images_are_one_group(random):
    pattern = random.integers(20, 200, (16, 16)).astype(np.uint8)
    images = np.repeat(np.kron(pattern, np.ones((2, 2), np.uint8))[None], 600, axis=0)
    images[np.arange(600), np.arange(600) // 32, np.arange(600) % 32] += 1  # another pixel in each of them
    found = find_duplicates(ImageCollection(images))
    assert found.identical_files == []
    assert found.near_duplicates == [tuple(range(600))]


def test_groups_agree_with_comparing_all_pairs(random):
    """Compare every pair of images on its own, and merge the pairs into groups."""
    smooth = [
        np.asarray(Image.fromarray(random.integers(0, 255, (12, 12)).astype(np.uint8)).resize((48, 48)))
        for _ in range(12)
    ]
    noisy = [
        np.clip(smooth[i % 12] + random.normal(0, 4 * (i // 12), (48, 48)), 0, 255).astype(np.uint8) for i in range(48)
    ]
    collection = ImageCollection(np.stack(noisy))
    expected = {position: {position} for position in range(48)}
    for pair in combinations(range(48), 2):
        if find_duplicates(collection.subset(list(pair))).all_groups:
            joined = expected[pair[0]] | expected[pair[1]]
            expected.update(dict.fromkeys(joined, joined))
    groups = sorted({tuple(sorted(group)) for group in expected.values() if len(group) > 1})
    assert find_duplicates(collection).near_duplicates == groups
    assert len(groups) > 5


def test_only_used_images_count_across_a_split():
    found = Duplicates([(0, 1, 2)], [(3, 4)], [(5, 6, 7)])
    parts = Split(np.array([0, 3, 5]), np.array([2, 6]), np.array([], int))
    across = duplicates_across(found, parts, 8)
    assert across.all_groups == [(0, 2), (5, 6)]
    assert duplicates_across(found, Split(np.array([0, 1, 3]), np.array([5]), np.array([], int)), 8).all_groups == []


def test_groups_are_described_by_their_first_files():
    collection = ImageCollection(np.zeros((6, 8, 8), np.uint8))
    assert describe_groups(collection, Duplicates([(0, 1)], [(0, 1, 2)], [(0, 1, 2, 5)])) == [
        "image 0, image 1, image 2 and 1 more (nearly identical)",
    ]
    assert describe_groups(collection, Duplicates([(0, 1)], [(2, 3, 4)], [])) == [
        "image 0 and image 1 (identical files)",
        "image 2, image 3 and image 4 (identical pixels)",
    ]


def test_unreadable_files_are_listed_and_positions_stay_right(files, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"bad")
    found = find_duplicates(ImageCollection([tmp_path / "bad.png", *files]))
    assert found.identical_files == [(1, 7)]
    assert [error.path for error in found.unreadable] == [str(tmp_path / "bad.png")]
    only_bad = find_duplicates(ImageCollection([tmp_path / "bad.png"]))
    assert only_bad.all_groups == []
    with pytest.raises(CollectionError, match=r"bad\.png"):
        check_split(ImageCollection([tmp_path / "bad.png"]), Split(np.array([0]), np.array([], int), np.array([], int)))


def test_duplicates_across_a_split_are_a_warning_with_the_groups(files):
    parts = Split(np.arange(6), np.array([6]), np.array([7, 8]))
    with pytest.warns(
        LeakWarning, match=r"0\.png and .*copy\.png \(identical files\)(.|\n)*near\.jpg \(nearly identical\)"
    ):
        across = check_split(ImageCollection(files), parts)
    assert len(across.all_groups) == 3


def test_duplicates_in_one_part_or_unused_are_allowed(files):
    same_part = Split(np.array([0, 6, 1, 7]), np.array([3]), np.array([4, 5]))
    assert check_split(ImageCollection(files), same_part).all_groups == []


def test_groups_in_two_parts_are_an_error(files):
    collection = ImageCollection(files, groups=["a", "a", "b", "b", "c", "c", "d", "d", "d"])
    with pytest.raises(LeakError, match=r"2 groups are in more than one part of the split: a, b; split with groups="):
        check_split(collection, Split(np.array([0, 2]), np.array([1, 3]), np.array([4, 5])))


@pytest.fixture
def valid_collection(random):
    images = random.integers(0, 255, (12, 16, 16)).astype(np.uint8)
    return ImageCollection(
        images, labels=["a"] * 6 + ["b"] * 6, groups=[1, 1, 2, 2, 3, 3] + [9] * 6, split=["train"] * 12
    )


def test_a_collection_without_problems(valid_collection):
    found = inspect(valid_collection)
    assert found.fit_for_training
    assert found.classes == {"a": 6, "b": 6}
    assert found.groups_per_class == {"a": 3, "b": 1}
    assert dict(found.sizes) == {"16x16": 12}
    assert dict(found.forms) == {"1 x uint8": 12}
    assert dict(found.split) == {"train": 12}
    assert found.warnings == ["All images of class 'b' are in one group."]


def test_the_summary_of_a_collection_in_words(valid_collection):
    text = str(valid_collection.summary())
    assert text.splitlines()[:2] == ["12 images; classes: a (6), b (6)", "sizes, width x height: 16x16 (12)"]
    assert "All images of class 'b' are in one group." in text


def test_problems_are_named(tmp_path):
    Image.new("RGB", (20, 20)).save(tmp_path / "colour.png")
    Image.new("L", (5, 5)).save(tmp_path / "small.png")
    (tmp_path / "bad.png").write_bytes(b"bad")
    found = inspect(ImageCollection([tmp_path / name for name in ("colour.png", "small.png", "bad.png")], ["a"] * 3))
    assert not found.fit_for_training
    assert found.problems == [
        "1 file cannot be read; repair or remove them.",
        "There must be at least two classes, but there is 1.",
        "Class 'a' has 2 images; at least 3 are needed.",
        "Images differ in channels (1, 3); give color='grey' or 'rgb'.",
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
    assert found.duplicates == ["image 0 and image 39 (identical files, different labels: many, few)"]
    assert found.warnings == [
        "The largest class has more than 10 times the images of the smallest.",
        "Images that are the same as another or nearly the same: 2 in 1 group. They stay on one side of every split.",
        "Of the groups of duplicates, 1 has different labels.",
    ]


@pytest.mark.parametrize(("parts", "n_separated"), [("ab", 1), ("aa", "none")])
def test_a_given_split_is_not_said_to_keep_duplicates_together(random, parts, n_separated):
    images = random.integers(0, 255, (6, 16, 16)).astype(np.uint8)
    images[1] = images[0]
    split = {"a": "train", "b": "test"}
    collection = ImageCollection(images, list("xxxyyy"), split=[split[part] for part in parts + "aabb"])
    assert inspect(collection).warnings == [
        "Images that are the same as another or nearly the same: 2 in 1 group."
        f" The given split separates {n_separated} of these groups."
    ]
