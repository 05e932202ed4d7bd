"""Methods side by side: test accuracies of all repeats, and how those that train got there."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from lmfcn.experiments.runs import Run
from lmfcn.report.style import COLORS, INK, OTHERS, WINNER, new_figure, tidy

_STYLES = ("-", "--", ":")
_SHIFT = 0.12


def strip_plot(scores: Mapping[str, Sequence[float]]) -> Figure:
    """Draw a dot for every repeat and a bar at the mean, one row a method, the first one (the winner) on top.

    Parameters
    ----------
    scores : mapping of sequences of float
        Test accuracies by method, from the best to the worst.
    """
    figure = new_figure(5.4, 0.9 + 0.34 * len(scores))
    axes = figure.subplots()
    for number, values in enumerate(scores.values()):
        color = OTHERS if number else WINNER
        # Equal accuracies are frequent on small test sets, and must not hide each other.
        heights = number + np.linspace(-_SHIFT, _SHIFT, len(values)) if len(values) > 1 else [number]
        axes.scatter(values, heights, s=26, color=color, edgecolors=INK, linewidths=0.6, zorder=3)
        axes.vlines(np.mean(values), number - 0.32, number + 0.32, color=INK, linewidth=2, zorder=2)
    axes.set_yticks(range(len(scores)), labels=list(scores))
    axes.set_ylim(len(scores) - 0.5, -0.5)
    axes.set_xlabel("test balanced accuracy")
    tidy(axes)
    axes.grid(visible=False, axis="y")
    return figure


def learning_curves(runs: Collection[Run], methods: Sequence[str]) -> Figure | None:
    """Draw validation accuracy against epochs and against seconds, a line for every repeat; None if nothing trains.

    Methods that stand on another one's network have its curves, which are drawn once.
    """
    curves = _curves(runs, methods)
    if not curves:
        return None
    figure = new_figure(9.5, 4.0)
    by_epoch, by_seconds = figure.subplots(1, 2, sharey=True)
    for number, (name, mine) in enumerate(curves.items()):
        color, style = COLORS[number % len(COLORS)], _STYLES[number // len(COLORS) % len(_STYLES)]
        for repeat, run in enumerate(mine):
            look = {"color": color, "linestyle": style, "linewidth": 1.3, "alpha": 0.75}
            label = name if repeat == 0 else None
            accuracies = run.validation_by_epoch or []
            by_epoch.plot(range(len(accuracies)), accuracies, label=label, **look)
            by_seconds.plot(run.seconds_by_epoch or [], accuracies, **look)
    _finish(by_epoch, "epoch")
    _finish(by_seconds, "seconds of training by the clock")
    by_epoch.xaxis.set_major_locator(MaxNLocator(integer=True))
    by_epoch.set_ylabel("validation balanced accuracy")
    by_seconds.set_xscale("symlog", linthresh=1.0)
    by_seconds.xaxis.set_major_formatter(ScalarFormatter())
    by_seconds.set_xlim(left=0)
    figure.legend(*by_epoch.get_legend_handles_labels(), frameon=False, ncols=3, loc="outside upper center")
    return figure


def _curves(runs: Collection[Run], methods: Sequence[str]) -> dict[str, list[Run]]:
    """Return the runs that have a curve, under the names of all methods that share it."""
    names: dict[str, list[str]] = {}
    found: dict[str, list[Run]] = {}
    for method in methods:
        mine = [run for run in runs if run.method == method and run.validation_by_epoch]
        if mine:
            key = repr([run.seconds_by_epoch for run in mine])
            names.setdefault(key, []).append(method)
            found.setdefault(key, mine)
    return {" and ".join(names[key]): mine for key, mine in found.items()}


def _finish(axes: Axes, label: str) -> None:
    axes.set_xlabel(label)
    tidy(axes)
