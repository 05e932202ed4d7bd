"""Which windows of a slide have tissue under them, and which only glass."""

from dataclasses import dataclass

import numpy as np

from lmfcn.inference.map_grid import Box, MapGrid
from lmfcn.mapping.images import LargeImage, thumbnail

_LEAST_TISSUE = 0.1
_SIDE = 1024
_PALEST_GLASS, _DARKEST_GLASS = 0.1, 0.7


@dataclass(frozen=True)
class TissueMask:
    """Where an image shows tissue.

    Attributes
    ----------
    tissue : array of bool (height, width)
        Of the whole image at a coarse resolution.
    """

    tissue: np.ndarray

    def wanted(self, grid: MapGrid, windows: Box) -> np.ndarray:
        """Tell which windows (rows, columns) have tissue on at least a tenth of their area."""
        sums = np.pad(self.tissue.astype(np.int64).cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
        top, bottom = self._ends(np.arange(windows.top, windows.bottom), grid, grid.height, axis=0)
        left, right = self._ends(np.arange(windows.left, windows.right), grid, grid.width, axis=1)
        inside = sums[bottom[:, None], right] - sums[top[:, None], right]
        inside += sums[top[:, None], left] - sums[bottom[:, None], left]
        wanted: np.ndarray = inside >= _LEAST_TISSUE * (bottom - top)[:, None] * (right - left)
        return wanted

    def _ends(self, windows: np.ndarray, grid: MapGrid, length: int, axis: int) -> tuple[np.ndarray, np.ndarray]:
        ratio = self.tissue.shape[axis] / length
        starts = np.minimum((windows * grid.stride * ratio).astype(int), self.tissue.shape[axis] - 1)
        ends = np.ceil((windows * grid.stride + grid.window) * ratio).astype(int)
        return starts, ends.clip(starts + 1, self.tissue.shape[axis])


def find_tissue(image: LargeImage) -> TissueMask:
    """Tell tissue from glass by its saturation, or by its darkness in images without colour.

    The threshold is Otsu's. What lies below it must be bright and colourless as glass is; otherwise all is tissue.
    """
    full_scale = {"uint8": 255.0, "uint16": 65535.0}.get(image.size.pixels, 1.0)
    pixels = thumbnail(image, _SIDE) / full_scale
    brightest = pixels.max(axis=2)
    colourless = pixels.shape[2] != 3
    values = 1 - brightest if colourless else (brightest - pixels.min(axis=2)) / np.maximum(brightest, 1e-6)
    tissue = values > otsu_threshold(values)
    glass = ~tissue
    pale = colourless or bool(values[glass].mean() <= _PALEST_GLASS)
    if not glass.any() or not pale or brightest[glass].mean() < _DARKEST_GLASS:
        tissue = np.ones_like(tissue)
    return TissueMask(tissue)


def otsu_threshold(values: np.ndarray, bins: int = 256) -> float:
    """Return the value between 0 and 1 that divides values into two classes of least variance (Otsu 1979).

    Examples
    --------
    >>> 0.1 <= otsu_threshold(np.array([0.05, 0.1, 0.1, 0.8, 0.9])) < 0.8
    True
    """
    counts, edges = np.histogram(values.clip(0, 1), bins=bins, range=(0.0, 1.0))
    centres = (edges[1:] + edges[:-1]) / 2
    below = counts.cumsum()
    above = below[-1] - below
    means_below = (counts * centres).cumsum() / np.maximum(below, 1)
    means_above = ((counts * centres).sum() - (counts * centres).cumsum()) / np.maximum(above, 1)
    between = below * above * (means_below - means_above) ** 2
    # Of several equally good thresholds, as in the empty middle between two peaks, the one in the middle.
    return float(edges[1:][between >= between.max() * (1 - 1e-12)].mean())
