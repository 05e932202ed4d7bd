"""Where the windows of a map stand, and in which pieces they are computed."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

_PATCH = 256
_GROUP = 32
_GROUP_PIXELS = 2048
_BLOCK_PIXELS = 2048
_BLOCK_BYTES = 2**28


class Box(NamedTuple):
    """A rectangle, of pixels or of windows; its lower right corner does not belong to it."""

    top: int
    left: int
    bottom: int
    right: int

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width."""
        return self.bottom - self.top, self.right - self.left

    @property
    def slices(self) -> tuple[slice, slice]:
        """The place of this box in an array that starts at 0, 0."""
        return slice(self.top, self.bottom), slice(self.left, self.right)

    def within(self, outer: "Box") -> tuple[slice, slice]:
        """Return the place of this box in an array that holds `outer`."""
        rows = slice(self.top - outer.top, self.bottom - outer.top)
        return rows, slice(self.left - outer.left, self.right - outer.left)

    def overlap(self, other: "Box") -> "Box":
        """Return what both have in common; a box without height or width if they are apart."""
        top, left = max(self.top, other.top), max(self.left, other.left)
        return Box(top, left, max(top, min(self.bottom, other.bottom)), max(left, min(self.right, other.right)))


@dataclass(frozen=True)
class MapGrid:
    """Windows at equal distances over an image, and the fixed pieces in which they are computed.

    Patches of pixels and groups of windows have their places by the image alone, whichever part of a map is asked for:
    that makes a map in blocks the same as a map in one pass, bit for bit, whatever the libraries below do with sizes.

    Attributes
    ----------
    height, width : int
        Of the image in pixels.
    window, stride : int
        In pixels; multiples of `step`.
    step : int
        Pixels from one place of the networks' coarsest maps to the next.
    reach : int
        Pixels to either side of a place that these maps see.

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
    def everything(self) -> Box:
        """All windows."""
        return Box(0, 0, self.rows, self.columns)

    @property
    def unit(self) -> int:
        """Pixels; the largest squares of moderate size that all windows consist of."""
        common = math.gcd(self.window, self.stride)
        return max(side for side in range(self.step, min(common, _PATCH) + 1, self.step) if common % side == 0)

    @property
    def group(self) -> int:
        """Windows, in either direction, whose decisions are computed together."""
        return max(1, min(_GROUP, _GROUP_PIXELS // self.stride))

    def blocks(self, n_latents: int, side: int | None = None) -> list[Box]:
        """Divide all windows into blocks of bounded memory, or of about `side` pixels."""
        if side is None:
            fitting = self.stride * math.isqrt(_BLOCK_BYTES // (4 * n_latents))
            side = min(fitting, max(_BLOCK_PIXELS, 8 * self.window))
        groups = max(1, side // (self.group * self.stride))
        return list(pieces(self.everything, groups * self.group))

    def patches(self, windows: Box) -> list[Box]:
        """Return the pixels of all patches that the windows touch, without what is seen around them."""
        side = _PATCH // self.unit * self.unit
        top, left = windows.top * self.stride, windows.left * self.stride
        bottom, right = ((last - 1) * self.stride + self.window for last in windows[2:])
        touched = Box(top // side * side, left // side * side, -(-bottom // side) * side, -(-right // side) * side)
        whole_units = Box(0, 0, self.height // self.unit * self.unit, self.width // self.unit * self.unit)
        return list(pieces(touched.overlap(whole_units), side))

    def around(self, patch: Box) -> Box:
        """Return a patch with all pixels that have a part in its maps, also in those that begin or end in it."""
        halo = -(-2 * self.reach // self.step) * self.step
        wide = Box(patch.top - halo, patch.left - halo, patch.bottom + halo, patch.right + halo)
        return wide.overlap(Box(0, 0, self.height, self.width))

    def region(self, windows: Box) -> Box:
        """Return the pixels that have to be read for some windows."""
        patches = self.patches(windows)
        return self.around(Box(*patches[0][:2], *patches[-1][2:]))

    def touching(self, pixels: Box) -> Box:
        """Return the windows that have at least one of the pixels under them."""
        first = [max(0, -(-(start - self.window + 1) // self.stride)) for start in pixels[:2]]
        last = [(end - 1) // self.stride + 1 for end in pixels[2:]]
        return Box(*first, *last).overlap(self.everything)

    def nearest(self, places: np.ndarray, n_windows: int) -> np.ndarray:
        """Return the window (m,) whose centre is nearest to each pixel (m,) of a row or column."""
        return ((2 * places + 1 - self.window + self.stride) // (2 * self.stride)).clip(0, n_windows - 1)

    def extents(self, n_windows: int, n_pixels: int) -> np.ndarray:
        """Return to how many pixels of a row or column each of its windows is the nearest."""
        starts = -(-(2 * self.stride * np.arange(1, n_windows) + self.window - self.stride - 1) // 2)
        return np.diff(starts, prepend=0, append=n_pixels)


def pieces(box: Box, side: int) -> Iterator[Box]:
    """Divide a box into squares of `side`, row by row; the last ones may be smaller."""
    for top in range(box.top, box.bottom, side):
        for left in range(box.left, box.right, side):
            yield Box(top, left, min(top + side, box.bottom), min(left + side, box.right))


def _check_multiple(name: str, value: Any, step: int, smallest: int) -> None:
    smallest = -(-smallest // step) * step
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or value < smallest or value % step:
        raise ValueError(
            f"{name} must be a multiple of {step} pixels, by which the networks' coarsest maps go, and at least"
            f" {smallest}; got {value!r}."
        )
