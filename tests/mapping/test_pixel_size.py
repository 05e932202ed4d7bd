import numpy as np
import pytest
import tifffile
from PIL import Image

from lmfcn.mapping.opening import View, open_level, resolve_view
from lmfcn.mapping.pixel_size import micrometres_per_pixel

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
