"""3x3 convolutions, and Winograd's way to compute them with a quarter of the multiplications.

An output tile of 4x4 pixels depends on 6x6 pixels of the input. Tile and filter are polynomials, and their product is
known from its values at six points in each direction: 36 multiplications for every pair of channels instead of
9 x 16 = 144. Summed over the channels those are 36 matrix products, what a processor does best, forwards and backwards.
(S. Winograd, Arithmetic Complexity of Computations, 1980; A. Lavin and S. Gray, Fast Algorithms for Convolutional
Neural Networks, 2016.)
"""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.amp import custom_bwd, custom_fwd
from torch.autograd.function import once_differentiable
from torch.nn.functional import conv2d, pad

_SIDE = 4
"""Side of an output tile."""

_EVALUATED_AT = (0.0, 1.0, -1.0, 2.0, -2.0)
"""Where the polynomials are evaluated, beside infinity. Small numbers keep the rounding errors small."""

_N_VALUES = (_SIDE + 2) ** 2

_PRODUCT_BYTES = 2**22
"""Memory per thread for the products of the images that are computed at a time, at least one: as much as stays in the
caches."""

_MOST_PRODUCT_BYTES = 2**28
"""An image whose products would take more is left to torch: there is not much time to save then, but memory to lose."""


class Convolution(nn.Conv2d):
    """A 3x3 convolution that keeps height and width; in training mode computed in the faster way.

    In eval mode it is torch's own convolution. So the latents of an epoch, those of the final SVM, and all predictions
    (of a loaded, exported or mapped model) are computed in the same way.
    """

    def __init__(self, in_channels: int, out_channels: int, *, bias: bool = False, device: Any = None) -> None:
        super().__init__(in_channels, out_channels, kernel_size=3, padding=1, bias=bias, device=device)

    def forward(self, batch: Tensor) -> Tensor:
        """Return the maps (b, o, h, w) of a batch (b, c, h, w)."""
        if self.training and self.bias is None:
            return convolve(batch, self.weight)
        return super().forward(batch)


def convolve(batch: Tensor, filters: Tensor) -> Tensor:
    """Return the maps (b, o, h, w) of a batch (b, c, h, w) and filters (o, c, 3, 3), with zeros around the images.

    Winograd's method is used where it is the faster one, in single precision on a CPU. Its rounding errors are about
    eight times those of the direct sum, some 10⁻⁵ of the largest value.
    """
    single_precision_on_cpu = (
        batch.device.type == "cpu"
        and batch.dtype == filters.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
    )
    if single_precision_on_cpu and _is_faster(batch, filters):
        return winograd(batch, filters)
    return conv2d(batch, filters, padding=1)


def _is_faster(batch: Tensor, filters: Tensor) -> bool:
    """Tell whether Winograd's method is the faster one, forwards and backwards: if it costs less than half.

    Few channels are not worth the way to the 36 points and back, and small images do not fill their tiles. Costs are
    multiplications; that way counts as if it were one full matrix, because it takes more time than its own.
    """
    tiles, (outputs, inputs) = _Tiles.of(batch), filters.shape[:2]
    pairs, there, back = inputs * outputs, _N_VALUES * inputs, _SIDE**2 * outputs
    cost = tiles.rows * tiles.columns * _N_VALUES * (pairs + there + back)
    fits = tiles.product_bytes(batch, filters) <= _MOST_PRODUCT_BYTES
    return fits and 2 * cost < 9 * tiles.height * tiles.width * pairs


def winograd(batch: Tensor, filters: Tensor) -> Tensor:
    """Return what `conv2d(batch, filters, padding=1)` returns, by Winograd's method and with its gradients."""
    result: Tensor = _Winograd.apply(batch, filters)
    return result


class _Winograd(torch.autograd.Function):
    """Written out rather than left to autograd: the gradients are matrix products of the same kind."""

    @staticmethod
    # Autocast would round the products.
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)  # type: ignore[untyped-decorator]
    def forward(context: Any, batch: Tensor, filters: Tensor) -> Tensor:
        context.save_for_backward(batch, filters)
        transforms, tiles = _transforms(filters.dtype), _Tiles.of(batch)
        evaluated = _change(transforms.of_filters, _taps(filters))
        maps = batch.new_empty(tiles.padded(len(batch), len(filters)))
        for part in tiles.parts(batch, filters):
            products = torch.bmm(_change(transforms.of_tiles, tiles.overlapping(batch[part])), evaluated)
            tiles.put(maps[part], _change(transforms.to_outputs, products))
        return tiles.crop(maps).detach()  # else a view of `maps`, which nothing may change in place

    @staticmethod
    @custom_bwd(device_type="cpu")  # type: ignore[untyped-decorator]
    @once_differentiable
    def backward(context: Any, slope: Tensor) -> tuple[Tensor | None, Tensor]:
        batch, filters = context.saved_tensors
        transforms, tiles = _transforms(filters.dtype), _Tiles.of(batch)
        evaluated = _change(transforms.of_filters, _taps(filters))
        filter_slope = torch.zeros_like(evaluated)
        batch_slope = None
        if context.needs_input_grad[0]:
            batch_slope = batch.new_zeros(tiles.padded(len(batch), batch.shape[1], more=1))
        for part in tiles.parts(batch, filters):
            product_slope = _change(transforms.to_outputs.T, tiles.disjoint(slope[part]))
            # Computed again rather than kept, which would take more than twice the memory of the layer.
            seen = _change(transforms.of_tiles, tiles.overlapping(batch[part]))
            filter_slope.baddbmm_(seen.transpose(1, 2), product_slope)
            if batch_slope is not None:
                seen_slope = torch.bmm(product_slope, evaluated.transpose(1, 2))
                tiles.add(batch_slope[part], _change(transforms.of_tiles.T, seen_slope))
        taps_slope = _change(transforms.of_filters.T, filter_slope).unflatten(0, (3, 3)).permute(3, 2, 0, 1)
        return None if batch_slope is None else tiles.crop(batch_slope, border=1), taps_slope


def _taps(filters: Tensor) -> Tensor:
    """Return filters (o, c, 3, 3) as (9, c, o)."""
    return filters.permute(2, 3, 1, 0).flatten(0, 1)


def _change(matrix: Tensor, values: Tensor) -> Tensor:
    """Turn values (k², i, j), k by k of them everywhere, into (m², i, j) by a matrix (m, k) on both sides."""
    m, k = matrix.shape
    rows = (matrix @ values.reshape(k, -1)).view(m, k, -1)
    return torch.matmul(matrix, rows).view(m**2, *values.shape[1:])


class _Transforms(NamedTuple):
    """The matrices that take a row of a tile (6) and of a filter (3) to six points, and their products (6) back."""

    of_tiles: Tensor
    of_filters: Tensor
    to_outputs: Tensor


def _transforms(dtype: torch.dtype) -> _Transforms:
    # Tensors are not cached: made while torch traces a network, they would be of no use ever after.
    return _Transforms(*(torch.from_numpy(matrix).to(dtype) for matrix in _matrices()))


@functools.cache
def _matrices() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    points = np.array(_EVALUATED_AT)

    def powers(count: int) -> np.ndarray:
        # At infinity only the highest power counts.
        return np.vstack([np.vander(points, count, increasing=True), np.eye(count)[-1]])

    # Multiplying polynomials is evaluating both, multiplying values, and solving for the coefficients. A filter that
    # slides over a tile is the transpose of a multiplication, so solving comes first and on the side of the tile.
    of_tiles, of_filters, to_outputs = np.linalg.inv(powers(_SIDE + 2)).T, powers(3), powers(_SIDE).T
    # The product at each point may have its factor on either side; here the tile's numbers become whole ones.
    scale = np.array([[np.prod([p - q for q in points if q != p])] for p in points] + [[1.0]])
    return (of_tiles * scale).round(), of_filters / scale, to_outputs


@dataclass(frozen=True)
class _Tiles:
    """How images of one size are divided into tiles: `rows` times `columns` of 4x4 pixels each."""

    height: int
    width: int

    @classmethod
    def of(cls, batch: Tensor) -> "_Tiles":
        return cls(*batch.shape[2:])

    @property
    def rows(self) -> int:
        return -(-self.height // _SIDE)

    @property
    def columns(self) -> int:
        return -(-self.width // _SIDE)

    def product_bytes(self, batch: Tensor, filters: Tensor) -> int:
        """Return the memory that the products, or the tiles, of one image take."""
        return _N_VALUES * self.rows * self.columns * max(filters.shape[:2]) * batch.element_size()

    def parts(self, batch: Tensor, filters: Tensor) -> list[slice]:
        """Return which images of a batch to compute at a time."""
        room = _PRODUCT_BYTES * torch.get_num_threads()
        size = max(1, room // self.product_bytes(batch, filters))
        return [slice(start, start + size) for start in range(0, len(batch), size)]

    def padded(self, n_images: int, channels: int, more: int = 0) -> tuple[int, ...]:
        """Return the shape of `n_images` in whole tiles, and `more` of them at the end; channels come last."""
        return n_images, _SIDE * (self.rows + more), _SIDE * (self.columns + more), channels

    def overlapping(self, batch: Tensor) -> Tensor:
        """Return the 6x6 pixels (36, n_tiles, c) around every tile of images (b, c, h, w)."""
        return self._cut(batch, border=1)

    def disjoint(self, maps: Tensor) -> Tensor:
        """Return the 4x4 pixels (16, n_tiles, o) of every tile of maps (b, o, h, w)."""
        return self._cut(maps, border=0)

    def _cut(self, maps: Tensor, border: int) -> Tensor:
        right, below = _SIDE * self.columns - self.width, _SIDE * self.rows - self.height
        if border or right or below:  # padding by nothing would be a copy
            maps = pad(maps, (border, border + right, border, border + below))
        side = _SIDE + 2 * border
        tiles = maps.unfold(2, side, _SIDE).unfold(3, side, _SIDE)
        return tiles.permute(4, 5, 0, 2, 3, 1).reshape(side**2, -1, maps.shape[1])

    def put(self, maps: Tensor, outputs: Tensor) -> None:
        """Write outputs (16, n_tiles, o) to where they belong in maps (b, 4 rows, 4 columns, o)."""
        self._apart(maps).copy_(self._by_tile(outputs, _SIDE))

    def add(self, maps: Tensor, values: Tensor) -> None:
        """Add values (36, n_tiles, c) to maps (b, 4 rows + 4, 4 columns + 4, c), which start a pixel further out."""
        values, apart = self._by_tile(values, _SIDE + 2), self._apart(maps)
        rows, columns = slice(self.rows), slice(self.columns)
        beyond = slice(_SIDE, None)  # two rows, or columns, belong to the next tile
        apart[:, :, :, rows, columns] += values[:_SIDE, :_SIDE]
        apart[:2, :, :, 1:, columns] += values[beyond, :_SIDE]
        apart[:, :2, :, rows, 1:] += values[:_SIDE, beyond]
        apart[:2, :2, :, 1:, 1:] += values[beyond, beyond]

    def _apart(self, maps: Tensor) -> Tensor:
        """View maps (b, 4 r, 4 s, c) as (4, 4, b, r, s, c)."""
        return maps.unflatten(2, (-1, _SIDE)).unflatten(1, (-1, _SIDE)).permute(2, 4, 0, 1, 3, 5)

    def _by_tile(self, values: Tensor, side: int) -> Tensor:
        """View values (side², n_tiles, c) as (side, side, b, rows, columns, c)."""
        return values.view(side, side, -1, self.rows, self.columns, values.shape[2])

    def crop(self, maps: Tensor, border: int = 0) -> Tensor:
        """Return maps (b, c, h, w) without what lies around the images; channels stay last in memory."""
        inside = maps[:, border : border + self.height, border : border + self.width].permute(0, 3, 1, 2)
        return inside.contiguous(memory_format=torch.channels_last)
