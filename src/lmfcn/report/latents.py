"""The latent space of any number of dimensions and classes, as a map in the plane."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lmfcn.experiments.exhibit import Points
from lmfcn.report.style import COLORS, INK, drawable, new_figure, tidy

_MARKERS = ("o", "s", "^", "D", "v", "P")
"""One less than there are colours, so that both together differ for 42 classes."""

_MOST_POINTS, _MOST_NAMES = 1000, 24
_SMALL, _LARGE = 18.0, 62.0


def latent_map(learnt: Points, test: Points, classes: Sequence[str], explained: tuple[float, float]) -> Figure:
    """Draw images that were learnt from, with their support vectors, beside test images, with the misclassified.

    Parameters
    ----------
    learnt, test : Points
        Of more than a thousand, every so many-th is drawn.
    classes : sequence of str
    explained : tuple of float
        Shares of the variance along both axes.
    """
    figure = new_figure(10, 5.2)
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, points, title in ((left, learnt, "images learnt from"), (right, test, "test images")):
        _draw(axes, _some(points), len(classes))
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(f"first principal component ({explained[0]:.0%} of the variance)")
        tidy(axes)
    left.set_ylabel(f"second ({explained[1]:.0%})")
    figure.legend(handles=_legend(classes), frameon=False, ncols=5, fontsize=9, loc="outside lower center")
    return figure


def _draw(axes: Axes, points: Points, n_classes: int) -> None:
    # Marked ones last, so that none of them is hidden.
    for marked, size, edge in ((False, _SMALL, "none"), (True, _LARGE, INK)):
        for number in range(n_classes):
            x, y = points.places[(points.classes == number) & (points.marked == marked)].T
            color, marker = _look(number)
            axes.scatter(x, y, s=size, c=color, marker=marker, edgecolors=edge, linewidths=0.9, alpha=0.8)


def _some(points: Points) -> Points:
    chosen = np.unique(np.linspace(0, len(points.places) - 1, _MOST_POINTS).astype(int))
    return Points(*(values[chosen] for values in points))


def _look(number: int) -> tuple[str, str]:
    return COLORS[number % len(COLORS)], _MARKERS[number % len(_MARKERS)]


def _legend(classes: Sequence[str]) -> list[Line2D]:
    entries = []
    for number, name in enumerate(drawable(classes[:_MOST_NAMES])):
        color, marker = _look(number)
        entries.append(_entry(name, color=color, marker=marker))
    if len(classes) > _MOST_NAMES:
        entries.append(_entry(f"and {len(classes) - _MOST_NAMES} more", marker=""))
    ringed = {"color": "#999999", "marker": "o", "markeredgecolor": INK, "markersize": 9}
    return [*entries, _entry("support vector, or misclassified", **ringed)]


def _entry(label: str, **look: Any) -> Line2D:
    return Line2D([], [], **{"linestyle": "none", "markersize": 6, **look}, label=label)
