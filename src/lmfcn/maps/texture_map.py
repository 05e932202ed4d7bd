"""What is where in an image: the networks go over it once, and a window slides over their maps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from lmfcn.compute.encode import fold_batch_norm, to_batch
from lmfcn.maps.grid import Box, MapGrid, pieces
from lmfcn.maps.windows import PatchAxis, window_maps, window_sums
from lmfcn.method.kernel_svm import Decision
from lmfcn.method.network import TextureFCN
from lmfcn.model import probabilities

_USUAL_WINDOW = 64


@dataclass(frozen=True)
class TextureMap:
    """Probabilities at every place of a window.

    Attributes
    ----------
    probabilities : array (rows, columns, n_classes)
    classes : array (n_classes,)
    grid : MapGrid
        Where the windows stand: the upper left pixel of the one in row i and column j is i and j times the stride.
    """

    probabilities: np.ndarray
    classes: np.ndarray
    grid: MapGrid

    @property
    def labels(self) -> np.ndarray:
        """The most probable label (rows, columns) of each window."""
        return self.classes[self.probabilities.argmax(axis=2)]

    def at_pixels(self) -> np.ndarray:
        """Return for each pixel (height, width) the label of the window whose centre is nearest."""
        rows = self.grid.nearest(np.arange(self.grid.height), self.grid.rows)
        columns = self.grid.nearest(np.arange(self.grid.width), self.grid.columns)
        return self.labels[rows[:, None], columns]


class Mapper:
    """Maps images, or parts of large ones, with the networks and the decision of a fitted model.

    Parameters
    ----------
    networks : sequence of TextureFCN
        In eval mode.
    decision : Decision
    inverse_temperature : float
        Of the calibration.
    """

    def __init__(self, networks: Sequence[TextureFCN], decision: Decision, inverse_temperature: float) -> None:
        self._networks = [cast("TextureFCN", fold_batch_norm(network)) for network in networks]
        self._decision = decision
        self._inverse_temperature = inverse_temperature
        self._depth = len(networks[0].widths)
        self.n_classes = max(2, len(decision.intercepts))
        self.n_latents = sum(network.n_latents for network in networks)

    def grid(self, size: tuple[int, int], window: int, stride: int) -> MapGrid:
        """Return the places of windows in an image of some height and width, or say why there are none."""
        step = 2**self._depth
        # A convolution sees one place further, and the pooling behind a hidden one another.
        reach = sum(2 * 2**block for block in range(self._depth)) + step
        return MapGrid(*size, window, stride, step, reach)

    def window(self, size: tuple[int, int] | None) -> int:
        """Return the side of windows that suits a model whose images were brought to a size."""
        step = 2**self._depth
        return _USUAL_WINDOW if size is None else max(1, min(size) // step) * step

    def map(self, pixels: np.ndarray, grid: MapGrid) -> np.ndarray:
        """Return the probabilities (rows, columns, n_classes) of all windows of an image (height, width, channels)."""
        found = np.empty((grid.rows, grid.columns, self.n_classes), dtype=np.float32)
        for block in grid.blocks(self.n_latents):
            found[block.within(grid.everything)] = self.block(pixels[grid.region(block).slices], grid, block)
        return found

    def block(self, pixels: np.ndarray, grid: MapGrid, windows: Box, wanted: np.ndarray | None = None) -> np.ndarray:
        """Return the probabilities (rows, columns, n_classes) of some windows.

        Parameters
        ----------
        pixels : array (height, width, channels)
            What `grid.region(windows)` asks for.
        grid : MapGrid
        windows : Box
        wanted : array of bool (rows, columns), optional
            Windows to look at; the others become NaN.
        """
        if wanted is None:
            wanted = np.ones(windows.shape, dtype=bool)
        found = np.full((*windows.shape, self.n_classes), np.nan, dtype=np.float32)
        with torch.no_grad():
            latents = self._latents(pixels, grid, windows, wanted)
            for group in pieces(windows, grid.group):
                place = group.within(windows)
                if wanted[place].any():
                    found[place] = self._decide(latents[place])
        found[~wanted] = np.nan
        return found

    def _latents(self, pixels: np.ndarray, grid: MapGrid, windows: Box, wanted: np.ndarray) -> Tensor:
        """Return the latents (rows, columns, phi) of some windows, patch by patch."""
        device, region = self._decision.intercepts.device, grid.region(windows)
        latents = torch.zeros(*windows.shape, self.n_latents, device=device)
        for patch in grid.patches(windows):
            touched = grid.touching(patch).overlap(windows)
            if wanted[touched.within(windows)].any():
                around = grid.around(patch)
                batch = to_batch(pixels[around.within(region)][None], device)
                for part, sums in self._patch_sums(batch, grid, patch):
                    common = part.overlap(windows)
                    latents[common.within(windows)] += sums[common.within(part)]
        return latents

    def _patch_sums(self, batch: Tensor, grid: MapGrid, patch: Box) -> Iterator[tuple[Box, Tensor]]:
        """Go through what a patch adds to the latents of windows: which ones, and how much (rows, columns, phi)."""
        around = grid.around(patch)
        rows = PatchAxis.of(grid, (patch.top, patch.bottom), around.top, grid.rows)
        columns = PatchAxis.of(grid, (patch.left, patch.right), around.left, grid.columns)
        layers = [
            window_sums(maps, rows, columns)
            for network in self._networks
            for maps in window_maps(network, batch, rows.places, columns.places)
        ]
        for row_kind, kind in layers[0]:
            (top, bottom), (left, right) = rows.windows[row_kind], columns.windows[kind]
            yield Box(top, left, bottom, right), torch.cat([sums[row_kind, kind] for sums in layers], dim=2)

    def _decide(self, latents: Tensor) -> np.ndarray:
        scores = self._decision.scores(latents.reshape(-1, self.n_latents))
        return probabilities(scores, self._inverse_temperature).reshape(*latents.shape[:2], -1).cpu().numpy()
