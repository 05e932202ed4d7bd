"""Describe images once by a frozen network, and keep the maps that the trained networks learn on."""

import shutil
import tempfile
import weakref
from dataclasses import dataclass, replace
from pathlib import Path

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
from lmfcn.data.arrays import check_smallest_side
from lmfcn.data.image_form import ImageForm
from lmfcn.data.training_data import LabelledImages, TrainingData
from lmfcn.method.network import TextureFCN
from lmfcn.networks.trunk import SMALLEST_SIDE, Trunk
from lmfcn.util.progress import item_progress

MEMORY_BYTES = 2**30
"""Most memory for the maps of one set of images; more of them go to a temporary file."""

_N_MEASURED = 32
_LEAST_STD = 1e-6


@dataclass(frozen=True)
class Beside:
    """Features (n, d) that the final SVM sees beside the trained latents, those of the validation images apart."""

    train: Tensor
    validation: Tensor | None

    @classmethod
    def of_untrained(cls, network: TextureFCN, data: TrainingData, device: torch.device) -> "Beside":
        """Return the latents of the untrained network, with batch-norm statistics of the training images."""
        train = refresh_and_encode(network, data.train.images, device)
        return cls(train, None if data.validation is None else encode(network, data.validation.images, device))


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
            maps = trunk(to_batch(take(images, part), device))[trunk.trained_stage].double().cpu()
            count += maps.numel() // maps.shape[1]
            sums, squares = sums + maps.sum(dim=(0, 2, 3)), squares + maps.square().sum(dim=(0, 2, 3))
    variance = squares / count - (sums / count).square()
    trunk.map_std.copy_(variance.clamp(min=_LEAST_STD**2).sqrt())
    return trunk


def pixel_range(images: Images, chosen: np.ndarray, device: torch.device) -> tuple[float, float]:
    """Return the values between which nearly all pixels lie: 16-bit images rarely use their whole range."""
    ends = []
    for part in equal_size_batches(images, chosen, 1):
        values = to_batch(take(images, part), device).flatten().double().cpu().numpy()
        ends.append(np.quantile(values, (0.001, 0.999)))
    low, high = (float(np.min(ends, axis=0)[0]), float(np.max(ends, axis=0)[1]))
    return (low, high) if high > low else (low, low + 1.0)


def describe(trunk: Trunk, images: Images, device: torch.device, *, verbose: bool = False) -> tuple[Tensor, Images]:
    """Return the features (n, n_features) of images, and the maps of the trained stage as images (n, h, w, c)."""
    batches = equal_size_batches(images, np.arange(len(images)), trunk.encoding_batch)
    features = torch.empty(len(images), trunk.n_features, device=device)
    store = MapStore(np.array([trunk.input_sides(int(height), int(width)) for height, width in image_sizes(images)]))
    with torch.no_grad(), item_progress(trunk.name, len(images), visible=verbose) as advance:
        for part in batches:
            stages = trunk(to_batch(take(images, part), device))
            means = [TextureFCN.average(maps) for maps in trunk.feature_maps(stages, TextureFCN.average)]
            features[torch.from_numpy(part).to(device)] = torch.cat(means, dim=1)
            store.put(part, trunk.trained_maps(stages).permute(0, 2, 3, 1).half().cpu().numpy())
            for _ in part:
                advance()
    return features, store.as_images()


class MapStore:
    """The maps of many images in half precision: in memory, or in a temporary file where they take too much.

    It offers what `LazyImages` does, as images of different shapes have maps of different sizes.

    Parameters
    ----------
    input_sides : array of int (n, 2)
        Height and width that each image is brought to; images that agree in them have maps of the same size.
    """

    def __init__(self, input_sides: np.ndarray) -> None:
        _, kinds, counts = np.unique(input_sides, axis=0, return_inverse=True, return_counts=True)
        self.size_numbers: np.ndarray = kinds.reshape(-1)
        self._counts = counts
        self._arrays: dict[int, np.ndarray] = {}
        self._rows = np.zeros(len(input_sides), dtype=np.int64)
        for kind in range(len(counts)):
            self._rows[self.size_numbers == kind] = np.arange(counts[kind])
        self._folder: Path | None = None

    def put(self, positions: np.ndarray, maps: np.ndarray) -> None:
        """Add the maps (b, h, w, c) of some images that are brought to the same size."""
        kind = int(self.size_numbers[positions[0]])
        if kind not in self._arrays:
            self._arrays[kind] = self._new_array(kind, maps.shape[1:])
        self._arrays[kind][self._rows[positions]] = maps

    def _new_array(self, kind: int, shape: tuple[int, ...]) -> np.ndarray:
        shape = (int(self._counts[kind]), *shape)
        held = sum(array.nbytes for array in self._arrays.values())
        if held + 2 * int(np.prod(shape)) <= MEMORY_BYTES:
            return np.empty(shape, dtype=np.float16)
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="lmfcn-maps-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return np.memmap(self._folder / f"{kind}.f2", dtype=np.float16, mode="w+", shape=shape)

    def as_images(self) -> Images:
        """Return one array if all maps have one size, else this store."""
        return self._arrays[0] if len(self._arrays) == 1 and self._folder is None else self

    def __len__(self) -> int:
        return len(self._rows)

    def sizes(self) -> np.ndarray:
        """Return height and width (n, 2) of the maps of every image."""
        return np.array([self._arrays[kind].shape[1:3] for kind in range(len(self._counts))])[self.size_numbers]

    def batch(self, positions: np.ndarray) -> np.ndarray:
        """Return the maps (b, h, w, c) of some images whose maps have one size."""
        return np.asarray(self._arrays[int(self.size_numbers[positions[0]])][self._rows[positions]])
