"""What the runs of a reproduction show beside its tables, set by set: training, support vectors, confusions, trust."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lmfcn.experiments.results import runs_of
from lmfcn.experiments.runs import Run
from lmfcn.report.answers import MethodPicture, Pooled, calibration_pictures, confusion_pictures, pooled_answers, within
from lmfcn.report.curves import support_curves
from lmfcn.report.rivals import learning_curves
from lmfcn.report.style import as_svg

_DRAWN_REPETITIONS = 5
"""Curves of more could not be told apart."""

_CONFUSION_BYTES, _CALIBRATION_BYTES = 1_400_000, 1_100_000
"""For the pictures of all methods on all sets; the page stays below 5 MB."""


def pictures_by_set(runs: Sequence[Run]) -> dict[str, Any]:
    """Return pictures for the page, each kind as pairs of a set of images and what is shown of it.

    Parameters
    ----------
    runs : sequence of Run
        As `Reproduction.printed_runs` returns them.
    """
    drawn = sorted({run.seed for run in runs})[:_DRAWN_REPETITIONS]
    tasks = {task: [run for run in runs if run.task == task] for task in dict.fromkeys(run.task for run in runs)}
    first = {task: [run for run in mine if run.seed in drawn] for task, mine in tasks.items()}
    answers = {task: pooled_answers(mine, methods_of(mine)) for task, mine in tasks.items()}
    return {
        "curves": _there((task, _curves(mine)) for task, mine in first.items()),
        "support": _there((task, _support(mine)) for task, mine in first.items()),
        "confusions": _of_methods(answers, confusion_pictures, _CONFUSION_BYTES),
        "calibrations": _of_methods(answers, calibration_pictures, _CALIBRATION_BYTES),
        "n_drawn": len(drawn),
    }


def methods_of(runs: Iterable[Run]) -> list[str]:
    """Return the methods of some runs, each once and in their order."""
    return list(dict.fromkeys(run.method for run in runs))


def _there(pairs: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [(task, shown) for task, shown in pairs if shown]


def _curves(runs: Sequence[Run]) -> str | None:
    figure = learning_curves(runs, methods_of(runs))
    return None if figure is None else as_svg(figure)


def _support(runs: Sequence[Run]) -> dict[str, str] | None:
    """Return the picture of the numbers of support vectors, and what it shows in words."""
    told = [run for run in runs if run.n_support_by_epoch]
    if not told:
        return None
    methods = methods_of(told)
    counts = {method: [run.n_support_by_epoch or [] for run in runs_of(told, method)] for method in methods}
    kept = {
        method: [run.best_epoch for run in runs_of(told, method) if isinstance(run.best_epoch, int)]
        for method in methods
    }
    courses = []
    for method, lines in counts.items():
        first, last = (np.mean([line[end] for line in lines]) for end in (0, -1))
        courses.append(f"{method}, from {first:.0f} to {last:.0f} on average")
    return {"address": as_svg(support_curves(counts, kept)), "words": "; ".join(courses)}


def _of_methods(
    answers: Mapping[str, Mapping[str, Pooled]],
    pictures: Callable[[Mapping[str, Pooled]], Iterable[MethodPicture]],
    n_bytes: int,
) -> list[tuple[str, dict[str, Any]]]:
    """Return for every set the pictures of its methods that fit into its share of the page, and how many there are."""
    told = [(task, mine) for task, mine in answers.items() if mine]
    shown, left = [], n_bytes
    for number, (task, mine) in enumerate(told):
        found = within(pictures(mine), left // (len(told) - number))
        left -= sum(len(picture.address) for picture in found)  # what a set does not need is for those that follow
        shown.append((task, {"pictures": found, "n_all": len(mine)}))
    return shown
