"""The maps of every window as if it were an image of its own, from one pass over all of them.

An image of its own has zeros around it where a window has neighbours, so their maps differ, but only near the window's
sides. How they differ below an upper side depends on the row in which windows start, not on their columns, so it is
computed once for all windows in that row; the same goes for the other sides, and what a corner adds to that is
computed for every corner. All the rest is shared.

Along each axis a place is of one of three kinds: INSIDE, where no side of a window is felt, START, the first few of a
window, or END, its last few. Maps of all nine combinations are tensors (starts or ends of rows, starts or ends of
columns, rows, columns, channels); INSIDE, there is one entry for all windows, and the places are those of the image.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, max_pool2d, pad

from lmfcn.algorithm.network import TextureFCN

INSIDE, START, END = "inside", "start", "end"
Kind = tuple[str, str]
KINDS: list[Kind] = list(product((INSIDE, START, END), repeat=2))
"""Of rows and of columns; what a kind is computed from comes before it."""

Places = dict[str, range]
"""Pixels at which windows start, and behind which they end, along one axis."""

_Part = tuple[slice, slice, slice]
_ALL = slice(None)


@dataclass(frozen=True)
class WindowMaps:
    """Maps of one layer, of all nine kinds.

    Attributes
    ----------
    maps : dict of Tensor
        By kind.
    step : int
        Pixels from one place of the maps to the next.
    felt : dict of int
        In how many places a window's start and its end are felt.
    rows, columns : Places
    outside : int
        How many places beyond their sides windows have, and the image too; zeros.
    """

    maps: dict[Kind, Tensor]
    step: int
    felt: dict[str, int]
    rows: Places
    columns: Places
    outside: int = 0

    def expected(self, kind: Kind) -> Tensor:
        """Return what maps of a kind would be if the sides were not felt or, in corners, did not interact."""
        rows, columns = kind
        shared = self.maps[INSIDE, INSIDE]
        if rows == INSIDE:
            return _take_columns(shared, self._felt_places(self.columns, columns))
        felt_rows = self._felt_places(self.rows, rows)
        if columns == INSIDE:
            return _take_rows(shared, felt_rows)
        felt_columns = self._felt_places(self.columns, columns)
        beside = self.maps[INSIDE, columns] - _take_columns(shared, felt_columns)
        return _take_columns(self.maps[rows, INSIDE], felt_columns) + _take_rows(beside, felt_rows)

    def deviations(self, kind: Kind) -> Tensor:
        """Return by how much maps of a kind differ from what is expected."""
        return self.maps[kind] if kind == (INSIDE, INSIDE) else self.maps[kind] - self.expected(kind)

    def continued(self, kind: Kind, more: dict[str, int]) -> Tensor:
        """Return maps of a kind with the next few places in which the side is not felt."""
        maps = self._continued_columns(kind[0], kind[1], more)
        if kind[0] == INSIDE:
            return maps
        shared = self._continued_columns(INSIDE, kind[1], more)
        return _join(kind[0], maps, _take_rows(shared, self._next_places(self.rows, kind[0], more)), dim=2)

    def with_outside(self) -> "WindowMaps":
        """Return the same with one place of zeros beyond every side."""
        width = {INSIDE: (1, 1), START: (1, 0), END: (0, 1)}
        maps = {kind: pad(maps, (0, 0, *width[kind[1]], *width[kind[0]])) for kind, maps in self.maps.items()}
        return WindowMaps(maps, self.step, self.felt, self.rows, self.columns, outside=1)

    def _continued_columns(self, rows: str, kind: str, more: dict[str, int]) -> Tensor:
        if kind == INSIDE:
            return self.maps[rows, INSIDE]
        shared = _take_columns(self.maps[rows, INSIDE], self._next_places(self.columns, kind, more))
        return _join(kind, self.maps[rows, kind], shared, dim=3)

    def _felt_places(self, axis: Places, kind: str) -> "_Spans":
        first = -self.outside if kind == START else -self.felt[kind]
        return self._spans(axis[kind], first, self.felt[kind] + self.outside)

    def _next_places(self, axis: Places, kind: str, more: dict[str, int]) -> "_Spans":
        first = self.felt[kind] if kind == START else -self.felt[kind] - more[kind]
        return self._spans(axis[kind], first, more[kind])

    def _spans(self, sides: range, first: int, count: int) -> "_Spans":
        return _Spans(sides.start // self.step + first + self.outside, sides.step // self.step, len(sides), count)


class _Spans(NamedTuple):
    """Equally long spans of places at equal distances in the image, one for each window."""

    first: int
    distance: int
    n_windows: int
    count: int

    def of(self, maps: Tensor, dim: int) -> Tensor:
        """Return a view of the spans with the axes `windows` at the place of `dim` and `count` at the end."""
        if self.n_windows == 0:
            shape = [0 if axis == dim else length for axis, length in enumerate(maps.shape)]
            return maps.new_empty(*shape, self.count)
        length = (self.n_windows - 1) * self.distance + self.count
        return maps.narrow(dim, self.first, length).unfold(dim, self.count, self.distance)


def window_maps(network: TextureFCN, batch: Tensor, rows: Places, columns: Places) -> Iterator[WindowMaps]:
    """Go through the maps whose means are the latents, for all windows in one image.

    Parameters
    ----------
    network : TextureFCN
        With batch normalisations folded into the convolutions.
    batch : Tensor (1, channels, height, width)
    rows, columns : Places
    """
    layer_maps = _of_pixels(batch, rows, columns)
    for layer in network.features:
        if isinstance(layer, nn.Conv2d):
            layer_maps = _convolve(layer_maps, layer)
        elif isinstance(layer, nn.MaxPool2d):
            layer_maps = _pool(layer_maps)
        else:
            for maps in layer_maps.maps.values():
                maps.relu_()
            if network.pooling == "all":
                yield layer_maps
    if network.pooling != "all":
        yield layer_maps


def _of_pixels(batch: Tensor, rows: Places, columns: Places) -> WindowMaps:
    """Return pixels as maps, in which no side is felt yet."""
    pixels = batch.permute(0, 2, 3, 1)[None]
    maps = {}
    for kind in KINDS:
        windows = [1 if side == INSIDE else len(axis[side]) for side, axis in zip(kind, (rows, columns), strict=True)]
        places = [n if side == INSIDE else 0 for side, n in zip(kind, pixels.shape[2:4], strict=True)]
        maps[kind] = pixels.new_empty(*windows, *places, pixels.shape[4])
    maps[INSIDE, INSIDE] = pixels
    return WindowMaps(maps, 1, {START: 0, END: 0}, rows, columns)


def _convolve(before: WindowMaps, layer: nn.Conv2d) -> WindowMaps:
    """Apply a 3x3 convolution that sees zeros beyond a window's sides, which are felt one place further then.

    It is linear, so only the deviations from what is expected have to go through it, and they are few.
    """
    wide = before.with_outside()
    batch, windows = _as_batch(wide.maps[INSIDE, INSIDE])
    maps = {(INSIDE, INSIDE): _from_batch(conv2d(batch, layer.weight, layer.bias), windows)}
    felt = {side: count + 1 for side, count in before.felt.items()}
    after = WindowMaps(maps, before.step, felt, before.rows, before.columns)
    for kind in KINDS[1:]:
        maps[kind] = after.expected(kind).add_(_spread(wide.deviations(kind), layer.weight, kind))
    return after


def _spread(deviations: Tensor, weight: Tensor, kind: Kind) -> Tensor:
    """Return what the places within windows see of deviations in and beyond them."""
    batch, windows = _as_batch(deviations)
    parts = product(_parts(kind[0], batch.shape[2]), _parts(kind[1], batch.shape[3]))
    seen: Tensor | None = None
    for (row_weights, rows_from, rows_to), (column_weights, columns_from, columns_to) in parts:
        part = conv2d(batch[:, :, rows_from, columns_from], weight[:, :, row_weights, column_weights])
        if seen is None:
            seen = part  # the first part reaches all places
        else:
            seen[:, :, rows_to, columns_to] += part
    assert seen is not None
    return _from_batch(seen, windows)


def _parts(kind: str, count: int) -> list[_Part]:
    """Return along one axis which weights lead from which places to which; the places are `count` in number."""
    if kind == INSIDE:
        return [(_ALL, _ALL, _ALL)]
    lags = range(min(3, count))
    if kind == START:
        return [(slice(lag, lag + 1), slice(lag, count), slice(0, count - lag)) for lag in lags]
    return [(slice(2 - lag, 3 - lag), slice(0, count - lag), slice(lag, count)) for lag in lags]


def _pool(before: WindowMaps) -> WindowMaps:
    """Take the largest of 3x3 at every other place, as far as they belong to a window."""
    felt = {START: before.felt[START] // 2 + 1, END: (before.felt[END] + 1) // 2}
    more = {START: 2 * felt[START] - before.felt[START], END: 2 * felt[END] + 1 - before.felt[END]}
    width = {INSIDE: (1, 1), START: (1, 0), END: (0, 0)}
    maps = {}
    for kind in KINDS:
        batch, windows = _as_batch(before.continued(kind, more))
        batch = pad(batch, (*width[kind[1]], *width[kind[0]]), value=-torch.inf)
        maps[kind] = _from_batch(max_pool2d(batch, 3, stride=2), windows)
    return WindowMaps(maps, 2 * before.step, felt, before.rows, before.columns)


def _as_batch(maps: Tensor) -> tuple[Tensor, torch.Size]:
    """Return maps as torch's layers take them, and of how many windows they are."""
    return maps.flatten(0, 1).permute(0, 3, 1, 2), maps.shape[:2]


def _from_batch(batch: Tensor, windows: torch.Size) -> Tensor:
    return batch.permute(0, 2, 3, 1).unflatten(0, windows)


def _take_rows(maps: Tensor, spans: _Spans) -> Tensor:
    """Return a view of rows of maps that all windows share, for each window its own."""
    return spans.of(maps[0], 1).permute(1, 0, 4, 2, 3)


def _take_columns(maps: Tensor, spans: _Spans) -> Tensor:
    return spans.of(maps[:, 0], 2).permute(0, 2, 1, 4, 3)


def _join(kind: str, felt: Tensor, following: Tensor, dim: int) -> Tensor:
    return torch.cat((felt, following) if kind == START else (following, felt), dim=dim)
