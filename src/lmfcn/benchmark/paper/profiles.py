"""How much of the paper is run: the full settings or a quick check; the trainings of figures 1 and 3."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from sklearn.metrics import balanced_accuracy_score

from lmfcn.benchmark.measure import Changes
from lmfcn.benchmark.tasks import Parts, gaussians
from lmfcn.classifier import LMFCNClassifier
from lmfcn.method.anchors import LatentSpace
from lmfcn.method.history import EpochRecord, History

OURS, PRESET = "LMFCN", "LMFCN (paper)"
LATENT_DIM = 16
"""Of table 2; the paper does not tell that of table 4, which is taken to be the same."""


@dataclass(frozen=True)
class Profile:
    """Sizes and lengths of all runs.

    Attributes
    ----------
    name : str
    size : int
        Side of the images in pixels.
    repeats : int
    n_per_class : int or None
        Most images per class of a published set with two classes, and in `n_per_many` of one with more.
    n_gaussians : three ints
        Gaussian images per class to learn from, to choose by and to test on.
    lmfcn_epochs, per_class_epochs : int
        Of the paper's preset with two classes, and of each of its networks with more.
    cnn_epochs, multiclass_epochs : int
        Of the CNNs with two classes and with more.
    figure_epochs : int
        Of the training that figures 1 and 3 show.
    ours : mapping
        What differs from this package's defaults.
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
        """Whether runs are known by names of their own, as those of another setting."""
        return self.name == "quick"

    @property
    def tag(self) -> str:
        """What headings must say of a setting that is not the full profile; nothing for that itself.

        Examples
        --------
        >>> from dataclasses import replace
        >>> replace(PROFILES["full"], size=64, repeats=1).tag
        'images of 64 pixels, 1 repetition'
        """
        return "quick profile" if self.is_quick else ", ".join(told for told, _ in self._differences())

    @property
    def warning(self) -> str:
        """A sentence or two for every page and table, of a setting that is not the full profile."""
        differences = self._differences()
        told = [f"{ours} instead of {full}" for ours, full in differences]
        if self.is_quick:
            return (
                f"This is the quick profile: {', '.join(['few images', 'few epochs', *told])}. It shows that everything"
                " runs; its figures say nothing about the paper's."
            )
        if not told:
            return ""
        return f"This is not the full profile: {', '.join(told)}. {self._consequence()}"

    def _differences(self) -> list[tuple[str, str]]:
        """Return what a user may have changed, and what the full profile has there."""
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


def changes_of(profile: Profile, latent_dim: int, weights: Mapping[str, Path], *, many: bool) -> Changes:
    """Return what differs from the defaults of each method.

    Parameters
    ----------
    profile : Profile
    latent_dim : int
        Of the paper's preset and of the CNNs; our own defaults have theirs.
    weights : mapping of paths
        Files for the pretrained networks, by method.
    many : bool
        Whether there are more than two classes.
    """
    cnn = {"latent_dim": latent_dim, "epochs": profile.cnn_epochs}
    epochs = profile.per_class_epochs if many else profile.lmfcn_epochs
    return {
        PRESET: {"latent_dim": latent_dim, "epochs": epochs},
        OURS: dict(profile.ours or {}),
        "CNN-CE": cnn,
        "CNN-H": cnn,
        "CNN multiclass": {"latent_dim": latent_dim, "epochs": profile.multiclass_epochs},
        **{method: {"weights": str(path)} for method, path in weights.items()},
    }


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
