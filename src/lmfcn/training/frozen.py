"""Describe images once by a frozen network, and keep the maps that the trained networks learn on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from lmfcn.compute.encode import (
    Images,
    encode,
    equal_size_batches,
    evenly_spaced,
    image_sizes,
    refresh_and_encode,
    take,
    to_batch,
)
from lmfcn.compute.image_buffer import ImageBuffer
from lmfcn.compute.resources import to_cpu_double, to_like
from lmfcn.data.arrays import check_smallest_side
from lmfcn.data.image_form import ImageForm
from lmfcn.data.training_data import LabelledImages, TrainingData
from lmfcn.method.network import TextureFCN
from lmfcn.networks.trunk import SMALLEST_SIDE, Trunk
from lmfcn.util.progress import item_progress

_N_MEASURED = 32
_LEAST_STD = 1e-6


@dataclass(frozen=True)
class Beside:
    """Features (n, d) that the final SVM sees beside the trained latents, those of the validation images apart."""

    train: Tensor
    validation: Tensor | None

    def of_parts(self, n_parts: int) -> Tensor:
        """Return the features of the training images alone (1), or of all images (2)."""
        return self.train if n_parts == 1 or self.validation is None else torch.cat([self.train, self.validation])

    def columns(self, chosen: Tensor) -> "Beside":
        """Return some of the features, for a mask (d,)."""
        return Beside(self.train[:, chosen], None if self.validation is None else self.validation[:, chosen])

    @classmethod
    def of_untrained(cls, networks: Sequence[TextureFCN], data: TrainingData, device: torch.device) -> "Beside":
        """Return the latents of untrained networks, which get batch-norm statistics of the training images."""
        train = torch.cat([refresh_and_encode(network, data.train.images, device) for network in networks], dim=1)
        if data.validation is None:
            return cls(train, None)
        images = data.validation.images
        return cls(train, torch.cat([encode(network, images, device) for network in networks], dim=1))


@dataclass(frozen=True)
class FrozenStart:
    """What a trunk makes of the images.

    Attributes
    ----------
    trunk : Trunk
    data : TrainingData
        The same labels and groups, with the maps of the trained stage (n, h, w, c) in half precision as images.
    features : Beside
        The means and standard deviations of the maps of all stages.
    """

    trunk: Trunk
    data: TrainingData
    features: Beside


def start_from(network: nn.Module, data: TrainingData, device: torch.device, *, verbose: bool = False) -> FrozenStart:
    """Let all images go through a frozen network, once."""
    check_sizes(data.train.images)
    if data.validation is not None:
        check_sizes(data.validation.images)
    trunk = make_trunk(network, data, device)
    train, maps = describe(trunk, data.train.images, device, verbose=verbose)
    form = ImageForm(trunk.stage_channels[trunk.trained_stage], "float")
    described = replace(data, form=form, train=_with_images(data.train, maps))
    if data.validation is None:
        return FrozenStart(trunk, described, Beside(train, None))
    validation, maps = describe(trunk, data.validation.images, device, verbose=verbose)
    described = replace(described, validation=_with_images(data.validation, maps))
    return FrozenStart(trunk, described, Beside(train, validation))


def _with_images(part: LabelledImages, images: Images) -> LabelledImages:
    return replace(part, images=images)  # type: ignore[arg-type]


def check_sizes(images: Images) -> None:
    """Refuse images that are too small for a pretrained network."""
    sizes = image_sizes(images)
    height, width = sizes[sizes.min(axis=1).argmin()].tolist()
    hint = ' for a pretrained network; network="texture-fcn" takes them from 8x8'
    check_smallest_side(height, width, hint, SMALLEST_SIDE)


def make_trunk(network: nn.Module, data: TrainingData, device: torch.device) -> Trunk:
    """Return the trunk for these images: the range of their pixels, and the scale of the maps to learn on."""
    images = data.train.images
    chosen = evenly_spaced(len(images), _N_MEASURED)
    low, high = (0.0, 1.0) if data.form.pixels == "uint8" else pixel_range(images, chosen, device)
    trunk = Trunk(network, data.form.channels, low, high).to(device)
    sums, squares, count = torch.zeros(()), torch.zeros(()), 0
    with torch.no_grad():
        for part in equal_size_batches(images, chosen, trunk.encoding_batch):
            maps = to_cpu_double(trunk(to_batch(take(images, part), device))[trunk.trained_stage])
            count += maps.numel() // maps.shape[1]
            sums, squares = sums + maps.sum(dim=(0, 2, 3)), squares + maps.square().sum(dim=(0, 2, 3))
    variance = squares / count - (sums / count).square()
    trunk.map_std.copy_(to_like(variance.clamp(min=_LEAST_STD**2).sqrt(), trunk.map_std))
    return trunk


def pixel_range(images: Images, chosen: np.ndarray, device: torch.device) -> tuple[float, float]:
    """Return the values between which nearly all pixels lie: 16-bit images rarely use their whole range."""
    ends = []
    for part in equal_size_batches(images, chosen, 1):
        values = to_cpu_double(to_batch(take(images, part), device).flatten()).numpy()
        ends.append(np.quantile(values, (0.001, 0.999)))
    low, high = (float(np.min(ends, axis=0)[0]), float(np.max(ends, axis=0)[1]))
    return (low, high) if high > low else (low, low + 1.0)


def describe(trunk: Trunk, images: Images, device: torch.device, *, verbose: bool = False) -> tuple[Tensor, Images]:
    """Return the features (n, n_features) of images, and the maps of the trained stage as images (n, h, w, c)."""
    batches = equal_size_batches(images, np.arange(len(images)), trunk.encoding_batch)
    features = torch.empty(len(images), trunk.n_features, device=device)
    sides = np.array([trunk.input_sides(int(height), int(width)) for height, width in image_sizes(images)])
    store = ImageBuffer(sides, np.dtype(np.float16))
    with torch.no_grad(), item_progress(trunk.name, len(images), visible=verbose) as advance:
        for part in batches:
            stages = trunk(to_batch(take(images, part), device))
            means = [TextureFCN.average(maps) for maps in trunk.feature_maps(stages, TextureFCN.average)]
            features[torch.from_numpy(part).to(device)] = torch.cat(means, dim=1)
            store.put(part, trunk.trained_maps(stages).permute(0, 2, 3, 1).half().cpu().numpy())
            for _ in part:
                advance()
    return features, store.as_images()
