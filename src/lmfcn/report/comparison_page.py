"""The page of a comparison, for readers who did not run it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from lmfcn.benchmark.comparison import RIVAL_HEADINGS, Outcome, rival_rows, runs_of
from lmfcn.benchmark.runs import Run
from lmfcn.benchmark.tables import HEADINGS, row
from lmfcn.benchmark.tasks import FRACTIONS
from lmfcn.report.curves import learning_curves, strip_plot, support_curves
from lmfcn.report.latent_plots import latent_map
from lmfcn.report.overlay import examples, hard_images
from lmfcn.report.prediction_plots import calibration_pictures, confusion_pictures, pooled_answers, within
from lmfcn.report.style import as_svg, write_page

_SHOWN_GROUPS, _SHOWN_SIZES, _SHOWN_EXAMPLES, _CLASSES_WITH_EXAMPLES = 10, 8, 4, 24
_DRAWN_REPEATS = 5
"""Curves of more repeats could not be told apart."""

_PICTURE_BYTES = 700_000
"""For the confusion matrices of all methods, and for their calibration curves; the page stays below 5 MB."""

_FIRST = ("test", "seeds", "cpu seconds", "validation", "train")
"""What a narrow screen shows without being moved."""


def write_comparison_report(outcome: Outcome, path: Path) -> None:
    """Write the page; a file of that name is replaced whole or not at all."""
    verdict = outcome.verdict
    methods = [verdict.winner, *(rival.method for rival in verdict.rivals)]
    content = {
        **_results(outcome, methods),
        **_training(outcome.shared, methods),
        **_answers(outcome.shared, methods),
        **_exhibit(outcome),
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
        "n_repeats": verdict.n_repeats,
        "headings": _in_order(HEADINGS),
        "rows": [(method, _in_order(row(runs_of(shared, method)))) for method in methods],
        "rival_headings": RIVAL_HEADINGS,
        "rivals": rival_rows(verdict),
        "several_networks": [method for method in methods if _has_several_networks(runs_of(shared, method))],
        "strips": as_svg(strip_plot(scores)),
    }


def _training(runs: Sequence[Run], methods: Sequence[str]) -> dict[str, Any]:
    drawn = sorted({run.seed for run in runs})[:_DRAWN_REPEATS]
    runs = [run for run in runs if run.seed in drawn]
    curves = learning_curves(runs, methods)
    with_support = {method: [run for run in runs_of(runs, method) if run.n_support_by_epoch] for method in methods}
    counts = {method: [run.n_support_by_epoch or [] for run in mine] for method, mine in with_support.items() if mine}
    kept = {
        method: [run.best_epoch for run in mine if isinstance(run.best_epoch, int)]
        for method, mine in with_support.items()
    }
    return {
        "curves": None if curves is None else as_svg(curves),
        "support": as_svg(support_curves(counts, kept)) if counts else None,
        "support_words": "; ".join(f"{method}, {_course(lines)}" for method, lines in counts.items()),
        "support_summed": any(_has_several_networks(mine) for mine in with_support.values()),
        "n_drawn": len(drawn),
    }


def _has_several_networks(runs: Sequence[Run]) -> bool:
    return any(isinstance(run.best_epoch, list) for run in runs)


def _course(lines: Sequence[Sequence[int]]) -> str:
    first, last = (np.mean([line[end] for line in lines]) for end in (0, -1))
    return f"from {first:.0f} to {last:.0f} on average"


def _answers(runs: Sequence[Run], methods: Sequence[str]) -> dict[str, Any]:
    answers = pooled_answers(runs, methods)
    return {
        "confusions": within(confusion_pictures(answers), _PICTURE_BYTES),
        "calibrations": within(calibration_pictures(answers), _PICTURE_BYTES),
        "n_answers": len(answers),
    }


def _exhibit(outcome: Outcome) -> dict[str, Any]:
    found = outcome.exhibit
    if found is None:
        return {"exhibit": None}
    run, exhibit = found
    places = latent_map(exhibit.learnt, exhibit.test, exhibit.classes, exhibit.explained)
    return {
        "exhibit": {
            "method": run.method,
            "map": as_svg(places),
            "n_learnt": len(exhibit.learnt.places),
            "n_support": int(exhibit.learnt.marked.sum()),
            "n_test": len(exhibit.test.places),
            "n_wrong": int(exhibit.test.marked.sum()),
            "hardest": hard_images(exhibit.hardest, exhibit.classes),
        }
    }


def _data(outcome: Outcome) -> dict[str, Any]:
    data, images, first = outcome.comparison.data, outcome.comparison.images, outcome.shared[0]
    return {
        "data": data,
        "examples": examples(images, np.asarray(images.labels), _SHOWN_EXAMPLES, _CLASSES_WITH_EXAMPLES),
        "counts": [_counted(title, counts) for title, counts in _counters(outcome)],
        "duplicates": data.duplicates[:_SHOWN_GROUPS],
        "n_parts": (first.n_train, first.n_validation, first.n_test),
        "shares": [f"{share:.0%}".replace("%", " %") for share in FRACTIONS],
    }


def _in_order(entries: Sequence[str]) -> list[str]:
    """Return the entries of a row of the table with the most important ones in front."""
    order = sorted(HEADINGS, key=lambda heading: _FIRST.index(heading) if heading in _FIRST else len(_FIRST))
    return [entries[HEADINGS.index(heading)].replace("seeds", "repeats") for heading in order]


def _counters(outcome: Outcome) -> list[tuple[str, Counter[str]]]:
    found = outcome.comparison.data.found
    return [("Sizes", found.sizes), ("Channels", found.forms), ("Formats", found.formats)]


def _counted(title: str, counts: Counter[str]) -> tuple[str, str]:
    shown = ", ".join(f"{name} ({count})" for name, count in counts.most_common(_SHOWN_SIZES))
    more = len(counts) - _SHOWN_SIZES
    return title, shown + (f", and {more} more" if more > 0 else "")


def _machines(runs: Sequence[Run]) -> list[str]:
    """Return in words what the runs were computed on, which may be several machines of a cluster."""
    known = (run.machine for run in runs if run.machine)
    words = (", ".join(f"{name} {value}" for name, value in one.items() if value is not None) for one in known)
    return list(dict.fromkeys(words))


def _settings(run: Run) -> dict[str, str]:
    """Return the parameters of a method, those that only say how to run left out."""
    idle = ("verbose", "random_state", "device", "image_shape", "checkpoint_dir", "cache_dir", "n_jobs")
    settings: Mapping[str, Any] = run.settings
    if settings.get("weights"):
        settings = {**settings, "weights": Path(settings["weights"]).name}  # where it lies is the user's business
    return {name: str(value) for name, value in settings.items() if name not in idle and value is not None}
