"""TIFF files of any size, of which only the tiles or strips that are needed are decoded."""

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

_GREY_OR_COLOUR = {0, 1, 2, 6}  # white is zero, black is zero, RGB, YCbCr, which becomes RGB
_MICROMETRE = 5


class TiledTiff(LargeImage):
    """One level of a TIFF, tiled or in strips, its channels in tiles, planes or pages.

    Parameters
    ----------
    path : Path
    level : int
        0 is the finest.
    """

    def __init__(self, path: Path, level: int = 0) -> None:
        self.path = path
        tiff = tifffile.TiffFile(path)
        weakref.finalize(self, tiff.close)
        levels = tiff.series[0].levels
        sizes = [_height_width(found) for found in levels]
        check_level(path, level, len(sizes))
        self._file = tiff.filehandle
        self._pages: list[Any] = list(levels[level].pages)
        page: Any = self._pages[0].keyframe
        self._inverted = page.photometric == 0
        self._check(page, levels[level].axes)
        self._planes = int(page.samplesperpixel) if page.planarconfig == 2 else 1
        self._alpha = n_alpha(page)
        self.tile = (page.tilelength, page.tilewidth) if page.is_tiled else (page.rowsperstrip, page.imagewidth)
        channels = len(self._pages) * int(page.samplesperpixel) - self._alpha
        kind = pixel_kind(usual_pixels(np.zeros((1, 1, 1), dtype=page.dtype), inverted=False))
        self.size = ImageSize(*sizes[level], channels, kind, sizes, _micrometres(tiff, sizes, level))

    def read_tile(self, tile: Box) -> np.ndarray:
        """Decode one tile."""
        across = -(-self.size.width // self.tile[1])
        number = tile.top // self.tile[0] * across + tile.left // self.tile[1]
        count = across * -(-self.size.height // self.tile[0])
        planes = [self._decode(page, number + plane * count) for page in self._pages for plane in range(self._planes)]
        pixels = np.concatenate(planes, axis=2)[: tile.shape[0], : tile.shape[1]]
        if pixels.shape[:2] != tile.shape:
            raise ValueError("the tile is smaller than the file says")
        pixels = pixels[..., : pixels.shape[2] - self._alpha]
        pixels = usual_pixels(pixels, inverted=self._inverted)
        if pixels.dtype == np.float32 and not np.isfinite(pixels).all():
            raise ValueError("the tile has NaN or infinite pixels")
        return np.ascontiguousarray(pixels)

    def _decode(self, page: Any, number: int) -> np.ndarray:
        self._file.seek(page.dataoffsets[number])
        data = self._file.read(page.databytecounts[number])
        if len(data) < page.databytecounts[number]:
            raise ValueError("the file ends before the tile does")
        segment = page.keyframe.decode(data, number, jpegtables=page.jpegtables)[0]
        if segment is None:
            raise ValueError("the tile is empty")
        decoded: np.ndarray = segment[0]
        return decoded

    def _check(self, page: Any, axes: str) -> None:
        if page.photometric not in _GREY_OR_COLOUR:
            raise ValueError(f"{self.path} has colours of the kind {page.photometric.name}; save it as grey or RGB.")
        if orientation(page) != 1:
            raise ValueError(f"{self.path} is stored turned; turn it upright and save it again.")
        if len(self._pages) > 1 and axes[:-2] not in ("C", "S", "Q", "I"):
            raise ValueError(f"{self.path} holds a stack with the axes {axes}; one image per file is expected.")
        try:
            self._decode(page, 0)
        except ValueError as error:
            if "imagecodecs" in str(error):
                raise ImportError(
                    f"{self.path} is compressed by {page.compression.name}, which needs: pip install 'lmfcn[wsi]'."
                ) from error
        except Exception:
            return  # a tile that is broken is told about when it is its turn


def _height_width(level: Any) -> tuple[int, int]:
    sizes = dict(zip(level.axes, level.shape, strict=True))
    return sizes["Y"], sizes["X"]


def _micrometres(tiff: tifffile.TiffFile, sizes: list[tuple[int, int]], level: int) -> float | None:
    page: Any = tiff.pages[0]
    if "XResolution" not in page.tags or page.resolutionunit not in (2, 3):
        return None
    per_micrometre = float(page.get_resolution(_MICROMETRE)[0])
    return sizes[0][1] / sizes[level][1] / per_micrometre if per_micrometre > 0 else None
