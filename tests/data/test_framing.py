import base64
import io

import numpy as np
import pytest
from PIL import Image

from lmfcn.data.framing import Preprocessing, make_thumbnail, preprocess_image, to_data_url, to_uint8


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (np.array([[[7]]], dtype=np.uint8), [7]),
        (np.array([[[257, 0, 65535]]], dtype=np.uint16), [1, 0, 255]),
        (np.array([[[0.0, 0.5, 1.0]]], dtype=np.float32), [0, 128, 255]),
        (np.array([[[-1.0, 0.0, 1.0]]]), [0, 128, 255]),
        (np.array([[[10, 20, 30, 40, 50]]], dtype=np.uint8), [30]),
        (np.array([[[10, 20]]], dtype=np.uint8), [15]),
    ],
)
def test_any_image_can_be_looked_at(image, expected):
    picture = to_uint8(image)
    assert picture.dtype == np.uint8
    assert picture[0, 0].tolist() == expected


def test_thumbnails_are_small_and_keep_their_proportions(random):
    with Image.open(io.BytesIO(make_thumbnail(random.integers(0, 256, (100, 300, 3)).astype(np.uint8)))) as small:
        assert (small.size, small.mode) == ((96, 32), "RGB")
    with Image.open(io.BytesIO(make_thumbnail(np.zeros((10, 8, 1))))) as small:
        assert (small.size, small.mode) == ((8, 10), "L")


def test_an_address_holds_its_picture():
    pixels = np.full((8, 6, 3), (200, 100, 50), dtype=np.uint8)
    kind, content = to_data_url(make_thumbnail(pixels)).split(",")
    assert kind == "data:image/jpeg;base64"
    with Image.open(io.BytesIO(base64.b64decode(content))) as picture:
        assert np.abs(np.asarray(picture).astype(int) - pixels).max() < 5


def ramp(height, width):
    """Return an image whose pixels tell their column."""
    return np.tile(np.arange(width, dtype=np.uint8)[None, :, None], (height, 1, 1))


def test_a_wide_image_is_cut_to_the_middle_of_its_longer_side():
    found = preprocess_image(ramp(10, 30), Preprocessing(fit="scale-crop", size=(10, 10)))
    assert found[..., 0].tolist() == ramp(10, 30)[:, 10:20, 0].tolist()
    reduced = preprocess_image(ramp(20, 60), Preprocessing(fit="scale-crop", size=(10, 10)))
    # Twice as coarse: the columns 20 and 21, 22 and 23, ...
    np.testing.assert_allclose(reduced[5, :, 0], np.arange(20.5, 40, 2), atol=0.51)


def test_a_wide_image_is_mirrored_above_and_below():
    image = np.arange(8, dtype=np.uint8).reshape(2, 4, 1)
    found = preprocess_image(image, Preprocessing(fit="scale-pad", size=(4, 4)))[..., 0]
    assert found.tolist() == [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7], [4, 5, 6, 7]]
    narrow = preprocess_image(ramp(1, 100), Preprocessing(fit="scale-pad", size=(8, 8)))
    assert narrow.shape == (8, 8, 1)
    assert (narrow == narrow[0]).all()


@pytest.mark.parametrize("fit", ["scale-crop", "scale-pad"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_square_images_are_scaled_as_ever(random, fit, dtype):
    image = random.integers(0, 256, (30, 30, 3)).astype(dtype)
    stretched = preprocess_image(image, Preprocessing(fit="resize", size=(16, 16)))
    found = preprocess_image(image, Preprocessing(fit=fit, size=(16, 16)))
    assert found.dtype == dtype
    assert np.array_equal(found, stretched)


@pytest.mark.parametrize("size", [(16, 16), (11, 29), (64, 40)])
@pytest.mark.parametrize("shape", [(13, 47), (47, 13), (301, 64), (8, 9)])
def test_every_shape_gets_the_size(shape, size):
    for fit in ("scale-crop", "scale-pad"):
        assert preprocess_image(ramp(*shape), Preprocessing(fit=fit, size=size)).shape == (*size, 1)
