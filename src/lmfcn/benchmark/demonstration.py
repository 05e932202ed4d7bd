"""The demonstration: LMFCN in 2 and 16 dimensions and the equivalent CNN on striped Gaussian textures."""

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
from lmfcn.data.gaussians import make_gaussians
from lmfcn.method.anchors import LatentSpace
from lmfcn.method.epoch import Callback, Training
from lmfcn.method.history import EpochRecord, History
from lmfcn.recipe import Recipe

Labelled = tuple[np.ndarray, np.ndarray]


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
class DemoResult:
    """The content of the demonstration's report.

    `spaces` are the latent spaces of the two-dimensional LMFCN epoch by epoch.
    """

    settings: DemoSettings
    samples: Labelled
    train_labels: np.ndarray
    runs: list[DemoRun]
    spaces: list[LatentSpace]


class SpaceRecorder(Callback):
    """Keeps the latent space of every epoch, for figures."""

    def __init__(self) -> None:
        self.spaces: list[LatentSpace] = []

    def on_epoch_end(self, training: Training, record: EpochRecord, space: LatentSpace) -> None:  # noqa: ARG002
        """Keep the space of an epoch."""
        self.spaces.append(space)


def run_demo(settings: DemoSettings, *, verbose: bool = True) -> DemoResult:
    """Draw the images, train the three models one after the other, and test each once."""
    train, validation, test = _draw(settings)
    recorder, recipe = SpaceRecorder(), Recipe()
    shared: dict[str, Any] = {"epochs": settings.epochs, "random_state": settings.seed, "verbose": verbose}
    ours: dict[str, Any] = {"sv_close": 5, "wr_close": 1, "sh_close": 0, **shared}
    # The figures then show all training images, and everything that the final SVM is fitted on.
    all_shown = Recipe(keep_untrained=False, whiten=False, refit_epochs=0)
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
    return DemoResult(settings, train, train[1], runs, recorder.spaces)


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
