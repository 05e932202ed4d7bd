"""Show an image of any size: tiles of 8-bit RGB at every halved resolution."""

import math
import threading
from collections import OrderedDict
from pathlib import Path

import numpy as np

from lmfcn.maps.large_image import LargeImage, ScaledImage, read_thumbnail
from lmfcn.maps.readers import View, open_level, resolve_view
from lmfcn.maps.texture_map import Box

TILE = 512
_MOST_TILES = 128
_THUMBNAIL = 512


class Pyramid:
    """An image in halved resolutions: those that the file holds, and halves of finer ones in between.

    Tiles may be asked for by several threads.

    Parameters
    ----------
    path : Path

    Attributes
    ----------
    height, width : int
        Of the finest level.
    n_levels : int
        The last one fits into a tile.
    """

    def __init__(self, path: Path) -> None:
        reader = resolve_view(path, View()).reader
        finest = open_level(path, View(reader))
        self.height, self.width = finest.size.height, finest.size.width
        self.n_levels = 1 + max(0, math.ceil(math.log2(max(self.height, self.width) / TILE)))
        self._images: dict[int, LargeImage] = {0: finest}
        for number, (_, width) in enumerate(finest.size.levels[1:], start=1):
            ratio = self.width / width
            level = math.ceil(math.log2(ratio) - 0.01)
            if level < self.n_levels and level not in self._images:
                stored, scale = open_level(path, View(reader, number)), ratio / 2**level
                self._images[level] = stored if scale > 0.99 else ScaledImage(stored, scale)
        self._tiles: OrderedDict[tuple[int, int, int], np.ndarray] = OrderedDict()
        self._lock = threading.RLock()
        self._range = self._find_range()

    def _find_range(self) -> tuple[float, float]:
        """Return the pixel values that are shown as black and white: the same in all tiles."""
        coarsest = self._images[max(self._images)]
        if coarsest.size.pixels == "uint8":
            return 0.0, 255.0
        low, high = np.percentile(read_thumbnail(coarsest, _THUMBNAIL), (1, 99))
        return float(low), float(max(high, low + 1e-9))

    def tile(self, level: int, row: int, column: int) -> np.ndarray:
        """Return the RGB pixels (height, width, 3) of a tile; those at the right and lower sides may be smaller."""
        rows, columns = self.shape(level)
        if not (0 <= row < rows and 0 <= column < columns):
            raise IndexError(f"There is no tile {row:.6g}, {column:.6g} at level {level}.")
        with self._lock:
            return self._kept(level, row, column)

    def shape(self, level: int) -> tuple[int, int]:
        """Return how many rows and columns of tiles a level has."""
        if not 0 <= level < self.n_levels:
            raise IndexError(f"There is no level {level:.6g}; the levels go from 0 to {self.n_levels - 1}.")
        return -(-self.height // (TILE << level)), -(-self.width // (TILE << level))

    def _kept(self, level: int, row: int, column: int) -> np.ndarray:
        key = level, row, column
        if key not in self._tiles:
            self._tiles[key] = self._read(*key) if level in self._images else self._halve(*key)
            while len(self._tiles) > _MOST_TILES:
                self._tiles.popitem(last=False)
        self._tiles.move_to_end(key)
        return self._tiles[key]

    def _read(self, level: int, row: int, column: int) -> np.ndarray:
        image = self._images[level]
        whole = Box(0, 0, image.size.height, image.size.width)
        box = Box(row * TILE, column * TILE, (row + 1) * TILE, (column + 1) * TILE).overlap(whole)
        pixels = image.read(box).pixels
        shown = pixels[..., :3] if pixels.shape[2] >= 3 else pixels[..., :1]
        if image.size.pixels != "uint8":
            low, high = self._range
            shown = np.rint(((shown.astype(np.float32) - low) * (255 / (high - low))).clip(0, 255)).astype(np.uint8)
        return np.ascontiguousarray(np.broadcast_to(shown, (*box.shape, 3)))

    def _halve(self, level: int, row: int, column: int) -> np.ndarray:
        """Return the mean of every four pixels of the finer tiles."""
        down, across = self.shape(level - 1)
        rows = range(2 * row, min(2 * row + 2, down))
        columns = range(2 * column, min(2 * column + 2, across))
        parts = [np.concatenate([self._kept(level - 1, r, c) for c in columns], axis=1) for r in rows]
        fine = np.concatenate(parts)
        fine = np.pad(fine, ((0, fine.shape[0] % 2), (0, fine.shape[1] % 2), (0, 0)), mode="edge")
        quarters = fine.reshape(fine.shape[0] // 2, 2, fine.shape[1] // 2, 2, 3)
        return np.rint(quarters.mean(axis=(1, 3))).astype(np.uint8)
