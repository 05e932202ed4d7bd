"""Map an image: the networks go over it once, and a window slides over their feature maps.

`MapGrid` holds the positions of the windows and the pieces in which they are computed. A `Mapper` computes the
probabilities of every window: `FCNMapper` with networks that see the pixels, `TrunkMapper` in trunk_map.py with those
behind a frozen one. `window_sums` adds up what one piece of the image contributes to the latents of windows.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from lmfcn.compute.encode import fold_batch_norm, to_batch
from lmfcn.compute.moments import Pairs, mixing, n_correlations, of_covariances, standard_deviation
from lmfcn.data.framing import describe_fit
from lmfcn.maps.windows import CORNERS, END, START, STRIPS, Corner, Places, WindowMaps, window_maps
from lmfcn.method.kernel_svm import Decision
from lmfcn.method.network import TextureFCN
from lmfcn.model import TextureModel, TypicalDistances, probabilities

USUAL_WINDOW = 64
USUAL_STRIDE = 16
_PATCH = 256  # pixels
_GROUP = 32  # windows
_GROUP_PIXELS = 2048
_BLOCK_PIXELS = 2048
_BLOCK_BYTES = 2**28

_MOST_UNEQUAL = 1.25  # scales that differ by less are within what a texture model has to bear anyway

OVER = "over"
"""Windows that cover some of a patch, in contrast to those that start or end in it."""


class Box(NamedTuple):
    """A rectangle of pixels or of windows; `bottom` and `right` are exclusive."""

    top: int
    left: int
    bottom: int
    right: int

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width."""
        return self.bottom - self.top, self.right - self.left

    @property
    def row_ends(self) -> tuple[int, int]:
        """The first row, and the one behind the last."""
        return self.top, self.bottom

    @property
    def column_ends(self) -> tuple[int, int]:
        """The first column, and the one behind the last."""
        return self.left, self.right

    @property
    def slices(self) -> tuple[slice, slice]:
        """The slices of this box in an array that starts at 0, 0."""
        return slice(self.top, self.bottom), slice(self.left, self.right)

    def within(self, outer: "Box") -> tuple[slice, slice]:
        """Return the slices of this box in an array that holds `outer`."""
        rows = slice(self.top - outer.top, self.bottom - outer.top)
        return rows, slice(self.left - outer.left, self.right - outer.left)

    def overlap(self, other: "Box") -> "Box":
        """Return the intersection; a box without height or width if there is none."""
        top, left = max(self.top, other.top), max(self.left, other.left)
        return Box(top, left, max(top, min(self.bottom, other.bottom)), max(left, min(self.right, other.right)))


def scale_note(model: TextureModel) -> str | None:
    """Say that maps of a model are doubtful because its training images had many scales; None if they had one.

    Files of earlier versions do not hold the sizes of training images; then nothing is said.
    """
    sizes = model.record.get("image_sizes") or {}
    smallest, largest = sizes.get("smallest"), sizes.get("largest")
    if not smallest or not largest or math.sqrt(math.prod(largest) / math.prod(smallest)) < _MOST_UNEQUAL:
        return None
    size, doubt = model.form.preprocessing.size, "at many scales"
    if model.form.preprocessing.scales and size is not None:
        done = f", each {describe_fit(model.form.preprocessing)} to {size[0]}x{size[1]}"
    elif model.trunk is not None:
        done = f", each brought to the {model.trunk.input_size} pixels of its frozen network"
    else:
        done, doubt = "", "at many scales, if each image shows a whole piece"
    return (
        f"The model was trained on images of {smallest[0]}x{smallest[1]} to {largest[0]}x{largest[1]} pixels"
        f" (height x width){done}: it knows textures {doubt}, but a map has one. Do not rely on this map. To train for"
        " maps, cut tiles of one size from images at the scale of the map (ImageCollection.tiled), and do not resize"
        " them."
    )


def tile_box(box: Box, side: int) -> Iterator[Box]:
    """Divide a box into squares of `side`, row by row; the last ones may be smaller."""
    for top in range(box.top, box.bottom, side):
        for left in range(box.left, box.right, side):
            yield Box(top, left, min(top + side, box.bottom), min(left + side, box.right))


@dataclass(frozen=True)
class MapGrid:
    """Windows at equal distances over an image, and the fixed pieces in which they are computed.

    The positions of patches of pixels and groups of windows depend only on the image, not on the block that is mapped.
    So a map in blocks equals a map in one pass, bit for bit, although libraries compute other sizes differently.

    Attributes
    ----------
    height, width : int
        Size of the image in pixels.
    window, stride : int
        In pixels; multiples of `step`.
    step : int
        Pixels between neighbouring positions of the networks' coarsest feature maps.
    reach : int
        Receptive field of these maps: pixels on either side of a position.

    Examples
    --------
    >>> grid = MapGrid(height=100, width=200, window=64, stride=16, step=4, reach=10)
    >>> grid.rows, grid.columns
    (3, 9)
    """

    height: int
    width: int
    window: int
    stride: int
    step: int
    reach: int

    def __post_init__(self) -> None:
        _check_multiple("window", self.window, self.step, 2 * self.reach)
        _check_multiple("stride", self.stride, self.step, self.step)
        if self.stride > self.window:
            raise ValueError(
                f"stride must not be larger than the window, which would leave gaps; got a stride of {self.stride} and"
                f" a window of {self.window} pixels."
            )
        if self.window > min(self.height, self.width):
            raise ValueError(
                f"The window must fit into the image, got a window of {self.window} and an image of"
                f" {self.height}x{self.width} pixels; choose a smaller window."
            )

    @property
    def rows(self) -> int:
        """Number of windows from top to bottom."""
        return (self.height - self.window) // self.stride + 1

    @property
    def columns(self) -> int:
        """Number of windows from left to right."""
        return (self.width - self.window) // self.stride + 1

    @property
    def all_windows(self) -> Box:
        """All windows."""
        return Box(0, 0, self.rows, self.columns)

    @property
    def unit(self) -> int:
        """Side in pixels of the largest squares, up to a limit, that all windows consist of."""
        common = math.gcd(self.window, self.stride)
        return max(side for side in range(self.step, min(common, _PATCH) + 1, self.step) if common % side == 0)

    @property
    def patch_side(self) -> int:
        """Side in pixels of a patch without its surroundings."""
        return _PATCH // self.unit * self.unit

    @property
    def group(self) -> int:
        """Number of windows in either direction that are classified together."""
        return max(1, min(_GROUP, _GROUP_PIXELS // self.stride))

    def blocks(self, n_latents: int, side: int | None = None) -> list[Box]:
        """Divide all windows into blocks of bounded memory, or of about `side` pixels a side."""
        if side is None:
            fitting = self.stride * math.isqrt(_BLOCK_BYTES // (4 * n_latents))
            side = min(fitting, max(_BLOCK_PIXELS, 8 * self.window))
        groups = max(1, side // (self.group * self.stride))
        return list(tile_box(self.all_windows, groups * self.group))

    def patches(self, windows: Box) -> list[Box]:
        """Return the pixels of all patches that the windows touch, without their surroundings."""
        side = self.patch_side
        top, left = windows.top * self.stride, windows.left * self.stride
        bottom, right = ((last - 1) * self.stride + self.window for last in windows[2:])
        touched = Box(top // side * side, left // side * side, -(-bottom // side) * side, -(-right // side) * side)
        whole_units = Box(0, 0, self.height // self.unit * self.unit, self.width // self.unit * self.unit)
        return list(tile_box(touched.overlap(whole_units), side))

    def around(self, patch: Box) -> Box:
        """Return a patch with all surrounding pixels that its feature maps depend on."""
        halo = -(-2 * self.reach // self.step) * self.step
        wide = Box(patch.top - halo, patch.left - halo, patch.bottom + halo, patch.right + halo)
        return wide.overlap(Box(0, 0, self.height, self.width))

    def region(self, windows: Box) -> Box:
        """Return the pixels that some windows depend on."""
        tops, lefts, bottoms, rights = zip(*map(self.around, self.patches(windows)), strict=True)
        return Box(min(tops), min(lefts), max(bottoms), max(rights))

    def touching(self, pixels: Box) -> Box:
        """Return the windows that contain at least one of the pixels."""
        first = [max(0, -(-(start - self.window + 1) // self.stride)) for start in pixels[:2]]
        last = [(end - 1) // self.stride + 1 for end in pixels[2:]]
        return Box(*first, *last).overlap(self.all_windows)

    def nearest(self, pixels: np.ndarray, n_windows: int) -> np.ndarray:
        """Return the window (m,) whose centre is nearest to each pixel (m,) of a row or column."""
        return ((2 * pixels + 1 - self.window + self.stride) // (2 * self.stride)).clip(0, n_windows - 1)

    def extents(self, n_windows: int, n_pixels: int) -> np.ndarray:
        """Return for how many pixels of a row or column each window is the nearest."""
        starts = -(-(2 * self.stride * np.arange(1, n_windows) + self.window - self.stride - 1) // 2)
        return np.diff(starts, prepend=0, append=n_pixels)


def _check_multiple(name: str, value: Any, step: int, smallest: int) -> None:
    smallest = -(-smallest // step) * step
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or value < smallest or value % step:
        raise ValueError(
            f"{name} must be a multiple of {step} pixels, the step of the networks' coarsest maps, and at least"
            f" {smallest}; got {value!r}."
        )


@dataclass(frozen=True)
class TextureMap:
    """Probabilities of every window of an image.

    Attributes
    ----------
    probabilities : array (rows, columns, n_classes)
    classes : array (n_classes,)
    grid : MapGrid
        Positions of the windows: the upper left pixel of the window in row i and column j is i and j times the stride.
    """

    probabilities: np.ndarray
    classes: np.ndarray
    grid: MapGrid

    def __repr__(self) -> str:
        rows, columns, n_classes = self.probabilities.shape
        return f"TextureMap({rows}x{columns} windows, {n_classes} classes)"

    @property
    def labels(self) -> np.ndarray:
        """The most probable label (rows, columns) of each window."""
        return self.classes[self.probabilities.argmax(axis=2)]

    def at_pixels(self) -> np.ndarray:
        """Return for each pixel (height, width) the label of the window whose centre is nearest."""
        rows = self.grid.nearest(np.arange(self.grid.height), self.grid.rows)
        columns = self.grid.nearest(np.arange(self.grid.width), self.grid.columns)
        return self.labels[rows[:, None], columns]


class Mapper(ABC):
    """Maps images, or parts of large ones, with the networks and the SVM of a fitted model.

    Parameters
    ----------
    decision : Decision
    inverse_temperature : float
        From the calibration.
    n_latents : int
        Length of the joined latents of all networks.
    """

    typical: TypicalDistances | None = None
    """What typicality is measured by, if the model knows it."""

    def __init__(self, decision: Decision, inverse_temperature: float, n_latents: int) -> None:
        self._decision = decision
        self._inverse_temperature = inverse_temperature
        self.n_classes = max(2, len(decision.intercepts))
        self.n_latents = n_latents

    @staticmethod
    def of(model: TextureModel) -> "Mapper":
        """Return the mapper for a fitted model, with or without a frozen network."""
        decision, inverse_temperature = model.decision, model.calibration.inverse_temperature
        mapper: Mapper
        if model.trunk is None:
            mapper = FCNMapper(model.members, decision, inverse_temperature)
        else:
            from lmfcn.maps.trunk_map import TrunkMapper  # which is made of the parts in this module

            mapper = TrunkMapper(model.networks, decision, inverse_temperature)
        mapper.typical = model.typical
        return mapper

    @abstractmethod
    def grid(self, size: tuple[int, int], window: int, stride: int) -> MapGrid:
        """Return the grid of windows in an image of some height and width; refuse sizes that do not fit."""

    @abstractmethod
    def default_window(self, size: tuple[int, int] | None) -> int:
        """Return the side of windows for a model whose training images had this size; 64 if they had several."""

    def default_stride(self) -> int:
        """Return the distance from one window to the next where the user leaves it open."""
        return USUAL_STRIDE

    @abstractmethod
    def _patch_sums(self, batch: Tensor, grid: MapGrid, patch: Box) -> Iterator[tuple[Box, Tensor]]:
        """Yield the windows to whose latents a patch adds, and what it adds (rows, columns, phi)."""

    def map(self, pixels: np.ndarray, grid: MapGrid) -> np.ndarray:
        """Return the probabilities (rows, columns, n_classes) of all windows of an image (height, width, channels)."""
        found = np.empty((grid.rows, grid.columns, self.n_classes), dtype=np.float32)
        for block in grid.blocks(self.n_latents):
            found[block.within(grid.all_windows)] = self.map_block(pixels[grid.region(block).slices], grid, block)
        return found

    def n_channels(self, *, typicality: bool) -> int:
        """Return how many numbers `map_block` gives for every window."""
        return self.n_classes + typicality

    def map_block(
        self,
        pixels: np.ndarray,
        grid: MapGrid,
        windows: Box,
        wanted: np.ndarray | None = None,
        *,
        typicality: bool = False,
    ) -> np.ndarray:
        """Return the probabilities (rows, columns, n_classes) of some windows, and behind them perhaps the typicality.

        Parameters
        ----------
        pixels : array (height, width, channels)
            The pixels of `grid.region(windows)`.
        grid : MapGrid
        windows : Box
        wanted : array of bool (rows, columns), optional
            Windows to compute; the others become NaN.
        typicality : bool
            Whether to add a channel with the typicality, which the model must know.
        """
        if wanted is None:
            wanted = np.ones(windows.shape, dtype=bool)
        found = np.full((*windows.shape, self.n_channels(typicality=typicality)), np.nan, dtype=np.float32)
        with torch.no_grad():
            latents = self._latents(pixels, grid, windows, wanted)
            for group in tile_box(windows, grid.group):
                in_group = group.within(windows)
                if wanted[in_group].any():
                    found[in_group] = self._predict(latents[in_group], typicality=typicality)
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

    def _predict(self, latents: Tensor, *, typicality: bool) -> np.ndarray:
        flat = latents.reshape(-1, self.n_latents)
        found = probabilities(self._decision.scores(flat), self._inverse_temperature).cpu().numpy()
        if typicality and self.typical is not None:
            usual = self.typical.typicality(self._decision.scale.apply(flat))
            found = np.concatenate([found, usual[:, None]], axis=1)
        return found.reshape(*latents.shape[:2], -1)


class FCNMapper(Mapper):
    """Maps with networks that see the pixels; every window gets what it would get cut out of the image.

    Parameters
    ----------
    networks : sequence of TextureFCN
        In eval mode.
    decision : Decision
    inverse_temperature : float
        From the calibration.
    """

    def __init__(self, networks: Sequence[TextureFCN], decision: Decision, inverse_temperature: float) -> None:
        super().__init__(decision, inverse_temperature, sum(network.n_latents for network in networks))
        self._networks = [cast("TextureFCN", fold_batch_norm(network)) for network in networks]
        self._depth = len(networks[0].widths)
        self._reduction = max(network.reduction for network in networks)

    def grid(self, size: tuple[int, int], window: int, stride: int) -> MapGrid:
        """Return the grid of windows in an image of some height and width; refuse sizes that do not fit."""
        return MapGrid(*size, window, stride, self._step, self._reach)

    def default_window(self, size: tuple[int, int] | None) -> int:
        """Return the side of windows for a model whose training images had this size; 64 if they had several.

        More if the networks reduce their images so much that they need more around every position.
        """
        if size is None:
            return -(-max(USUAL_WINDOW, 2 * self._reach) // self._step) * self._step
        return max(1, min(size) // self._step) * self._step

    def default_stride(self) -> int:
        """Return 16, or the step of the networks if that is larger: they reduce large images a lot."""
        return max(USUAL_STRIDE, self._step)

    @property
    def _reach(self) -> int:
        """Pixels on either side of a position of the coarsest maps that it depends on."""
        # A convolution reaches one position further, and so does the pooling after a hidden one.
        return (sum(2 * 2**block for block in range(self._depth)) + 2**self._depth) * self._reduction

    @property
    def _step(self) -> int:
        """Pixels between neighbouring positions of the coarsest maps."""
        return 2**self._depth * self._reduction

    def _predict(self, latents: Tensor, *, typicality: bool) -> np.ndarray:
        parts = [part for network in self._networks for part in moment_parts(network, latents)]
        return super()._predict(central_moments(latents, parts), typicality=typicality)

    def _patch_sums(self, batch: Tensor, grid: MapGrid, patch: Box) -> Iterator[tuple[Box, Tensor]]:
        """Yield the windows to whose latents a patch adds, and what it adds (rows, columns, phi)."""
        around = grid.around(patch)
        rows = PatchAxis.of(grid, (patch.top, patch.bottom), around.top, grid.rows)
        columns = PatchAxis.of(grid, (patch.left, patch.right), around.left, grid.columns)
        layers = [
            window_sums(maps, rows, columns)
            for network in self._networks
            for maps in window_maps(network, batch, rows.places, columns.places)
        ]
        for row_kind, column_kind in layers[0]:
            (top, bottom), (left, right) = rows.windows[row_kind], columns.windows[column_kind]
            yield Box(top, left, bottom, right), torch.cat([sums[row_kind, column_kind] for sums in layers], dim=2)


class MomentPart(NamedTuple):
    """What the latents hold of one block or stage: its means, and what else.

    Attributes
    ----------
    n_channels : int
    deviations : bool
        Whether as many means of squares follow.
    mixing : Tensor (n_channels, k) or None
        If means of products of all pairs of mixtures follow, what mixes.
    """

    n_channels: int
    deviations: bool
    mixing: Tensor | None


def moment_parts(network: TextureFCN, like: Tensor) -> Iterator[MomentPart]:
    """Go through what the latents of a network hold, block by block."""
    for width in network.averaged_widths:
        yield MomentPart(width, network.deviations, mixing(width, like) if network.correlations else None)


def central_moments(means: Tensor, parts: Iterable[MomentPart]) -> Tensor:
    """Return latents (..., phi) of means over windows, with standard deviations and correlations.

    These are put in place of the means of squares, and of those of products.
    """
    latents, start = means.clone(), 0
    for n_channels, deviations, matrix in parts:
        mean, start = means[..., start : start + n_channels], start + n_channels
        if deviations:
            variances = (means[..., start : start + n_channels] - mean.square()).clamp(min=0)
            latents[..., start : start + n_channels] = variances / standard_deviation(variances)
            start += n_channels
        if matrix is not None:
            n_products, mixed = n_correlations(n_channels), mean @ matrix
            pairs = Pairs.of(matrix.shape[1], matrix.device)
            products = means[..., start : start + n_products]
            latents[..., start : start + n_products] = of_covariances(
                products - mixed[..., pairs.first] * mixed[..., pairs.second]
            )
            start += n_products
    return latents


@dataclass(frozen=True)
class PatchAxis:
    """One axis of a patch.

    Attributes
    ----------
    windows : dict of (first, end)
        Windows that cover some of the patch, that start in it, and that end in it.
    places : Places
        Where windows start and end, in pixels from the start of the patch with its surroundings.
    inside : (first, end)
        The patch itself, in the same pixels.
    unit, window : int
        In pixels.
    covered : Tensor (windows, units)
        1 for the units of the patch that a window covers.
    """

    windows: dict[str, tuple[int, int]]
    places: Places
    inside: tuple[int, int]
    unit: int
    window: int
    covered: Tensor

    @classmethod
    def of(cls, grid: MapGrid, patch: tuple[int, int], origin: int, n_windows: int) -> "PatchAxis":
        """Return the axis of a patch from its first pixel to its end."""
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
        covered = torch.from_numpy(((starts <= units) & (units < starts + window)).astype(np.float32))
        return cls(windows, places, (first - origin, last - origin), grid.unit, window, covered)

    def unit_sums(self, values: Tensor, step: int) -> Tensor:
        """Return sums (units, ...) within the patch of values (length, ...) of the patch and its surroundings."""
        start, stop = (pixel // step for pixel in self.inside)
        return values[start:stop].unflatten(0, (-1, self.unit // step)).sum(dim=1)


def window_sums(maps: WindowMaps, rows: PatchAxis, columns: PatchAxis) -> dict[tuple[str, str], Tensor]:
    """Return what a patch adds to the means (rows, columns, channels) of windows that cover it or have sides in it."""
    axes = (rows, columns)
    units = columns.unit_sums(rows.unit_sums(maps.shared, maps.step).transpose(0, 1), maps.step)
    sums = {(OVER, OVER): torch.einsum("ru,vuc,wv->rwc", rows.covered.to(units), units, columns.covered.to(units))}
    deviations = {key: maps.deviations(*key).sum(dim=0) for key in STRIPS}
    for (axis, side), deviation in deviations.items():
        along = axes[1 - axis]
        sides = torch.einsum("wu,unc->nwc", along.covered.to(units), along.unit_sums(deviation, maps.step))
        sums[(side, OVER) if axis == 0 else (OVER, side)] = sides if axis == 0 else sides.transpose(0, 1)
    for corner in CORNERS:
        sums[corner] = _corner_sums(maps, corner, deviations[1, corner[1]])
    return {kinds: part / (rows.window // maps.step) ** 2 for kinds, part in sums.items()}


def _corner_sums(maps: WindowMaps, sides: Corner, deviations: Tensor) -> Tensor:
    """Return the sums (rows, columns, channels) of the differences between corners and the sum of their two sides."""
    sums, strip = maps.corners[sides].sum(dim=(0, 1)), maps.strips[0, sides[0]].sum(dim=0)
    for column in maps.felt_places(sides[1]):
        sums -= maps.lines(strip, 0, 1, sides[1], column).transpose(0, 1)
    for row in maps.felt_places(sides[0]):
        sums -= maps.lines(deviations, 0, 0, sides[0], row)
    return sums


def _clip(start: int, stop: int, n_windows: int) -> tuple[int, int]:
    start = min(max(0, start), n_windows)
    return start, max(start, min(stop, n_windows))
