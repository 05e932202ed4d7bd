"""Figures of predictions: confusion matrices and reliability diagrams."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmfcn.benchmark.runs import Run
from lmfcn.report.style import INK, OTHERS, TRAIN, as_svg, drawable, new_figure, tidy

_MOST_NUMBERS, _MOST_NAMES = 12, 40
"""Largest numbers of classes with which cells have numbers, and axes have names: more would be unreadable."""

_ON_LIGHT, _ON_DARK = "#1a1a1a", "#fdfdfd"
"""Colours of numbers in cells; not black and white, which are swapped on dark screens while the cells stay."""


def confusion_counts(true: Sequence[int], predicted: Sequence[int], n_classes: int) -> np.ndarray:
    """Return counts (n_classes, n_classes) of images by true class (rows) and predicted class (columns).

    Examples
    --------
    >>> confusion_counts([0, 0, 1], [0, 1, 1], 2).tolist()
    [[1, 1], [0, 1]]
    """
    counts = np.zeros((n_classes, n_classes), dtype=int)
    np.add.at(counts, (np.asarray(true, dtype=int), np.asarray(predicted, dtype=int)), 1)
    return counts


def confusion_matrix(counts: np.ndarray, classes: Sequence[str]) -> Figure:
    """Draw a matrix of counts (n_classes, n_classes); darker cells are larger fractions of their row.

    Parameters
    ----------
    counts : array (n_classes, n_classes)
        As `confusion_counts` returns them.
    classes : sequence of str
    """
    figure = new_figure(*confusion_size(len(classes)))
    draw_confusion(figure.subplots(), counts, classes)
    return figure


def confusion_size(n_classes: int) -> tuple[float, float]:
    """Return width and height in inches of the figure of a confusion matrix."""
    side = float(np.clip(0.42 * n_classes, 1.6, 4.2))
    return side + 1.6, side + 1.4


def draw_confusion(axes: Axes, counts: np.ndarray, classes: Sequence[str]) -> None:
    """Draw a matrix of counts as `confusion_matrix` does."""
    n_classes = len(classes)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap=colormaps["Blues"], vmin=0, vmax=1, extent=(0, n_classes, n_classes, 0))
    edges = np.arange(n_classes + 1)
    axes.vlines(edges, 0, n_classes, color="#cccccc", linewidth=0.5)
    axes.hlines(edges, 0, n_classes, color="#cccccc", linewidth=0.5)
    if n_classes <= _MOST_NUMBERS:
        for row, column in np.argwhere(counts > 0):
            color = _ON_DARK if shares[row, column] > 0.55 else _ON_LIGHT
            axes.text(column + 0.5, row + 0.5, counts[row, column], ha="center", va="center", fontsize=9, color=color)
    names = drawable(classes) if n_classes <= _MOST_NAMES else []
    centers = np.arange(len(names)) + 0.5
    axes.set_xticks(centers, labels=names, rotation=90)
    axes.set_yticks(centers, labels=names)
    axes.tick_params(colors=INK, labelsize=9 if n_classes <= 20 else 6, length=0)
    axes.set(xlim=(0, n_classes), ylim=(n_classes, 0), aspect="equal", xlabel="predicted class", ylabel="true class")
    axes.spines[:].set_visible(False)


def frequent_confusions(counts: np.ndarray, classes: Sequence[str], most: int = 3) -> list[str]:
    """Return the most frequent confusions in words.

    Examples
    --------
    >>> frequent_confusions(np.array([[8, 2], [0, 10]]), ["bark", "wood"])
    ['bark predicted as wood 2 of 10 times']
    """
    wrong = counts * (1 - np.eye(len(counts), dtype=int))
    order = np.argsort(-wrong, axis=None, kind="stable")[:most]
    pairs = [(row, column) for row, column in zip(*np.unravel_index(order, wrong.shape), strict=True)]
    return [
        f"{classes[row]} predicted as {classes[column]} {wrong[row, column]} of {counts[row].sum()} times"
        for row, column in pairs
        if wrong[row, column]
    ]


_N_BINS = 10

FEWEST_FOR_CALIBRATION, FEWEST_IN_BIN = 100, 10
"""Fewer predictions show nothing about a calibration; the accuracy of fewer in one bin is mostly chance."""


class Reliability(NamedTuple):
    """Images by their confidence: how many (n_bins,), their mean confidence and their accuracy; NaN for none."""

    counts: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    @property
    def error(self) -> float:
        """Expected calibration error: the mean gap between confidence and accuracy."""
        filled = self.counts > 0
        gaps = np.abs(self.accuracy - self.confidence)[filled] * self.counts[filled]
        return float(gaps.sum() / self.counts.sum())


def reliability(confidences: Sequence[float], correct: Sequence[bool]) -> Reliability:
    """Return images in ten bins of equal width by the probability of their predicted class.

    Examples
    --------
    Confidence 0.85, right in two of four: a gap of 0.35.

    >>> round(reliability([0.85] * 4, [True, True, False, False]).error, 6)
    0.35
    """
    values, right = np.asarray(confidences, dtype=float), np.asarray(correct, dtype=float)
    bins = np.minimum((values * _N_BINS).astype(int), _N_BINS - 1)
    counts, *sums = (np.bincount(bins, weights, minlength=_N_BINS) for weights in (None, values, right))
    means = [np.divide(total, counts, out=np.full(_N_BINS, np.nan), where=counts > 0) for total in sums]
    return Reliability(counts, *means)


def reliability_diagram(confidences: Sequence[float], correct: Sequence[bool]) -> Figure:
    """Draw accuracy against confidence in ten bins, and below it how many images are in each.

    Bins of fewer than ten images have no dot.

    Parameters
    ----------
    confidences : sequence of float (n,)
        Probability of the predicted class.
    correct : sequence of bool (n,)
        Whether the prediction was right.
    """
    figure = new_figure(3.6, 4.0)
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    draw_reliability(axes, below, confidences, correct)
    return figure


def draw_reliability(axes: Axes, below: Axes, confidences: Sequence[float], correct: Sequence[bool]) -> None:
    """Draw accuracy against confidence on the one axes, and the number of images on the other."""
    found = reliability(confidences, correct)
    filled = found.counts >= FEWEST_IN_BIN
    axes.plot([0, 1], [0, 1], color=INK, linewidth=0.9, linestyle="--")
    axes.plot(found.confidence[filled], found.accuracy[filled], "o-", color=TRAIN, markeredgecolor=INK, markersize=6)
    axes.set(xlim=(0, 1.02), ylim=(0, 1.04), ylabel="fraction correct")
    below.bar((np.arange(_N_BINS) + 0.5) / _N_BINS, found.counts, width=0.09, color=OTHERS)
    below.set(xlabel="confidence", ylabel="images")
    for part in (axes, below):
        tidy(part)


class MethodPicture(NamedTuple):
    """A picture about one method: its data URL, its text alternative and its caption."""

    method: str
    address: str
    alt: str
    caption: str


class PooledPredictions(NamedTuple):
    """True and predicted class numbers (n,) and confidences (n,) of the test images of all repeats."""

    classes: Sequence[str]
    true: np.ndarray
    predicted: np.ndarray
    confidences: np.ndarray


def pooled_predictions(runs: Iterable[Run], methods: Sequence[str]) -> dict[str, PooledPredictions]:
    """Return the predictions of each method over all repeats; methods with a run that lacks them are left out."""
    runs, found = list(runs), {}
    for method in methods:
        of_method = [run for run in runs if run.method == method]
        if all(run.classes for run in of_method):
            columns = ("test_classes", "predicted_classes", "confidences")
            pooled = (np.concatenate([getattr(run, name) for run in of_method]) for name in columns)
            found[method] = PooledPredictions(of_method[0].classes or [], *pooled)
    return found


def confusion_pictures(predictions: Mapping[str, PooledPredictions]) -> Iterable[MethodPicture]:
    """Yield a confusion matrix for each method, with the most frequent confusions in words."""
    for method, (classes, true, predicted, _) in predictions.items():
        counts = confusion_counts(true.tolist(), predicted.tolist(), len(classes))
        words = "; ".join(frequent_confusions(counts, classes)) or "no image was misclassified"
        caption = f"{int((true != predicted).sum())} of {len(true)} wrong: {words}."
        alt = f"Confusion matrix of {method}: {caption}"
        yield MethodPicture(method, as_svg(confusion_matrix(counts, classes)), alt, caption)


def calibration_pictures(predictions: Mapping[str, PooledPredictions]) -> Iterable[MethodPicture]:
    """Yield a reliability diagram for each method with enough predictions, and its expected calibration error."""
    for method, (_, true, predicted, confidences) in predictions.items():
        if len(true) < FEWEST_FOR_CALIBRATION:
            continue
        right = true == predicted
        error = reliability(confidences.tolist(), right.tolist()).error
        sure, share = f"{confidences.mean():.0%}", f"{right.mean():.0%}"
        caption = f"ECE {error:.3f}: {sure} sure on average, {share} right.".replace("%", " %")
        alt = f"Reliability diagram of {method}: {caption}"
        yield MethodPicture(method, as_svg(reliability_diagram(confidences.tolist(), right.tolist())), alt, caption)


def fit_into_bytes(pictures: Iterable[MethodPicture], n_bytes: int) -> list[MethodPicture]:
    """Return the first pictures that fit into a number of bytes together; the others are not drawn."""
    total = 0

    def fits(picture: MethodPicture) -> bool:
        nonlocal total
        total += len(picture.address)
        return total <= n_bytes

    return list(takewhile(fits, pictures))
