"""Compute the feature maps of every window, as if it were an image of its own, in one pass over the image.

A separate image has zero padding where a window has neighbours. So their feature maps differ, but only near the sides
of the window. Near an upper side, the difference depends on the row in which windows start and not on their columns.
It is computed once for all windows in that row, as a strip along the whole image; the other sides likewise. Corners,
which two sides affect, are computed separately. All other values are shared by all windows.

Convolutions are linear, so only differences have to be convolved: in a strip the difference from the shared maps, in a
corner the difference from the sum of its two strips. They are zero further inside.

A *position* counts along an axis of a feature map. A side is *felt* at the positions whose values it changes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad

from lmfcn.compute.moments import Pairs, mixing
from lmfcn.method.network import TextureFCN

START, END = "start", "end"
SIDES = (START, END)
Strip = tuple[int, str]
Corner = tuple[str, str]
STRIPS: list[Strip] = list(product((0, 1), SIDES))
CORNERS: list[Corner] = list(product(SIDES, SIDES))

Places = dict[str, range]
"""Pixels at which windows start and end along one axis."""


@dataclass(frozen=True)
class WindowMaps:
    """Maps of one layer for all windows of an image.

    Attributes
    ----------
    shared : Tensor (height, width, channels)
        Feature maps of the whole image.
    strips : dict of Tensor (felt, length, windows, channels)
        By axis and side, such as (0, "start") for upper sides. The axes are: positions of a window at which the side is
        felt; all positions along the side, also beyond the window; rows or columns in which windows start or end.
    corners : dict of Tensor (felt, felt, windows, windows, channels)
        By the sides along both axes.
    step : int
        Pixels between neighbouring positions of the maps.
    felt : dict of int
        At how many positions of a window its start and its end are felt.
    places : pair of Places
        Starts and ends of windows along both axes.
    margin : int
        Width of the zero padding around shared maps and at the ends of strips.
    """

    shared: Tensor
    strips: dict[Strip, Tensor]
    corners: dict[Corner, Tensor]
    step: int
    felt: dict[str, int]
    places: tuple[Places, Places]
    margin: int = 0

    def felt_places(self, side: str, outside: int = 0) -> range:
        """Return the positions at which a side is felt, counted from it, with some outside the window."""
        return range(-outside, self.felt[side]) if side == START else range(-self.felt[side], outside)

    def lines(self, maps: Tensor, dim: int, axis: int, side: str, place: int) -> Tensor:
        """Return a view of the lines along an axis at `place` positions from a side, one for each window."""
        pixels = self.places[axis][side]
        first, distance = pixels.start // self.step + place + self.margin, pixels.step // self.step
        last = first + (len(pixels) - 1) * distance
        index = [slice(None)] * dim + [slice(first, last + 1, distance) if len(pixels) else slice(0, 0)]
        return maps[tuple(index)]

    def line(self, axis: int, side: str, place: int) -> Tensor:
        """Return the maps (length, windows, channels) along a side, `place` positions from it, felt or not."""
        places = self.felt_places(side)
        if place in places:
            return self.strips[axis, side][places.index(place)]
        return self.lines(self.shared, axis, axis, side, place).movedim(axis, 1)

    def cell(self, sides: Corner, places: tuple[int, int]) -> Tensor:
        """Return the maps (windows, windows, channels) at a position near a corner, felt or not."""
        felt = [self.felt_places(side) for side in sides]
        if places[0] in felt[0] and places[1] in felt[1]:
            return self.corners[sides][felt[0].index(places[0]), felt[1].index(places[1])]
        if places[1] in felt[1]:
            return self.lines(self.line(1, sides[1], places[1]), 0, 0, sides[0], places[0])
        return self.lines(self.line(0, sides[0], places[0]), 0, 1, sides[1], places[1]).transpose(0, 1)

    def deviations(self, axis: int, side: str) -> Tensor:
        """Return the differences (felt, length, windows, channels) between strips and shared maps.

        With a margin, they include positions outside the window, where strips are zero.
        """
        places = self.felt_places(side, self.margin)
        strip = self.strips[axis, side]
        deviations = strip.new_empty(len(places), *strip.shape[1:])
        for number, place in enumerate(places):
            line = self.lines(self.shared, axis, axis, side, place).movedim(axis, 1)
            if place in self.felt_places(side):
                torch.sub(self.line(axis, side, place), line, out=deviations[number])
            else:
                torch.neg(line, out=deviations[number])
        return deviations

    def squared(self) -> "WindowMaps":
        """Return the squares of all maps."""
        return self._changed(Tensor.square)

    def products(self) -> "WindowMaps":
        """Return the products of all pairs of mixtures of the maps."""
        matrix = mixing(self.shared.shape[2], self.shared)
        pairs = Pairs.of(matrix.shape[1], matrix.device)

        def products(maps: Tensor) -> Tensor:
            mixtures = maps @ matrix
            return mixtures[..., pairs.first] * mixtures[..., pairs.second]

        return self._changed(products)

    def _changed(self, change: Callable[[Tensor], Tensor]) -> "WindowMaps":
        strips = {key: change(strip) for key, strip in self.strips.items()}
        corners = {key: change(corner) for key, corner in self.corners.items()}
        return replace(self, shared=change(self.shared), strips=strips, corners=corners)

    def with_margin(self) -> "WindowMaps":
        """Return the same with zero padding around shared maps and at the ends of strips."""
        strips = {key: pad(strip, (0, 0, 0, 0, 1, 1)) for key, strip in self.strips.items()}
        shared = pad(self.shared, (0, 0, 1, 1, 1, 1))
        return WindowMaps(shared, strips, self.corners, self.step, self.felt, self.places, margin=1)


def window_maps(network: TextureFCN, batch: Tensor, rows: Places, columns: Places) -> Iterator[WindowMaps]:
    """Yield the feature maps whose means are in the latents, for all windows in one image.

    Where latents also hold standard deviations, the maps of a layer are followed by their squares, and where they hold
    correlations by the products of their mixtures.

    Parameters
    ----------
    network : TextureFCN
        With batch normalisation folded into the convolutions.
    batch : Tensor (1, channels, height, width)
    rows, columns : Places
        Multiples of the factor by which the network reduces its images.
    """
    for maps in _block_maps(network, batch, rows, columns):
        yield maps
        if network.deviations:
            yield maps.squared()
        if network.correlations:
            yield maps.products()


def _block_maps(network: TextureFCN, batch: Tensor, rows: Places, columns: Places) -> Iterator[WindowMaps]:
    maps = _maps_of_pixels(network.reduce(batch), (rows, columns), network.reduction)
    for layer in network.features:
        if isinstance(layer, nn.Conv2d):
            maps = _convolve(maps, layer)
        elif isinstance(layer, nn.MaxPool2d):
            maps = _pool(maps)
        else:
            for part in (maps.shared, *maps.strips.values(), *maps.corners.values()):
                part.relu_()
            if network.pooling == "all":
                yield maps
    if network.pooling != "all":
        yield maps


def _maps_of_pixels(batch: Tensor, places: tuple[Places, Places], step: int) -> WindowMaps:
    """Return pixels, of which one is as large as `step` pixels of the image, as maps at which no side is felt yet."""
    pixels = batch[0].permute(1, 2, 0)
    height, width, channels = pixels.shape
    counts = [{side: len(axis[side]) for side in SIDES} for axis in places]
    strips = {
        (axis, side): pixels.new_empty(0, width if axis == 0 else height, counts[axis][side], channels)
        for axis, side in STRIPS
    }
    corners = {sides: pixels.new_empty(0, 0, counts[0][sides[0]], counts[1][sides[1]], channels) for sides in CORNERS}
    return WindowMaps(pixels, strips, corners, step, {START: 0, END: 0}, places)


def _convolve(before: WindowMaps, layer: nn.Conv2d) -> WindowMaps:
    """Apply a 3x3 convolution with zero padding around each window; its sides are then felt one position further."""
    batch = before.shared.permute(2, 0, 1)[None]
    shared = conv2d(batch, layer.weight, layer.bias, padding=1)[0].permute(1, 2, 0)
    felt = {side: count + 1 for side, count in before.felt.items()}
    after = WindowMaps(shared, {}, {}, before.step, felt, before.places)
    wide, weight = before.with_margin(), layer.weight.permute(2, 3, 1, 0).contiguous()
    deviations, changes = {}, {}
    for axis, side in STRIPS:
        deviations[axis, side] = wide.deviations(axis, side)
        along = weight if axis == 0 else weight.transpose(0, 1)
        changes[axis, side] = _convolve_strip(deviations[axis, side], side, along)
        after.strips[axis, side] = _with_shared(after, axis, side, changes[axis, side])
    for sides in CORNERS:
        corner = _expected_corner(after, sides, changes[1, sides[1]])
        deviation = _corner_deviations(wide, sides, deviations[1, sides[1]])
        after.corners[sides] = _convolve_corner(corner, deviation, sides, weight)
    return after


def _with_shared(maps: WindowMaps, axis: int, side: str, changes: Tensor) -> Tensor:
    """Return the strips (felt, length, windows, channels) that differ from shared maps by `changes`."""
    strip = torch.empty_like(changes)
    for number, place in enumerate(maps.felt_places(side)):
        line = maps.lines(maps.shared, axis, axis, side, place).movedim(axis, 1)
        torch.add(line, changes[number], out=strip[number])
    return strip


def _convolve_strip(deviations: Tensor, side: str, weight: Tensor) -> Tensor:
    """Convolve the deviations (felt, length, windows, channels) inside and outside a window; return those inside."""
    felt, length, windows, _ = deviations.shape
    seen = deviations.new_zeros(felt, length - 2, windows, weight.shape[3])
    for lag, source, target in _links(side, felt):
        for shift in range(3):
            there = deviations[source, shift : shift + length - 2].flatten(0, 1)
            seen[target].view(-1, weight.shape[3]).addmm_(there, weight[lag, shift])
    return seen


def _convolve_corner(corner: Tensor, deviations: Tensor, sides: Corner, weight: Tensor) -> Tensor:
    """Add to a corner its convolved deviations (felt, felt, windows, windows, channels)."""
    links = [_links(side, count) for side, count in zip(sides, deviations.shape[:2], strict=True)]
    for (row_lag, row, to_row), (column_lag, column, to_column) in product(*links):
        there = deviations[row, column].flatten(0, 1)
        corner[to_row, to_column].view(-1, corner.shape[4]).addmm_(there, weight[row_lag, column_lag])
    return corner


def _expected_corner(maps: WindowMaps, sides: Corner, deviations: Tensor) -> Tensor:
    """Return the corner as the sum of its row strip and the deviations of its column strip."""
    rows, columns = (maps.felt_places(side) for side in sides)
    strip = maps.strips[0, sides[0]]
    corner = strip.new_empty(len(rows), len(columns), strip.shape[2], deviations.shape[2], strip.shape[3])
    for (r, row), (c, column) in product(enumerate(rows), enumerate(columns)):
        upper = maps.lines(strip[r], 0, 1, sides[1], column).transpose(0, 1)
        torch.add(upper, maps.lines(deviations[c], 0, 0, sides[0], row), out=corner[r, c])
    return corner


def _corner_deviations(wide: WindowMaps, sides: Corner, deviations: Tensor) -> Tensor:
    """Return the differences between a corner, with zeros outside the window, and `_expected_corner`."""
    seen = [wide.felt_places(side, outside=1) for side in sides]
    rows, columns = (wide.felt_places(side) for side in sides)
    strip, corner = wide.strips[0, sides[0]], wide.corners[sides]
    found = strip.new_empty(len(seen[0]), len(seen[1]), *corner.shape[2:])
    for (r, row), (c, column) in product(enumerate(seen[0]), enumerate(seen[1])):
        torch.neg(wide.lines(deviations[c], 0, 0, sides[0], row), out=found[r, c])
        if row in rows:
            found[r, c] -= wide.lines(strip[rows.index(row)], 0, 1, sides[1], column).transpose(0, 1)
        if row in rows and column in columns:
            found[r, c] += corner[rows.index(row), columns.index(column)]
    return found


def _links(side: str, count: int) -> list[tuple[int, int, int]]:
    """Return (row of the kernel, source, target) of a convolution across a side, for `count` positions."""
    back = 0 if side == START else 2
    pairs = product(range(3), range(count))
    return [(lag, to + lag - back, to) for lag, to in pairs if 0 <= to + lag - back < count]


def _pool(before: WindowMaps) -> WindowMaps:
    """Max-pool 3x3 with stride 2 within each window."""
    shared = _pool_along(_pool_along(before.shared, 0), 1)
    felt = {START: before.felt[START] // 2 + 1, END: (before.felt[END] + 1) // 2}
    after = WindowMaps(shared, {}, {}, 2 * before.step, felt, before.places)
    for axis, side in STRIPS:
        lines = []
        for place in after.felt_places(side):
            across = _largest([before.line(axis, side, other) for other in _pooled(side, place)])
            lines.append(_pool_along(across, 0))
        after.strips[axis, side] = torch.stack(lines)
    for sides in CORNERS:
        rows, columns = (after.felt_places(side) for side in sides)
        after.corners[sides] = torch.stack(
            [torch.stack([_pool_cell(before, sides, (r, c)) for c in columns]) for r in rows]
        )
    return after


def _pool_cell(before: WindowMaps, sides: Corner, places: tuple[int, int]) -> Tensor:
    rows, columns = (_pooled(side, place) for side, place in zip(sides, places, strict=True))
    return _largest([before.cell(sides, others) for others in product(rows, columns)])


def _pooled(side: str, place: int) -> list[int]:
    """Return the positions before the pooling that belong to a position after it."""
    return [other for other in range(2 * place - 1, 2 * place + 2) if side == END or other >= 0]


def _pool_along(maps: Tensor, dim: int) -> Tensor:
    """Max-pool 3 with stride 2 along the first or second axis; much faster than torch's pooling here."""
    before = (slice(None),) * dim
    pooled, others = maps[(*before, slice(0, None, 2))].clone(), maps[(*before, slice(1, None, 2))]
    ahead = pooled.narrow(dim, 0, others.shape[dim])
    torch.maximum(ahead, others, out=ahead)
    behind = pooled.narrow(dim, 1, pooled.shape[dim] - 1)
    torch.maximum(behind, others.narrow(dim, 0, behind.shape[dim]), out=behind)
    return pooled


def _largest(parts: list[Tensor]) -> Tensor:
    largest = torch.maximum(parts[0], parts[1])
    for part in parts[2:]:
        torch.maximum(largest, part, out=largest)
    return largest
