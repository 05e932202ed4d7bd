from itertools import combinations

import numpy as np
import pytest
from PIL import Image

from lmfcn.data.near_duplicates import (
    find_near,
    group_near,
    join_groups,
    pack_hashes,
    perceptual_hash,
    perceptual_hashes,
    unpack_hashes,
)
from lmfcn.data.training_data import check_training_data


def smooth_image(random, size=(60, 80)):
    return np.asarray(Image.fromarray(random.integers(0, 255, (12, 16)).astype(np.uint8)).resize(size[::-1]))[..., None]


def is_near(one, other):
    return bool(find_near(perceptual_hash(one)[None], perceptual_hash(other)[None])[0])


def test_brightness_contrast_size_and_noise_hardly_change_a_hash(random):
    image = smooth_image(random)
    scaled = np.asarray(Image.fromarray(image[..., 0]).resize((200, 110)))[..., None]
    for changed in (
        (image // 2 + 60).astype(np.uint8),
        scaled,
        np.clip(image + random.normal(0, 3, image.shape), 0, 255).astype(np.uint8),
        np.repeat(image, 3, axis=2),
        image.astype(np.float32) / 255,
        image.astype(np.uint16) * 257,
    ):
        assert is_near(image, changed)


def test_other_and_mirrored_images_are_not_near(random):
    images = [smooth_image(random) for _ in range(20)]
    images += [images[0][::-1], images[0][:, ::-1]]
    assert not any(is_near(one, other) for one, other in combinations(images, 2))


def test_constant_images_are_near_to_nothing():
    for value in (np.full((20, 20, 1), 7, np.uint8), np.full((20, 20, 1), 0.1), np.full((33, 47, 3), 1 / 3)):
        assert not perceptual_hash(value)[1:].any()
        assert not is_near(value, value)


def test_rows_of_a_table_are_near_to_nothing(random):
    """Images of a few pixels, as scikit-learn's checks pass them, are all alike but for their brightness."""
    assert group_near(perceptual_hashes(random.normal(size=(50, 1, 2, 1)))) == []


def test_small_patches_on_a_constant_ground_are_told_apart(random):
    """Most bits of hashes of signs would agree where nothing is to be seen."""
    images = np.zeros((2, 64, 64, 1), np.uint8)
    images[0, 50:60, 50:60], images[1, 50:60, 50:60] = random.integers(0, 255, (2, 10, 10, 1))
    assert not is_near(*images)
    assert is_near(images[0], images[0])


def test_limits_by_hand():
    """3 coarse and 36 detail bits may differ, one more may not."""

    def hash_of(coarse, details):
        bits = np.zeros(320, np.uint8)
        bits[:coarse], bits[64 : 64 + details] = 1, 1
        return np.packbits(bits).view(">u8").astype(np.uint64)

    base = hash_of(0, 0)
    base[4] = 1  # an image with details
    known = base[None]
    tried = [base ^ hash_of(*counts) for counts in ((0, 0), (3, 36), (4, 0), (0, 37))]
    assert find_near(np.array(tried), known).tolist() == [True, True, False, False]
    assert find_near(known, np.empty((0, 5), np.uint64)).tolist() == [False]
    assert group_near(np.empty((0, 5), np.uint64)) == []


def test_groups_are_linked_in_chains():
    """The first and the third differ in 60 bits, but both are near the second."""
    bits = np.zeros((4, 320), np.uint8)
    bits[:, 319] = 1
    bits[1, 100:130], bits[2, 100:160], bits[3, 100:250] = 1, 1, 1
    hashes = np.packbits(bits, axis=1).view(">u8").astype(np.uint64)
    assert find_near(hashes[:1], hashes[2:3]).tolist() == [False]
    assert group_near(hashes) == [(0, 1, 2)]


@pytest.mark.parametrize(
    ("groups", "together", "expected"),
    [
        (None, [], None),
        (["a", "a", "b"], [(0, 1)], ["a", "a", "b"]),
        (None, [(1, 3)], [0, 1, 2, 1]),
        (["a", "b", "b", "c"], [(0, 1)], [0, 0, 0, 1]),
        (["a", "b", "c", "d"], [(0, 1), (1, 3)], [0, 0, 1, 0]),
        ([5, 5, 7, 7], [(1, 2)], [0, 0, 0, 0]),
    ],
)
def test_joined_groups_by_hand(groups, together, expected):
    given = None if groups is None else np.array(groups)
    joined = join_groups(given, together, 4)
    assert (None if joined is None else joined.tolist()) == expected


def test_hashes_survive_packing_and_other_values_do_not(random):
    hashes = perceptual_hashes([smooth_image(random) for _ in range(5)])
    unpacked = unpack_hashes(pack_hashes(hashes))
    assert np.array_equal(unpacked, np.unique(hashes, axis=0))
    assert len(pack_hashes(hashes)) < 5 * 55
    for wrong in (None, 7, "no hashes", "AAAA", [1]):
        assert unpack_hashes(wrong) is None


def test_hashes_stay_what_model_files_hold():
    """A hash that changed would silently find nothing in files of earlier versions."""
    rows, columns = np.mgrid[0:48, 0:64]
    image = ((rows * 7 + columns * columns // 3 + (rows * columns) % 11 * 9) % 256).astype(np.uint8)[..., None]
    stored = [0xC4D591312B6BC4D4, 0x96561BADA0E1BBBE, 0xDE3BC5D81FFEDEB6, 0x8059E484C6E776CA, 0x6E4AF0430531D77D]
    changed = np.bitwise_count(perceptual_hash(image) ^ np.array(stored, dtype=np.uint64))
    assert changed.sum() <= 2  # values close to 0 may be rounded the other way elsewhere


@pytest.mark.parametrize("split_duplicates", [False, True])
def test_the_hashes_of_training_data_follow_the_split(random, split_duplicates):
    images, labels = np.stack([smooth_image(random) for _ in range(12)]), np.arange(12) % 2
    data = check_training_data(images, labels, None, None, 0.3, random, split_duplicates=split_duplicates)
    assert (data.train.hashes is None) == split_duplicates
    order = np.concatenate([data.train.positions, data.validation.positions])
    assert data.hashes() == pack_hashes(perceptual_hashes(images[order]))
