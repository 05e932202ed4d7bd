import base64
import io

import numpy as np
import pytest
from PIL import Image

from lmfcn.data.framing import make_thumbnail, to_data_url, to_uint8


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
