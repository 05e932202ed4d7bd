"""Whole slides through OpenSlide."""

from pathlib import Path
from typing import Any

import numpy as np

from lmfcn.inference.map_grid import Box
from lmfcn.mapping.images import ImageSize, LargeImage
from lmfcn.mapping.levels import check_level

_TILE = 512


class Slide(LargeImage):
    """One level of a whole slide.

    It is read in squares with fixed places, so that the same pixels come out whichever part is asked for, also where
    a level is no whole number of times smaller than the finest.
    """

    def __init__(self, path: Path, level: int = 0) -> None:
        self.path, self.tile = path, (_TILE, _TILE)
        self._level = level
        self._slide = _open(path)
        sizes = [(height, width) for width, height in self._slide.level_dimensions]
        check_level(path, level, len(sizes))
        self._downsample = self._slide.level_downsamples[level]
        properties = self._slide.properties
        finest = properties.get("openslide.mpp-x")
        micrometres = None if finest is None else float(finest) * self._downsample
        self.size = ImageSize(*sizes[level], 3, "uint8", sizes, micrometres)
        colour = properties.get("openslide.background-color", "FFFFFF")
        self._background = np.array([int(colour[place : place + 2], 16) for place in (0, 2, 4)], dtype=np.float32)

    def read_tile(self, tile: Box) -> np.ndarray:
        """Return the RGB pixels of one square; where nothing was scanned they have the colour of the background."""
        place = round(tile.left * self._downsample), round(tile.top * self._downsample)
        try:
            picture = self._slide.read_region(place, self._level, tile.shape[::-1])
        except Exception:
            self._slide = _open(self.path)  # an OpenSlide handle that has failed once fails for ever
            raise
        pixels = np.asarray(picture)
        opaque = pixels[..., 3:].astype(np.float32) / 255
        if opaque.min() == 1:
            return np.ascontiguousarray(pixels[..., :3])
        return np.rint(pixels[..., :3] * opaque + self._background * (1 - opaque)).astype(np.uint8)


def slide_vendor(path: Path) -> str | None:
    """Return which maker's format a file has, "generic-tiff" for other tiled TIFFs; None if OpenSlide is no help."""
    try:
        import openslide
    except ImportError:
        return None
    vendor: str | None = openslide.OpenSlide.detect_format(str(path))
    return vendor


def _open(path: Path) -> Any:
    try:
        import openslide
    except ImportError as error:
        raise ImportError(f"Whole slides need OpenSlide: pip install 'lmfcn[wsi]' ({error}).") from error
    try:
        return openslide.OpenSlide(str(path))
    except openslide.OpenSlideError as error:
        raise ValueError(f"{path} cannot be read by OpenSlide ({error}).") from error
