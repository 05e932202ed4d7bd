import numpy as np
import pytest
import tifffile
from PIL import Image
from test_cli import lmfcn

from lmfcn import LMFCNClassifier, make_gaussians
from lmfcn.cli.map import map_image
from patchwork import patchwork


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, a plain image and a tiled one."""
    path = tmp_path_factory.mktemp("map")
    X, y = make_gaussians(8, 24, random_state=0, stds=(10, 60))
    classifier = LMFCNClassifier(latent_dim=4, widths=(6, 8), epochs=1, passes=1, random_state=0)
    classifier.fit(X, np.array(["calm", "rough"])[y]).save(path / "model.lmfcn")
    Image.fromarray(patchwork(100, 140)[..., 0]).save(path / "a.png")
    tifffile.imwrite(path / "tiled.tif", patchwork(200, 300)[..., 0], tile=(64, 64), compression="deflate")
    return path


def test_map_tells_what_there_is(folder):
    options = ["--window", "24", "--stride", "12", "-o", folder / "out"]
    result = lmfcn("map", folder / "model.lmfcn", folder / "a.png", *options)
    assert result.returncode == 0, result.stderr
    for text in ("calm", "rough", "overlay.png"):
        assert text in result.stdout
    assert "Mapping a.png" in result.stderr
    assert (folder / "out" / "overlay.png").is_file()


def test_what_cannot_be_read_is_told_and_ends_with_code_1(folder):
    with tifffile.TiffFile(folder / "tiled.tif") as tiff:
        offset, count = (entry[7] for entry in (tiff.pages[0].dataoffsets, tiff.pages[0].databytecounts))
    with (folder / "tiled.tif").open("r+b") as file:
        file.seek(offset)
        file.write(bytes(count))
    result = lmfcn("map", folder / "model.lmfcn", folder / "tiled.tif", "--window", "24", "-o", folder / "tiled", "-q")
    assert result.returncode == 1
    assert result.stdout == ""
    assert "Could not be read: rows 64-127, columns 128-191" in result.stderr
    assert "unreadable" in (folder / "tiled" / "areas.csv").read_text()


def test_mistakes_end_with_code_2_and_write_nothing(folder):
    result = lmfcn("map", folder / "model.lmfcn", folder / "a.png", "-o", folder / "never", "--window", "200")
    assert result.returncode == 2
    assert "The window must fit into the image" in " ".join(result.stderr.split())
    assert not (folder / "never").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"reader": "eyes"}, "--reader must be one of"),
        ({"resolution": 0.5, "level": 1}, "leave out --level and --scale"),
        ({"resolution": 0.5, "scale": 2.0}, "leave out --level and --scale"),
    ],
)
def test_options_that_make_no_sense(folder, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        map_image(folder / "model.lmfcn", folder / "a.png", folder / "never", **options)
    assert not (folder / "never").exists()
