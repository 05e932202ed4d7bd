"""Pictures of models by scikit-learn's convention: `SomeDisplay.from_estimator(classifier, ...).plot()`.

They are those of the reports. Needs the extra `report` (matplotlib and jinja2).
"""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from lmfcn.classifier import LMFCNClassifier
from lmfcn.compute.resources import to_like
from lmfcn.data.framing import to_pillow, to_uint8
from lmfcn.data.image_form import as_collection
from lmfcn.explain.explanation import DecidingImage, Explanation, explain
from lmfcn.explain.gallery import Gallery
from lmfcn.explain.score_map import support_classes
from lmfcn.maps.outputs import blend_labels, make_legend, to_rgb
from lmfcn.maps.texture_map import TextureMap
from lmfcn.method.kernel_svm import class_numbers, rbf_kernel, squared_distances
from lmfcn.model import TextureModel
from lmfcn.predict.evaluation import class_numbers_of

try:
    from matplotlib import pyplot
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from lmfcn.report.curves import draw_training
    from lmfcn.report.latent_plots import draw_latents, first_directions
    from lmfcn.report.overlay import AGAINST, FOR, overlay
    from lmfcn.report.prediction_plots import confusion_counts, confusion_size, draw_confusion, draw_reliability
except ImportError as error:
    raise ImportError(f"Pictures need matplotlib: pip install 'lmfcn[report]' ({error}).") from error

__all__ = [
    "ConfusionDisplay",
    "DecidingImagesDisplay",
    "LatentSpaceDisplay",
    "MapDisplay",
    "ReliabilityDisplay",
    "TrainingCurvesDisplay",
]

Model = LMFCNClassifier | TextureModel


def _model_of(estimator: Model) -> TextureModel:
    return estimator if isinstance(estimator, TextureModel) else estimator.model_


def _axes(ax: Axes | None, width: float, height: float) -> Axes:
    """Return the given axes, or those of a new figure; width and height are in inches."""
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1] if ax is None else ax


class TrainingCurvesDisplay:
    """Accuracies, support vectors and losses over the epochs, as in the report of a training.

    Parameters
    ----------
    history, refit : History of EpochRecord
        The epochs with validation images held out and those on all images; `refit` may be None.
    selected_epoch : int

    Attributes
    ----------
    figure_ : matplotlib Figure
    axes_ : array of three matplotlib Axes

    Examples
    --------
    >>> from lmfcn import LMFCNClassifier, make_gaussians
    >>> X, y = make_gaussians(n_per_class=10, size=16, random_state=0)
    >>> classifier = LMFCNClassifier(epochs=2, latent_dim=4, random_state=0).fit(X, y)
    >>> display = TrainingCurvesDisplay.from_estimator(classifier).plot()
    >>> [axes.get_title() for axes in display.axes_]
    ['Balanced accuracy', 'Training images', 'Loss at the start of the epoch']
    """

    def __init__(self, history: Any, selected_epoch: int, refit: Any = None) -> None:
        self.history, self.selected_epoch, self.refit = history, selected_epoch, refit

    @classmethod
    def from_estimator(cls, estimator: LMFCNClassifier, network: int = 0) -> "TrainingCurvesDisplay":
        """Return the curves of a fitted classifier; of one-vs-all, those of the network with this number."""
        if not isinstance(estimator.best_epoch_, list):
            return cls(estimator.history_, estimator.best_epoch_, estimator.refit_history_)
        refit = estimator.refit_history_
        return cls(
            estimator.history_[network], estimator.best_epoch_[network], None if refit is None else refit[network]
        )

    def plot(self, axes: Sequence[Axes] | None = None) -> "TrainingCurvesDisplay":
        """Draw on three axes, or in a new figure."""
        parts = pyplot.subplots(1, 3, figsize=(12, 3.6), layout="constrained")[1] if axes is None else axes
        draw_training(parts, self.history, self.selected_epoch, refit=self.refit)
        self.axes_, self.figure_ = parts, parts[0].figure
        return self


class LatentSpaceDisplay:
    """Images in the two directions of largest variance of the latent space, with the support vectors as large marks.

    Parameters
    ----------
    points : array (n, 2)
    numbers : array of int (n,)
        Classes of the points, as positions in `classes`.
    classes : sequence of str
    support : array of bool (n,)

    Attributes
    ----------
    figure_, ax_ : matplotlib Figure and Axes

    Examples
    --------
    >>> from lmfcn import LMFCNClassifier, make_gaussians
    >>> X, y = make_gaussians(n_per_class=10, size=16, random_state=0)
    >>> classifier = LMFCNClassifier(epochs=1, latent_dim=4, random_state=0).fit(X, y)
    >>> display = LatentSpaceDisplay.from_estimator(classifier, X, y).plot()
    >>> len(display.points) == len(X) + len(classifier.support_)
    True
    """

    def __init__(self, points: np.ndarray, numbers: np.ndarray, classes: Sequence[str], support: np.ndarray) -> None:
        self.points, self.numbers, self.classes, self.support = points, numbers, classes, support

    @classmethod
    def from_estimator(cls, estimator: Model, X: Any = None, y: Any = None) -> "LatentSpaceDisplay":
        """Return the support vectors of a model and, with X, other images, training images or new ones.

        Parameters
        ----------
        estimator : fitted LMFCNClassifier or TextureModel
        X : images, optional
        y : array-like (n,), optional
            Their labels; a collection may bring its own, and without any the predicted ones count.
        """
        model = _model_of(estimator)
        latents, numbers = [model.support_latents.cpu().numpy()], [_classes_of_support(model)]
        if X is not None:
            images = as_collection(X, labelled=False)
            labels = getattr(images, "labels", None) if y is None else y
            latents.append(model.transform(images))
            known = model.predict_proba(images).argmax(axis=1) if labels is None else class_numbers_of(model, labels)
            numbers.append(known)
        points, joined = first_directions(np.concatenate(latents)), np.concatenate(numbers)
        # Support vectors last, so that no other point hides them.
        support = np.arange(len(joined)) < len(latents[0])
        order = np.argsort(support, kind="stable")
        return cls(points[order], joined[order], [str(label) for label in model.classes.tolist()], support[order])

    def plot(self, ax: Axes | None = None) -> "LatentSpaceDisplay":
        """Draw on the given axes, or in a new figure."""
        self.ax_ = _axes(ax, 7.5, 5.2)
        self.figure_ = self.ax_.figure
        draw_latents(self.ax_, self.points, self.numbers, self.classes, self.support)
        return self


def _classes_of_support(model: TextureModel) -> np.ndarray:
    """Return the class (n_support,) of each support vector; where its coefficients leave it open, the predicted one.

    They leave it open for an image that supports only the decisions about other classes, and is no doubtful one.
    """
    decision = model.decision
    numbers = support_classes(decision)
    kernel = rbf_kernel(squared_distances(decision.support_latents), decision.gamma)
    scores = kernel @ to_like(decision.coefficients, kernel) + to_like(decision.intercepts, kernel)
    return np.where(numbers < 0, class_numbers(scores).cpu().numpy(), numbers)


def _judged(estimator: Model, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return true class numbers and probabilities: of the given images, or of those held out in the fit."""
    if X is None:
        if isinstance(estimator, TextureModel):
            raise ValueError("A TextureModel keeps no held-out predictions; give X and y.")
        return estimator.held_out_.numbers, estimator.held_out_.probabilities
    images, model = as_collection(X, labelled=y is None), _model_of(estimator)
    return class_numbers_of(model, getattr(images, "labels", None) if y is None else y), model.predict_proba(images)


class ConfusionDisplay:
    """A confusion matrix; darker cells are larger shares of their row.

    Parameters
    ----------
    counts : array (n_classes, n_classes)
        Images by true class (rows) and predicted class (columns).
    classes : sequence of str

    Attributes
    ----------
    figure_, ax_ : matplotlib Figure and Axes
    """

    def __init__(self, counts: np.ndarray, classes: Sequence[str]) -> None:
        self.counts, self.classes = counts, classes

    @classmethod
    def from_estimator(cls, estimator: Model, X: Any = None, y: Any = None) -> "ConfusionDisplay":
        """Return the confusions of labelled images, by default of those that the fit of a classifier held out."""
        numbers, predicted = _judged(estimator, X, y)
        classes = [str(label) for label in _model_of(estimator).classes.tolist()]
        counts = confusion_counts(numbers.tolist(), predicted.argmax(axis=1).tolist(), len(classes))
        return cls(counts, classes)

    def plot(self, ax: Axes | None = None) -> "ConfusionDisplay":
        """Draw on the given axes, or in a new figure."""
        self.ax_ = _axes(ax, *confusion_size(len(self.classes)))
        self.figure_ = self.ax_.figure
        draw_confusion(self.ax_, self.counts, self.classes)
        return self


class ReliabilityDisplay:
    """How often predictions are right, by their probability, and below it how many there are.

    Parameters
    ----------
    confidences : array (n,)
        Probability of the predicted class.
    correct : array of bool (n,)

    Attributes
    ----------
    figure_ : matplotlib Figure
    axes_ : array of two matplotlib Axes
    """

    def __init__(self, confidences: np.ndarray, correct: np.ndarray) -> None:
        self.confidences, self.correct = confidences, correct

    @classmethod
    def from_estimator(cls, estimator: Model, X: Any = None, y: Any = None) -> "ReliabilityDisplay":
        """Return the reliability on labelled images, by default on those that the fit of a classifier held out."""
        numbers, predicted = _judged(estimator, X, y)
        return cls(predicted.max(axis=1), predicted.argmax(axis=1) == numbers)

    def plot(self, axes: Sequence[Axes] | None = None) -> "ReliabilityDisplay":
        """Draw on two axes, one above the other, or in a new figure."""
        if axes is None:
            figure = pyplot.figure(figsize=(3.6, 4.0), layout="constrained")
            axes = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
        above, below = axes
        draw_reliability(above, below, self.confidences.tolist(), self.correct.tolist())
        self.axes_, self.figure_ = axes, above.figure
        return self


class DecidingImagesDisplay:
    """An image, where in it the evidence lies, and the training images that decide for and against its class.

    Parameters
    ----------
    image : array (height, width, channels)
    found : Explanation

    Attributes
    ----------
    figure_ : matplotlib Figure
    axes_ : array of matplotlib Axes (2, 1 + n)
        The image and its overlay on the left, deciding images beside them: for the class above, against it below.
    """

    def __init__(self, image: np.ndarray, found: Explanation) -> None:
        self.image, self.found = image, found

    @classmethod
    def from_estimator(
        cls, estimator: Model, image: Any, gallery: Gallery | None = None, *, label: Any = None, top: int = 5
    ) -> "DecidingImagesDisplay":
        """Explain the prediction for one image; only with a gallery there are pictures of the deciding images.

        Parameters
        ----------
        estimator : fitted LMFCNClassifier or TextureModel
        image : array (height, width[, channels])
        gallery : Gallery, optional
            `Gallery.of(classifier, X, y)`, or the one that `lmfcn train` wrote.
        label : optional
            The class to explain; the predicted one by default.
        top : int
            Number of deciding images for and against it.
        """
        pixels = np.asarray(image)
        pixels = pixels[..., None] if pixels.ndim == 2 else pixels
        return cls(pixels, explain(_model_of(estimator), pixels, gallery, label, top))

    def plot(self) -> "DecidingImagesDisplay":
        """Draw in a new figure."""
        found = self.found
        n_columns = 1 + max(len(found.supporting), len(found.opposing), 1)
        figure = pyplot.figure(figsize=(1.7 * n_columns + 0.4, 3.9), layout="constrained")
        axes = figure.subplots(2, n_columns, squeeze=False)
        for part in axes.ravel():
            part.set_axis_off()
        axes[0, 0].imshow(np.asarray(to_pillow(to_uint8(self.image)).convert("RGB")))
        axes[0, 0].set_title(f"{found.label}, {found.probabilities[found.label]:.2f}", fontsize=9)
        axes[1, 0].imshow(np.asarray(Image.open(io.BytesIO(overlay(self.image, found.map.values)))))
        axes[1, 0].set_title(f"decision value {found.value:+.2f}", fontsize=9)
        for row, images, color in ((0, found.supporting, FOR), (1, found.opposing, AGAINST)):
            for part, deciding in zip(axes[row, 1:], images, strict=False):
                _draw_deciding(part, deciding, color)
        self.figure_, self.axes_ = figure, axes
        return self


def _draw_deciding(axes: Axes, deciding: DecidingImage, color: str) -> None:
    if deciding.picture is None:
        axes.text(0.5, 0.5, "no picture", ha="center", va="center", fontsize=8, color="#777777")
    else:
        axes.imshow(np.asarray(Image.open(io.BytesIO(deciding.picture)).convert("RGB")))
    axes.set_title(f"{deciding.weight:+.2f}  {deciding.label or 'unknown'}", fontsize=9, color=color)


class MapDisplay:
    """An image with the labels of a texture map over it, and a legend with the share of each.

    Parameters
    ----------
    image : array (height, width, channels)
    found : TextureMap

    Attributes
    ----------
    figure_, ax_ : matplotlib Figure and Axes
    """

    def __init__(self, image: np.ndarray, found: TextureMap) -> None:
        self.image, self.found = image, found

    @classmethod
    def from_estimator(cls, estimator: Model, image: Any, window: int | None = None, stride: int = 16) -> "MapDisplay":
        """Map one image; window and stride are those of `TextureModel.map`."""
        pixels = np.asarray(image)
        found = _model_of(estimator).map(pixels, window, stride)
        return cls(pixels[..., None] if pixels.ndim == 2 else pixels, found)

    def plot(self, ax: Axes | None = None) -> "MapDisplay":
        """Draw on the given axes, or in a new figure."""
        height, width = self.image.shape[:2]
        self.ax_ = _axes(ax, 8, float(np.clip(6 * height / width, 2, 10)))
        self.figure_ = self.ax_.figure
        legend = make_legend(self.found.classes)
        numbers = np.searchsorted(self.found.classes, self.found.at_pixels())
        kind = "uint8" if self.image.dtype == np.uint8 else "other"
        self.ax_.imshow(blend_labels(numbers, to_rgb(self.image, kind), legend))
        self.ax_.set_axis_off()
        shares = np.bincount(numbers.ravel(), minlength=legend.n_classes) / numbers.size
        marks = [
            Line2D(
                [], [], linestyle="none", marker="s", color=legend.colours[number] / 255, label=f"{name}  {share:.1%}"
            )
            for number, (name, share) in enumerate(zip(legend.names[: legend.n_classes], shares, strict=True))
        ]
        self.figure_.legend(handles=marks, frameon=False, loc="outside right upper", fontsize=9)
        return self
