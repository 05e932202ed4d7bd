"""The maps of every window as if it were an image of its own, from one pass over all of them.

An image of its own has zeros around it, a window has neighbours, so maps differ near the window's sides: in a few rows
below its upper side, a few columns beside its left side, and so on. These rows depend on where the window begins, but not
on its columns, so they are computed once for all windows that begin there, and likewise the columns; only the
corners are computed window by window. All the rest is shared.

Along each axis a map has one of three kinds of places: INSIDE, where no side is felt, START, the first few of a window,
and END, its last few. Maps of all nine combinations are kept as arrays (starts, lefts, rows, columns, channels); INSIDE, the
first or second axis has length 1 and the third or fourth goes over the whole image.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, max_pool2d, pad

from lmfcn.algorithm.network import TextureFCN

INSIDE, START, END = "inside", "start", "end"
KINDS = list(product((INSIDE, START, END), repeat=2))

Places = dict[str, list[int]]
"""Pixels at which windows start, and before which they end, along one axis."""


@dataclass(frozen=True)
class WindowMaps:
    """Maps of one layer, of all nine kinds.

    Attributes
    ----------
    maps : dict of Tensor
        By kind along rows and columns.
    step : int
        Pixels from one place of the maps to the next.
    felt : dict of int
        In how many places a window's start and end are felt.
    rows, columns : Places
    """

    maps: dict[tuple[str, str], Tensor]
    step: int
    felt: dict[str, int]
    rows: Places
    columns: Places

    def neighbours(self, kind: tuple[str, str], extra: dict[str, int]) -> Tensor:
        """Return the maps of a kind, continued by `extra` places that do not feel the side."""
        beside = self._beside(kind[0], kind[1], extra)
        if kind[0] == INSIDE:
            return beside
        shared = self._beside(INSIDE, kind[1], extra)[0][:, self._index(self.rows, kind[0], extra[kind[0]])]
        return torch.cat(_ordered(kind[0], beside, shared.transpose(0, 1)), dim=2)

    def deviations(self, kind: tuple[str, str]) -> Tensor:
        """Return by how much maps of a kind differ from what their rows and columns alone let expect."""
        difference = self._column_deviations(*kind)
        if kind[0] == INSIDE:
            return difference
        shared = self._column_deviations(INSIDE, kind[1])[0][:, self._felt_index(self.rows, kind[0])]
        return difference - shared.transpose(0, 1)

    def _beside(self, row_kind: str, kind: str, extra: dict[str, int]) -> Tensor:
        if kind == INSIDE:
            return self.maps[row_kind, kind]
        shared = self.maps[row_kind, INSIDE][:, 0][:, :, self._index(self.columns, kind, extra[kind])]
        return torch.cat(_ordered(kind, self.maps[row_kind, kind], shared.transpose(1, 2)), dim=3)

    def _column_deviations(self, row_kind: str, kind: str) -> Tensor:
        if kind == INSIDE:
            return self.maps[row_kind, kind]
        shared = self.maps[row_kind, INSIDE][:, 0][:, :, self._felt_index(self.columns, kind)]
        return self.maps[row_kind, kind] - shared.transpose(1, 2)

    def _index(self, places: Places, kind: str, extra: int) -> Tensor:
        """Return the places (windows, extra) behind those that feel a start, or before those that feel an end."""
        first = self.felt[kind] if kind == START else -self.felt[kind] - extra
        return self._counted(places[kind], first, extra)

    def _felt_index(self, places: Places, kind: str) -> Tensor:
        return self._counted(places[kind], 0 if kind == START else -self.felt[kind], self.felt[kind])

    def _counted(self, places: list[int], first: int, count: int) -> Tensor:
        device = self.maps[INSIDE, INSIDE].device
        starts = torch.tensor(places, dtype=torch.long, device=device)[:, None] // self.step
        return starts + torch.arange(first, first + count, device=device)


def window_maps(network: nn.Module, batch: Tensor, rows: Places, columns: Places) -> Iterator[WindowMaps]:
    """Go through the maps whose means are the latents, for all windows in one image.

    Parameters
    ----------
    network : TextureFCN
        With its batch normalisation folded into the convolutions.
    batch : Tensor (1, channels, height, width)
    rows, columns : Places
    """
    layer_maps = _of_pixels(batch, rows, columns)
    for layer in network.features:  # type: ignore[union-attr]
        if isinstance(layer, nn.Conv2d):
            layer_maps = _convolve(layer_maps, layer)
        elif isinstance(layer, nn.MaxPool2d):
            layer_maps = _pool(layer_maps)
        else:
            for maps in layer_maps.maps.values():
                layer(maps)  # in place
            if network.pooling == "all":
                yield layer_maps
    if network.pooling != "all":
        yield layer_maps


def _of_pixels(batch: Tensor, rows: Places, columns: Places) -> WindowMaps:
    pixels = batch.permute(0, 2, 3, 1)[None]
    _, _, height, width, channels = pixels.shape
    maps = {}
    for row_kind, kind in KINDS:
        shape = [1 if row_kind == INSIDE else len(rows[row_kind]), 1 if kind == INSIDE else len(columns[kind])]
        shape += [height if row_kind == INSIDE else 0, width if kind == INSIDE else 0, channels]
        maps[row_kind, kind] = pixels.new_empty(shape)
    maps[INSIDE, INSIDE] = pixels
    return WindowMaps(maps, 1, {START: 0, END: 0}, rows, columns)


def _convolve(before: WindowMaps, layer: nn.Conv2d) -> WindowMaps:
    """Apply a 3x3 convolution that sees zeros outside of a window: a side is felt one place further."""
    padding = {INSIDE: (1, 1), START: (1, 0), END: (0, 1)}
    maps = {}
    for kind in KINDS:
        batch, shape = _as_batch(before.neighbours(kind, {START: 2, END: 2}))
        batch = pad(batch, (*padding[kind[1]], *padding[kind[0]]))
        maps[kind] = _from_batch(conv2d(batch, layer.weight, layer.bias), shape)
    felt = {side: count + 1 for side, count in before.felt.items()}
    return WindowMaps(maps, before.step, felt, before.rows, before.columns)


def _pool(before: WindowMaps) -> WindowMaps:
    """Take the largest of 3x3 at every other place, as far as they belong to a window."""
    felt = {START: before.felt[START] // 2 + 1, END: (before.felt[END] + 1) // 2}
    extra = {START: 2 * felt[START] - before.felt[START], END: 2 * felt[END] + 1 - before.felt[END]}
    padding = {INSIDE: (1, 1), START: (1, 0), END: (0, 0)}
    maps = {}
    for kind in KINDS:
        batch, shape = _as_batch(before.neighbours(kind, extra))
        batch = pad(batch, (*padding[kind[1]], *padding[kind[0]]), value=-torch.inf)
        maps[kind] = _from_batch(max_pool2d(batch, 3, stride=2), shape)
    return WindowMaps(maps, 2 * before.step, felt, before.rows, before.columns)


def _as_batch(maps: Tensor) -> tuple[Tensor, torch.Size]:
    """Return maps as torch's layers take them, and how many windows they are of."""
    return maps.flatten(0, 1).permute(0, 3, 1, 2), maps.shape[:2]


def _from_batch(batch: Tensor, shape: torch.Size) -> Tensor:
    return batch.permute(0, 2, 3, 1).unflatten(0, shape)


def _ordered(kind: str, felt: Tensor, shared: Tensor) -> tuple[Tensor, Tensor]:
    return (felt, shared) if kind == START else (shared, felt)
