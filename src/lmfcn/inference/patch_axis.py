"""One axis of a patch: which windows lie over it, begin in it and end in it."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lmfcn.inference.map_grid import MapGrid
from lmfcn.inference.window_maps import END, INSIDE, START, Places


@dataclass(frozen=True)
class PatchAxis:
    """One axis of a patch.

    Attributes
    ----------
    windows : dict of (first, behind the last)
        Windows that have some of the patch under them, that start and that end in it, by kind.
    places : Places
        Where these windows start and end, in pixels from where the patch with its surroundings begins.
    inside : (first, behind the last)
        The patch itself, in the same pixels.
    unit, window : int
        In pixels.
    under : Tensor (n_windows, n_units)
        1 for the units that a window consists of.
    """

    windows: dict[str, tuple[int, int]]
    places: Places
    inside: tuple[int, int]
    unit: int
    window: int
    under: Tensor

    @classmethod
    def of(cls, grid: MapGrid, patch: tuple[int, int], origin: int, n_windows: int) -> "PatchAxis":
        """Return the axis of a patch from its first pixel to the one behind its last."""
        first, last = patch
        stride, window = grid.stride, grid.window
        ranges = {
            INSIDE: ((first - window) // stride + 1, (last - 1) // stride + 1),
            START: (-(-first // stride), -(-last // stride)),
            END: ((first - window) // stride + 1, (last - window) // stride + 1),
        }
        windows = {kind: _clip(start, stop, n_windows) for kind, (start, stop) in ranges.items()}
        places = {
            kind: range(windows[kind][0] * stride + ahead, windows[kind][1] * stride + ahead, stride)
            for kind, ahead in ((START, -origin), (END, window - origin))
        }
        starts = np.arange(*windows[INSIDE])[:, None] * stride
        units = np.arange(first, last, grid.unit)
        under = torch.from_numpy(((starts <= units) & (units < starts + window)).astype(np.float32))
        return cls(windows, places, (first - origin, last - origin), grid.unit, window, under)

    def gather(self, values: Tensor, kind: str, step: int) -> Tensor:
        """Return sums (others, windows, ...) of values (others, starts or ends, places, ...) under each window."""
        if kind != INSIDE:
            return values.sum(dim=2)
        start, stop = (place // step for place in self.inside)
        units = values[:, 0, start:stop].unflatten(1, (-1, self.unit // step)).sum(dim=2)
        return torch.einsum("wu,ou...->ow...", self.under.to(units), units)


def _clip(start: int, stop: int, n_windows: int) -> tuple[int, int]:
    start = max(0, start)
    return start, max(start, min(stop, n_windows))
