"""Step 1: latents of many images, batch by batch and without gradient."""

import copy
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

REFRESH_BATCH = 32
"""Images over which batch normalisation takes one mean and variance when its statistics are refreshed."""

REFRESH_IMAGES = 1024
"""Most images that a refresh looks at; all of a large set would cost a second forward pass over everything."""

_ACTIVATION_BYTES = 2**23
"""Most memory for the largest layer of an encoding batch: near the processor's caches, and far below the size
from which every allocation starts with pages that have to be zeroed."""

_ACTIVATION_BYTES_ACCELERATOR = 2**28
_MOST_IMAGES = 256


class LazyImages(Protocol):
    """Images that are decoded when they are needed, and may differ in size."""

    @property
    def size_numbers(self) -> np.ndarray:
        """A number (n,) for each image; images with the same number have the same size."""

    def __len__(self) -> int: ...

    def sizes(self) -> np.ndarray:
        """Return height and width (n, 2) of every image."""

    def batch(self, positions: np.ndarray) -> np.ndarray:
        """Return some images of equal size as one array (b, h, w, c)."""


Images = np.ndarray | LazyImages

_FULL_SCALE = {torch.uint8: 255.0, torch.uint16: 65535.0}


def to_batch(images: np.ndarray, device: torch.device) -> Tensor:
    """Turn images (b, h, w, c) into a float32 batch (b, c, h, w), integers scaled to [0, 1].

    Images stay in their own dtype until here, so a training set costs one byte per 8-bit pixel.
    """
    if images.dtype == np.float64:
        images = images.astype(np.float32)  # before the move: some devices have no double precision
    elif not images.flags.writeable or not images.flags.c_contiguous:
        images = images.copy()  # torch refuses memory that it must not write, or that runs backwards
    return scale_pixels(torch.from_numpy(images).to(device))


def scale_pixels(images: Tensor) -> Tensor:
    """Turn images (b, h, w, c) of any kind of pixels into a float32 batch (b, c, h, w), integers scaled to [0, 1]."""
    full_scale = _FULL_SCALE.get(images.dtype)
    batch = images.permute(0, 3, 1, 2).to(torch.float32)
    return batch if full_scale is None else batch / full_scale


def encode(network: nn.Module, images: Images, device: torch.device) -> Tensor:
    """Return the latents *T* (n, latent_dim) of images (n, h, w, c); the network is left in eval mode."""
    folded = fold_batch_norm(network.eval())
    parts = equal_size_batches(images, np.arange(len(images)), encoding_batch(network, images, device))
    with torch.no_grad():
        encoded = torch.cat([folded(to_batch(take(images, part), device)) for part in parts])
    order = torch.from_numpy(np.concatenate(parts)).to(device)
    return torch.empty_like(encoded).index_copy_(0, order, encoded)


def fold_batch_norm(network: nn.Module) -> nn.Module:
    """Return a copy for encoding in which batch normalisations are part of the convolutions before them.

    With fixed statistics both are linear, so one convolution does it. The copy shares everything else with
    the network, which must be in eval mode.
    """
    if not isinstance(network, nn.Sequential):
        other = copy.copy(network)
        other._modules = {name: part and fold_batch_norm(part) for name, part in network._modules.items()}
        return other
    layers: list[nn.Module] = []
    for layer in network:
        if isinstance(layer, nn.BatchNorm2d) and layers and isinstance(layers[-1], nn.Conv2d):
            layers[-1] = fuse_conv_bn_eval(layers[-1], layer)
        else:
            layers.append(fold_batch_norm(layer))
    return nn.Sequential(*layers)


def encoding_batch(network: nn.Module, images: Images, device: torch.device) -> int:
    """Return how many images to encode at once."""
    if isinstance(images, np.ndarray):
        largest = images.shape[1] * images.shape[2]
    else:
        largest = int(images.sizes().prod(axis=1).max())
    # The first convolution works on whole images; behind it they are a quarter of the size or less.
    filters = next((layer.out_channels for layer in network.modules() if isinstance(layer, nn.Conv2d)), 1)
    room = _ACTIVATION_BYTES if device.type == "cpu" else _ACTIVATION_BYTES_ACCELERATOR
    return max(1, min(_MOST_IMAGES, room // (4 * filters * largest)))


def refresh_batch_norm(network: nn.Module, images: Images, device: torch.device) -> None:
    """Set every batch normalisation's statistics to those of `images` under the present weights.

    Running averages lag behind the weights: on a small set they need many epochs to catch up, and until
    then the latents are meaningless. Here each statistic is averaged anew over the whole set, or over
    REFRESH_IMAGES of it at even distances.
    """
    layers = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
    network.train()
    n_images = 0
    with torch.no_grad():
        for part in equal_size_batches(images, _dealt_out(_spread_out(len(images))), REFRESH_BATCH):
            n_images += len(part)
            for layer in layers:
                layer.momentum = len(part) / n_images  # a running mean in which every image weighs the same
            network(to_batch(take(images, part), device))
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    network.eval()


def _spread_out(n_images: int) -> np.ndarray:
    """Return the positions of all images, or of REFRESH_IMAGES at even distances."""
    n_chosen = min(n_images, REFRESH_IMAGES)
    return np.arange(n_chosen) * n_images // n_chosen


def _dealt_out(positions: np.ndarray) -> np.ndarray:
    """Order images as if dealt out to the batches one by one.

    Images often come sorted by class; batches of neighbours would then not show the spread between classes.
    """
    n_batches = -(-len(positions) // REFRESH_BATCH)
    return np.concatenate([positions[start::n_batches] for start in range(n_batches)])


def take(images: Images, positions: np.ndarray) -> np.ndarray:
    """Return some images of equal size as one array (b, h, w, c)."""
    return images[positions] if isinstance(images, np.ndarray) else images.batch(positions)


def equal_size_batches(images: Images, positions: np.ndarray, size: int) -> list[np.ndarray]:
    """Divide positions into batches of up to `size` images that agree in height and width.

    The batches of one image size are nearly equal in number: a tiny last one would weigh too much in
    averaged statistics.
    """
    groups = [positions]
    if not isinstance(images, np.ndarray):
        numbers = images.size_numbers[positions]
        groups = [positions[numbers == number] for number in np.unique(numbers)]
    return [batch for group in groups for batch in np.array_split(group, -(-len(group) // size))]
