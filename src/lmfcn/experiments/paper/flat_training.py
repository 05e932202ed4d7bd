"""The trainings that figures 1 and 3 show: Gaussian images in a latent space of two dimensions."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from sklearn.metrics import balanced_accuracy_score

from lmfcn.algorithm.history import EpochRecord, History
from lmfcn.algorithm.latent_space import LatentSpace
from lmfcn.classifier import LMFCNClassifier
from lmfcn.experiments.paper.profiles import OURS, PRESET, Profile
from lmfcn.experiments.tasks import Parts, gaussians

SEED = 0
SV_CLOSE = {"figure1": 3, "figure3": 5}
"""Anchors of each support vector: the paper tells of three in figure 1, and of five in the training of figure 3."""

PARAMETERS: dict[str, dict[str, Any]] = {
    PRESET: {"preset": "paper"},
    OURS: {"keep_untrained": False, "whiten": False, "closing_epochs": 0},
}
"""What differs from the defaults, by name; the figure then shows all images and all that the SVM sees."""


@dataclass(frozen=True)
class FlatTraining:
    """One training in two dimensions.

    Attributes
    ----------
    name : str
        A key of `PARAMETERS`.
    history : History of EpochRecord
    kept_epoch : int
    test_balanced_accuracy : float
        Of the kept epoch.
    spaces : list of LatentSpace
        Epoch by epoch.
    labels : array of int (n,)
        Of the training images.
    seconds : float
    """

    name: str
    history: History[EpochRecord]
    kept_epoch: int
    test_balanced_accuracy: float
    spaces: list[LatentSpace]
    labels: np.ndarray
    seconds: float


def flat_parameters(profile: Profile, name: str, sv_close: int) -> dict[str, Any]:
    """Return the parameters of a figure's training."""
    anchors = {"sv_close": sv_close, "wr_close": 1, "sh_close": 0}
    return {"latent_dim": 2, **anchors, "epochs": profile.figure_epochs, "random_state": SEED, **PARAMETERS[name]}


def train_flat(profile: Profile, name: str, sv_close: int, *, verbose: bool = False) -> FlatTraining:
    """Train on the Gaussian images of the first repetition."""
    parts = figure_images(profile)
    spaces: list[LatentSpace] = []
    model = LMFCNClassifier(
        **flat_parameters(profile, name, sv_close), on_epoch=lambda _, space: spaces.append(space), verbose=verbose
    )
    start = time.perf_counter()
    model.fit(*parts.train, validation=parts.validation)
    seconds = time.perf_counter() - start
    score = float(balanced_accuracy_score(parts.test.labels, model.predict(parts.test.images)))
    history, kept = cast("History[EpochRecord]", model.history_), cast("int", model.best_epoch_)  # of two classes
    return FlatTraining(name, history, kept, score, spaces, parts.train.labels, seconds)


def figure_images(profile: Profile) -> Parts:
    """Return the images of both figures."""
    return gaussians(Path(), SEED, size=profile.size, counts=profile.n_gaussians)
