"""First filters made for the textures at hand, without labels: random ones for decorrelated patches."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import unfold

from lmfcn.compute.encode import Images, equal_size_batches, evenly_spaced, take, to_batch
from lmfcn.compute.resources import CPU, to_cpu_double, to_like
from lmfcn.method.network import TextureFCN

FIRST_FILTERS = ("decorrelated", "random")
N_FOR_FILTERS = 128
_PATCHES_PER_IMAGE = 4096
_MOST_WORK = 2e10
"""Most multiplications for a covariance, unless fewer than _PATCHES_PER_VALUE patches per value are left."""
_PATCHES_PER_VALUE = 16
_MOST_VALUES = 2304
"""Of a patch: 256 channels. The time to decorrelate grows with the cube and would exceed that of the training."""
_DAMPING = 0.01
"""Share of the mean variance that is added to every direction, so that pixel noise is not blown up."""
_LEAST_VARIANCE = 1e-10
"""Of a pixel in [0, 1]; less is rounding."""


def start_first_filters(network: TextureFCN, first_filters: str, images: Images) -> None:
    """Let a new network start as `first_filters` says: "decorrelated" for these images, or "random" as it is."""
    if first_filters == "decorrelated":
        decorrelate_first_filters(network, decorrelation(images))


def decorrelate_first_filters(network: TextureFCN, root: Tensor | None) -> None:
    """Let every other filter of the first convolution look at decorrelated patches; `root` is their *W*.

    Neighbouring pixels, and the colours of one pixel, are nearly equal in most images: a random filter then measures
    brightness and hardly anything else. A filter *f* of decorrelated patches is the filter *W f* of the patches
    themselves, with *W* = (covariance + damping)^(-1/2): in this basis all directions vary alike, fine structure as
    much as brightness. Half of the filters stay as they are, for what brightness tells.
    """
    if root is None:
        return
    convolution = next(network.blocks())[0]
    with torch.no_grad():
        filters = to_cpu_double(convolution.weight[1::2].flatten(start_dim=1))
        changed = filters @ root
        # The length of a filter sets how fast it learns behind a batch normalisation.
        changed *= (filters.square().sum(dim=1) / changed.square().sum(dim=1)).sqrt()[:, None]
        convolution.weight[1::2] = to_like(changed, convolution.weight).reshape_as(convolution.weight[1::2])


def decorrelation(images: Images, size: int = 3) -> Tensor | None:
    """Return *W* (c * size^2, c * size^2) for patches of the images.

    None if the images say nothing: they are smaller than a filter, or constant. None also for maps of very many
    channels, as of several channels behind a frozen network.
    """
    if n_channels(images) * size**2 > _MOST_VALUES:
        return None
    covariance = patch_covariance(images, size)
    if covariance is None or float(covariance.diagonal().max()) < _LEAST_VARIANCE:
        return None
    return inverse_root(covariance, _DAMPING)


def n_channels(images: Images) -> int:
    """Return the number of channels of the images."""
    return int(take(images, np.arange(1)).shape[-1])


def patch_covariance(images: Images, size: int) -> Tensor | None:
    """Return the covariance (c * size^2, c * size^2) of square patches, in double precision; None if there are none.

    Patches come from images at even distances in the set, and within an image from places at even distances.
    """
    n_patches, total, products = 0, torch.zeros(()), torch.zeros(())
    for patches in _patches(images, size):
        n_patches += len(patches)
        total = total + patches.sum(dim=0)
        products = products + patches.T @ patches
    if n_patches == 0:
        return None
    mean = total / n_patches
    return products / n_patches - torch.outer(mean, mean)


def inverse_root(covariance: Tensor, damping: float) -> Tensor:
    """Return the symmetric (covariance + damping * mean variance)^(-1/2)."""
    variances, directions = torch.linalg.eigh(covariance)
    variances = variances.clamp(min=0)
    return (directions / (variances + damping * variances.mean()).sqrt()) @ directions.T


def _patches(images: Images, size: int) -> Iterator[Tensor]:
    """Go through the patches (m, c * size^2), image by image."""
    chosen = evenly_spaced(len(images), N_FOR_FILTERS)
    for part in equal_size_batches(images, chosen, 1):
        pixels = to_batch(take(images, part), CPU)  # some devices have no double precision
        height, width = pixels.shape[2:]
        if min(height, width) >= size:
            values = pixels.shape[1] * size**2
            most = min(_PATCHES_PER_IMAGE, max(_MOST_WORK / values**2, _PATCHES_PER_VALUE * values) / len(chosen))
            stride = int(np.ceil(np.sqrt(height * width / max(most, 1))))
            yield unfold(pixels, size, stride=stride)[0].T.double()
