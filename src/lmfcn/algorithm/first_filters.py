"""First filters made for the textures at hand, without labels: random ones for decorrelated patches."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import unfold

from lmfcn.algorithm.encode import Images, equal_size_batches, spread_out, take, to_batch
from lmfcn.algorithm.network import TextureFCN

FIRST_FILTERS = ("decorrelated", "random")
_MOST_IMAGES = 128
_PATCHES_PER_IMAGE = 4096
_DAMPING = 0.01
"""Share of the mean variance that is added to every direction, so that pixel noise is not blown up."""


def decorrelate_first_filters(network: TextureFCN, images: Images) -> None:
    """Let every other filter of the first convolution look at decorrelated patches.

    Neighbouring pixels, and the colours of one pixel, are nearly equal in most images: a random filter then measures
    brightness and hardly anything else. A filter *f* of decorrelated patches is the filter *W f* of the patches
    themselves, with *W* = (covariance + damping)^(-1/2): in this basis all directions vary alike, fine structure as
    much as brightness. Half of the filters stay as they are, for what brightness tells.

    Images that are smaller than a filter say nothing, and neither do constant ones: the filters then stay.
    """
    convolution = next(network.blocks())[0]
    covariance = patch_covariance(images, convolution.kernel_size[0])
    if covariance is None or not float(covariance.diagonal().sum()) > 0:
        return
    with torch.no_grad():
        filters = convolution.weight[1::2].flatten(start_dim=1).cpu().double()
        changed = filters @ inverse_root(covariance, _DAMPING)
        # The length of a filter sets how fast it learns behind a batch normalisation.
        changed *= (filters.square().sum(dim=1) / changed.square().sum(dim=1)).sqrt()[:, None]
        convolution.weight[1::2] = changed.to(convolution.weight).reshape_as(convolution.weight[1::2])


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
    for part in equal_size_batches(images, spread_out(len(images), _MOST_IMAGES), 1):
        pixels = to_batch(take(images, part), torch.device("cpu"))  # some devices have no double precision
        height, width = pixels.shape[2:]
        if min(height, width) >= size:
            stride = int(np.ceil(np.sqrt(height * width / _PATCHES_PER_IMAGE)))
            yield unfold(pixels, size, stride=stride)[0].T.double()
