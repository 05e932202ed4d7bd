"""What a patch of an image adds to the mean latents of the windows that touch it."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lmfcn.inference.map_grid import MapGrid
from lmfcn.inference.window_maps import CORNERS, END, START, STRIPS, Corner, Places, WindowMaps

OVER = "over"
"""Windows that have some of a patch under them, beside those that start or end in it."""


@dataclass(frozen=True)
class PatchAxis:
    """One axis of a patch.

    Attributes
    ----------
    windows : dict of (first, behind the last)
        Windows that lie over the patch, that start and that end in it.
    places : Places
        Where windows start and end, in pixels from where the patch with its surroundings begins.
    inside : (first, behind the last)
        The patch itself, in the same pixels.
    unit, window : int
        In pixels.
    under : Tensor (windows, units)
        1 for the units of the patch that a window lies over.
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
        windows = {
            OVER: _clip((first - window) // stride + 1, (last - 1) // stride + 1, n_windows),
            START: _clip(-(-first // stride), -(-last // stride), n_windows),
            END: _clip((first - window) // stride + 1, (last - window) // stride + 1, n_windows),
        }
        places = {
            side: range(windows[side][0] * stride + ahead, windows[side][1] * stride + ahead, stride)
            for side, ahead in ((START, -origin), (END, window - origin))
        }
        starts = np.arange(*windows[OVER])[:, None] * stride
        units = np.arange(first, last, grid.unit)
        under = torch.from_numpy(((starts <= units) & (units < starts + window)).astype(np.float32))
        return cls(windows, places, (first - origin, last - origin), grid.unit, window, under)

    def unit_sums(self, values: Tensor, step: int) -> Tensor:
        """Return sums (units, ...) of values at all places (length, ...) of the patch and its surroundings."""
        start, stop = (pixel // step for pixel in self.inside)
        return values[start:stop].unflatten(0, (-1, self.unit // step)).sum(dim=1)


def window_sums(maps: WindowMaps, rows: PatchAxis, columns: PatchAxis) -> dict[tuple[str, str], Tensor]:
    """Return what a patch adds to the means (rows, columns, channels) of windows: over it, and with sides in it."""
    axes = (rows, columns)
    units = columns.unit_sums(rows.unit_sums(maps.shared, maps.step).transpose(0, 1), maps.step)
    sums = {(OVER, OVER): torch.einsum("ru,vuc,wv->rwc", rows.under.to(units), units, columns.under.to(units))}
    deviations = {key: maps.deviations(*key).sum(dim=0) for key in STRIPS}
    for (axis, side), deviation in deviations.items():
        along = axes[1 - axis]
        sides = torch.einsum("wu,unc->nwc", along.under.to(units), along.unit_sums(deviation, maps.step))
        sums[(side, OVER) if axis == 0 else (OVER, side)] = sides if axis == 0 else sides.transpose(0, 1)
    for corner in CORNERS:
        sums[corner] = _corner_sums(maps, corner, deviations[1, corner[1]])
    return {kinds: part / (rows.window // maps.step) ** 2 for kinds, part in sums.items()}


def _corner_sums(maps: WindowMaps, sides: Corner, deviations: Tensor) -> Tensor:
    """Return the sums (rows, columns, channels) of what corners differ by from what their sides let expect."""
    sums, strip = maps.corners[sides].sum(dim=(0, 1)), maps.strips[0, sides[0]].sum(dim=0)
    for column in maps.felt_places(sides[1]):
        sums -= maps.lines(strip, 0, 1, sides[1], column).transpose(0, 1)
    for row in maps.felt_places(sides[0]):
        sums -= maps.lines(deviations, 0, 0, sides[0], row)
    return sums


def _clip(start: int, stop: int, n_windows: int) -> tuple[int, int]:
    start = min(max(0, start), n_windows)
    return start, max(start, min(stop, n_windows))
