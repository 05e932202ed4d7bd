"""Which class is taken for which."""

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from lmfcn.report.style import INK, drawable, new_figure

_MOST_NUMBERS, _MOST_NAMES = 12, 40
"""Classes up to which cells have numbers, and axes have names: more could not be read."""

_ON_LIGHT, _ON_DARK = "#1a1a1a", "#fdfdfd"
"""Numbers in cells; not black and white, which change places on a dark screen as cells do not."""


def confusion_counts(true: Sequence[int], predicted: Sequence[int], n_classes: int) -> np.ndarray:
    """Return how often (n_classes, n_classes) images of each class, a row, were taken for each class, a column.

    Examples
    --------
    >>> confusion_counts([0, 0, 1], [0, 1, 1], 2).tolist()
    [[1, 1], [0, 1]]
    """
    counts = np.zeros((n_classes, n_classes), dtype=int)
    np.add.at(counts, (np.asarray(true, dtype=int), np.asarray(predicted, dtype=int)), 1)
    return counts


def confusion_matrix(counts: np.ndarray, classes: Sequence[str]) -> Figure:
    """Draw a matrix of counts (n_classes, n_classes), the darker the larger the share of the row.

    Parameters
    ----------
    counts : array (n_classes, n_classes)
        As `confusion_counts` returns them.
    classes : sequence of str
    """
    n_classes = len(classes)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = float(np.clip(0.42 * n_classes, 1.6, 4.2))
    figure = new_figure(side + 1.6, side + 1.4)
    axes = figure.subplots()
    axes.imshow(shares, cmap=colormaps["Blues"], vmin=0, vmax=1, extent=(0, n_classes, n_classes, 0))
    edges = np.arange(n_classes + 1)
    axes.vlines(edges, 0, n_classes, color="#cccccc", linewidth=0.5)
    axes.hlines(edges, 0, n_classes, color="#cccccc", linewidth=0.5)
    if n_classes <= _MOST_NUMBERS:
        for row, column in np.argwhere(counts > 0):
            color = _ON_DARK if shares[row, column] > 0.55 else _ON_LIGHT
            axes.text(column + 0.5, row + 0.5, counts[row, column], ha="center", va="center", fontsize=9, color=color)
    names = drawable(classes) if n_classes <= _MOST_NAMES else []
    places = np.arange(len(names)) + 0.5
    axes.set_xticks(places, labels=names, rotation=90)
    axes.set_yticks(places, labels=names)
    axes.tick_params(colors=INK, labelsize=9 if n_classes <= 20 else 6, length=0)
    axes.set(xlim=(0, n_classes), ylim=(n_classes, 0), aspect="equal", xlabel="taken for", ylabel="class")
    axes.spines[:].set_visible(False)
    return figure


def frequent_confusions(counts: np.ndarray, classes: Sequence[str], most: int = 3) -> list[str]:
    """Return the most frequent confusions in words.

    Examples
    --------
    >>> frequent_confusions(np.array([[8, 2], [0, 10]]), ["bark", "wood"])
    ['bark taken for wood 2 of 10 times']
    """
    wrong = counts * (1 - np.eye(len(counts), dtype=int))
    order = np.argsort(-wrong, axis=None, kind="stable")[:most]
    pairs = [(row, column) for row, column in zip(*np.unravel_index(order, wrong.shape), strict=True)]
    return [
        f"{classes[row]} taken for {classes[column]} {wrong[row, column]} of {counts[row].sum()} times"
        for row, column in pairs
        if wrong[row, column]
    ]
