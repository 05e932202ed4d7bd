"""Step 5 on one batch that is too large for the memory: latents and gradients of the whole batch, piece by piece.

In train mode a batch normalisation uses mean and variance of the whole batch, so every image depends on all others,
and gradients of pieces do not simply add up. But statistics are sums over pieces, and once they and the gradient of the
loss with respect to them are known, each piece stands alone. With blocks of convolution, normalisation and pooling:

1. Block by block, from the first to the last: the statistics, from all pieces, without gradient.
2. The latents of all pieces. They are few numbers; the loss and its gradient with respect to them follow at once.
3. Block by block, from the last to the first: the gradient with respect to the statistics. It follows from that of
   scale and shift of the normalisation, which needs back-propagation no further than to this block.
4. The gradients of all weights, summed over the pieces.

Every step computes the maps again from the pixels, so only those of one piece are in memory: for three blocks about
three times the work of a batch that fits. The result is the same but for rounding.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import batch_norm

from lmfcn.compute.encode import convolutions_in, joint_moments, mean_and_variance
from lmfcn.method.network import TextureFCN
from lmfcn.util.memory import release_freed_memory

Pixels = Callable[[slice], Tensor]
_WithSlope = tuple[Tensor, Tensor]

_PIECES_PER_RELEASE = 16
"""Releasing memory after every piece costs a third of the time, after 16 pieces about half of that."""


def bytes_per_image(network: TextureFCN, height: int, width: int) -> int:
    """Return the memory that back-propagation takes for one image, nearly all of it maps."""
    total = 0
    for convolution, _, pool in network.blocks():
        values = convolution.out_channels * height * width
        total += 16 * values  # maps before and after the normalisation, and the gradients of both
        if not isinstance(pool, nn.Identity):
            total += 3 * values  # a quarter of the values, each with the place where it was found
            height, width = (height + 1) // 2, (width + 1) // 2
    return total


def latents_in_pieces(network: TextureFCN, pixels: Pixels, n_images: int, size: int) -> Tensor:
    """Return the latents (n, n_latents) of a batch under the statistics of the whole batch; `backward` goes by pieces.

    What `network(pixels(slice(n_images)))` returns in train mode, with the same gradients of the weights, but with
    the maps of no more than `size` images in memory. The running averages of the normalisations are left alone.

    Parameters
    ----------
    network : TextureFCN
        In train mode.
    pixels : callable
        Gives the images (b, c, h, w) at a slice of the batch, the same ones every time; all images have one size.
    n_images : int
        Images of the batch.
    size : int
        Images of a piece, at most.
    """
    n_pieces = -(-n_images // size)
    bounds = [number * n_images // n_pieces for number in range(n_pieces + 1)]
    pieces = _Pieces(network, pixels, [slice(*ends) for ends in pairwise(bounds)])
    latents: Tensor = _Latents.apply(pieces, *pieces.weights)
    return latents


class _Latents(torch.autograd.Function):
    """The way from the weights to the latents, for autograd."""

    @staticmethod
    def forward(context: Any, pieces: "_Pieces", *_: Tensor) -> Tensor:
        context.pieces = pieces
        return pieces.latents()

    @staticmethod
    @once_differentiable
    def backward(context: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        return None, *context.pieces.gradients(slopes)


class _Block:
    """A convolution with what follows, normalised by the statistics of the whole batch once they are known."""

    mean: Tensor
    variance: Tensor
    statistics_slopes: tuple[Tensor, Tensor]

    def __init__(self, convolution: nn.Conv2d, norm: nn.BatchNorm2d, pool: nn.Module) -> None:
        self.convolution, self.norm, self.pool = convolution, norm, pool

    def behind_convolution(self, convolved: Tensor) -> Tensor:
        """Return the output of the block for maps (b, c, h, w) as the convolution gives them."""
        norm = self.norm
        normalised = batch_norm(convolved, self.mean, self.variance, norm.weight, norm.bias, eps=norm.eps)
        return self.pool(normalised).relu_()

    def set_statistics_slopes(self, weight_slope: Tensor, bias_slope: Tensor) -> None:
        """Set the gradients of mean and variance (c,), given those of scale and shift of the normalisation.

        For y = weight (x - mean) / deviation + bias, the gradient of `bias` is the sum of those of all y, and the
        gradient of `weight` the sum of their products with (x - mean) / deviation. Those of the statistics are
        multiples of the same sums.
        """
        inverse = (self.variance + self.norm.eps).rsqrt()
        factor = self.norm.weight.detach() * inverse
        self.statistics_slopes = -factor * bias_slope, -0.5 * factor * inverse * weight_slope

    def slope_through_statistics(self, convolved: Tensor, n_values: int) -> Tensor:
        """Return the gradient of maps (b, c, h, w) by way of the statistics, which are means of `n_values`.

        That of the variance, the mean of (x - mean)², is 2 (x - mean) / n_values: to move the mean in it changes
        nothing, because the variance is least there.
        """
        of_mean, of_variance = (slope[:, None, None] / n_values for slope in self.statistics_slopes)
        away = convolved.detach() - self.mean[:, None, None]
        return away.mul_(2 * of_variance).add_(of_mean).to(convolved.dtype)


class _Pieces:
    """A batch in pieces, and a network that it passes through."""

    def __init__(self, network: TextureFCN, pixels: Pixels, parts: Sequence[slice]) -> None:
        self.network, self.pixels, self.parts = network, pixels, parts
        self.blocks = [_Block(*block) for block in network.blocks()]
        self.weights = list(network.parameters())
        self.device = self.weights[0].device
        # The gradients are computed when autograd asks for them, outside of the context of the caller.
        self.bfloat16 = torch.is_autocast_enabled(self.device.type)

    def latents(self) -> Tensor:
        """Set the statistics of all blocks and return the latents (n, n_latents), without gradient."""
        with torch.no_grad(), convolutions_in(bfloat16=self.bfloat16, device=self.device):
            for number, block in enumerate(self.blocks):
                moments = [mean_and_variance(self._convolved(part, number)) for part in self._each_part()]
                block.mean, block.variance = joint_moments(moments, self._shares())
            return torch.cat([self._latents(part) for part in self._each_part()])

    def _latents(self, part: slice) -> Tensor:
        maps, parts = self._images(part), []
        for block in self.blocks:
            maps = block.behind_convolution(block.convolution(maps))
            parts.append(self.network.block_latents(maps))
        return self.network.join(parts)

    def gradients(self, slopes: Tensor) -> list[Tensor]:
        """Return the gradients of all weights from those of the latents (n, n_latents)."""
        for number in reversed(range(1, len(self.blocks))):
            block = self.blocks[number]
            outputs = partial(self._outputs, slopes=slopes, first=number)
            block.set_statistics_slopes(*self._sum(outputs, [block.norm.weight, block.norm.bias]))
        gradients = self._sum(partial(self._outputs, slopes=slopes, first=-1), self.weights)
        self._add_first_statistics({id(weight): found for weight, found in zip(self.weights, gradients, strict=True)})
        return gradients

    def _add_first_statistics(self, gradients: dict[int, Tensor]) -> None:
        """Add the part of the first block's statistics; they depend on its filters alone, so one layer is enough."""
        block = self.blocks[0]
        filters = block.convolution.weight
        block.set_statistics_slopes(gradients[id(block.norm.weight)], gradients[id(block.norm.bias)])
        gradients[id(filters)] += self._sum(
            lambda part: [self._with_slope(block, self._convolved(part, 0))], [filters]
        )[0]

    def _sum(self, outputs: Callable[[slice], list[_WithSlope]], weights: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients of weights, summed over the pieces, from outputs with their gradients."""
        total = [torch.zeros_like(weight) for weight in weights]
        for part in self._each_part():
            with torch.enable_grad(), convolutions_in(bfloat16=self.bfloat16, device=self.device):
                found, slopes = zip(*outputs(part), strict=True)
            for gradient, more in zip(total, torch.autograd.grad(found, weights, slopes), strict=True):
                gradient += more
        return total

    def _outputs(self, part: slice, slopes: Tensor, first: int) -> list[_WithSlope]:
        """Return what the loss depends on, with gradients: the latents of a piece, and maps by way of the statistics.

        Autograd knows how they came about from the normalisation of block `first` on.
        """
        maps, parts, outputs = self._images(part), [], []
        for number, block in enumerate(self.blocks):
            with torch.set_grad_enabled(number > first):
                convolved = block.convolution(maps)
            if number > max(first, 0):
                outputs.append(self._with_slope(block, convolved))
            with torch.set_grad_enabled(number >= first):
                maps = block.behind_convolution(convolved)
            parts.append(self.network.block_latents(maps))
        return [*outputs, (self.network.join(parts), slopes[part])]

    def _with_slope(self, block: _Block, convolved: Tensor) -> _WithSlope:
        n_values = convolved[0, 0].numel() * self.parts[-1].stop
        return convolved, block.slope_through_statistics(convolved, n_values)

    def _convolved(self, part: slice, last: int) -> Tensor:
        """Return the maps of a piece behind the convolution of a block."""
        maps = self._images(part)
        for block in self.blocks[:last]:
            maps = block.behind_convolution(block.convolution(maps))
        convolved: Tensor = self.blocks[last].convolution(maps)
        return convolved

    def _each_part(self) -> Iterator[slice]:
        for number, part in enumerate(self.parts, start=1):
            yield part
            if number % _PIECES_PER_RELEASE == 0:
                release_freed_memory()  # or gaps in the heap would grow from piece to piece

    def _images(self, part: slice) -> Tensor:
        return self.network.reduce(self.pixels(part)).to(self.weights[0].dtype)

    def _shares(self) -> Tensor:
        """Return the share (n_pieces, 1) of every piece in the batch."""
        sizes = torch.tensor([[part.stop - part.start] for part in self.parts], device=self.device)
        return sizes.to(self.weights[0].dtype) / self.parts[-1].stop
