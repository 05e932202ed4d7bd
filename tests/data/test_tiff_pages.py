import io
import logging
import struct
import subprocess
import sys

import numpy as np
import pytest
import tifffile

from lmfcn.data.image_files import ImageError, probe_image, read_image
from lmfcn.data.tiff_pages import MOST_PAGES, open_tiff
from lmfcn.maps.readers import View, resolve_view


def pages(*nexts: int, order: str = "<") -> bytes:
    """A TIFF of empty pages, each six bytes long, from byte 8 on; each names the page that follows, or none."""
    start = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8)
    return start + b"".join(struct.pack(f"{order}HI", 0, 0 if n is None else 8 + 6 * n) for n in nexts)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("nexts", [(0,), (1, 1), (1, 2, 0)], ids=["itself", "the last", "all three"])
def test_pages_in_a_circle_are_refused(tmp_path, nexts, order):
    path = tmp_path / "circle.tif"
    path.write_bytes(pages(*nexts, order=order))
    for read in (read_image, probe_image, lambda path: open_tiff(path)):
        with pytest.raises((ImageError, tifffile.TiffFileError), match="pages in a circle"):
            read(path)
    with pytest.raises(ValueError, match="pages in a circle"):
        resolve_view(path, View())


def test_too_many_pages_are_refused():
    enough = pages(*range(1, MOST_PAGES), None)
    open_tiff(io.BytesIO(enough)).close()
    with pytest.raises(tifffile.TiffFileError, match="more than 4096"):
        open_tiff(io.BytesIO(pages(*range(1, MOST_PAGES + 1), None)))


def test_a_tile_far_larger_than_the_image_is_refused(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((16, 16, 3), np.uint8), compression="jpeg", tile=(16, 16))
    with tifffile.TiffFile(tmp_path / "a.tif", mode="r+") as tiff:
        for name in ("TileWidth", "TileLength"):
            tiff.pages[0].tags[name].overwrite(2**14)
    with pytest.raises(ImageError, match="a tile is larger than the image"):
        read_image(tmp_path / "a.tif")


@pytest.mark.parametrize("bigtiff", [False, True])
def test_real_pages_are_opened(tmp_path, bigtiff):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((3, 8, 8), np.uint8), bigtiff=bigtiff, photometric="minisblack")
    with open_tiff(tmp_path / "a.tif") as tiff:
        assert len(tiff.pages) == 3


def test_libraries_print_nothing_about_damaged_files(tmp_path):
    """In a process of its own: pytest has handlers and filters of its own."""
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((16, 16, 3), np.uint8), compression="jpeg", tile=(16, 16))
    good = (tmp_path / "a.tif").read_bytes()
    for number in range(8, 200, 3):
        (tmp_path / f"{number}.tif").write_bytes(good[:number] + b"\x7f\x9f" + good[number + 2 :])
    code = (
        "import sys, pathlib; from lmfcn.data.image_files import ImageError, read_image\n"
        "for path in sorted(pathlib.Path(sys.argv[1]).glob('*.tif')):\n"
        "    try: read_image(path)\n"
        "    except ImageError: pass\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    assert logging.getLogger("tifffile").propagate  # an application may still listen
