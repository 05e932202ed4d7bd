"""Open TIFF files, of any origin, without the endless work and the printed lines that damaged ones can cause."""

import ctypes
import logging
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import tifffile
from PIL import _imaging

MOST_PAGES = 4096
"""Reading the headers of so many pages takes a second."""

_LAYOUTS = {42: ("H", "I", 4, 12), 43: ("Q", "Q", 8, 20)}
"""By version, TIFF and BigTIFF: types of a count and of a position, place of the first position, bytes of a tag."""

# Applications can add handlers of their own.
logging.getLogger("tifffile").addHandler(logging.NullHandler())
# Pillow's own copy of libtiff writes to standard error by itself. Where its functions cannot be found, as on Windows,
# it still does.
with suppress(OSError, AttributeError):
    ctypes.CDLL(_imaging.__file__).TIFFSetErrorHandler(None)
    ctypes.CDLL(_imaging.__file__).TIFFSetWarningHandler(None)


def open_tiff(file: str | Path | BinaryIO) -> tifffile.TiffFile:
    """Open a TIFF file, after a check that its pages come to an end.

    Each page names the position of the next one. tifffile follows a circle of pages for minutes.

    Raises
    ------
    tifffile.TiffFileError
    """
    if isinstance(file, str | Path):
        with open(file, "rb") as opened:
            _check_pages(opened)
        return tifffile.TiffFile(file)
    _check_pages(file)
    file.seek(0)
    return tifffile.TiffFile(file)


def _check_pages(file: BinaryIO) -> None:
    file.seek(0)
    start = file.read(16)
    order = "<" if start[:2] == b"II" else ">"
    try:
        (version,) = struct.unpack_from(f"{order}H", start, 2)
        count, position, first, tag_size = _LAYOUTS[version]
        (page,) = struct.unpack_from(order + position, start, first)
        seen: set[int] = set()
        while page:
            if page in seen or len(seen) == MOST_PAGES:
                raise tifffile.TiffFileError(f"pages in a circle, or more than {MOST_PAGES}")
            seen.add(page)
            (n_tags,) = _read(file, page, order + count)
            (page,) = _read(file, page + struct.calcsize(order + count) + n_tags * tag_size, order + position)
    except (struct.error, KeyError, OSError, OverflowError):
        return  # the chain ends here; whether the first page can be used, others find out


def _read(file: BinaryIO, place: int, form: str) -> Any:
    file.seek(place)
    return struct.unpack(form, file.read(struct.calcsize(form)))
