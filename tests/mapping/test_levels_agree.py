"""The same file through OpenSlide and through tifffile, at every level."""

from pathlib import Path

import numpy as np
import pytest
import tifffile

from large_images import break_tile, quarters, save_model, save_pyramid
from lmfcn.mapping.opening import View
from lmfcn.mapping.run import MapOutcome, MapRequest, map_image

pytest.importorskip("openslide")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model, and an image of three levels; tests must not change them."""
    folder = tmp_path_factory.mktemp("levels")
    return save_model(folder / "model.lmfcn"), save_pyramid(folder / "image.tif", quarters(700, 520))


def mapped(model: Path, image: Path, output: Path, view: View) -> tuple[MapOutcome, np.ndarray]:
    outcome = map_image(MapRequest(model, image, output, window=32, stride=32, view=view, tissue=False))
    return outcome, tifffile.imread(output / "probabilities.tif")


@pytest.mark.parametrize("level", [0, 1, 2])
def test_both_readers_make_the_same_map(files, tmp_path, level):
    by_slide, slide = mapped(*files, tmp_path / "slide", View("openslide", level))
    by_tiff, tiff = mapped(*files, tmp_path / "tiff", View("tiff", level))
    assert slide.shape == ((700 >> level) // 32, (520 >> level) // 32, 3)
    np.testing.assert_array_equal(slide, tiff)
    assert by_slide.areas == by_tiff.areas
    assert sum(by_tiff.areas.values()) == (700 >> level) * (520 >> level)
    for name in ("labels.png", "areas.csv"):
        assert (tmp_path / "slide" / name).read_bytes() == (tmp_path / "tiff" / name).read_bytes()


def test_a_level_is_the_image_that_was_written_there(files, tmp_path):
    _, second = mapped(*files, tmp_path / "second", View("tiff", 1))
    tifffile.imwrite(tmp_path / "alone.tif", quarters(700, 520)[::2, ::2].copy(), photometric="rgb")
    _, alone = mapped(files[0], tmp_path / "alone.tif", tmp_path / "alone", View())
    np.testing.assert_array_equal(second, alone)


@pytest.mark.parametrize("reader", ["tiff", "openslide"])
def test_a_broken_tile_costs_the_windows_on_it_and_no_others(files, tmp_path, reader):
    broken = save_pyramid(tmp_path / "broken.tif", quarters(700, 520))
    break_tile(broken, 7)  # of five in a row: rows 128 to 255, columns 256 to 383
    outcome, found = mapped(files[0], broken, tmp_path / "map", View(reader))
    _, whole = mapped(*files, tmp_path / "whole", View(reader))
    lost = np.isnan(found[..., 0])
    assert lost[4:8, 8:12].all()
    np.testing.assert_allclose(found[~lost], whole[~lost], rtol=0, atol=1e-6)
    assert outcome.areas["unreadable"] > 0
    assert outcome.missing[0].startswith("rows ")
    if reader == "tiff":  # OpenSlide is read in larger squares
        assert lost.sum() == 16
        assert outcome.missing[0].startswith("rows 128-255, columns 256-383: ")
