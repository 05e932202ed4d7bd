"""Step 1: latents of many images, batch by batch and without gradient."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

ENCODING_BATCH = 32
"""Images per forward pass; small enough for the activations to stay near the processor's caches."""

_FULL_SCALE = {torch.uint8: 255.0, torch.uint16: 65535.0}


def to_batch(images: np.ndarray, device: torch.device) -> Tensor:
    """Turn images (b, h, w, c) into a float32 batch (b, c, h, w), integers scaled to [0, 1].

    Images stay in their own dtype until here, so a training set costs one byte per 8-bit pixel.
    """
    if not images.flags.writeable:
        images = images.copy()  # torch refuses to look at memory that it must not write
    tensor = torch.from_numpy(images).to(device)
    full_scale = _FULL_SCALE.get(tensor.dtype)
    batch = tensor.permute(0, 3, 1, 2).to(torch.float32)
    return batch if full_scale is None else batch.div_(full_scale)


def encode(network: nn.Module, images: np.ndarray, device: torch.device) -> Tensor:
    """Return the latents *T* (n, latent_dim) of images (n, h, w, c); the network is left in eval mode."""
    network.eval()
    with torch.no_grad():
        return torch.cat([network(batch) for batch in _batches(images, device)])


def refresh_batch_norm(network: nn.Module, images: np.ndarray, device: torch.device) -> None:
    """Set every batch normalisation's statistics to those of `images` under the present weights.

    Running averages lag behind the weights: on a small set they need many epochs to catch up, and until
    then the latents are meaningless. Here each statistic is averaged anew over the whole set.
    """
    layers = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # None asks torch for the plain average over all batches
    network.train()
    with torch.no_grad():
        for batch in _batches(images, device):
            network(batch)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    network.eval()


def _batches(images: np.ndarray, device: torch.device) -> Iterator[Tensor]:
    n_batches = -(-len(images) // ENCODING_BATCH)
    # Parts of nearly equal size: a tiny last batch would weigh too much in the averaged statistics.
    for part in np.array_split(np.arange(len(images)), n_batches):
        yield to_batch(images[part[0] : part[-1] + 1], device)
