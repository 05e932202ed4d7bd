import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from lmfcn.data.arrays import (
    channels_hint,
    check_class_sizes,
    check_image_list,
    check_images,
    check_labels,
    check_pixel_format,
    differ_in_size,
    pixel_kind,
)


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
            "an array of images of equal size, or a list of arrays, got a sequence that NumPy cannot",
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


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.float64])
def test_tensors_are_taken_as_arrays_are(dtype):
    given = torch.arange(2 * 8 * 9, dtype=torch.float32).reshape(2, 8, 9).to(dtype)
    images = check_images(given)
    assert images.dtype == str(dtype).removeprefix("torch.")
    assert np.array_equal(images[..., 0], np.arange(144).reshape(2, 8, 9))


def test_tensors_with_a_gradient_or_half_of_a_range_are_taken_too():
    assert check_images(torch.ones(2, 8, 8, requires_grad=True)).dtype == np.float32
    assert check_images(torch.ones(2, 8, 8, dtype=torch.bfloat16)).dtype == np.float32
    assert check_images([torch.ones(8, 8), torch.ones(8, 8)]).shape == (2, 8, 8, 1)
    assert check_labels(torch.tensor([3, 1, 3]), 3)[0].tolist() == [1, 3]


dataset = TensorDataset(torch.zeros(4, 16, 16), torch.zeros(4))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            np.zeros((32, 48)),
            r"got \(32, 48\); a single image goes in as X\[None\], rows of pixels need image_shape\.$",
        ),
        (np.zeros((32, 48, 3)), r"X of the shape \(32, 48, 3\) looks like one image, which goes in as X\[None\]\.$"),
        (torch.zeros((32, 48, 1)), r"looks like one image, which goes in as X\[None\]\.$"),
        (torch.zeros((5, 3, 32, 48)), r"got 3x32; put the channels last: X\.permute\(0, 2, 3, 1\)\.$"),
        (np.zeros((5, 3, 32, 48)), r"got 3x32; put the channels last: X\.transpose\(0, 2, 3, 1\)\.$"),
        (np.zeros((2, 10, 4)), r"Images must have at least 8x8 pixels, got 10x4\.$"),
        (torch.zeros((5, 32, 48), dtype=torch.int64), r"floating point pixels, got int64; convert it with X\.to\.$"),
        (DataLoader(dataset), r"got a torch DataLoader; give its images as one tensor \(b, h, w, c\), or as a list"),
        (dataset, r"got a torch TensorDataset; give its images as one tensor \(b, h, w, c\), or as a list of tensors"),
        (None, r"got None\.$"),
    ],
)
def test_what_looks_like_something_else_gets_a_hint(given, message):
    with pytest.raises(ValueError, match=message):
        check_images(given)


def test_a_list_holds_images_of_different_sizes():
    given = [np.zeros((8, 9), np.float32), torch.ones(12, 8, 1, dtype=torch.float64)]
    checked = check_image_list(given)
    assert [image.shape for image in checked] == [(8, 9, 1), (12, 8, 1)]
    assert {image.dtype for image in checked} == {np.dtype(np.float64)}
    integers = [np.zeros((8, 9), np.uint8)]
    assert np.shares_memory(check_image_list(integers)[0], integers[0])


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (np.zeros((2, 9, 9, 1)), r"but image 1 has the shape \(2, 9, 9, 1\)\.$"),
        (np.zeros(9), r"but image 1 has the shape \(9,\)\.$"),
        (np.zeros((3, 20, 24)), r"got 3x20 in image 1; put the channels last: image\.transpose\(1, 2, 0\)\.$"),
        (torch.zeros((3, 20, 24)), r"got 3x20 in image 1; put the channels last: image\.permute\(1, 2, 0\)\.$"),
        (np.full((9, 9), np.nan), r"but image 1 has NaN or infinite pixels"),
        (np.full((9, 9), 1e7), r"but image 1 has one of 1e\+07"),
        (np.zeros((9, 9), dtype=np.int32), r"got int32; convert it with astype\.$"),
    ],
)
def test_a_bad_image_of_a_list_is_named(second, message):
    with pytest.raises(ValueError, match=message):
        check_image_list([np.zeros((8, 8)), second])


def test_only_lists_of_arrays_differ_in_size():
    small, large = np.zeros((8, 8)), torch.zeros(9, 9)
    assert differ_in_size([small, large])
    assert differ_in_size((small, large))
    assert not any(differ_in_size(X) for X in ([small, small], [], ["a.png", "bb.png"], [[1], [1, 2]], small, "text"))


def test_one_image_with_the_channels_of_the_model_is_recognised():
    assert channels_hint(np.zeros((20, 24, 16)), 16) == "; a single image goes in as X[None]"
    assert channels_hint(np.zeros((3, 20, 24)), 3) == "; a single image goes in as X.transpose(1, 2, 0)[None]"
    assert channels_hint(torch.zeros((3, 20, 24)), 3) == "; a single image goes in as X.permute(1, 2, 0)[None]"
    assert channels_hint(np.zeros((5, 20, 24)), 3) == channels_hint(np.zeros((1, 20, 24)), 1) == ""
    with pytest.raises(ValueError, match=r"to the same channels; a single image goes in as X\[None\]\.$"):
        check_pixel_format((1, "uint8"), 16, "uint8", "; a single image goes in as X[None]")
