"""Step 1 in training: batch-norm statistics under the present weights, and the latents that go with them."""

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, conv2d

from lmfcn.algorithm.encode import (
    Images,
    encode,
    encoding_batch,
    equal_size_batches,
    largest_image,
    spread_out,
    take,
    to_batch,
)
from lmfcn.algorithm.network import TextureFCN

_REFRESH_BYTES = 2**28
"""Most memory for the pooled maps of one layer; those of the next one come on top while it is computed."""

_FEWEST_REFRESHING = 32
"""The statistics are taken from at least so many images, if there are; where their maps would take too much memory,
they are computed again for every layer."""


def refresh_and_encode(network: TextureFCN, images: Images, device: torch.device) -> Tensor:
    """Set the statistics of every batch normalisation to those of `images`; return the latents (n, n_latents).

    Running averages lag behind the weights: on a small set they need many epochs to catch up, and until then the
    latents are meaningless. Here every layer takes mean and variance over the whole set, or over a part of it at
    even distances if its maps would take more than _REFRESH_BYTES, before the next layer sees any image. So the
    images pass through the network only once; very large ones more often.
    """
    n_kept = _maps_in_memory(network, images)
    chosen = spread_out(len(images), max(n_kept, _FEWEST_REFRESHING))
    parts = equal_size_batches(images, chosen, encoding_batch(network, images, device))
    shares = torch.tensor([[len(part) / len(chosen)] for part in parts], device=device)
    dtype = next(network.parameters()).dtype

    def pixels() -> Iterable[Tensor]:
        return (to_batch(take(images, part), device).to(dtype) for part in parts)

    network.eval()
    with torch.no_grad():
        if len(chosen) > n_kept:
            _refresh_again_and_again(network, pixels, shares)
            return encode(network, images, device)
        maps, averages = pixels(), []
        for convolution, norm, pool in network.blocks():
            maps = _refresh_block(convolution, norm, pool, maps, shares)
            averages.append(torch.cat([network.average(batch) for batch in maps]))
        latents = torch.empty(len(images), network.n_latents, dtype=dtype, device=device)
        latents[np.concatenate(parts)] = network.join(averages).to(dtype)
    others = np.setdiff1d(np.arange(len(images)), chosen)
    if len(others):
        latents[others] = encode(network, images, device, others)
    return latents


def _refresh_block(
    convolution: nn.Conv2d, norm: nn.BatchNorm2d, pool: nn.Module, maps: Iterable[Tensor], shares: Tensor
) -> list[Tensor]:
    """Return the output of one block for batches with the given shares (n_batches, 1); set its statistics."""
    # Only pooled maps are kept, a quarter of the memory. Normalising them later gives the same as the other order
    # if the larger value stays the larger one, so channels with a negative factor are turned round.
    sign = torch.where(norm.weight < 0, -1.0, 1.0)
    weight = convolution.weight * sign[:, None, None, None]
    pooled, moments = [], []
    for batch in maps:
        convolved = conv2d(batch, weight, padding=convolution.padding)
        moments.append(mean_and_variance(convolved))
        pooled.append(pool(convolved))
    mean, variance = joint_moments(moments, shares)
    norm.reset_running_stats()
    norm.running_mean, norm.running_var = mean * sign, variance
    for place, batch in enumerate(pooled):
        pooled[place] = batch_norm(batch, mean, variance, norm.weight.abs(), norm.bias, eps=norm.eps).relu_()
    return pooled


def _refresh_again_and_again(network: TextureFCN, pixels: Callable[[], Iterable[Tensor]], shares: Tensor) -> None:
    """Set the statistics layer by layer, each time from the pixels: slower, but one batch in memory."""
    before: list[nn.Module] = []
    for layer in network.features:
        if isinstance(layer, nn.BatchNorm2d):
            layer.reset_running_stats()
            behind = nn.Sequential(*before)
            layer.running_mean, layer.running_var = joint_moments(
                [mean_and_variance(behind(b)) for b in pixels()], shares
            )
        before.append(layer)


def joint_moments(moments: list[tuple[Tensor, Tensor]], shares: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance (c,) of everything from those of batches with the given shares (n_batches, 1)."""
    means, variances = (torch.stack(part) for part in zip(*moments, strict=True))
    # Products and sums rather than a matrix product, which bfloat16 would round.
    mean = (shares * means).sum(dim=0)
    return mean, (shares * (variances + (means - mean).square())).sum(dim=0)


def mean_and_variance(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Return both (c,) over images and pixels; batch normalisation finds them far faster than `torch.var_mean`."""
    channels, n_values = maps.shape[1], maps.numel() // maps.shape[1]
    precise = torch.float32 if maps.dtype == torch.bfloat16 else maps.dtype
    mean, variance = torch.zeros(2, channels, dtype=precise, device=maps.device)
    if n_values == 1:
        return maps.to(precise).mean(dim=(0, 2, 3)), variance
    batch_norm(maps, mean, variance, training=True, momentum=1.0)
    return mean, variance * ((n_values - 1) / n_values)


def _maps_in_memory(network: TextureFCN, images: Images) -> int:
    """Return of how many images all maps of a layer may be kept."""
    pixels, most_values = largest_image(images), 1
    for convolution, _, pool in network.blocks():
        pixels //= 1 if isinstance(pool, nn.Identity) else 4
        most_values = max(most_values, convolution.out_channels * pixels)
    return _REFRESH_BYTES // (4 * most_values)
