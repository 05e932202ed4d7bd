"""Our test accuracies beside the paper's, row by row of one of its tables."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lmfcn.experiments.paper.side_by_side import Line
from lmfcn.report.style import INK, new_figure, tidy

_OURS, _PAPER = "#56B4E9", "#D55E00"
_SHIFT = 0.14


def paper_strips(lines: Sequence[Line]) -> Figure:
    """Draw a dot for each of our repetitions and a diamond with a bar for the paper's mean ± standard deviation.

    Parameters
    ----------
    lines : sequence of Line
        Those that have runs, in the order from top to bottom.
    """
    figure = new_figure(7.5, 1.2 + 0.34 * len(lines))
    axes = figure.subplots()
    for number, line in enumerate(lines):
        scores, printed = [run.test_balanced_accuracy for run in line.runs], line.paper("test")
        heights = number - _SHIFT + np.linspace(-0.08, 0.08, len(scores)) if len(scores) > 1 else [number - _SHIFT]
        axes.scatter(scores, heights, s=26, color=_OURS, edgecolors=INK, linewidths=0.6, zorder=3)
        axes.errorbar(
            printed.mean, number + _SHIFT, xerr=printed.deviation, fmt="D", color=_PAPER, markersize=5, capsize=2
        )
    names = [f"{line.row.printed.images}: {line.row.label}" for line in lines]
    axes.set_yticks(range(len(lines)), labels=names)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xlabel("test balanced accuracy")
    tidy(axes)
    axes.grid(visible=False, axis="y")
    figure.legend(handles=_legend(), frameon=False, ncols=2, loc="outside upper center", fontsize=9)
    return figure


def _legend() -> list[Line2D]:
    return [
        Line2D([], [], color=_OURS, marker="o", linestyle="none", markeredgecolor=INK, label="ours, each repetition"),
        Line2D([], [], color=_PAPER, marker="D", linestyle="-", label="the paper, mean ± standard deviation"),
    ]
