"""How training went: accuracies, support vectors and losses over the epochs."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lmfcn.report.style import INK, KEPT, SUPPORT, TRAIN, VALIDATION, new_figure, tidy


def training_curves(history: Any, kept_epoch: int) -> Figure:
    """Draw accuracies with the number of support vectors, and the losses, as in the paper's Figure 3."""
    figure = new_figure(9.5, 3.6)
    left, right = figure.subplots(1, 2)
    epochs = history.column("epoch")
    _accuracies(left, history)
    counts = left.twinx()
    counts.plot(epochs, history.column("n_support"), color=SUPPORT, linestyle="--", label="support vectors")
    counts.set_ylabel("support vectors", color=SUPPORT)
    counts.set_ylim(bottom=0)
    counts.spines["top"].set_visible(False)
    handles = left.get_legend_handles_labels()[0] + counts.get_legend_handles_labels()[0]
    for name, style in (("support_loss", "-"), ("correction_loss", "--"), ("separation_loss", ":")):
        values = history.column(name)
        if any(values):
            right.plot(epochs, values, style, color=INK, label=name.replace("_", " "))
    right.set_title("Loss at the start of the epoch", fontsize=10)
    right.set_ylim(bottom=0)
    right.legend(frameon=False, fontsize=9)
    for axes in (left, right):
        _mark_kept(axes, kept_epoch)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        tidy(axes)
    left.legend(handles=handles, frameon=False, fontsize=9, loc="center right")
    return figure


def comparison_curves(histories: dict[str, Any]) -> Figure:
    """Draw validation accuracy of several methods against epochs, and against images back-propagated."""
    figure = new_figure(9.5, 3.6)
    by_epoch, by_images = figure.subplots(1, 2, sharey=True)
    for (name, history), color in zip(histories.items(), ("#0072B2", "#D55E00", "#009E73", "#CC79A7"), strict=False):
        scores = history.column("validation_balanced_accuracy")
        done = np.cumsum([0, *history.column("n_backpropagated")[:-1]])
        by_epoch.plot(history.column("epoch"), scores, color=color, label=name)
        by_images.plot(done, scores, color=color, label=name)
    by_epoch.set_xlabel("epoch")
    by_epoch.set_ylabel("validation balanced accuracy")
    by_epoch.xaxis.set_major_locator(MaxNLocator(integer=True))
    by_images.set_xlabel("images back-propagated so far")
    by_epoch.legend(frameon=False, fontsize=9, loc="lower right")
    for axes in (by_epoch, by_images):
        axes.axhline(0.5, color="#999999", linewidth=0.8, linestyle=":")
        axes.set_ylim(0.4, 1.02)
        tidy(axes)
    return figure


def _accuracies(axes: Axes, history: Any) -> None:
    epochs = history.column("epoch")
    axes.plot(epochs, history.column("train_balanced_accuracy"), color=TRAIN, label="training")
    axes.plot(epochs, history.column("validation_balanced_accuracy"), color=VALIDATION, label="validation")
    axes.set_ylabel("balanced accuracy")
    axes.set_ylim(0.4, 1.02)
    axes.set_title("Balanced accuracy and support vectors", fontsize=10)


def _mark_kept(axes: Axes, kept_epoch: int) -> None:
    axes.axvline(kept_epoch, color=KEPT, linewidth=1)
    axes.annotate(
        "kept",
        (kept_epoch, 0.02),
        xycoords=("data", "axes fraction"),
        xytext=(3, 0),
        textcoords="offset points",
        fontsize=8,
        color=KEPT,
    )
