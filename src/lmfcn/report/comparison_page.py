"""The page of `lmfcn compare`: a self-contained HTML file."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from lmfcn.benchmark.comparison import GAP_HEADINGS, Outcome, gap_rows, runs_of
from lmfcn.benchmark.runs import Run
from lmfcn.benchmark.tables import HEADINGS, row_entries
from lmfcn.benchmark.tasks import FRACTIONS
from lmfcn.report.curves import accuracy_plot, learning_curves, support_curves
from lmfcn.report.latent_plots import latent_map
from lmfcn.report.overlay import examples, hard_images
from lmfcn.report.prediction_plots import (
    FEWEST_FOR_CALIBRATION,
    calibration_pictures,
    confusion_pictures,
    fit_into_bytes,
    pooled_predictions,
)
from lmfcn.report.style import as_svg, write_page

_MOST_GROUPS, _MOST_SIZES, _EXAMPLES_PER_CLASS, _MOST_CLASSES_WITH_EXAMPLES = 10, 8, 4, 24
_DRAWN_REPEATS = 5
"""Largest number of repeats with curves: more would be unreadable."""

_PICTURE_BYTES = 700_000
"""Limit for the confusion matrices, and for the calibration curves; the page stays below 5 MB."""

_FIRST = ("test", "seeds", "cpu seconds", "validation", "train")
"""The first columns, which a narrow screen shows without scrolling."""


def write_comparison_report(outcome: Outcome, path: Path) -> None:
    """Write the page; an existing file is replaced whole or not at all."""
    verdict = outcome.verdict
    methods = [verdict.winner, *(other.method for other in verdict.others)]
    content = {
        **_results(outcome, methods),
        **_training(outcome.shared, methods),
        **_predictions(outcome.shared, methods),
        **_model_summary(outcome),
        **_data(outcome),
        "settings": [(method, _settings(runs_of(outcome.shared, method)[0])) for method in methods],
        "command": outcome.command,
        "made": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
        "versions": outcome.shared[0].versions,
        "machines": _machines(outcome.shared),
    }
    write_page(path, "comparison.html", content)


def _results(outcome: Outcome, methods: Sequence[str]) -> dict[str, Any]:
    verdict, shared = outcome.verdict, outcome.shared
    scores = {method: [run.test_balanced_accuracy for run in runs_of(shared, method)] for method in methods}
    return {
        "name": outcome.comparison.name,
        "quick": outcome.comparison.quick,
        "sentences": verdict.sentences,
        "remarks": outcome.remarks,
        "winner": verdict.winner,
        "is_clear": verdict.is_clear,
        "n_repeats": verdict.n_repeats,
        "headings": _in_order(HEADINGS),
        "rows": [(method, _in_order(row_entries(runs_of(shared, method)))) for method in methods],
        "gap_headings": GAP_HEADINGS,
        "gaps": gap_rows(verdict),
        "several_networks": [method for method in methods if _has_several_networks(runs_of(shared, method))],
        "accuracies": as_svg(accuracy_plot(scores)),
    }


def _training(runs: Sequence[Run], methods: Sequence[str]) -> dict[str, Any]:
    drawn = sorted({run.seed for run in runs})[:_DRAWN_REPEATS]
    runs = [run for run in runs if run.seed in drawn]
    curves = learning_curves(runs, methods)
    with_support = {method: [run for run in runs_of(runs, method) if run.n_support_by_epoch] for method in methods}
    counts = {
        method: [run.n_support_by_epoch or [] for run in found] for method, found in with_support.items() if found
    }
    selected = {
        method: [run.best_epoch for run in found if isinstance(run.best_epoch, int)]
        for method, found in with_support.items()
    }
    return {
        "curves": None if curves is None else as_svg(curves),
        "support": as_svg(support_curves(counts, selected)) if counts else None,
        "support_words": "; ".join(f"{method}, {_course(lines)}" for method, lines in counts.items()),
        "support_summed": any(_has_several_networks(found) for found in with_support.values()),
        "n_drawn": len(drawn),
    }


def _has_several_networks(runs: Sequence[Run]) -> bool:
    return any(isinstance(run.best_epoch, list) for run in runs)


def _course(lines: Sequence[Sequence[int]]) -> str:
    first, last = (np.mean([line[end] for line in lines]) for end in (0, -1))
    return f"from {first:.0f} to {last:.0f} on average"


def _predictions(runs: Sequence[Run], methods: Sequence[str]) -> dict[str, Any]:
    pooled = pooled_predictions(runs, methods)
    return {
        "confusions": fit_into_bytes(confusion_pictures(pooled), _PICTURE_BYTES),
        "calibrations": fit_into_bytes(calibration_pictures(pooled), _PICTURE_BYTES),
        "n_predictions": min((len(found.true) for found in pooled.values()), default=0),
        "fewest_predictions": FEWEST_FOR_CALIBRATION,
        "n_methods": len(pooled),
    }


def _model_summary(outcome: Outcome) -> dict[str, Any]:
    found = outcome.model_summary
    if found is None:
        return {"model": None}
    run, summary = found
    figure = latent_map(summary.learnt, summary.test, summary.classes, summary.explained)
    return {
        "model": {
            "method": run.method,
            "map": as_svg(figure),
            "n_learnt": len(summary.learnt.places),
            "n_support": int(summary.learnt.marked.sum()),
            "n_test": len(summary.test.places),
            "n_wrong": int(summary.test.marked.sum()),
            "hardest": hard_images(summary.hardest, summary.classes),
        }
    }


def _data(outcome: Outcome) -> dict[str, Any]:
    data, images, first = outcome.comparison.data, outcome.comparison.images, outcome.shared[0]
    return {
        "data": data,
        "examples": examples(images, np.asarray(images.labels), _EXAMPLES_PER_CLASS, _MOST_CLASSES_WITH_EXAMPLES),
        "counts": [_counted(title, counts) for title, counts in _counters(outcome)],
        "duplicates": data.duplicates[:_MOST_GROUPS],
        "n_subsets": (first.n_train, first.n_validation, first.n_test),
        "fractions": [f"{fraction:.0%}".replace("%", " %") for fraction in FRACTIONS],
    }


def _in_order(entries: Sequence[str]) -> list[str]:
    """Return the entries of a row with the most important ones first."""
    order = sorted(HEADINGS, key=lambda heading: _FIRST.index(heading) if heading in _FIRST else len(_FIRST))
    return [entries[HEADINGS.index(heading)].replace("seeds", "repeats") for heading in order]


def _counters(outcome: Outcome) -> list[tuple[str, Counter[str]]]:
    found = outcome.comparison.data.found
    return [("Sizes", found.sizes), ("Channels", found.forms), ("Formats", found.formats)]


def _counted(title: str, counts: Counter[str]) -> tuple[str, str]:
    shown = ", ".join(f"{name} ({count})" for name, count in counts.most_common(_MOST_SIZES))
    more = len(counts) - _MOST_SIZES
    return title, shown + (f", and {more} more" if more > 0 else "")


def _machines(runs: Sequence[Run]) -> list[str]:
    """Return descriptions of the machines that computed the runs."""
    known = (run.machine for run in runs if run.machine)
    words = (", ".join(f"{name} {value}" for name, value in one.items() if value is not None) for one in known)
    return list(dict.fromkeys(words))


def _settings(run: Run) -> dict[str, str]:
    """Return the parameters of a method without those that do not affect the result."""
    without_effect = ("verbose", "random_state", "device", "image_shape", "checkpoint_dir", "cache_dir", "n_jobs")
    settings: Mapping[str, Any] = run.settings
    if settings.get("weights"):
        settings = {**settings, "weights": Path(settings["weights"]).name}  # the folder stays private
    return {name: str(value) for name, value in settings.items() if name not in without_effect and value is not None}
