"""Encode images batch by batch: precision, batch-norm statistics, latents without gradient."""

import copy
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, conv2d
from torch.nn.utils.fusion import fuse_conv_bn_eval

from lmfcn.compute.strips import in_strips, latents_in_strips

if TYPE_CHECKING:
    from lmfcn.method.network import TextureFCN


def uses_bfloat16(precision: str, device: torch.device) -> bool:
    """Tell whether training computes in bfloat16: if it is asked for, or for "auto" if the device is made for it."""
    return precision == "bfloat16" or (precision == "auto" and has_bfloat16(device))


def has_bfloat16(device: torch.device) -> bool:
    """Tell whether a device has instructions for products of bfloat16 numbers."""
    if device.type == "cpu":
        has = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
        return bool(has.get("avx512_bf16") or has.get("amx_bf16"))
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def convolutions_in(*, bfloat16: bool, device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which convolutions compute in bfloat16, or one that changes nothing."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=bfloat16)


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
        return np.concatenate([image_sizes(self.first), image_sizes(self.second)])

    def batch(self, positions: np.ndarray) -> np.ndarray:
        """Return some images of equal size as one array (b, h, w, c)."""
        behind = positions >= len(self.first)
        parts = [(self.first, positions[~behind]), (self.second, positions[behind] - len(self.first))]
        found = np.concatenate([take(images, chosen) for images, chosen in parts if len(chosen)])
        result = np.empty_like(found)
        result[np.concatenate([np.flatnonzero(~behind), np.flatnonzero(behind)])] = found
        return result


def image_sizes(images: Images) -> np.ndarray:
    """Return height and width (n, 2) of every image."""
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


def encode(
    network: nn.Module,
    images: Images,
    device: torch.device,
    positions: np.ndarray | None = None,
    *,
    mirrored: bool = False,
) -> Tensor:
    """Return the latents *T* (n, latent_dim) of images (n, h, w, c), or of those at rising positions.

    With `mirrored`, those of their mirror images. The network is left in eval mode.
    """
    folded = fold_batch_norm(network.eval())
    positions = np.arange(len(images)) if positions is None else positions
    parts = equal_size_batches(images, positions, encoding_batch(network, images, device))
    with torch.no_grad():
        batches = ((part, to_batch(take(images, part), device)) for part in parts)
        turned = (mirror(batch, np.searchsorted(positions, part)) if mirrored else batch for part, batch in batches)
        encoded = torch.cat([_latents(folded, batch) for batch in turned])
    order = np.argsort(np.concatenate(parts))  # mixed sizes come size by size
    return encoded[torch.from_numpy(order).to(device)]


def mirror(batch: Tensor, positions: np.ndarray) -> Tensor:
    """Return the mirror images of a batch (b, c, h, w): upside down at odd positions, else left to right.

    Examples
    --------
    >>> mirror(torch.arange(8).reshape(2, 1, 2, 2), np.array([0, 1])).tolist()
    [[[[1, 0], [3, 2]]], [[[6, 7], [4, 5]]]]
    """
    odd = torch.from_numpy(positions % 2 == 1).to(batch.device)[:, None, None, None]
    return torch.where(odd, batch.flip(2), batch.flip(3))


def _latents(network: nn.Module, batch: Tensor) -> Tensor:
    """Return the latents (b, n_latents) of a batch, in strips if its images are very large."""
    whole = not in_strips(network, batch.shape[2] * batch.shape[3])
    latents: Tensor = network(batch) if whole else latents_in_strips(network, batch)
    return latents


def fold_batch_norm(network: nn.Module) -> nn.Module:
    """Return a copy for encoding in which batch normalisations are part of the convolutions before them.

    With fixed statistics both are linear, so one convolution does it. The copy shares everything else with
    the network, which must be in eval mode.
    """
    if getattr(network, "frozen", False):
        return network  # a trunk has nothing to fold, or is the user's own
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
    """Return how many images to encode at once: what the network asks for, or what fits into the caches."""
    asked = getattr(network, "encoding_batch", None)
    if isinstance(asked, int):
        return asked
    # The first convolution works on whole images; behind it they are a quarter of the size or less.
    filters = next((layer.out_channels for layer in network.modules() if isinstance(layer, nn.Conv2d)), 1)
    room = _ACTIVATION_BYTES if device.type == "cpu" else _ACTIVATION_BYTES_ACCELERATOR
    pixels = largest_image(images) // _reduction(network) ** 2
    return max(1, min(_MOST_IMAGES, room // (4 * filters * max(1, pixels))))


def _reduction(network: nn.Module) -> int:
    """Return the least factor by which a network, or one of several, reduces its images."""
    return min(getattr(member, "reduction", 1) for member in getattr(network, "members", [network]))


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


def evenly_spaced(n_images: int, n_chosen: int) -> np.ndarray:
    """Return the positions of all images, or of `n_chosen` at even distances.

    Examples
    --------
    >>> evenly_spaced(9, 3).tolist(), evenly_spaced(2, 3).tolist()
    ([0, 3, 6], [0, 1])
    """
    n_chosen = min(n_images, n_chosen)
    return np.arange(n_chosen) * n_images // n_chosen


_REFRESH_BYTES = 2**28
"""Most memory for the pooled maps of one layer; those of the next one come on top while it is computed."""

_LARGEST_REFRESHING_SIDE = 1024
"""Of larger images, the middle is enough for the statistics."""

_FEWEST_REFRESHING = 32
"""The statistics are taken from at least so many images, if there are; where their maps would take too much memory,
they are computed again for every layer."""


def refresh_and_encode(network: "TextureFCN", images: Images, device: torch.device) -> Tensor:
    """Set the statistics of every batch normalisation to those of `images`; return the latents (n, n_latents).

    Running averages lag behind the weights: on a small set they need many epochs to catch up, and until then the
    latents are meaningless. Here every layer takes mean and variance over the whole set, or over a part of it at
    even distances if its maps would take more than _REFRESH_BYTES, before the next layer sees any image. So the
    images pass through the network only once; very large ones more often.
    """
    n_kept = _maps_in_memory(network, images)
    chosen = evenly_spaced(len(images), max(n_kept, _FEWEST_REFRESHING))
    parts = equal_size_batches(images, chosen, encoding_batch(network, images, device))
    shares = torch.tensor([[len(part) / len(chosen)] for part in parts], device=device)
    dtype = next(network.parameters()).dtype

    def pixels() -> Iterable[Tensor]:
        return (_middle(network.reduce(to_batch(take(images, part), device)).to(dtype)) for part in parts)

    network.eval()
    with torch.no_grad():
        if len(chosen) > n_kept or in_strips(network, largest_image(images)):
            _refresh_layer_by_layer(network, pixels, shares)
            return encode(network, images, device)
        maps, blocks = pixels(), []
        for convolution, norm, pool in network.blocks():
            maps = _refresh_block(convolution, norm, pool, maps, shares)
            blocks.append(torch.cat([network.block_latents(batch) for batch in maps]))
        latents = torch.empty(len(images), network.n_latents, dtype=dtype, device=device)
        latents[np.concatenate(parts)] = network.join(blocks).to(dtype)
    others = np.setdiff1d(np.arange(len(images)), chosen)
    if len(others):
        latents[others] = encode(network, images, device, others)
    return latents


def _middle(pixels: Tensor) -> Tensor:
    """Return the middle of images (b, c, h, w) that are very large."""
    for axis in (2, 3):
        length = pixels.shape[axis]
        if length > _LARGEST_REFRESHING_SIDE:
            start = (length - _LARGEST_REFRESHING_SIDE) // 2
            pixels = pixels.narrow(axis, start, _LARGEST_REFRESHING_SIDE)
    return pixels


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


def _refresh_layer_by_layer(network: "TextureFCN", pixels: Callable[[], Iterable[Tensor]], shares: Tensor) -> None:
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


def _maps_in_memory(network: "TextureFCN", images: Images) -> int:
    """Return of how many images all maps of a layer may be kept."""
    pixels, most_values = largest_image(images) // network.reduction**2, 1
    for convolution, _, pool in network.blocks():
        pixels //= 1 if isinstance(pool, nn.Identity) else 4
        most_values = max(most_values, convolution.out_channels * pixels)
    return _REFRESH_BYTES // (4 * most_values)
