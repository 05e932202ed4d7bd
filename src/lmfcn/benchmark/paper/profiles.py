"""Settings of a reproduction, full or quick, and the trainings that figures 1 and 3 show."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from sklearn.metrics import balanced_accuracy_score

from lmfcn.benchmark.demonstration import SpaceRecorder
from lmfcn.benchmark.measure import Changes
from lmfcn.benchmark.tasks import SplitData, gaussians
from lmfcn.classifier import LMFCNClassifier
from lmfcn.method.anchors import LatentSpace
from lmfcn.method.history import EpochRecord, History
from lmfcn.recipe import Recipe

OURS, PAPER = "LMFCN", "LMFCN (paper)"
LATENT_DIM = 16
"""Of table 2. The paper does not give that of table 4; it is taken to be the same."""


@dataclass(frozen=True)
class Profile:
    """Image sizes, numbers of images and epochs of all runs.

    Attributes
    ----------
    name : str
    size : int
        Side of the images in pixels.
    repeats : int
    n_per_class : int or None
        Largest number of images per class of a published set with two classes; `n_per_many`: with more.
    n_gaussians : three ints
        Gaussian images per class for training, validation and test, of the paper's kind and of ours.
    lmfcn_epochs, per_class_epochs : int
        Of LMFCN (paper) with two classes, and of each of its networks with more.
    cnn_epochs, multiclass_epochs : int
        Of the CNNs with two classes and with more.
    figure_epochs : int
        Of the training that figures 1 and 3 show.
    ours : mapping
        Parameters of LMFCN that differ from the defaults.
    """

    name: str
    size: int
    repeats: int
    n_per_class: int | None
    n_per_many: int | None
    n_gaussians: tuple[int, int, int]
    lmfcn_epochs: int = 15
    per_class_epochs: int = 10
    cnn_epochs: int = 100
    multiclass_epochs: int = 400
    figure_epochs: int = 20
    ours: Mapping[str, Any] | None = None

    @property
    def is_quick(self) -> bool:
        """Whether it is the quick profile, whose tasks have names of their own."""
        return self.name == "quick"

    @property
    def tag(self) -> str:
        """An addition to headings for settings other than the full profile; empty for the full profile.

        Examples
        --------
        >>> from dataclasses import replace
        >>> replace(PROFILES["full"], size=64, repeats=1).tag
        'images of 64 pixels, 1 repetition'
        """
        return "quick profile" if self.is_quick else ", ".join(ours for ours, _ in self._differences())

    @property
    def warning(self) -> str:
        """A warning for every page and table, for settings other than the full profile; else empty."""
        differences = self._differences()
        changes = [f"{ours} instead of {full}" for ours, full in differences]
        if self.is_quick:
            return (
                f"This is the quick profile: {', '.join(['few images', 'few epochs', *changes])}. It shows that"
                " everything runs; its figures say nothing about the paper's."
            )
        if not changes:
            return ""
        return f"This is not the full profile: {', '.join(changes)}. {self._consequence()}"

    def _differences(self) -> list[tuple[str, str]]:
        """Return size and repetitions where they differ from the full profile, each with the value of that."""
        full = PROFILES["full"]
        pixels = f"images of {self.size} pixels", f"{full.size}"
        repetitions = f"{self.repeats} repetition{'s' * (self.repeats != 1)}", f"{full.repeats}"
        return [*([pixels] * (self.size != full.size)), *([repetitions] * (self.repeats != full.repeats))]

    def _consequence(self) -> str:
        full = PROFILES["full"]
        if self.size != full.size:
            return "Accuracies depend on the size of images, so these say little about the paper's."
        return f"Means and deviations are {'less' if self.repeats < full.repeats else 'more'} certain than the paper's."


PROFILES = {
    "full": Profile("full", size=128, repeats=5, n_per_class=None, n_per_many=None, n_gaussians=(100, 100, 100)),
    "quick": Profile(
        "quick",
        size=32,
        repeats=2,
        n_per_class=40,
        n_per_many=20,
        n_gaussians=(24, 16, 16),
        lmfcn_epochs=5,
        per_class_epochs=3,
        cnn_epochs=8,
        multiclass_epochs=6,
        figure_epochs=8,
        ours={"epochs": 3},
    ),
}


def changes_of(profile: Profile, latent_dim: int, weights: Mapping[str, Path], *, multiclass: bool) -> Changes:
    """Return the parameters that differ from the defaults, by method.

    Parameters
    ----------
    profile : Profile
    latent_dim : int
        Of LMFCN (paper) and the CNNs; our LMFCN keeps its own.
    weights : mapping of paths
        Files for the pretrained networks, by method.
    multiclass : bool
        Whether there are more than two classes.
    """
    cnn = {"latent_dim": latent_dim, "epochs": profile.cnn_epochs}
    epochs = profile.per_class_epochs if multiclass else profile.lmfcn_epochs
    return {
        PAPER: {"latent_dim": latent_dim, "epochs": epochs},
        OURS: dict(profile.ours or {}),
        "CNN-CE": cnn,
        "CNN-H": cnn,
        "CNN multiclass": {"latent_dim": latent_dim, "epochs": profile.multiclass_epochs},
        **{method: {"weights": str(path)} for method, path in weights.items()},
    }


SEED = 0
SV_CLOSE = {"figure1": 3, "figure3": 5}
"""Anchors of each support vector: three in the paper's figure 1, five in the training of figure 3."""

PARAMETERS: dict[str, dict[str, Any]] = {
    PAPER: {"recipe": "paper"},
    OURS: {"recipe": Recipe(keep_untrained=False, deviations=False, whiten=False, refit_epochs=0)},
}
"""Parameters that differ from the defaults. Figures then show all images, and everything that the SVM is fitted on."""


@dataclass(frozen=True)
class FigureTraining:
    """A training in two dimensions that a figure shows.

    Attributes
    ----------
    name : str
        A key of `PARAMETERS`.
    history : History of EpochRecord
    selected_epoch : int
    test_balanced_accuracy : float
        Of the selected epoch.
    spaces : list of LatentSpace
        Epoch by epoch.
    labels : array of int (n,)
        Of the training images.
    seconds : float
    """

    name: str
    history: History[EpochRecord]
    selected_epoch: int
    test_balanced_accuracy: float
    spaces: list[LatentSpace]
    labels: np.ndarray
    seconds: float


def figure_parameters(profile: Profile, name: str, sv_close: int) -> dict[str, Any]:
    """Return the parameters of a figure's training."""
    anchors = {"sv_close": sv_close, "wr_close": 1, "sh_close": 0}
    return {"latent_dim": 2, **anchors, "epochs": profile.figure_epochs, "random_state": SEED, **PARAMETERS[name]}


def train_for_figure(profile: Profile, name: str, sv_close: int, *, verbose: bool = False) -> FigureTraining:
    """Train on the paper's Gaussian images of the first repetition."""
    data = figure_images(profile)
    recorder = SpaceRecorder()
    model = LMFCNClassifier(**figure_parameters(profile, name, sv_close), verbose=verbose)
    start = time.perf_counter()
    model.fit(*data.train, validation=data.validation, callbacks=[recorder])
    seconds = time.perf_counter() - start
    score = float(balanced_accuracy_score(data.test.labels, model.predict(data.test.images)))
    history, selected = (
        cast("History[EpochRecord]", model.history_),
        cast("int", model.best_epoch_),
    )  # two classes: one network
    return FigureTraining(name, history, selected, score, recorder.spaces, data.train.labels, seconds)


def figure_images(profile: Profile) -> SplitData:
    """Return the images of both figures."""
    return gaussians(Path(), SEED, size=profile.size, counts=profile.n_gaussians, kind="paper")
