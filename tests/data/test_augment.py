import numpy as np
import pytest

from lmfcn.data.augment import augmented_copies, color_jitter, flip_and_turn, stain_jitter


class Fixed:
    """A generator that always says the same."""

    def __init__(self, value):
        self.value = value

    def uniform(self, low, high, size):
        return np.full(size, low + (high - low) * self.value)

    def random(self):
        return self.value


def test_flips_and_turns_are_the_eight_of_the_square(random):
    image = np.arange(8 * 8 * 2, dtype=np.uint8).reshape(8, 8, 2)
    seen = {flip_and_turn(image, random).tobytes() for _ in range(200)}
    expected = {
        np.ascontiguousarray(np.rot90(side, turns)).tobytes() for side in (image, image[:, ::-1]) for turns in range(4)
    }
    assert seen == expected


def test_oblong_images_keep_their_shape(random):
    image = np.arange(8 * 12, dtype=np.uint8).reshape(8, 12, 1)
    seen = {(turned := flip_and_turn(image, random)).tobytes() + bytes(turned.shape) for _ in range(100)}
    assert len(seen) == 4
    assert all(item.endswith(bytes((8, 12, 1))) for item in seen)


def test_no_jitter_at_the_middle_of_the_ranges(random):
    image = random.integers(0, 256, (8, 8, 3)).astype(np.uint8)
    assert np.abs(color_jitter(image, Fixed(0.5)).astype(int) - image).max() <= 1
    assert np.abs(stain_jitter(image, Fixed(0.5)).astype(int) - image).max() <= 1


def test_brightness_and_contrast_by_hand():
    image = np.full((8, 8, 1), 100, np.uint8)
    image[:4] = 140
    # Factors 1.2 on brightness: 120 and 168, mean 144; contrast 1.2 about it: 115.2 and 172.8.
    changed = color_jitter(image, Fixed(0.9), brightness=0.25, contrast=0.25)
    assert sorted(set(changed.ravel().tolist())) == [115, 173]


def test_hue_turns_colours_and_leaves_grey():
    grey = np.full((8, 8, 3), 90, np.uint8)
    assert np.array_equal(color_jitter(grey, Fixed(0.5)), grey)
    red = np.zeros((8, 8, 3))
    red[..., 0] = 0.5
    turned = color_jitter(red, Fixed(5 / 6 + 0.5), brightness=0, contrast=0, saturation=0, hue=0.4)
    assert turned[0, 0] == pytest.approx([0.0, 0.5, 0.0], abs=1e-9)  # a third of the circle: red becomes green


def test_stain_jitter_scales_the_stain_it_says():
    haematoxylin = np.array([0.65, 0.70, 0.29]) / np.linalg.norm([0.65, 0.70, 0.29])
    image = np.exp(-0.5 * haematoxylin) * np.ones((8, 8, 1))
    darker = stain_jitter(image, Fixed(1.0), strength=0.1)
    density = -np.log(darker[0, 0])
    eosin = np.array([0.07, 0.99, 0.11]) / np.linalg.norm([0.07, 0.99, 0.11])
    assert density == pytest.approx((0.5 * 1.1 + 0.1) * haematoxylin + 0.1 * eosin)
    with pytest.raises(ValueError, match="needs RGB images, got 1 channels"):
        stain_jitter(np.zeros((8, 8, 1), np.uint8), Fixed(0.5))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_copies_keep_type_shape_and_origin(random, dtype):
    images = random.integers(0, 200, (3, 8, 8, 3)).astype(dtype)
    more, origins = augmented_copies(images, [flip_and_turn, color_jitter], copies=2, random_state=1)
    assert more.dtype == dtype
    assert more.shape == (9, 8, 8, 3)
    assert np.array_equal(more[:3], images)
    assert not np.array_equal(more[3:6], images)
    assert origins.tolist() == [0, 1, 2] * 3
    same, _ = augmented_copies(images, [flip_and_turn, color_jitter], copies=2, random_state=1)
    assert np.array_equal(more, same)
    with pytest.raises(ValueError, match="copies must be at least 0, got -1"):
        augmented_copies(images, [], copies=-1)
