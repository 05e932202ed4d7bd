"""Step 1 in training: batch-norm statistics under the present weights, and the latents that go with them."""

from collections.abc import Iterable

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
    take,
    to_batch,
)
from lmfcn.algorithm.network import TextureFCN

_REFRESH_BYTES = 2**28
"""Most memory for the maps of the images from which batch normalisation takes its statistics."""

_FEWEST_REFRESHING = 32
"""The statistics are taken from at least so many images, whatever their size."""


def refresh_and_encode(network: TextureFCN, images: Images, device: torch.device) -> Tensor:
    """Set the statistics of every batch normalisation to those of `images`; return the latents (n, latent_dim).

    Running averages lag behind the weights: on a small set they need many epochs to catch up, and until then the
    latents are meaningless. Here every layer takes mean and variance over the whole set, or over a part of it at
    even distances if its maps would take more than _REFRESH_BYTES, before the next layer sees any image. So the
    images pass through the network only once.
    """
    chosen = _spread_out(len(images), _refresh_images(network, images))
    parts = equal_size_batches(images, chosen, encoding_batch(network, images, device))
    latents = torch.empty(len(images), network.latent_dim, device=device)
    with torch.no_grad():
        maps: Iterable[Tensor] = (to_batch(take(images, part), device) for part in parts)
        shares = torch.tensor([[len(part) / len(chosen)] for part in parts], device=device)
        for convolution, norm, pool in network.blocks():
            maps = _refresh_block(convolution, norm, pool, maps, shares)
        latents[np.concatenate(parts)] = torch.cat([network.average(batch) for batch in maps])
    others = np.setdiff1d(np.arange(len(images)), chosen)
    if len(others):
        latents[others] = encode(network, images, device, others)
    network.eval()
    return latents


def _refresh_block(
    convolution: nn.Conv2d, norm: nn.BatchNorm2d, pool: nn.Module, maps: Iterable[Tensor], shares: Tensor
) -> list[Tensor]:
    """Return the output of one block for batches with the given shares (n_batches, 1); set its statistics."""
    # Only pooled maps are kept, a quarter of the memory. Normalising them later gives the same as the other order
    # if the larger value stays the larger one, so channels with a negative factor are turned round.
    sign = torch.where(norm.weight < 0, -1.0, 1.0)
    weight = convolution.weight * sign[:, None, None, None]
    pooled, means, variances = [], [], []
    for batch in maps:
        convolved = conv2d(batch, weight, padding=convolution.padding)
        mean, variance = _mean_and_variance(convolved)
        means.append(mean)
        variances.append(variance)
        pooled.append(pool(convolved))
    # Products and sums rather than a matrix product, which bfloat16 would round.
    mean = (shares * torch.stack(means)).sum(dim=0)
    variance = (shares * (torch.stack(variances) + (torch.stack(means) - mean).square())).sum(dim=0)
    norm.reset_running_stats()
    norm.running_mean, norm.running_var = mean * sign, variance
    for place, batch in enumerate(pooled):
        pooled[place] = batch_norm(batch, mean, variance, norm.weight.abs(), norm.bias, eps=norm.eps).relu_()
    return pooled


def _mean_and_variance(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Return both (c,) over images and pixels; batch normalisation finds them far faster than `torch.var_mean`."""
    channels, n_values = maps.shape[1], maps.numel() // maps.shape[1]
    mean, variance = torch.zeros(2, channels, device=maps.device)
    batch_norm(maps, mean, variance, training=True, momentum=1.0)
    return mean, variance * ((n_values - 1) / n_values)


def _refresh_images(network: TextureFCN, images: Images) -> int:
    """Return from how many images the statistics are taken."""
    pixels, most_values = largest_image(images), 1
    for convolution, _, pool in network.blocks():
        pixels //= 1 if isinstance(pool, nn.Identity) else 4
        most_values = max(most_values, convolution.out_channels * pixels)
    return max(_FEWEST_REFRESHING, _REFRESH_BYTES // (4 * most_values))


def _spread_out(n_images: int, n_chosen: int) -> np.ndarray:
    """Return the positions of all images, or of `n_chosen` at even distances."""
    n_chosen = min(n_images, n_chosen)
    return np.arange(n_chosen) * n_images // n_chosen
