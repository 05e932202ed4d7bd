"""Training curves, learning curves of several methods, and test accuracies of all repeats."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from lmfcn.benchmark.runs import Run
from lmfcn.report.style import COLORS, INK, OTHERS, SELECTED, SUPPORT, TRAIN, VALIDATION, WINNER, new_figure, tidy


def training_curves(
    history: Any, selected_epoch: int, test_score: float | None = None, refit: Any | None = None
) -> Figure:
    """Draw accuracies, the number of support vectors and the losses, as in the paper's Figure 3.

    Parameters
    ----------
    history : History of EpochRecord
    selected_epoch : int
    test_score : float, optional
        Test balanced accuracy of the selected epoch, drawn as a star.
    refit : History of EpochRecord, optional
        Of the refit epochs, which also train on validation images; drawn on a grey background.
    """
    figure = new_figure(12, 3.6)
    draw_training(figure.subplots(1, 3), history, selected_epoch, test_score, refit)
    return figure


def draw_training(
    parts: Sequence[Axes], history: Any, selected_epoch: int, test_score: float | None = None, refit: Any | None = None
) -> None:
    """Draw accuracies, support vectors and losses on three axes: see `training_curves`."""
    accuracies, counts, losses = parts
    phases = [history] if refit is None else [history, refit]
    _draw(accuracies, phases, "train_balanced_accuracy", color=TRAIN, label="training")
    _draw(accuracies, [history], "validation_balanced_accuracy", color=VALIDATION, label="epoch score (validation)")
    if test_score is not None:
        accuracies.plot([selected_epoch], [test_score], "*", color=INK, markersize=11, label="test, selected epoch")
    accuracies.set(title="Balanced accuracy", ylim=(0.4, 1.02))
    _draw(counts, phases, "n_support", color=SUPPORT, label="support vectors")
    _draw(counts, phases, "n_misclassified", color=SUPPORT, linestyle="--", label="misclassified")
    counts.set(title="Training images")
    counts.set_ylim(bottom=0)
    for name, style in (
        ("support_loss", "-"),
        ("correction_loss", "--"),
        ("separation_loss", ":"),
        ("head_loss", "-."),
    ):
        if any(any(phase.column(name)) for phase in phases):
            _draw(losses, phases, name, linestyle=style, color=INK, label=name.replace("_", " "))
    losses.set(title="Loss at the start of the epoch")
    losses.set_ylim(bottom=0)
    for axes in (accuracies, counts, losses):
        _mark_selected(axes, selected_epoch)
        if refit is not None:
            _mark_refit(axes, refit)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(frameon=False, fontsize=9)
        tidy(axes)


def comparison_curves(histories: dict[str, Any]) -> Figure:
    """Draw validation accuracy of several methods against epochs, and against images back-propagated."""
    figure = new_figure(9.5, 3.6)
    by_epoch, by_images = figure.subplots(1, 2, sharey=True)
    for (name, history), color in zip(histories.items(), COLORS, strict=False):
        scores = history.column("validation_balanced_accuracy")
        done = np.cumsum([0, *history.column("n_backpropagated")[:-1]])
        by_epoch.plot(history.column("epoch"), scores, color=color, label=name)
        by_images.plot(done, scores, color=color, label=name)
    by_epoch.set_xlabel("epoch")
    by_epoch.set_ylabel("validation balanced accuracy")
    by_epoch.xaxis.set_major_locator(MaxNLocator(integer=True))
    by_images.set_xlabel("images back-propagated so far")
    figure.legend(*by_epoch.get_legend_handles_labels(), frameon=False, ncols=3, loc="outside upper center")
    for axes in (by_epoch, by_images):
        axes.axhline(0.5, color="#999999", linewidth=0.8, linestyle=":")
        axes.set_ylim(0.4, 1.02)
        tidy(axes)
    return figure


def support_curves(counts: Mapping[str, Sequence[Sequence[int]]], selected: Mapping[str, Sequence[int]]) -> Figure:
    """Draw the number of support vectors over the epochs, a line for every repeat and a dot at its selected epoch.

    Parameters
    ----------
    counts : mapping of sequences
        By method and repeat, the number in every epoch, the untrained network first.
    selected : mapping of sequences of int
        By method and repeat, the selected epoch; a method may be absent.
    """
    figure = new_figure(5.4, 3.0)
    axes = figure.subplots()
    for number, (method, repeats) in enumerate(counts.items()):
        color = COLORS[number % len(COLORS)]
        for repeat, line in enumerate(repeats):
            axes.plot(line, color=color, linewidth=1.3, alpha=0.8, label=None if repeat else method)
        for epoch, line in zip(selected.get(method, []), repeats, strict=False):
            axes.plot(epoch, line[epoch], "o", color=color, markeredgecolor=INK, markersize=6)
    axes.set(xlabel="epoch", ylabel="support vectors, epoch's SVM")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(*axes.get_legend_handles_labels(), frameon=False, ncols=3, loc="outside upper center")
    tidy(axes)
    return figure


def _draw(axes: Axes, phases: Sequence[Any], name: str, label: str, **style: Any) -> None:
    """Draw a quantity over the epochs, a line for each phase of the training."""
    for phase in phases:
        axes.plot(phase.column("epoch"), phase.column(name), label=label if phase is phases[0] else None, **style)


def _mark_refit(axes: Axes, refit: Any) -> None:
    first, last = (refit.column("epoch")[place] for place in (0, -1))
    axes.axvspan(first - 0.5, last, color="#999999", alpha=0.15, linewidth=0)
    axes.annotate(
        "all images", (last, 0.94), xycoords=("data", "axes fraction"), ha="right", fontsize=8, color="#777777"
    )


def _mark_selected(axes: Axes, selected_epoch: int) -> None:
    axes.axvline(selected_epoch, color=SELECTED, linewidth=1)
    axes.annotate(
        "selected",
        (selected_epoch, 0.94),
        xycoords=("data", "axes fraction"),
        xytext=(3, 0),
        textcoords="offset points",
        fontsize=8,
        color=SELECTED,
    )


_STYLES = ("-", "--", ":")
_SHIFT = 0.12


def accuracy_plot(scores: Mapping[str, Sequence[float]]) -> Figure:
    """Draw the accuracy of every repeat as a dot and the mean as a bar, one row per method, the winner on top.

    Parameters
    ----------
    scores : mapping of sequences of float
        Test accuracies by method, from the best to the worst.
    """
    figure = new_figure(5.4, 0.9 + 0.34 * len(scores))
    axes = figure.subplots()
    for number, values in enumerate(scores.values()):
        color = OTHERS if number else WINNER
        # Equal accuracies are frequent on small test sets; the vertical shift keeps all dots visible.
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

    Methods that use the network of another method have its curves, which are drawn once.
    """
    curves = _curves(runs, methods)
    if not curves:
        return None
    figure = new_figure(9.5, 4.0)
    by_epoch, by_seconds = figure.subplots(1, 2, sharey=True)
    for number, (name, of_method) in enumerate(curves.items()):
        color, style = COLORS[number % len(COLORS)], _STYLES[number // len(COLORS) % len(_STYLES)]
        for repeat, run in enumerate(of_method):
            look = {"color": color, "linestyle": style, "linewidth": 1.3, "alpha": 0.75}
            label = name if repeat == 0 else None
            accuracies = run.validation_by_epoch or []
            by_epoch.plot(range(len(accuracies)), accuracies, label=label, **look)
            by_seconds.plot(run.seconds_by_epoch or [], accuracies, **look)
    _finish_axes(by_epoch, "epoch")
    _finish_axes(by_seconds, "seconds of training by the clock")
    by_epoch.xaxis.set_major_locator(MaxNLocator(integer=True))
    by_epoch.set_ylabel("validation balanced accuracy")
    by_seconds.set_xscale("symlog", linthresh=1.0)
    by_seconds.xaxis.set_major_formatter(ScalarFormatter())
    by_seconds.set_xlim(left=0)
    figure.legend(*by_epoch.get_legend_handles_labels(), frameon=False, ncols=3, loc="outside upper center")
    return figure


def _curves(runs: Collection[Run], methods: Sequence[str]) -> dict[str, list[Run]]:
    """Return the runs that have a curve, by the joined names of all methods that share it."""
    names: dict[str, list[str]] = {}
    found: dict[str, list[Run]] = {}
    for method in methods:
        of_method = [run for run in runs if run.method == method and run.validation_by_epoch]
        if of_method:
            key = repr([run.seconds_by_epoch for run in of_method])
            names.setdefault(key, []).append(method)
            found.setdefault(key, of_method)
    return {" and ".join(names[key]): of_method for key, of_method in found.items()}


def _finish_axes(axes: Axes, label: str) -> None:
    axes.set_xlabel(label)
    tidy(axes)
