import base64
import io

import numpy as np
from PIL import Image

from lmfcn.serve.predictions import LARGEST_SIDE, make_pictures


def opened(address: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGB")).astype(int)


def test_large_images_are_shown_small_and_the_map_stays_in_place():
    image = np.full((600, 1200, 1), 30000, dtype=np.uint16)
    values = np.where(np.arange(1200) < 600, 1.0, -1.0) * np.ones((600, 1))
    picture, with_map = (opened(address) for address in make_pictures(image, values))
    assert picture.shape == with_map.shape == (LARGEST_SIDE // 2, LARGEST_SIDE, 3)
    assert (picture == round(30000 / 257)).all()
    left, right = with_map[:, :200].mean(axis=(0, 1)), with_map[:, -200:].mean(axis=(0, 1))
    assert left[0] > left[2]  # orange supports the class
    assert right[2] > right[0]  # blue contradicts it
