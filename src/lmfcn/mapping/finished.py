"""A finished map on disk: what it shows where, read band by band."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lmfcn.inference.map_grid import Box, MapGrid
from lmfcn.mapping.blocks import BlockStore
from lmfcn.mapping.legend import Legend
from lmfcn.mapping.tissue import TissueMask

_BAND = 64


@dataclass(frozen=True)
class FinishedMap:
    """All blocks of a map, and how they are shown.

    Attributes
    ----------
    store : BlockStore
    grid : MapGrid
    legend : Legend
    tissue : TissueMask or None
    reject : float
        Least probability of a label that is shown.
    """

    store: BlockStore
    grid: MapGrid
    legend: Legend
    tissue: TissueMask | None
    reject: float

    def label_bands(self) -> Iterator[tuple[int, np.ndarray]]:
        """Go through the map from top to bottom: number of the first row, labels (rows, columns)."""
        for top in range(0, self.grid.rows, _BAND):
            box = Box(top, 0, min(top + _BAND, self.grid.rows), self.grid.columns)
            wanted = None if self.tissue is None else self.tissue.wanted(self.grid, box)
            yield top, self.legend.labels(self.store.read(box), wanted, self.reject)

    def areas(self) -> np.ndarray:
        """Return how many pixels (n,) of the image are nearest to windows of each label."""
        heights = self.grid.extents(self.grid.rows, self.grid.height).astype(float)
        widths = self.grid.extents(self.grid.columns, self.grid.width).astype(float)
        areas = np.zeros(len(self.legend.names))
        for top, labels in self.label_bands():
            weights = heights[top : top + len(labels), None] * widths
            areas += np.bincount(labels.ravel(), weights.ravel(), minlength=len(areas))
        return np.rint(areas).astype(np.int64)

    def picture(self, height: int, width: int) -> np.ndarray:
        """Return the labels as a picture (height, width) of the whole image."""
        rows = self._windows(height, self.grid.height, self.grid.rows)
        columns = self._windows(width, self.grid.width, self.grid.columns)
        picture = np.empty((height, width), dtype=np.uint8)
        for top, labels in self.label_bands():
            here = (rows >= top) & (rows < top + len(labels))
            picture[here] = labels[rows[here, None] - top, columns]
        return picture

    def _windows(self, shown: int, length: int, n_windows: int) -> np.ndarray:
        places = (np.arange(shown) + 0.5) * length / shown
        return self.grid.nearest(places.astype(int), n_windows)
