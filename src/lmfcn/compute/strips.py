"""Latents of images that are too large to compute whole: strip by strip, with the same result."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from lmfcn.compute.moments import Pairs, mixing, of_covariances, standard_deviation

if TYPE_CHECKING:
    from lmfcn.method.network import TextureFCN

LARGEST_WHOLE = 2**20
"""Pixels of an image, as a network sees it, up to which it is computed whole: the maps of one image take 0.6 GB."""

_STRIP_PIXELS = 2**18
_MARGIN = 4
"""Rows of the last maps around a strip; these see less than 3 of them beyond it."""


def latents_in_strips(network: nn.Module, batch: Tensor, strip_pixels: int = _STRIP_PIXELS) -> Tensor:
    """Return the latents (b, n_latents) of images (b, c, h, w), of which only a strip is computed at a time.

    Strips overlap by more than the network sees, so the result is that of the whole images but for rounding.

    Parameters
    ----------
    network : Networks or TextureFCN
        In eval mode, without a frozen network in front.
    batch : Tensor (b, c, h, w)
    strip_pixels : int
        Pixels of a strip, about.
    """
    members = getattr(network, "members", [network])
    return torch.cat([_latents_of_one(member, batch, strip_pixels) for member in members], dim=1)


def in_strips(network: nn.Module, n_pixels: int) -> bool:
    """Tell whether images of so many pixels are better computed in strips by this network."""
    members = getattr(network, "members", [network])
    if getattr(network, "trunk", None) is not None or not all(hasattr(member, "block_maps") for member in members):
        return False
    return any(n_pixels // member.reduction**2 > LARGEST_WHOLE for member in members)


def whole_block_maps(network: "TextureFCN", batch: Tensor) -> Iterator[Tensor]:
    """Go through the maps (b, c, h, w) of the blocks that are averaged, computed in strips if images are very large.

    Then no more than these maps is in memory, which are a quarter of the convolutions' results.
    """
    if not in_strips(network, batch.shape[2] * batch.shape[3]):
        yield from network.block_maps(network.reduce(batch))
        return
    blocks = [list(parts) for parts in zip(*_strips(network, network.reduce(batch), _STRIP_PIXELS), strict=True)]
    while blocks:
        yield torch.cat(blocks.pop(0), dim=2)


def _latents_of_one(network: "TextureFCN", batch: Tensor, strip_pixels: int) -> Tensor:
    moments = [_Moments(network) for _ in network.averaged_widths]
    for strip in _strips(network, network.reduce(batch), strip_pixels):
        for block, maps in zip(moments, strip, strict=True):
            block.add(maps)
    return torch.cat([block.latents() for block in moments], dim=1).to(batch)


def _strips(network: "TextureFCN", pixels: Tensor, strip_pixels: int) -> Iterator[list[Tensor]]:
    """Go through strips of images at the network's scale: the maps (b, c, h, w) of all its blocks."""
    height, width = pixels.shape[2:]
    depth = len(network.widths)
    step = 2**depth
    strides = [*(2 ** (block + 1) for block in range(depth) if network.pooling == "all"), step]
    rows = max(1, strip_pixels // (width * step)) * step
    for top in range(0, height, rows):
        bottom, first = min(top + rows, height), max(0, top - _MARGIN * step)
        maps = network.block_maps(pixels[:, :, first : bottom + _MARGIN * step])
        yield [
            # A copy, so that what is beyond the strip does not stay in memory.
            block[:, :, (top - first) // stride : -(-(bottom - first) // stride)].clone()
            for block, stride in zip(maps, strides, strict=True)
        ]


class _Moments:
    """Sums over the strips of the maps of one block."""

    def __init__(self, network: "TextureFCN") -> None:
        self.network = network
        self.sums = self.squares = self.products = torch.zeros((), dtype=torch.float64)
        self.count = 0

    def add(self, inside: Tensor) -> None:
        """Add the maps (b, c, h, w) of a strip."""
        self.sums = self.sums + inside.sum(dim=(2, 3)).cpu().double()
        self.squares = self.squares + inside.square().sum(dim=(2, 3)).cpu().double()
        self.count += inside.shape[2] * inside.shape[3]
        if self.network.correlations:
            mixtures = mixing(inside.shape[1], inside).T @ inside.flatten(2)
            self.products = self.products + (mixtures @ mixtures.transpose(1, 2)).cpu().double()

    def latents(self) -> Tensor:
        """Return the means (b, c), and behind them the standard deviations and correlations that latents hold."""
        means = self.sums / self.count
        if not self.network.deviations:
            return means
        variances = (self.squares / self.count - means.square()).clamp(min=0)
        parts = [means, variances / standard_deviation(variances)]
        if self.network.correlations:
            mixed = means @ mixing(means.shape[1], means)
            covariances = self.products / self.count - mixed[:, :, None] * mixed[:, None]
            pairs = Pairs.of(mixed.shape[1])
            parts.append(of_covariances(covariances[:, pairs.first, pairs.second]))
        return torch.cat(parts, dim=1)
