"""Tiles of an image at every halved resolution, for a viewer."""

import numpy as np
import pytest
import tifffile
from PIL import Image

from lmfcn.maps.pyramid import TILE, Pyramid


def smooth(height, width):
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows / height, columns / width, (rows + columns) / (height + width)], axis=2) * 255


def whole(pyramid, level):
    rows, columns = pyramid.shape(level)
    bands = [np.concatenate([pyramid.tile(level, r, c) for c in range(columns)], axis=1) for r in range(rows)]
    return np.concatenate(bands)


def test_every_level_is_the_image_at_half_the_resolution(tmp_path):
    image = smooth(1100, 1301).round().astype(np.uint8)
    Image.fromarray(image).save(tmp_path / "a.png")
    pyramid = Pyramid(tmp_path / "a.png")
    assert (pyramid.height, pyramid.width, pyramid.n_levels) == (1100, 1301, 3)
    np.testing.assert_array_equal(whole(pyramid, 0), image)
    half = whole(pyramid, 1)
    assert half.shape == (550, 651, 3)
    means = image[:, :1300].reshape(550, 2, 650, 2, 3).mean(axis=(1, 3))
    assert np.abs(half[:, :650] - means).max() <= 0.5
    assert whole(pyramid, 2).shape == (275, 326, 3)
    assert max(pyramid.tile(2, 0, 0).shape) <= TILE


def test_levels_of_the_file_are_used(tmp_path):
    image = smooth(2048, 2048).round().astype(np.uint8)
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        options = {"tile": (256, 256), "photometric": "rgb"}
        file.write(image, subifds=1, **options)
        file.write(np.full((512, 512, 3), 77, dtype=np.uint8), subfiletype=1, **options)
    pyramid = Pyramid(tmp_path / "a.tif")
    assert (pyramid.tile(2, 0, 0) == 77).all()
    np.testing.assert_array_equal(pyramid.tile(0, 3, 2), image[1536:, 1024:1536])
    assert np.abs(whole(pyramid, 1).astype(int) - image[::2, ::2]).max() <= 1


def test_other_pixels_are_shown_with_one_contrast(tmp_path):
    image = np.full((600, 600), 1000, dtype=np.uint16)
    image[:, 550:] = 3000
    tifffile.imwrite(tmp_path / "a.tif", image, tile=(256, 256))
    pyramid = Pyramid(tmp_path / "a.tif")
    assert pyramid.tile(0, 0, 0)[0, 0].tolist() == [0, 0, 0]
    assert pyramid.tile(0, 0, 1)[0, -1].tolist() == [255, 255, 255]


def test_tiles_that_are_not_there(tmp_path):
    Image.fromarray(np.zeros((20, 30), dtype=np.uint8)).save(tmp_path / "a.png")
    pyramid = Pyramid(tmp_path / "a.png")
    assert pyramid.n_levels == 1
    for place in [(0, 1, 0), (0, 0, -1), (1, 0, 0), (-1, 0, 0), (10**9, 0, 0)]:
        with pytest.raises(IndexError, match="There is no"):
            pyramid.tile(*place)
