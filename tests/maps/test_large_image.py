import sys
from functools import partial

import numpy as np
import pytest
import tifffile
from PIL import Image

from lmfcn.data.framing import Preprocessing, resize_image
from lmfcn.data.image_files import ImageError, read_image
from lmfcn.data.image_form import ImageForm
from lmfcn.maps.large_image import (
    ScaledImage,
    WholeImage,
    choose_level,
    micrometres_per_pixel,
    read_thumbnail,
    resize_whole,
)
from lmfcn.maps.readers import READERS, Slide, TiledTiff, View, open_level, open_view, resolve_view
from lmfcn.maps.texture_map import Box

BOXES = [Box(0, 0, 300, 210), Box(0, 0, 1, 1), Box(130, 60, 299, 209), Box(250, 200, 300, 210)]


def noise(*shape, dtype=np.uint8):
    return (np.random.default_rng(0).random(shape) * (1 if dtype == np.float32 else np.iinfo(dtype).max)).astype(dtype)


def write_pyramid(path, pixels, n_levels=3, **options):
    with tifffile.TiffWriter(path) as file:
        for level in range(n_levels):
            reduced = np.ascontiguousarray(pixels[:: 2**level, :: 2**level])
            file.write(
                reduced,
                tile=(128, 128),
                photometric="rgb",
                compression="deflate",
                subfiletype=1 if level else 0,
                metadata=None,
                **options,
            )
    return path


KINDS = {
    "tiles": (noise(300, 210, 3), {"tile": (64, 80), "photometric": "rgb", "compression": "deflate"}),
    "grey tiles": (noise(300, 210), {"tile": (64, 64)}),
    "strips": (noise(300, 210, 3), {"rowsperstrip": 37, "photometric": "rgb"}),
    "16 bits, 6 channels": (noise(300, 210, 6, dtype=np.uint16), {"tile": (64, 64), "planarconfig": "contig"}),
    "planes": (noise(6, 300, 210), {"tile": (64, 64), "planarconfig": "separate", "photometric": "minisblack"}),
    "pages": (noise(6, 300, 210), {"tile": (64, 64), "photometric": "minisblack", "metadata": {"axes": "CYX"}}),
    "floating point": (noise(300, 210, dtype=np.float32), {"tile": (64, 64)}),
    "white is zero": (noise(300, 210), {"tile": (64, 64), "photometric": "miniswhite"}),
    "with alpha": (noise(300, 210, 4), {"tile": (64, 64), "photometric": "rgb", "extrasamples": ["unassalpha"]}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_tiffs_are_those_of_the_whole(tmp_path, kind):
    pixels, options = KINDS[kind]
    tifffile.imwrite(tmp_path / "a.tif", pixels, **options)
    whole = read_image(tmp_path / "a.tif")
    image = TiledTiff(tmp_path / "a.tif")
    assert (image.size.height, image.size.width, image.size.channels) == whole.shape
    for box in BOXES:
        region = image.read(box)
        assert region.missing == []
        assert region.pixels.dtype == whole.dtype
        assert np.array_equal(region.pixels, whole[box.slices])


def test_levels_through_tifffile_and_openslide(tmp_path):
    pixels = noise(600, 700, 3)
    path = write_pyramid(tmp_path / "a.tif", pixels)
    for level in range(3):
        tiff, slide = TiledTiff(path, level), Slide(path, level)
        assert tiff.size.levels == slide.size.levels == [(600, 700), (300, 350), (150, 175)]
        box = Box(20, 30, 140, 170)
        expected = pixels[:: 2**level, :: 2**level][box.slices]
        assert np.array_equal(tiff.read(box).pixels, expected)
        assert np.array_equal(slide.read(box).pixels, expected)


@pytest.mark.parametrize("reader", ["tiff", "openslide"])
def test_levels_that_are_not_there(tmp_path, reader):
    path = write_pyramid(tmp_path / "a.tif", noise(600, 700, 3))
    with pytest.raises(ValueError, match=r"a.tif has 3 levels, 0 \(the finest\) to 2, got 3"):
        open_level(path, View(reader, level=3))
    Image.fromarray(noise(20, 20)).save(tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"a.png has one level, 0, got 1"):
        open_level(tmp_path / "a.png", View("plain", level=1))


def test_who_reads_what(tmp_path):
    Image.fromarray(noise(20, 20)).save(tmp_path / "a.png")
    tifffile.imwrite(tmp_path / "small.tif", noise(20, 20))
    tifffile.imwrite(tmp_path / "tiled.tif", noise(200, 200, 3), tile=(64, 64), photometric="rgb")
    found = [resolve_view(tmp_path / name, View()).reader for name in ("a.png", "small.tif", "tiled.tif")]
    assert found == ["plain", "plain", "tiff"]
    for reader in READERS:
        with pytest.raises(FileNotFoundError, match=r"none\.tif does not exist"):
            resolve_view(tmp_path / "none.tif", View(reader), 0.5)
    (tmp_path / "bad.tif").write_bytes(b"II*\0" + bytes(30))
    with pytest.raises(ValueError, match=r"bad.tif: is damaged or truncated"):
        resolve_view(tmp_path / "bad.tif", View())


def test_broken_tiles_are_listed_and_the_rest_is_there(tmp_path):
    pixels = noise(300, 210, 3)
    tifffile.imwrite(tmp_path / "a.tif", pixels, tile=(64, 64), photometric="rgb", compression="deflate")
    break_tile(tmp_path / "a.tif", 5)
    region = TiledTiff(tmp_path / "a.tif").read(Box(0, 0, 300, 210))
    ((box, reason),) = region.missing
    assert box == Box(64, 64, 128, 128)
    assert reason
    expected = pixels.copy()
    expected[box.slices] = 0
    assert np.array_equal(region.pixels, expected)


def break_tile(path, number):
    with tifffile.TiffFile(path) as tiff:
        offset, count = tiff.pages[0].dataoffsets[number], tiff.pages[0].databytecounts[number]
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(b"\xff" * count)


def test_broken_tiles_through_openslide(tmp_path):
    path = write_pyramid(tmp_path / "a.tif", noise(1100, 600, 3), n_levels=1)
    break_tile(path, 0)
    slide = Slide(path)
    region = slide.read(Box(0, 0, 1100, 600))
    assert [box for box, _ in region.missing] == [Box(0, 0, 512, 512)]
    assert np.array_equal(region.pixels[512:], read_image_beyond(path)[512:])


def read_image_beyond(path):
    return TiledTiff(path).read(Box(0, 0, 1100, 600)).pixels


@pytest.mark.parametrize(("scale", "channels"), [(0.4, 3), (0.37, 1), (1.6, 1)])
def test_scaling_in_tiles_is_scaling_the_whole(tmp_path, monkeypatch, scale, channels):
    monkeypatch.setattr("lmfcn.maps.large_image._SCALED_TILE", 48)
    Image.fromarray(noise(210, 170, 3) if channels == 3 else noise(210, 170)).save(tmp_path / "a.png")
    image = ScaledImage(WholeImage(tmp_path / "a.png"), scale)
    size = round(210 * scale), round(170 * scale)
    assert (image.size.height, image.size.width) == size
    found = image.read(Box(0, 0, *size)).pixels
    expected = resize_image(read_image(tmp_path / "a.png"), size)
    assert np.abs(found.astype(int) - expected).max() <= 1
    assert np.array_equal(image.read(Box(20, 30, 60, 61)).pixels, found[20:60, 30:61])


def test_images_that_a_model_cannot_take(tmp_path):
    Image.fromarray(noise(40, 40, 3)).save(tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"a.png has 3 channels of uint8, but the model was trained on images with 1"):
        open_view(tmp_path / "a.png", View("plain"), ImageForm(1, "uint8"))
    tifffile.imwrite(tmp_path / "six.tif", noise(40, 40, 6), tile=(16, 16), planarconfig="contig")
    with pytest.raises(ValueError, match=r"six.tif: an image with 6 channels cannot become grey"):
        open_view(tmp_path / "six.tif", View("tiff"), ImageForm(1, "uint8", Preprocessing("grey")))
    grey = open_view(tmp_path / "a.png", View("plain"), ImageForm(1, "uint8", Preprocessing("grey")))
    assert grey.read(Box(0, 0, 40, 40)).pixels.shape == (40, 40, 1)


def test_resolution_chooses_level_and_scale(tmp_path):
    # 40,000 pixels per centimetre are a quarter of a micrometre each.
    path = write_pyramid(tmp_path / "a.tif", noise(600, 700, 3), resolution=(40000, 40000), resolutionunit="CENTIMETER")
    assert TiledTiff(path, 1).size.micrometres == pytest.approx(0.5)
    assert resolve_view(path, View("tiff"), 0.5) == View("tiff", 1, 1.0)
    assert resolve_view(path, View("tiff"), 0.75) == View("tiff", 1, pytest.approx(2 / 3))
    assert resolve_view(path, View("tiff"), 0.125) == View("tiff", 0, 2.0)
    with pytest.raises(ValueError, match="does not contain its pixel size; choose a level or a scale instead"):
        choose_level(path, [700], None, 0.5)
    with pytest.raises(ValueError, match="resolution must be a positive number of micrometres, got 0"):
        choose_level(path, [700], 0.25, 0)


def test_thumbnails_are_averages(tmp_path):
    pixels = noise(205, 130, 3)
    tifffile.imwrite(tmp_path / "a.tif", pixels, tile=(64, 64), photometric="rgb")
    small = read_thumbnail(TiledTiff(tmp_path / "a.tif"), 50)
    assert small.shape == (41, 26, 3)
    assert small == pytest.approx(pixels.reshape(41, 5, 26, 5, 3).mean(axis=(1, 3)), abs=1e-3)


def test_missing_packages_are_named(tmp_path, monkeypatch):
    path = write_pyramid(tmp_path / "a.tif", noise(200, 200, 3))
    (tmp_path / "a.mrxs").write_bytes(b"slide")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "openslide", None)
        assert resolve_view(path, View()).reader == "tiff"
        with pytest.raises(ImportError, match=r"Whole slides need OpenSlide: pip install 'lmfcn\[wsi\]'"):
            open_level(tmp_path / "a.mrxs", resolve_view(tmp_path / "a.mrxs", View()))

    def no_codec(*_, **__):
        raise ValueError("<COMPRESSION.JPEG: 7> requires the 'imagecodecs' package")

    monkeypatch.setattr(tifffile.TiffPage, "decode", no_codec)
    with pytest.raises(ImportError, match=r"a.tif is compressed by DEFLATE, which needs: pip install imagecodecs"):
        TiledTiff(path)


@pytest.mark.parametrize("tile", [None, (64, 64)])
def test_pictures_are_sharp(tmp_path, tile):
    pixels = noise(300, 210, 3)
    tifffile.imwrite(tmp_path / "a.tif", pixels, photometric="rgb", tile=tile)
    image = TiledTiff(tmp_path / "a.tif")
    for size in [(200, 140), (160, 112), (300, 210), (450, 315)]:  # averaging could only make 150x105 of it
        found = resize_whole(image, *size)
        assert found.dtype == np.uint8
        assert np.abs(found.astype(int) - resize_image(pixels, size)).max() <= 1
    small = resize_whole(image, 75, 50)
    means = pixels[:, :208].reshape(75, 4, 52, 4, 3).mean(axis=(1, 3))
    assert np.abs(small.astype(float) - resize_image(np.rint(means).astype(np.uint8), (75, 50))).max() <= 1


def test_files_for_another_reader(tmp_path, monkeypatch):
    Image.fromarray(noise(40, 40)).save(tmp_path / "a.png")
    with pytest.raises(
        ValueError, match=r"a\.png cannot be read as a TIFF \(not a TIFF file.*\); choose another reader"
    ):
        open_level(tmp_path / "a.png", View("tiff"))
    monkeypatch.setattr("lmfcn.maps.large_image.read_image", partial(read_image, max_pixels=1000))
    with pytest.raises(
        ImageError, match=r"a\.png: claims 40x40 pixels, more than the 1000 allowed; save it as a tiled"
    ):
        open_level(tmp_path / "a.png", View("plain"))


PIXELS = np.zeros((40, 60), dtype=np.uint8)
NOTED = {
    "centimetres": ({"resolution": (40000, 40000), "resolutionunit": "CENTIMETER"}, 0.25),
    "inches": ({"resolution": (1200, 1200), "resolutionunit": "INCH"}, 25400 / 1200),
    "72 dpi": ({"resolution": (72, 72), "resolutionunit": "INCH"}, None),
    "96 dpi in centimetres": ({"resolution": (37.8, 37.8), "resolutionunit": "CENTIMETER"}, None),
    "no unit": ({"resolution": (4, 4), "resolutionunit": "NONE"}, None),
    "zero": ({"resolution": (0, 0), "resolutionunit": "INCH"}, None),
    "nothing": ({}, None),
    "OME": ({"ome": True, "metadata": {"PhysicalSizeX": 0.5, "PhysicalSizeXUnit": "µm"}}, 0.5),
    "OME in nanometres": ({"ome": True, "metadata": {"PhysicalSizeX": 250, "PhysicalSizeXUnit": "nm"}}, 0.25),
    "OME in pixels": ({"ome": True, "metadata": {"PhysicalSizeX": 1, "PhysicalSizeXUnit": "pixel"}}, None),
    "OME without": ({"ome": True}, None),
    "ImageJ": ({"imagej": True, "resolution": (4, 4), "metadata": {"unit": "um"}}, 0.25),
    "ImageJ in microns": ({"imagej": True, "resolution": (2, 2), "metadata": {"unit": "micron"}}, 0.5),
    "ImageJ, escaped": ({"imagej": True, "resolution": (2, 2), "metadata": {"unit": "\\u00B5m"}}, 0.5),
    "ImageJ in pixels": ({"imagej": True, "resolution": (4, 4), "metadata": {"unit": "pixel"}}, None),
}


@pytest.mark.parametrize("reader", ["plain", "tiff"])
@pytest.mark.parametrize("kind", NOTED)
def test_every_reader_knows_what_the_file_notes(tmp_path, kind, reader):
    options, expected = NOTED[kind]
    tifffile.imwrite(tmp_path / "a.tif", PIXELS, **options)
    found = open_level(tmp_path / "a.tif", View(reader)).size.micrometres
    assert found == (None if expected is None else pytest.approx(expected, rel=1e-4))


def test_small_files_can_be_mapped_at_a_resolution(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", PIXELS, ome=True, metadata={"PhysicalSizeX": 0.5, "PhysicalSizeXUnit": "µm"})
    assert resolve_view(tmp_path / "a.tif", View(), 1.0) == View("plain", 0, 0.5)


def test_what_is_no_tiff_notes_nothing(tmp_path):
    Image.fromarray(PIXELS).save(tmp_path / "a.png", dpi=(300, 300))
    assert micrometres_per_pixel(tmp_path / "a.png") is None
    assert open_level(tmp_path / "a.png", View("plain")).size.micrometres is None
