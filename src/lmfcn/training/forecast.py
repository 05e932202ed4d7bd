"""How long a fit will take and how much memory it will need, measured on a few of its images."""

import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from lmfcn.compute.encode import evenly_spaced, image_sizes
from lmfcn.compute.image_buffer import MEMORY_BYTES
from lmfcn.compute.resources import resident_memory
from lmfcn.data.collection import ImageCollection
from lmfcn.data.image_form import pixel_format_of
from lmfcn.data.training_data import TrainingData, check_training_data
from lmfcn.method.history import EpochRecord, TrainingError
from lmfcn.method.whole_batch import bytes_per_image
from lmfcn.recipe import REFIT_SHARE, Recipe
from lmfcn.training.final_svm import NEVER_HELD_OUT, fit_final_svm, svm_candidates
from lmfcn.training.fit import make_options, start_of_training
from lmfcn.training.phases import FitOptions, new_network, train_held_out
from lmfcn.util.progress import EpochBar, format_seconds

_SAMPLE_PIXELS, _LEAST_IMAGES, _MOST_IMAGES = 2**20, 8, 32
_LARGEST_IMAGE = 2**18
"""Images with more pixels than this cost little more, as they are reduced first."""

_SVM_IMAGES = 300
_SVMS_AT_THE_END = 8
"""The final SVM with its cross-validation, and the one of the refitted networks."""

_MAP_BYTES = 2**29
"""Most memory for the maps of an encoded layer and those of the next one."""

_POOLED = 16
"""While all images are encoded, only pooled maps of a layer are kept, this part of what back-propagation keeps."""

_FEWEST_PASSES, _FEWEST_EPOCHS = 2, 2
_PIXEL_BYTES = {"uint8": 1, "uint16": 2, "float": 4}


@dataclass(frozen=True)
class Costs:
    """Seconds that the steps of a fit take on this machine.

    Attributes
    ----------
    describing : float
        One image, once: by the untrained network or by a frozen one.
    encoding : float
        One image, in every epoch.
    backpropagating : float
        One image, in every pass.
    svm : float
        The SVM on all images, with the search for anchors.
    """

    describing: float
    encoding: float
    backpropagating: float
    svm: float


@dataclass(frozen=True)
class Forecast:
    """What a fit will take at most: with every image back-propagated in every pass.

    Attributes
    ----------
    recipe : Recipe
        With numbers for epochs and passes.
    costs : Costs
    n_train, n_validation : int
        Images to learn from, and held out.
    n_networks : int
    memory : int
        Bytes of the whole process at its peak.
    """

    recipe: Recipe
    costs: Costs
    n_train: int
    n_validation: int
    n_networks: int
    memory: int

    @property
    def seconds(self) -> float:
        """Seconds of the whole fit, after the images have been read.

        Examples
        --------
        >>> recipe = Recipe(epochs=2, refit_epochs=0, passes=3)
        >>> Forecast(recipe, Costs(1.0, 0.1, 0.5, 0.0), 10, 0, 1, 0).seconds  # 10 + 3 + 30, and the final encoding
        45.0
        """
        recipe, costs, n_all = self.recipe, self.costs, self.n_train + self.n_validation
        n_first, n_refit = recipe.n_epochs - recipe.n_refit_epochs, recipe.n_refit_epochs
        n_phases = 2 if n_refit else 1
        n_measured = n_first + n_refit + n_phases  # the last epoch of a phase only measures
        shown = recipe.n_passes * (n_first * self.n_train + n_refit * n_all)
        per_network = n_measured * n_all * costs.encoding + shown * costs.backpropagating + n_measured * costs.svm
        at_the_end = 2 * n_phases * n_all * costs.encoding * self.n_networks + _SVMS_AT_THE_END * costs.svm
        return n_all * costs.describing + self.n_networks * per_network + at_the_end

    def within(self, minutes: float) -> "Forecast":
        """Return a forecast of at most so many minutes: with fewer passes, then with fewer epochs.

        If nothing is fast enough, it is the fastest one.
        """
        found = self
        for epochs in range(self.recipe.n_epochs, min(_FEWEST_EPOCHS, self.recipe.n_epochs) - 1, -1):
            refit = self.recipe.n_refit_epochs
            if epochs < self.recipe.n_epochs:
                refit = min(refit, round(epochs * REFIT_SHARE))
            for passes in range(self.recipe.n_passes, min(_FEWEST_PASSES, self.recipe.n_passes) - 1, -1):
                changed = replace(self.recipe, epochs=epochs, refit_epochs=refit, passes=passes)
                found = self if changed == self.recipe else replace(self, recipe=changed)
                if found.seconds <= 60 * minutes:
                    return found
        return found

    def describe(self) -> str:
        """Return time and memory in words, such as "at most about 2 min 5 s and 0.9 GB of memory"."""
        return f"at most about {format_seconds(max(1.0, self.seconds))} and {self.memory / 1e9:.1f} GB of memory"


def options_without_training(
    recipe: Recipe, data: TrainingData, device: str = "auto", network: nn.Module | None = None
) -> FitOptions:
    """Return the options of a fit that is only forecast: nothing that concerns its results or its messages."""
    return make_options(
        recipe, data, None, seed=0, device=device, n_jobs=None, callbacks=(), verbose=False, network=network
    )


def forecast_fit(data: TrainingData, options: FitOptions) -> Forecast | None:
    """Return what a fit on these data will take; None if the few images that are tried cannot be learnt from."""
    sizes = image_sizes(data.train.images)
    chosen = _some_of_every_class(data.train.numbers, sizes)
    n_validation = 0 if data.validation is None else len(data.validation)
    return _forecast(_sample(data, chosen), options, sizes, len(data.classes), n_validation, unread=0)


def forecast_collection(
    images: ImageCollection,
    recipe: Recipe,
    n_validation: int | None,
    fraction: float,
    device: str = "auto",
    network: nn.Module | None = None,
) -> Forecast | None:
    """Return what a fit on a collection will take, of which only a few images are read.

    Parameters
    ----------
    images : ImageCollection
        With labels.
    recipe : Recipe
    n_validation : int or None
        Validation images beside the collection; None holds `fraction` of it out.
    fraction : float
    device : str
    network : torch.nn.Module, optional
        A frozen one.
    """
    labels = np.asarray(images.labels)
    n_classes, sizes = len(np.unique(labels)), images.sizes()
    n_train = len(images)
    if n_validation is None:
        n_validation = round(fraction * n_train)
        n_train -= n_validation
    chosen = _some_of_every_class(np.unique(labels, return_inverse=True)[1].reshape(-1), sizes)
    sample = check_training_data(
        images.subset(chosen), None, None, None, 0.0, np.random.default_rng(0), split_duplicates=True
    )
    channels, pixels = pixel_format_of(sample.train.images)
    unread = int(sizes.prod(axis=1).sum()) * channels * _PIXEL_BYTES.get(pixels, 8)
    recipe = recipe.for_data(n_classes, n_train, has_validation=n_validation > 0)
    options = replace(options_without_training(recipe, sample, device, network), recipe=recipe)
    sizes = sizes[evenly_spaced(len(sizes), n_train)]
    return _forecast(_sample(sample, np.arange(len(chosen))), options, sizes, n_classes, n_validation, unread=unread)


def _some_of_every_class(numbers: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return positions of a few images: two or more of every class, or of some classes if there are very many."""
    pixels = float(sizes.prod(axis=1).clip(max=_LARGEST_IMAGE).mean())
    n_chosen = int(np.clip(_SAMPLE_PIXELS // pixels, _LEAST_IMAGES, _MOST_IMAGES))
    classes = np.unique(numbers)
    classes = classes[evenly_spaced(len(classes), n_chosen // 2)]
    of_classes = [np.flatnonzero(numbers == number) for number in classes]
    return np.sort(np.concatenate([part[evenly_spaced(len(part), n_chosen // len(classes))] for part in of_classes]))


def _sample(data: TrainingData, chosen: np.ndarray) -> TrainingData:
    """Return some training images as data of their own, of which nothing is held out."""
    part = data.train.subset(chosen)
    present, numbers = np.unique(part.numbers, return_inverse=True)
    train = replace(part, numbers=numbers.reshape(-1), groups=None)
    return replace(data, classes=data.classes[present], train=train, validation=None)


def _forecast(
    sample: TrainingData, options: FitOptions, sizes: np.ndarray, n_classes: int, n_validation: int, unread: int
) -> Forecast | None:
    """Return the forecast for training images of these sizes, of which the sample is a part."""
    recipe, n_train = options.recipe, len(sizes)
    try:
        costs, bytes_per_pixel = _measure(sample, options, n_train + n_validation)
    except (TrainingError, ValueError):
        return None  # constant images, for example; the fit itself will say what is wrong
    # An image costs what it has of pixels.
    larger = float(sizes.prod(axis=1).mean() / image_sizes(sample.train.images).prod(axis=1).mean())
    costs = Costs(costs.describing * larger, costs.encoding * larger, costs.backpropagating * larger, costs.svm)
    memory = resident_memory() + min(unread, MEMORY_BYTES)
    memory += _more_memory(recipe, bytes_per_pixel, sizes, n_validation)
    n_networks = n_classes if recipe.strategy == "one-vs-all" else 1
    return Forecast(recipe, costs, n_train, n_validation, n_networks, memory)


def _measure(sample: TrainingData, options: FitOptions, n_images: int) -> tuple[Costs, float]:
    """Run the steps of a fit on a sample; return their costs per image, and the bytes of the maps of one pixel."""
    # One network, no choices: they would be made by cross-validation, for which a sample is too small.
    recipe = options.recipe
    crop_size = None if recipe.crop_size == "auto" else recipe.crop_size
    few = replace(recipe, strategy="joint", epochs=2, refit_epochs=0, passes=1, crop_size=crop_size, whiten=False)
    options = replace(options, recipe=few, class_weights=None, callbacks=(), checkpoints=None, n_jobs=1, verbose=False)
    clock = time.perf_counter()
    start = start_of_training(sample, options)
    describing = (time.perf_counter() - clock) / len(sample.train)
    options = replace(options, view=start.view)
    (trained,) = train_held_out(start.inputs, options, start.root, start.beside, EpochBar("", 1))
    if trained.interrupted:
        raise KeyboardInterrupt
    record = _last_with_work(list(trained.history))
    network = new_network(start.inputs, options, start.root)
    n_features = network.n_latents + (0 if start.beside is None else start.beside.train.shape[1])
    costs = Costs(
        describing,
        record.seconds_encoding / len(sample.train),
        record.seconds_backpropagation / max(1, record.n_backpropagated),
        _svm_seconds(n_images, n_features, len(sample.classes), recipe, options.device),
    )
    crop = start.view.crop_size
    shown = image_sizes(start.inputs.train.images) if crop is None else np.array([[crop, crop]])
    n_bytes = np.mean([bytes_per_image(network, int(height), int(width)) for height, width in shown])
    return costs, float(n_bytes / image_sizes(sample.train.images).prod(axis=1).mean())


def _last_with_work(records: list[EpochRecord]) -> EpochRecord:
    """Return the last epoch that back-propagated anything: the first one also makes the processor warm."""
    return next((record for record in reversed(records) if record.n_backpropagated), records[-1])


def _svm_seconds(n_images: int, n_features: int, n_classes: int, recipe: Recipe, device: torch.device) -> float:
    """Return the time of an SVM on so many images, measured on random numbers: its worst case."""
    n_tried = min(n_images, _SVM_IMAGES)
    generator = torch.Generator().manual_seed(0)
    labels = (torch.arange(n_tried) % n_classes).to(device)
    latents = torch.randn(n_tried, n_features, generator=generator).to(device)
    clock = time.perf_counter()
    fit_final_svm(latents, labels, torch.full_like(labels, NEVER_HELD_OUT), recipe, svm_candidates(recipe)[:1])
    return (time.perf_counter() - clock) * (n_images / n_tried) ** 2


def _more_memory(recipe: Recipe, per_pixel: float, sizes: np.ndarray, n_validation: int) -> int:
    """Return the memory beyond that of today: kernels, the maps of a batch, and one layer of those of all images."""
    n_images = len(sizes) + n_validation
    n_batch = recipe.batch_size if isinstance(recipe.batch_size, int) else n_images if recipe.batch_size == "all" else 1
    kinds, counts = np.unique(sizes, axis=0, return_counts=True)
    batch = per_pixel * float((counts.clip(max=n_batch) * kinds.prod(axis=1)).max())  # images of a batch have one size
    if recipe.batch_size == "all":
        batch = min(batch, _MAP_BYTES)
    maps = per_pixel * float(sizes.prod(axis=1).mean()) * n_images / _POOLED
    return round(4 * 8 * n_images**2 + batch + min(maps, _MAP_BYTES))
