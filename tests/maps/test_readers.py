"""TIFF files in strips and levels: only the needed parts are read, and all readers give the same map."""

from pathlib import Path

import numpy as np
import pytest
import tifffile

from large_images import break_tile, quarters, save_model, save_pyramid
from lmfcn.maps.large_image import ScaledImage, WholeImage, read_thumbnail
from lmfcn.maps.readers import TileCache, TiledTiff, View
from lmfcn.maps.run import MapOutcome, MapRequest, map_image
from lmfcn.maps.texture_map import Box

BOXES = [Box(0, 0, 700, 610), Box(0, 0, 1, 1), Box(130, 60, 680, 609), Box(510, 511, 514, 513)]
KINDS = {
    "one strip": {},
    "one strip, planes": {"planarconfig": "separate"},
    "strips": {"rowsperstrip": 37},
    "the other byte order": {"byteorder": ">"},
    "compressed": {"compression": "zlib", "rowsperstrip": 37},
    "compressed, one strip": {"compression": "zlib", "rowsperstrip": 700, "predictor": True},
}


def noise(dtype=np.uint8, *shape):
    return np.random.default_rng(0).integers(0, np.iinfo(dtype).max, shape, dtype=dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("kind", KINDS)
def test_strips_hold_what_was_written(tmp_path, kind, dtype):
    pixels = noise(dtype, 700, 610, 3)
    planes = np.moveaxis(pixels, 2, 0) if "planarconfig" in KINDS[kind] else pixels
    tifffile.imwrite(tmp_path / "a.tif", planes, photometric="rgb", **KINDS[kind])
    image = TiledTiff(tmp_path / "a.tif")
    for box in BOXES:
        region = image.read(box)
        assert region.missing == []
        assert region.pixels.dtype == dtype
        assert np.array_equal(region.pixels, pixels[box.slices])


@pytest.fixture
def bytes_read(monkeypatch):
    """How many bytes are read from the file with each call."""
    counts, read = [], TiledTiff._read
    monkeypatch.setattr(TiledTiff, "_read", lambda self, at, count: counts.append(count) or read(self, at, count))
    return counts


def test_of_one_plain_strip_only_what_is_needed_is_read(tmp_path, bytes_read):
    pixels = noise(np.uint8, 3000, 1300)
    tifffile.imwrite(tmp_path / "a.tif", pixels)
    image = TiledTiff(tmp_path / "a.tif")
    assert bytes_read == []
    assert np.array_equal(image.read(Box(600, 600, 900, 900)).pixels[..., 0], pixels[600:900, 600:900])
    assert sum(bytes_read) == 512 * 512
    assert max(bytes_read) == 512


def test_the_end_of_a_plain_strip_is_missing_and_the_rest_is_there(tmp_path):
    pixels = noise(np.uint8, 1100, 600)
    tifffile.imwrite(tmp_path / "a.tif", pixels)
    content = (tmp_path / "a.tif").read_bytes()
    (tmp_path / "a.tif").write_bytes(content[: -600 * 50])
    region = TiledTiff(tmp_path / "a.tif").read(Box(0, 0, 1100, 600))
    assert [box for box, _ in region.missing] == [Box(1024, 0, 1100, 512), Box(1024, 512, 1100, 600)]
    assert {reason for _, reason in region.missing} == {"the file ends before the tile does"}
    assert np.array_equal(region.pixels[:1024, :, 0], pixels[:1024])


def test_compressed_strips_are_decoded_once_for_a_row_of_blocks(tmp_path, bytes_read):
    tifffile.imwrite(tmp_path / "a.tif", noise(np.uint8, 700, 2000), compression="zlib", rowsperstrip=50)
    image = TiledTiff(tmp_path / "a.tif")
    assert bytes_read == []
    for left in range(0, 2000, 500):
        image.read(Box(0, left, 300, left + 500))
    assert len(bytes_read) == 6
    ScaledImage(image, 0.5).read(Box(0, 0, 150, 1000))  # a square of 512, which needs all of them
    assert len(bytes_read) == 14


def test_pictures_decode_every_strip_once(tmp_path, bytes_read, monkeypatch):
    monkeypatch.setattr("lmfcn.maps.readers._CACHED_BYTES", 2 * 50 * 2000)
    monkeypatch.setattr("lmfcn.maps.large_image._AT_ONCE", 256)
    pixels = noise(np.uint8, 700, 2000)
    tifffile.imwrite(tmp_path / "a.tif", pixels, compression="zlib", rowsperstrip=50)
    small = read_thumbnail(TiledTiff(tmp_path / "a.tif"), 200)
    assert len(bytes_read) == 14
    assert small[..., 0] == pytest.approx(pixels.reshape(70, 10, 200, 10).mean(axis=(1, 3)), abs=1e-3)
    tifffile.imwrite(tmp_path / "plain.tif", pixels)
    assert read_thumbnail(WholeImage(tmp_path / "plain.tif"), 200) == pytest.approx(small, abs=1e-3)


def test_recent_tiles_take_bounded_memory():
    decoded = []

    def decode(tile):
        decoded.append(tile)
        return np.zeros(tile.shape, dtype=np.uint8)

    boxes = [Box(top, 0, top + 10, 10) for top in range(0, 50, 10)]
    recent = TileCache(250)  # two of them
    for number in (0, 1, 0, 2, 0, 1, 1):
        recent.get(boxes[number], decode)
    assert decoded == [boxes[0], boxes[1], boxes[2], boxes[1]]
    recent.get(Box(0, 0, 100, 100), decode)  # larger than the limit, and kept alone
    recent.get(Box(0, 0, 100, 100), decode)
    assert decoded[4:] == [Box(0, 0, 100, 100)]
    recent.get(boxes[1], decode)
    assert decoded[5:] == [boxes[1]]


def test_a_huge_compressed_strip_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("lmfcn.maps.readers._LARGEST_PIECE", 2**20)
    pixels = np.zeros((1200, 1000), dtype=np.uint8)
    tifffile.imwrite(tmp_path / "plain.tif", pixels)
    assert TiledTiff(tmp_path / "plain.tif").read(Box(0, 0, 9, 9)).missing == []
    tifffile.imwrite(tmp_path / "a.tif", pixels, compression="zlib", rowsperstrip=1200)
    sentence = r"a.tif is compressed in pieces of 1200x1000 pixels, .* GB each, which must .*; save it as a tiled"
    with pytest.raises(ValueError, match=sentence):
        TiledTiff(tmp_path / "a.tif")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model, and an image of three levels; tests must not change them."""
    pytest.importorskip("openslide")
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
