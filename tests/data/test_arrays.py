import numpy as np
import pytest

from lmfcn.data.arrays import check_class_sizes, check_images, check_labels, check_pixel_format, pixel_kind


def grey(n=4, height=16, width=12, dtype=np.uint8):
    return np.zeros((n, height, width), dtype=dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float16, np.float32, np.float64])
def test_grey_images_get_one_channel_and_keep_their_pixels(dtype):
    images = check_images(grey(dtype=dtype))
    assert images.shape == (4, 16, 12, 1)
    assert images.dtype == dtype


def test_images_are_not_copied():
    given = np.zeros((3, 8, 8, 2), dtype=np.uint8)
    assert check_images(given) is given


with_nan = np.zeros((70, 8, 8), dtype=np.float32)
with_nan[66, 3, 3] = np.nan
with_inf = np.zeros((2, 8, 8))
with_inf[1, 0, 0] = np.inf


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros((16, 16), np.uint8), r"shape \(n_images, height, width\).*got \(16, 16\); a single image goes in as"),
        (np.zeros((2, 3, 8, 8, 1), np.uint8), r"got \(2, 3, 8, 8, 1\)"),
        (np.zeros((0, 8, 8), np.uint8), "at least one image, got none"),
        (np.zeros((2, 8, 8, 0), np.uint8), "at least one channel, got none"),
        (grey(height=7), "at least 8x8 pixels, got 7x12"),
        (np.zeros((2, 3, 64, 64), np.uint8), r"got 3x64; put the channels last"),
        (grey(dtype=np.int32), "uint8, uint16 or floating point pixels, got int32; convert it"),
        (grey(dtype=bool), "got bool"),
        (np.array([["a"] * 8] * 8)[None], "uint8, uint16 or floating point"),
        (with_nan, "image 66 has NaN or infinite pixels; remove it"),
        (
            np.full((2, 8, 8), 1e30),
            "pixels of moderate size, best within 0 to 1, but image 0 has one of 1e.30; rescale",
        ),
        (with_inf, "image 1 has NaN or infinite pixels"),
        (
            [np.zeros((8, 8)), np.zeros((9, 8))],
            "an array of images of equal size, got a sequence that NumPy cannot convert",
        ),
    ],
)
def test_bad_images_are_refused_with_a_reason(bad, message):
    with pytest.raises(ValueError, match=message):
        check_images(bad)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([0, 1, 1], "same length, got 4 images and 3 labels"),
        ([[0], [1], [1], [0]], r"one label per image, shape \(n_images,\), got shape \(4, 1\)"),
        ([1, 1, 1, 1], r"at least two classes, got 1 class: \[1\]"),
        ([0.0, 1.0, np.nan, 0.0], "must not hold NaN"),
        (np.array(["a", 1, "a", 1], dtype=object), "entries of one type"),
    ],
)
def test_bad_labels_are_refused_with_a_reason(bad, message):
    with pytest.raises(ValueError, match=message):
        check_labels(bad, 4)


@pytest.mark.parametrize("labels", [["b", "a", "b"], [3, -1, 3], [True, False, True], [3.0, 1.0, 3.0]])
def test_labels_of_any_kind_are_numbered_in_sorted_order(labels):
    classes, numbers = check_labels(labels, 3)
    assert numbers.tolist() == [1, 0, 1]
    assert classes[numbers].tolist() == labels


def test_small_classes_are_named():
    classes, numbers = check_labels(["wood", "bark", "wood"], 3)
    with pytest.raises(ValueError, match=r"Class 'bark' has 1 image; at least 2 are needed\."):
        check_class_sizes(classes, numbers, smallest=2)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((1, 8, 8, 1), np.uint8), "X has 1 channel, but the classifier was fitted on images with 3"),
        (np.zeros((1, 8, 8, 3), np.uint16), "X has uint16 pixels, but the classifier was fitted on uint8 ones"),
        (np.zeros((1, 8, 8, 3), np.float32), "X has float pixels"),
    ],
)
def test_images_unlike_the_training_images_are_refused(images, message):
    with pytest.raises(ValueError, match=message):
        check_pixel_format((images.shape[3], pixel_kind(images)), channels=3, kind="uint8")


def test_all_floating_point_pixels_are_of_one_kind():
    assert {pixel_kind(grey(dtype=dtype)) for dtype in (np.float16, np.float32, np.float64)} == {"float"}
