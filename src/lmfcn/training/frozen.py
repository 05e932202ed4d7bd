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
    mirror,
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

MOST_MIRRORED = 100
"""Training images of which the mirror images are described too; more of them changed nothing."""

_N_MEASURED = 32
_LEAST_STD = 1e-6


@dataclass(frozen=True)
class Beside:
    """Features (n, d) that the final SVM sees beside the trained latents, those of the validation images apart.

    `mirrored` (m, d) are the features of the mirror images of m training images at even distances, if they are known.
    """

    train: Tensor
    validation: Tensor | None
    mirrored: Tensor | None = None

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
        Means, standard deviations and correlations of the maps of all stages.
    """

    trunk: Trunk
    data: TrainingData
    features: Beside


def start_from(
    network: nn.Module,
    data: TrainingData,
    device: torch.device,
    *,
    correlations: bool = True,
    mirrored: bool = False,
    verbose: bool = False,
) -> FrozenStart:
    """Let all images go through a frozen network once; with `mirrored`, also the mirror images of some."""
    check_sizes(data.train.images)
    if data.validation is not None:
        check_sizes(data.validation.images)
    trunk = make_trunk(network, data, device, correlations=correlations)
    form = ImageForm(trunk.stage_channels[trunk.trained_stage], "float")
    features, maps = describe(trunk, data.train.images, device, verbose=verbose)
    beside, train = Beside(features, None), _with_maps(data.train, maps)
    if mirrored:
        chosen = evenly_spaced(len(train), MOST_MIRRORED)
        turned, turned_maps = describe(trunk, data.train.images, device, chosen, mirrored=True, verbose=verbose)
        beside, train = replace(beside, mirrored=turned), _with_maps(train, maps, turned_maps)
    described = replace(data, form=form, train=train)
    if data.validation is None:
        return FrozenStart(trunk, described, beside)
    features, maps = describe(trunk, data.validation.images, device, verbose=verbose)
    described = replace(described, validation=_with_maps(data.validation, maps))
    return FrozenStart(trunk, described, replace(beside, validation=features))


def _with_maps(part: LabelledImages, maps: Images, mirrored: Images | None = None) -> LabelledImages:
    return replace(part, images=maps, mirrored=mirrored)  # type: ignore[arg-type]


def check_sizes(images: Images) -> None:
    """Refuse images that are too small for a pretrained network."""
    sizes = image_sizes(images)
    height, width = sizes[sizes.min(axis=1).argmin()].tolist()
    hint = ' for a pretrained network; network="texture-fcn" takes them from 8x8'
    check_smallest_side(height, width, hint, SMALLEST_SIDE)


def make_trunk(network: nn.Module, data: TrainingData, device: torch.device, *, correlations: bool = True) -> Trunk:
    """Return the trunk for these images: the range of their pixels, and the scale of the maps of all stages."""
    images = data.train.images
    chosen = evenly_spaced(len(images), _N_MEASURED)
    low, high = (0.0, 1.0) if data.form.pixels == "uint8" else pixel_range(images, chosen, device)
    trunk = Trunk(network, data.form.channels, low, high, correlations=correlations).to(device)
    moments = [_Sums() for _ in trunk.stage_channels]
    with torch.no_grad():
        for part in equal_size_batches(images, chosen, trunk.encoding_batch):
            for stage, maps in zip(moments, trunk(to_batch(take(images, part), device)), strict=True):
                stage.add(to_cpu_double(maps))
    stds = [stage.std() for stage in moments]
    trunk.map_std.copy_(to_like(stds[trunk.trained_stage], trunk.map_std))
    if correlations:
        trunk.stage_std.copy_(to_like(torch.cat(stds), trunk.stage_std))
    return trunk


class _Sums:
    """What the standard deviations of the channels of a stage follow from."""

    def __init__(self) -> None:
        self.sums, self.squares, self.count = torch.zeros(()), torch.zeros(()), 0

    def add(self, maps: Tensor) -> None:
        self.count += maps.numel() // maps.shape[1]
        self.sums = self.sums + maps.sum(dim=(0, 2, 3))
        self.squares = self.squares + maps.square().sum(dim=(0, 2, 3))

    def std(self) -> Tensor:
        variance = self.squares / self.count - (self.sums / self.count).square()
        return variance.clamp(min=_LEAST_STD**2).sqrt()


def pixel_range(images: Images, chosen: np.ndarray, device: torch.device) -> tuple[float, float]:
    """Return the values between which nearly all pixels lie: 16-bit images rarely use their whole range."""
    ends = []
    for part in equal_size_batches(images, chosen, 1):
        values = to_cpu_double(to_batch(take(images, part), device).flatten()).numpy()
        ends.append(np.quantile(values, (0.001, 0.999)))
    low, high = (float(np.min(ends, axis=0)[0]), float(np.max(ends, axis=0)[1]))
    return (low, high) if high > low else (low, low + 1.0)


def describe(
    trunk: Trunk,
    images: Images,
    device: torch.device,
    positions: np.ndarray | None = None,
    *,
    mirrored: bool = False,
    verbose: bool = False,
) -> tuple[Tensor, Images]:
    """Return the features (n, n_features) of images, and the maps of the trained stage as images (n, h, w, c).

    Of all images or of those at rising positions; with `mirrored`, of their mirror images.
    """
    positions = np.arange(len(images)) if positions is None else positions
    batches = equal_size_batches(images, positions, trunk.encoding_batch)
    features = torch.empty(len(positions), trunk.n_features, device=device)
    sizes = image_sizes(images)[positions]
    sides = np.array([trunk.input_sides(int(height), int(width)) for height, width in sizes])
    store = ImageBuffer(sides, np.dtype(np.float16))
    with torch.no_grad(), item_progress(trunk.name, len(positions), visible=verbose) as advance:
        for part in batches:
            rows, pixels = np.searchsorted(positions, part), to_batch(take(images, part), device)
            stages = trunk(mirror(pixels, rows) if mirrored else pixels)
            features[torch.from_numpy(rows).to(device)] = trunk.features(stages, TextureFCN.average)
            store.put(rows, trunk.trained_maps(stages).permute(0, 2, 3, 1).half().cpu().numpy())
            for _ in part:
                advance()
    return features, store.as_images()
