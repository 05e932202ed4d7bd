"""Map an image with a model behind a frozen network, which goes over patches of the image and not over every window.

A patch with its surroundings is enlarged so that a window has the resolution of a single image of its size. The latents
of a window are the means of the maps over it, and the standard deviations that follow from the means of their squares.
Cells of the maps on its sides count by the part that lies inside.

This is an approximation: around a window that is cut out of the image the networks see zeros, here they see its
neighbours.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from lmfcn.compute.encode import fold_batch_norm
from lmfcn.compute.moments import Pairs, mix, mixing
from lmfcn.maps.texture_map import USUAL_WINDOW, Box, MapGrid, Mapper, MomentPart, central_moments, moment_parts
from lmfcn.method.kernel_svm import Decision
from lmfcn.method.network import TextureFCN
from lmfcn.model import Networks
from lmfcn.networks.trunk import SMALLEST_SIDE, Trunk

HALO = 0.5
"""Surroundings on every side of a patch, in windows."""

_MOST_WINDOWS = 4
_PATCH_PIXELS = 1024
"""A patch is up to four windows wide, fewer where that would be more pixels than these: both bound the memory."""


@dataclass(frozen=True)
class TrunkGrid(MapGrid):
    """Windows over an image, and the patches that a frozen network sees.

    Windows and strides are any whole numbers of pixels, so `step` is 1.

    Attributes
    ----------
    side : int
        Side that a window is brought to.
    multiple : int
        Sides of what the network sees are multiples of it.

    Examples
    --------
    >>> grid = TrunkGrid(height=640, width=640, window=64, stride=16, step=1, reach=16, side=224, multiple=32)
    >>> grid.around(Box(256, 0, 512, 256))
    Box(top=224, left=0, bottom=544, right=320)
    >>> grid.network_sides(grid.around(Box(256, 0, 512, 256)))
    (1120, 1120)
    """

    side: int
    multiple: int

    @property
    def patch_side(self) -> int:
        """Side in pixels of a patch without its surroundings: a few windows."""
        return self.window * min(_MOST_WINDOWS, max(1, _PATCH_PIXELS // self.window))

    def around(self, patch: Box) -> Box:
        """Return a patch with its surroundings: more than the halo where the sides would not be whole multiples."""
        top, bottom = self._extended(patch.top, patch.bottom, self.height)
        left, right = self._extended(patch.left, patch.right, self.width)
        return Box(top, left, bottom, right)

    def network_sides(self, around: Box) -> tuple[int, int]:
        """Return height and width that a patch with its surroundings is brought to.

        Only a patch that is cut off at both ends of the image is stretched or shrunk a little, to whole multiples.
        """
        unit = 2 * self.window * self.multiple
        height, width = ((2 * length * self.side + unit // 2) // unit * self.multiple for length in around.shape)
        return height, width

    def _extended(self, first: int, last: int, length: int) -> tuple[int, int]:
        """Return where the surroundings of a patch start and end on an axis of an image of some length."""
        halo = 2 * self.reach
        first, last = max(0, first - halo), min(length, last + halo)
        # The fewest pixels that become a whole multiple when a window becomes `side`.
        whole = self.multiple * self.window // math.gcd(self.multiple * self.window, self.side)
        missing = -(last - first) % whole
        before = min(first, max(missing // 2, missing - (length - last)))
        after = min(length - last, missing - before)
        return first - before, last + after


class TrunkMapper(Mapper):
    """Maps with a frozen network and the trained ones behind it.

    Parameters
    ----------
    networks : Networks
        With a trunk; in eval mode.
    decision : Decision
    inverse_temperature : float
        From the calibration.
    """

    def __init__(self, networks: Networks, decision: Decision, inverse_temperature: float) -> None:
        super().__init__(decision, inverse_temperature, networks.n_latents)
        self._trunk = cast("Trunk", networks.trunk)
        self._keep_trunk = networks.keep_trunk
        self._members = [cast("TextureFCN", fold_batch_norm(network)) for network in networks.members]

    def grid(self, size: tuple[int, int], window: int, stride: int) -> TrunkGrid:
        """Return the grid of windows in an image of some height and width; refuse sizes that do not fit."""
        _check_pixels("window", window, SMALLEST_SIDE)
        _check_pixels("stride", stride, 1)
        side, _ = self._trunk.input_sides(window, window)
        return TrunkGrid(*size, window, stride, 1, int(HALO * window / 2), side, self._trunk.step)

    def default_window(self, size: tuple[int, int] | None) -> int:
        """Return the side of windows for a model whose training images had this size; 64 if they had several."""
        return USUAL_WINDOW if size is None else min(size)

    def _patch_sums(self, batch: Tensor, grid: MapGrid, patch: Box) -> Iterator[tuple[Box, Tensor]]:
        """Yield the windows that a patch touches, and what it adds to their latents (rows, columns, phi)."""
        windows, around = grid.touching(patch), grid.around(patch)
        sums = []
        for maps in self._maps(batch, cast("TrunkGrid", grid).network_sides(around)):
            rows = overlaps(grid, windows.row_ends, patch.row_ends, around.row_ends, maps.shape[2])
            columns = overlaps(grid, windows.column_ends, patch.column_ends, around.column_ends, maps.shape[3])
            sums.append(torch.einsum("rh,chw,vw->rvc", rows.to(maps), maps[0], columns.to(maps)))
        yield windows, torch.cat(sums, dim=2)

    def _maps(self, batch: Tensor, sides: tuple[int, int]) -> Iterator[Tensor]:
        """Go through the maps (1, c, h, w) of all networks in the order of the latents.

        For deviations these are squares, and for correlations products of mixtures.
        """
        stages = self._trunk.stages_at(batch, sides)
        for stage, maps in enumerate(stages) if self._keep_trunk else ():
            yield maps
            yield maps.square()
            if self._trunk.correlations:
                yield _products(mix(maps, self._trunk.mixing(stage)))
        trained = self._trunk.trained_maps(stages)
        for network in self._members:
            for maps in network.block_maps(trained):
                yield maps
                if network.deviations:
                    yield maps.square()
                if network.correlations:
                    yield _products(mix(maps, mixing(maps.shape[1], maps)))

    def _predict(self, latents: Tensor, *, typicality: bool) -> np.ndarray:
        return super()._predict(central_moments(latents, self._moment_parts(latents)), typicality=typicality)

    def _moment_parts(self, like: Tensor) -> Iterator[MomentPart]:
        trunk = self._trunk
        for stage, n_channels in enumerate(trunk.stage_channels) if self._keep_trunk else ():
            yield MomentPart(n_channels, True, trunk.mixing(stage).to(like) if trunk.correlations else None)
        for network in self._members:
            yield from moment_parts(network, like)


def _products(mixtures: Tensor) -> Tensor:
    """Return the products (1, p, h, w) of all pairs of mixtures (1, k, h, w)."""
    pairs = Pairs.of(mixtures.shape[1], mixtures.device)
    return mixtures[:, pairs.first] * mixtures[:, pairs.second]


def overlaps(
    grid: MapGrid, windows: tuple[int, int], patch: tuple[int, int], around: tuple[int, int], n_cells: int
) -> Tensor:
    """Return by which weights (windows, cells) the cells of a map count in the means of windows, on one axis.

    A weight is the length that a cell, a window and the patch have in common, as a share of the window. So the weights
    of a window sum to 1 over all patches.

    Parameters
    ----------
    grid : MapGrid
    windows : (first, end)
        Numbers of the windows.
    patch, around : (first, end)
        Pixels of the patch without and with its surroundings.
    n_cells : int
        Cells of the map, which divide the pixels of `around` into equal parts.

    Examples
    --------
    >>> grid = MapGrid(height=64, width=64, window=32, stride=16, step=1, reach=8)
    >>> overlaps(grid, windows=(0, 3), patch=(0, 48), around=(0, 64), n_cells=4)
    tensor([[0.5000, 0.5000, 0.0000, 0.0000],
            [0.0000, 0.5000, 0.5000, 0.0000],
            [0.0000, 0.0000, 0.5000, 0.0000]])
    """
    edges = torch.linspace(*around, n_cells + 1, dtype=torch.float64).clamp(*patch)
    starts = torch.arange(*windows, dtype=torch.float64)[:, None] * grid.stride
    common = torch.minimum(edges[1:], starts + grid.window) - torch.maximum(edges[:-1], starts)
    return (common.clamp(min=0) / grid.window).float()


def _check_pixels(name: str, value: Any, smallest: int) -> None:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or value < smallest:
        raise ValueError(
            f"{name} must be a whole number of pixels and at least {smallest} for a model with a pretrained network;"
            f" got {value!r}."
        )
