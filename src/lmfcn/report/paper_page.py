"""The page of `lmfcn reproduce`: a self-contained HTML file."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from lmfcn.benchmark.comparison import runs_of
from lmfcn.benchmark.paper.printed_tables import TITLES
from lmfcn.benchmark.paper.profiles import PAPER
from lmfcn.benchmark.paper.reproduced_tables import EXPLANATION, SUBSETS, Line, Outcome, summary_sentence
from lmfcn.benchmark.runs import Run
from lmfcn.benchmark.tasks import FRACTIONS
from lmfcn.report.curves import learning_curves, support_curves
from lmfcn.report.paper_figures import Picture, existing_pictures, paper_accuracy_plot
from lmfcn.report.prediction_plots import (
    MethodPicture,
    PooledPredictions,
    calibration_pictures,
    confusion_pictures,
    fit_into_bytes,
    pooled_predictions,
)
from lmfcn.report.style import as_svg, svg_address, write_page

_DRAWN_REPETITIONS = 5
"""Largest number of repetitions with curves: more would be unreadable."""

_CONFUSION_BYTES, _CALIBRATION_BYTES = 1_400_000, 1_100_000
"""Limits for the pictures of all methods on all sets; the page stays below 5 MB."""


def pictures_by_set(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the pictures of the page: for each kind, pairs of a set of images and its pictures.

    Parameters
    ----------
    runs : sequence of Run
        As `Reproduction.printed_runs` returns them.
    """
    drawn = sorted({run.seed for run in runs})[:_DRAWN_REPETITIONS]
    tasks = {task: [run for run in runs if run.task == task] for task in dict.fromkeys(run.task for run in runs)}
    first = {task: [run for run in found if run.seed in drawn] for task, found in tasks.items()}
    predictions = {task: pooled_predictions(found, methods_of(found)) for task, found in tasks.items()}
    return {
        "curves": _nonempty((task, _curves(found)) for task, found in first.items()),
        "support": _nonempty((task, _support(found)) for task, found in first.items()),
        "confusions": _method_pictures(predictions, confusion_pictures, _CONFUSION_BYTES),
        "calibrations": _method_pictures(predictions, calibration_pictures, _CALIBRATION_BYTES),
        "n_drawn": len(drawn),
    }


def methods_of(runs: Iterable[Run]) -> list[str]:
    """Return the methods of some runs, each once and in order."""
    return list(dict.fromkeys(run.method for run in runs))


def _nonempty(pairs: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [(task, shown) for task, shown in pairs if shown]


def _curves(runs: Sequence[Run]) -> str | None:
    figure = learning_curves(runs, methods_of(runs))
    return None if figure is None else as_svg(figure)


def _support(runs: Sequence[Run]) -> dict[str, str] | None:
    """Return the picture of the numbers of support vectors, and its text alternative."""
    with_support = [run for run in runs if run.n_support_by_epoch]
    if not with_support:
        return None
    methods = methods_of(with_support)
    counts = {method: [run.n_support_by_epoch or [] for run in runs_of(with_support, method)] for method in methods}
    selected = {
        method: [run.best_epoch for run in runs_of(with_support, method) if isinstance(run.best_epoch, int)]
        for method in methods
    }
    courses = []
    for method, lines in counts.items():
        first, last = (np.mean([line[end] for line in lines]) for end in (0, -1))
        courses.append(f"{method}, from {first:.0f} to {last:.0f} on average")
    return {"address": as_svg(support_curves(counts, selected)), "words": "; ".join(courses)}


def _method_pictures(
    predictions: Mapping[str, Mapping[str, PooledPredictions]],
    pictures: Callable[[Mapping[str, PooledPredictions]], Iterable[MethodPicture]],
    n_bytes: int,
) -> list[tuple[str, dict[str, Any]]]:
    """Return for every set the pictures of methods that fit into its part of the page, and the number of methods."""
    sets = [(task, by_method) for task, by_method in predictions.items() if by_method]
    shown, n_left = [], n_bytes
    for number, (task, by_method) in enumerate(sets):
        found = fit_into_bytes(pictures(by_method), n_left // (len(sets) - number))
        n_left -= sum(len(picture.address) for picture in found)  # unused bytes go to the next sets
        shown.append((task, {"pictures": found, "n_all": len(by_method)}))
    return shown


_SUBSETS = tuple(reversed(SUBSETS))
"""Test first, as a narrow screen shows only the first columns without scrolling."""


def write_reproduction_report(outcome: Outcome, folder: Path) -> None:
    """Write report.html; an existing file is replaced whole or not at all."""
    write_page(folder / "report.html", "reproduction.html", _content(outcome, folder))


def _content(outcome: Outcome, folder: Path) -> dict[str, Any]:
    reproduction = outcome.reproduction
    profile, runs = reproduction.profile, reproduction.printed_runs()
    pictures = list(existing_pictures(outcome.figures, profile, folder))
    return {
        "profile": profile,
        "tag": f" ({profile.tag})" if profile.tag else "",
        "fractions": [f"{fraction:.0%}".replace("%", " %") for fraction in FRACTIONS],
        "remarks": [remark for remark in outcome.remarks if remark != profile.warning],  # which has its own section
        "subsets": _SUBSETS,
        "tables": [_table(number, lines) for number, lines in outcome.tables.items()],
        "explanation": EXPLANATION,
        **pictures_by_set(runs),
        "pictures": [_picture(picture, record, folder) for picture, record in pictures],
        "images": _images(runs),
        "leak_check": reproduction.leak_check,
        "settings": _settings(runs),
        "command": outcome.command,
        "made": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
        "versions": _latest(runs, pictures, "versions"),
        "machine": _latest(runs, pictures, "machine"),
    }


def _table(number: int, lines: Sequence[Line]) -> dict[str, Any]:
    measured = [line for line in lines if line.runs]
    groups: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault(line.row.task.images, []).append(_row(line, best=line in _best(lines, line)))
    return {
        "number": number,
        "title": TITLES[number],
        "sentence": summary_sentence(lines),
        "groups": groups,
        "with_epochs": any(line.paper_epoch for line in lines),
        "accuracies": as_svg(paper_accuracy_plot(measured)) if measured else None,
    }


def _row(line: Line, *, best: bool) -> dict[str, Any]:
    *_, printed_epoch, epoch, n_runs, remark = line.entries
    return {
        "label": line.row.label,
        "best": best,
        "scores": [line.scores(subset) for subset in _SUBSETS],
        "epochs": (printed_epoch, epoch),
        "n_runs": n_runs,
        "remark": remark,
    }


def _best(lines: Sequence[Line], of: Line) -> list[Line]:
    """Return our best rows on the images of a row; none if there is only one."""
    same = [line for line in lines if line.row.task.images == of.row.task.images and line.runs]
    scores = {id(line): line.scores("test")[1].split()[0] for line in same}
    return [line for line in same if len(same) > 1 and scores[id(line)] == max(scores.values())]


def _picture(picture: Picture, record: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    return {
        "number": picture.figure[-1],
        "sv_close": picture.sv_close,
        "source": svg_address((folder / f"{picture.file}.svg").read_bytes()),
        "file": picture.file,
        "training": picture.training,
        "own_class": picture.training != PAPER,  # equation 6 has support vectors of any class
        "record": record,
    }


def _images(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the numbers of images in the first split of each set."""
    first: dict[str, Run] = {}
    for run in runs:
        first.setdefault(run.task, run)
    return [
        {"task": task, "counts": (run.n_train, run.n_validation, run.n_test), "split": run.split}
        for task, run in first.items()
    ]


def _settings(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the parameters of every method, once for all tasks on which they are the same."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for run in runs:
        values = {key: value for key, value in run.settings.items() if value is not None and key != "random_state"}
        one = found.setdefault((run.method, repr(values)), {"method": run.method, "values": values, "tasks": []})
        one["tasks"] += [] if run.task in one["tasks"] else [run.task]
    return list(found.values())


def _latest(runs: Sequence[Run], pictures: Sequence[tuple[Picture, Mapping[str, Any]]], name: str) -> dict[str, Any]:
    """Return the versions or the machine of the last run, or of a figure if there is no run."""
    found = [record[name] for _, record in pictures] + [getattr(run, name) for run in runs]
    return {key: value for key, value in (found[-1] if found else {}).items() if value is not None}
