"""PNG files with a palette, written row by row, so that their size does not matter."""

import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from lmfcn.files import unfinished_file


def write_palette_png(
    path: Path, bands: Iterable[np.ndarray], width_height: tuple[int, int], palette: np.ndarray, text: str
) -> None:
    """Write numbers below 256 as an image with a palette, whole or not at all.

    Parameters
    ----------
    path : Path
    bands : iterable of array of uint8 (rows, width)
        From top to bottom.
    width_height : (int, int)
    palette : array of uint8 (n, 3)
    text : str
        Goes into the file's comment.
    """
    packer = zlib.compressobj(6)
    with unfinished_file(path) as unfinished, unfinished.open("wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", struct.pack(">IIBBBBB", *width_height, 8, 3, 0, 0, 0)))
        file.write(_chunk(b"PLTE", palette.tobytes()))
        file.write(_chunk(b"iTXt", b"Comment\0\0\0\0\0" + text.encode()))
        for band in bands:
            rows = np.pad(band, ((0, 0), (1, 0)))  # every row starts with the number of its filter, 0 for none
            if packed := packer.compress(rows.tobytes()):
                file.write(_chunk(b"IDAT", packed))
        file.write(_chunk(b"IDAT", packer.flush()) + _chunk(b"IEND", b""))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
