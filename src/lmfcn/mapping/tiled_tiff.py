"""TIFF files of any size, of which only the tiles, strips or rows that are needed are read."""

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from lmfcn.data.arrays import pixel_kind
from lmfcn.data.tiff import n_alpha, orientation, usual_pixels
from lmfcn.inference.map_grid import Box
from lmfcn.mapping.images import ImageSize, LargeImage
from lmfcn.mapping.levels import check_level
from lmfcn.mapping.pixel_size import tiff_micrometres
from lmfcn.mapping.recent import RecentTiles

_GREY_OR_COLOUR = {0, 1, 2, 6}  # white is zero, black is zero, RGB, YCbCr, which becomes RGB
_SQUARE = 512
_LARGEST_PIECE = 2**30
_KEPT_BYTES = 2**28


class TiledTiff(LargeImage):
    """One level of a TIFF, tiled or in strips, its channels in tiles, planes or pages.

    Strips that are not compressed are read in squares, as if they were tiles. Compressed ones are decoded as a whole,
    and kept for a while, as all blocks of a row need the same strips.

    Parameters
    ----------
    path : Path
    level : int
        0 is the finest.
    """

    def __init__(self, path: Path, level: int = 0) -> None:
        self.path = path
        tiff = _open(path)
        weakref.finalize(self, tiff.close)
        levels = tiff.series[0].levels
        sizes = [_height_width(found) for found in levels]
        check_level(path, level, len(sizes))
        self._file = tiff.filehandle
        self._pages: list[Any] = list(levels[level].pages)
        page: Any = self._pages[0].keyframe
        self._inverted = page.photometric == 0
        self._planes = int(page.samplesperpixel) if page.planarconfig == 2 else 1
        self._alpha = n_alpha(page)
        self._piece = _piece(page)
        self._in_rows = _has_plain_rows(page)
        self.tile = (_SQUARE, _SQUARE) if self._in_rows else self._piece
        self._recent = RecentTiles(0 if page.is_tiled or self._in_rows else _KEPT_BYTES)
        self._check(page, levels[level].axes)
        channels = len(self._pages) * int(page.samplesperpixel) - self._alpha
        kind = pixel_kind(usual_pixels(np.zeros((1, 1, 1), dtype=page.dtype), inverted=False))
        finest = tiff_micrometres(tiff)
        micrometres = None if finest is None else finest * sizes[0][1] / sizes[level][1]
        self.size = ImageSize(*sizes[level], channels, kind, sizes, micrometres)

    def read_tile(self, tile: Box) -> np.ndarray:
        """Return the pixels of one tile, decoded now or a moment ago."""
        return self._recent.get(tile, self._read_tile)

    def _read_tile(self, tile: Box) -> np.ndarray:
        read = self._rows if self._in_rows else self._decoded
        planes = [read(page, plane, tile) for page in self._pages for plane in range(self._planes)]
        pixels = np.concatenate(planes, axis=2)[: tile.shape[0], : tile.shape[1]]
        if pixels.shape[:2] != tile.shape:
            raise ValueError("the tile is smaller than the file says")
        pixels = pixels[..., : pixels.shape[2] - self._alpha]
        pixels = usual_pixels(pixels, inverted=self._inverted)
        if pixels.dtype == np.float32 and not np.isfinite(pixels).all():
            raise ValueError("the tile has NaN or infinite pixels")
        return np.ascontiguousarray(pixels)

    def _number(self, plane: int, row: int, column: int) -> int:
        """Return the number in the file of the tile or strip that holds a pixel."""
        down, across = (
            -(-side // piece) for side, piece in zip((self.size.height, self.size.width), self._piece, strict=True)
        )
        return (plane * down + row // self._piece[0]) * across + column // self._piece[1]

    def _decoded(self, page: Any, plane: int, tile: Box) -> np.ndarray:
        number = self._number(plane, tile.top, tile.left)
        data = self._read(page.dataoffsets[number], page.databytecounts[number])
        segment = page.keyframe.decode(data, number, jpegtables=page.jpegtables)[0]
        if segment is None:
            raise ValueError("the tile is empty")
        decoded: np.ndarray = segment[0]
        return decoded

    def _rows(self, page: Any, plane: int, tile: Box) -> np.ndarray:
        """Read only the bytes of one square, row by row."""
        keyframe = page.keyframe
        kind = np.dtype(keyframe.dtype).newbyteorder(keyframe.parent.byteorder)
        samples = int(keyframe.samplesperpixel) // self._planes
        rows = []
        for row in range(tile.top, tile.bottom):
            start = page.dataoffsets[self._number(plane, row, 0)]
            place = row % self._piece[0] * self.size.width + tile.left
            rows.append(self._read(start + place * samples * kind.itemsize, tile.shape[1] * samples * kind.itemsize))
        return np.frombuffer(b"".join(rows), dtype=kind).reshape(*tile.shape, samples)

    def _read(self, offset: int, count: int) -> bytes:
        if not offset or not count:
            raise ValueError("the tile is empty")
        self._file.seek(offset)
        data: bytes = self._file.read(count)
        if len(data) < count:
            raise ValueError("the file ends before the tile does")
        return data

    def _check(self, page: Any, axes: str) -> None:
        if page.photometric not in _GREY_OR_COLOUR:
            raise ValueError(f"{self.path} has colours of the kind {page.photometric.name}; save it as grey or RGB.")
        if orientation(page) != 1:
            raise ValueError(f"{self.path} is stored turned; turn it upright and save it again.")
        if len(self._pages) > 1 and axes[:-2] not in ("C", "S", "Q", "I"):
            raise ValueError(f"{self.path} holds a stack with the axes {axes}; one image per file is expected.")
        self._check_codec(page)
        samples = len(self._pages) * int(page.samplesperpixel)
        n_bytes = self.tile[0] * self.tile[1] * samples * np.dtype(page.dtype).itemsize
        if n_bytes > _LARGEST_PIECE:
            raise ValueError(
                f"{self.path} is compressed in pieces of {self.tile[0]}x{self.tile[1]} pixels, {n_bytes / 1e9:.1f} GB"
                " each, which can only be decoded as a whole; save it as a tiled TIFF."
            )

    def _check_codec(self, page: Any) -> None:
        try:
            page.decode(b"", 0, jpegtables=page.jpegtables)
        except ValueError as error:
            if "imagecodecs" in str(error):
                raise ImportError(
                    f"{self.path} is compressed by {page.compression.name}, which needs: pip install imagecodecs."
                ) from error
        except Exception:
            return  # of course: there was nothing to decode


def _open(path: Path) -> tifffile.TiffFile:
    try:
        return tifffile.TiffFile(path)
    except tifffile.TiffFileError as error:
        raise ValueError(f"{path} cannot be read as a TIFF ({error}); choose another reader.") from error


def _piece(page: Any) -> tuple[int, int]:
    """Return the height and width of what a file stores as one piece, a tile or a strip."""
    if page.is_tiled:
        return page.tilelength, page.tilewidth
    return min(page.rowsperstrip, page.imagelength), page.imagewidth


def _has_plain_rows(page: Any) -> bool:
    """Tell whether strips hold pixels as they are, so that a part of a strip can be read."""
    as_they_are = page.compression == 1 and page.predictor == 1 and page.fillorder == 1 and not page.is_subsampled
    return not page.is_tiled and as_they_are and page.bitspersample == 8 * np.dtype(page.dtype).itemsize


def _height_width(level: Any) -> tuple[int, int]:
    sizes = dict(zip(level.axes, level.shape, strict=True))
    return sizes["Y"], sizes["X"]
