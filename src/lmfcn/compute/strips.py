"""Latents of images that are too large to compute whole: strip by strip, with the same result."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from lmfcn.compute.moments import standard_deviation

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


def _latents_of_one(network: "TextureFCN", batch: Tensor, strip_pixels: int) -> Tensor:
    pixels, depth = network.reduce(batch), len(network.widths)
    height, width = pixels.shape[2:]
    step = 2**depth
    strides = [2 ** (block + 1) for block in range(depth)] if network.pooling == "all" else []
    moments = [_Moments(stride) for stride in (*strides, step)]
    rows = max(1, strip_pixels // (width * step)) * step
    for top in range(0, height, rows):
        bottom, first = min(top + rows, height), max(0, top - _MARGIN * step)
        strip = pixels[:, :, first : bottom + _MARGIN * step]
        for block, maps in zip(moments, network.block_maps(strip), strict=True):
            block.add(maps, top - first, bottom - first)
    return torch.cat([block.latents(deviations=network.deviations) for block in moments], dim=1).to(batch)


class _Moments:
    """Sums over the strips of the maps of one block, of which one position is `stride` pixels of the image."""

    def __init__(self, stride: int) -> None:
        self.stride = stride
        self.sums = self.squares = torch.zeros((), dtype=torch.float64)
        self.count = 0

    def add(self, maps: Tensor, top: int, bottom: int) -> None:
        """Add the rows of maps (b, c, h, w) that lie between two rows of pixels."""
        inside = maps[:, :, top // self.stride : -(-bottom // self.stride)]
        self.sums = self.sums + inside.sum(dim=(2, 3)).cpu().double()
        self.squares = self.squares + inside.square().sum(dim=(2, 3)).cpu().double()
        self.count += inside.shape[2] * inside.shape[3]

    def latents(self, *, deviations: bool) -> Tensor:
        """Return the means (b, c), and behind them the standard deviations."""
        means = self.sums / self.count
        if not deviations:
            return means
        variances = (self.squares / self.count - means.square()).clamp(min=0)
        return torch.cat([means, variances / standard_deviation(variances)], dim=1)
