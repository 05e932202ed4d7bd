"""Step 1: latents of many images, batch by batch and without gradient."""

import copy
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

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


class JoinedImages:
    """Two sets of images, one behind the other, without copying them; they may differ in size."""

    def __init__(self, first: Images, second: Images) -> None:
        self.first, self.second = first, second
        self.size_numbers: np.ndarray = np.unique(self.sizes(), axis=0, return_inverse=True)[1].reshape(-1)

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def sizes(self) -> np.ndarray:
        """Return height and width (n, 2) of every image."""
        return np.concatenate([_sizes(self.first), _sizes(self.second)])

    def batch(self, positions: np.ndarray) -> np.ndarray:
        """Return some images of equal size as one array (b, h, w, c)."""
        behind = positions >= len(self.first)
        parts = [(self.first, positions[~behind]), (self.second, positions[behind] - len(self.first))]
        found = np.concatenate([take(images, chosen) for images, chosen in parts if len(chosen)])
        result = np.empty_like(found)
        result[np.concatenate([np.flatnonzero(~behind), np.flatnonzero(behind)])] = found
        return result


def _sizes(images: Images) -> np.ndarray:
    return np.tile(images.shape[1:3], (len(images), 1)) if isinstance(images, np.ndarray) else images.sizes()


_FULL_SCALE = {torch.uint8: 255.0, torch.uint16: 65535.0}


def to_batch(images: np.ndarray, device: torch.device) -> Tensor:
    """Turn images (b, h, w, c) into a float32 batch (b, c, h, w), integers scaled to [0, 1].

    Images stay in their own dtype until here, so a training set costs one byte per 8-bit pixel.
    """
    if images.dtype == np.float64:
        images = images.astype(np.float32)  # before the move: some devices have no double precision
    elif not images.flags.writeable or not images.flags.c_contiguous:
        images = images.copy()  # torch refuses memory that it must not write, or that runs backwards
    pixels = torch.from_numpy(images)
    if pixels.dtype == torch.uint16 and device.type == "mps":
        return scale_pixels(pixels).to(device)  # which does not know such numbers
    return scale_pixels(pixels.to(device))


def scale_pixels(images: Tensor) -> Tensor:
    """Turn images (b, h, w, c) of any kind of pixels into a float32 batch (b, c, h, w), integers scaled to [0, 1]."""
    full_scale = _FULL_SCALE.get(images.dtype)
    batch = images.permute(0, 3, 1, 2).to(torch.float32)
    return batch if full_scale is None else batch / full_scale


def encode(network: nn.Module, images: Images, device: torch.device, positions: np.ndarray | None = None) -> Tensor:
    """Return the latents *T* (n, latent_dim) of images (n, h, w, c), or of those at rising positions.

    The network is left in eval mode.
    """
    folded = fold_batch_norm(network.eval())
    positions = np.arange(len(images)) if positions is None else positions
    parts = equal_size_batches(images, positions, encoding_batch(network, images, device))
    with torch.no_grad():
        encoded = torch.cat([folded(to_batch(take(images, part), device)) for part in parts])
    order = np.argsort(np.concatenate(parts))  # mixed sizes come size by size
    return encoded[torch.from_numpy(order).to(device)]


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
    # The first convolution works on whole images; behind it they are a quarter of the size or less.
    filters = next((layer.out_channels for layer in network.modules() if isinstance(layer, nn.Conv2d)), 1)
    room = _ACTIVATION_BYTES if device.type == "cpu" else _ACTIVATION_BYTES_ACCELERATOR
    return max(1, min(_MOST_IMAGES, room // (4 * filters * largest_image(images))))


def largest_image(images: Images) -> int:
    """Return the number of pixels of the largest image."""
    if isinstance(images, np.ndarray):
        return images.shape[1] * images.shape[2]
    return int(images.sizes().prod(axis=1).max())


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


def spread_out(n_images: int, n_chosen: int) -> np.ndarray:
    """Return the positions of all images, or of `n_chosen` at even distances.

    Examples
    --------
    >>> spread_out(9, 3).tolist(), spread_out(2, 3).tolist()
    ([0, 3, 6], [0, 1])
    """
    n_chosen = min(n_images, n_chosen)
    return np.arange(n_chosen) * n_images // n_chosen
