import numpy as np
import pytest
from PIL import Image

from lmfcn.data.collections import ImageCollection
from lmfcn.data.images import CollectionError
from lmfcn.data.leaks import LeakError, LeakWarning, check_split, find_duplicates
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


def test_duplicates_are_told_apart_by_kind(files):
    found = find_duplicates(ImageCollection(files))
    assert found.identical_files == [(0, 6)]
    assert found.identical_pixels == [(1, 7)]
    assert found.near_duplicates == [(2, 8)]
    assert found.all_pairs == [(0, 6), (1, 7), (2, 8)]


def test_different_and_constant_images_are_no_duplicates(random):
    noise = random.integers(0, 255, (30, 32, 32)).astype(np.uint8)
    noise[:3] = np.array([10, 11, 12])[:, None, None]
    found = find_duplicates(ImageCollection(noise))
    assert found.all_pairs == []


def test_arrays_have_pixels_in_place_of_files(random):
    images = random.integers(0, 255, (3, 16, 16)).astype(np.uint8)
    images[2] = images[0]
    assert find_duplicates(ImageCollection(images)).all_pairs == [(0, 2)]


def test_unreadable_files_are_listed_and_positions_stay_right(files, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"bad")
    found = find_duplicates(ImageCollection([tmp_path / "bad.png", *files]))
    assert found.identical_files == [(1, 7)]
    assert [error.path for error in found.unreadable] == [str(tmp_path / "bad.png")]
    only_bad = find_duplicates(ImageCollection([tmp_path / "bad.png"]))
    assert only_bad.all_pairs == []
    with pytest.raises(CollectionError, match=r"bad\.png"):
        check_split(ImageCollection([tmp_path / "bad.png"]), Split(np.array([0]), np.array([], int), np.array([], int)))


def test_duplicates_across_a_split_are_a_warning_with_the_pairs(files):
    parts = Split(np.arange(6), np.array([6]), np.array([7, 8]))
    with pytest.warns(
        LeakWarning, match=r"0\.png and .*copy\.png \(identical files\)(.|\n)*near\.jpg \(nearly identical\)"
    ):
        across = check_split(ImageCollection(files), parts)
    assert len(across.all_pairs) == 3


def test_duplicates_on_one_side_or_left_out_are_fine(files):
    same_side = Split(np.array([0, 6, 1, 7]), np.array([3]), np.array([4, 5]))
    assert check_split(ImageCollection(files), same_side).all_pairs == []


def test_groups_on_two_sides_are_an_error(files):
    collection = ImageCollection(files, groups=["a", "a", "b", "b", "c", "c", "d", "d", "d"])
    with pytest.raises(LeakError, match=r"2 groups are on more than one side of the split: a, b; split with groups="):
        check_split(collection, Split(np.array([0, 2]), np.array([1, 3]), np.array([4, 5])))
