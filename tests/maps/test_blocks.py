import numpy as np
import pytest
from PIL import Image

from lmfcn.maps.blocks import TissueMask, find_tissue, otsu_threshold
from lmfcn.maps.large_image import WholeImage
from lmfcn.maps.texture_map import Box, MapGrid


def slide_picture(tmp_path, *, colour):
    """Bright glass with a disc of pink, or dark, tissue."""
    random = np.random.default_rng(0)
    rows, columns = np.mgrid[:200, :240]
    disc = (rows - 100) ** 2 + (columns - 90) ** 2 < 60**2
    pixels = np.where(disc[..., None], [200, 120, 170], [243, 242, 244]) + random.normal(0, 4, (200, 240, 3))
    pixels = pixels.clip(0, 255).astype(np.uint8)
    Image.fromarray(pixels if colour else pixels[..., 1]).save(tmp_path / "slide.png")
    return WholeImage(tmp_path / "slide.png"), disc


@pytest.mark.parametrize("colour", [True, False])
def test_tissue_is_separated_from_glass(tmp_path, colour):
    image, disc = slide_picture(tmp_path, colour=colour)
    assert (find_tissue(image).tissue == disc).mean() > 0.99


def test_without_glass_everything_is_tissue(tmp_path):
    random = np.random.default_rng(0)
    pixels = np.array([190, 110, 160]) + random.normal(0, 30, (100, 100, 3))
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(tmp_path / "a.png")
    assert find_tissue(WholeImage(tmp_path / "a.png")).tissue.all()


def test_windows_with_a_tenth_of_tissue_are_wanted():
    grid = MapGrid(200, 160, window=40, stride=8, step=4, reach=10)
    tissue = np.zeros((200, 160), dtype=bool)
    tissue[60:90, 70:100] = True
    box = Box(1, 2, grid.rows, grid.columns - 1)
    wanted = TissueMask(tissue).select_windows(grid, box)
    for row in range(box.top, box.bottom):
        for column in range(box.left, box.right):
            share = tissue[row * 8 : row * 8 + 40, column * 8 : column * 8 + 40].mean()
            assert wanted[row - box.top, column - box.left] == (share >= 0.1)
    coarse = TissueMask(tissue[::10, ::10]).select_windows(grid, box)
    assert (coarse == wanted).mean() > 0.9


def test_otsu_against_all_thresholds():
    values = np.random.default_rng(0).beta(2, 5, 500)
    edges = np.linspace(0, 1, 257)[1:-1]
    within = [
        values[values < edge].var() * (values < edge).sum() + values[values >= edge].var() * (values >= edge).sum()
        for edge in edges
        if (values < edge).any() and (values >= edge).any()
    ]
    threshold = otsu_threshold(values)
    at = values < threshold
    assert values[at].var() * at.sum() + values[~at].var() * (~at).sum() <= min(within) * 1.001
