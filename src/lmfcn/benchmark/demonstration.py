"""The demonstration: LMFCN and an equivalent CNN on striped Gaussians, and LMFCN on photographs and their mosaic."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import balanced_accuracy_score

from lmfcn.baselines.cnn import CNNClassifier
from lmfcn.baselines.network_training import NetworkRecord
from lmfcn.classifier import LMFCNClassifier
from lmfcn.data.arrays import as_generator
from lmfcn.data.collection import ImageCollection
from lmfcn.data.datasets import load_photographed_textures, photographed_mosaic
from lmfcn.data.gaussians import make_gaussians
from lmfcn.method.anchors import LatentSpace
from lmfcn.method.epoch import Callback, Training
from lmfcn.method.history import EpochRecord, History
from lmfcn.recipe import Recipe

Labelled = tuple[np.ndarray, np.ndarray]

WINDOW, STRIDE = 64, 8
"""Windows of the map of the mosaic, and sides of the photographed tiles, in pixels."""

_ENOUGH_EPOCHS = 5  # for the photographs, which are easy


@dataclass(frozen=True)
class DemoSettings:
    """Size of the demonstration; counts are per class."""

    epochs: int = 15
    image_size: int = 64
    n_train: int = 60
    n_validation: int = 60
    n_test: int = 150
    seed: int = 0


@dataclass(frozen=True)
class DemoRun:
    """The training of one method and its result on test images."""

    name: str
    history: History[EpochRecord] | History[NetworkRecord]
    selected_epoch: int
    n_weights: int
    test_balanced_accuracy: float
    seconds: float
    refit_history: History[EpochRecord] | None = None


@dataclass(frozen=True)
class PhotographRun:
    """A model of photographed textures, and what it says about images that it has not seen.

    Attributes
    ----------
    classifier : LMFCNClassifier
    train, validation, test : ImageCollection
    test_balanced_accuracy : float
    hardest : int
        The test image whose class has the smallest probability.
    mosaic, labels, mapped : arrays (256, 384)
        An image of all textures, the true label of each pixel, and the label in the map.
    """

    classifier: LMFCNClassifier
    train: ImageCollection
    validation: ImageCollection
    test: ImageCollection
    test_balanced_accuracy: float
    hardest: int
    mosaic: np.ndarray
    labels: np.ndarray
    mapped: np.ndarray

    @property
    def share_right(self) -> float:
        """Share of the pixels of the mosaic whose label in the map is right."""
        return float((self.mapped == self.labels).mean())


@dataclass(frozen=True)
class DemoResult:
    """The content of the demonstration's report.

    `spaces` are the latent spaces of the two-dimensional LMFCN epoch by epoch.
    """

    settings: DemoSettings
    samples: Labelled
    train_labels: np.ndarray
    runs: list[DemoRun]
    spaces: list[LatentSpace]
    photographs: PhotographRun


class SpaceRecorder(Callback):
    """Keeps the latent space of every epoch, for figures."""

    def __init__(self) -> None:
        self.spaces: list[LatentSpace] = []

    def on_epoch_end(self, training: Training, record: EpochRecord, space: LatentSpace) -> None:  # noqa: ARG002
        """Keep the space of an epoch."""
        self.spaces.append(space)


def run_demo(settings: DemoSettings, *, verbose: bool = True) -> DemoResult:
    """Draw the images, train the three models one after the other, and test each once; then the photographs."""
    train, validation, test = _draw(settings)
    recorder, recipe = SpaceRecorder(), Recipe()
    shared: dict[str, Any] = {"epochs": settings.epochs, "random_state": settings.seed, "verbose": verbose}
    ours: dict[str, Any] = {"sv_close": 5, "wr_close": 1, "sh_close": 0, **shared}
    # The figures then show all training images, and everything that the final SVM is fitted on.
    all_shown = Recipe(keep_untrained=False, deviations=False, whiten=False, refit_epochs=0)
    two_dimensional = LMFCNClassifier(latent_dim=2, recipe=all_shown, **ours)
    models = {
        "LMFCN, 2 dimensions": two_dimensional,
        "LMFCN, 16 dimensions": LMFCNClassifier(latent_dim=16, **ours),
        # With twice the epochs the CNN back-propagates about as many images: each one once per epoch.
        "CNN, 16 dimensions": CNNClassifier(
            latent_dim=16,
            first_filters="decorrelated",
            augmentation=recipe.augmentation,
            learning_rate=recipe.learning_rate,
            **{**shared, "epochs": 2 * settings.epochs},
        ),
    }
    runs = [
        _run(name, model, train, validation, test, [recorder] if model is two_dimensional else [])
        for name, model in models.items()
    ]
    return DemoResult(settings, train, train[1], runs, recorder.spaces, _run_photographs(settings, verbose=verbose))


def _run_photographs(settings: DemoSettings, *, verbose: bool) -> PhotographRun:
    """Train on tiles of the photographs, predict tiles of other places, and map the mosaic."""
    tiles = load_photographed_textures(WINDOW)
    train, validation, test = (_first(tiles.part(part), settings.n_train) for part in ("train", "val", "test"))
    classifier = LMFCNClassifier(
        epochs=min(settings.epochs, _ENOUGH_EPOCHS), random_state=settings.seed, verbose=verbose
    ).fit(train, validation=validation)
    probabilities, labels = classifier.predict_proba(test), np.asarray(test.labels)
    of_true_class = probabilities[np.arange(len(test)), np.searchsorted(classifier.classes_, labels)]
    score = balanced_accuracy_score(labels, classifier.classes_[probabilities.argmax(axis=1)])
    mosaic, true_labels = photographed_mosaic()
    mapped = classifier.model_.map(mosaic, window=WINDOW, stride=STRIDE).at_pixels()
    hardest = int(of_true_class.argmin())
    return PhotographRun(classifier, train, validation, test, float(score), hardest, mosaic, true_labels, mapped)


def _first(images: ImageCollection, n_per_class: int) -> ImageCollection:
    """Return the first images of every class."""
    labels = np.asarray(images.labels)
    return images[np.concatenate([np.flatnonzero(labels == label)[:n_per_class] for label in np.unique(labels)])]


def _draw(settings: DemoSettings) -> Iterator[Labelled]:
    random = as_generator(settings.seed)
    for count in (settings.n_train, settings.n_validation, settings.n_test):
        yield make_gaussians(count, settings.image_size, random)


def _run(
    name: str, model: Any, train: Labelled, validation: Labelled, test: Labelled, callbacks: list[Callback]
) -> DemoRun:
    start = time.perf_counter()
    model.fit(*train, validation=validation, **({"callbacks": callbacks} if callbacks else {}))
    seconds = time.perf_counter() - start
    score = float(balanced_accuracy_score(test[1], model.predict(test[0])))
    network = model.model_ if isinstance(model, LMFCNClassifier) else model.network_
    n_weights = sum(weights.numel() for weights in network.parameters())
    refit_history = getattr(model, "refit_history_", None)
    return DemoRun(name, model.history_, model.best_epoch_, n_weights, score, seconds, refit_history)
