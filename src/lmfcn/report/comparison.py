"""The page of a comparison, for readers who did not run it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from lmfcn.experiments.comparing import Outcome
from lmfcn.experiments.own_data import FRACTIONS
from lmfcn.experiments.results import RIVAL_HEADINGS, rival_rows, runs_of
from lmfcn.experiments.runs import Run
from lmfcn.experiments.tables import HEADINGS, row
from lmfcn.report.page import write_page
from lmfcn.report.rivals import learning_curves, strip_plot
from lmfcn.report.style import as_svg

_SHOWN_PAIRS, _SHOWN_SIZES = 10, 8
_FIRST = ("test", "seeds", "cpu seconds", "validation", "train")
"""What a narrow screen shows without being moved."""


def write_comparison_report(outcome: Outcome, path: Path) -> None:
    """Write the page; a file of that name is replaced whole or not at all."""
    write_page(path, "comparison.html", _content(outcome))


def _content(outcome: Outcome) -> dict[str, Any]:
    verdict, shared, comparison = outcome.verdict, outcome.shared, outcome.comparison
    methods = [verdict.winner, *(rival.method for rival in verdict.rivals)]
    curves = learning_curves(shared, methods)
    return {
        "name": comparison.name,
        "quick": comparison.quick,
        "sentences": verdict.sentences,
        "remarks": outcome.remarks,
        "winner": verdict.winner,
        "headings": _in_order(HEADINGS),
        "rows": [(method, _in_order(row(runs_of(shared, method)))) for method in methods],
        "rival_headings": RIVAL_HEADINGS,
        "rivals": rival_rows(verdict),
        "strips": as_svg(strip_plot({method: _tests(shared, method) for method in methods})),
        "curves": None if curves is None else as_svg(curves),
        "data": comparison.data,
        "counts": [_counted(title, counts) for title, counts in _counters(outcome)],
        "pairs": comparison.data.duplicates[:_SHOWN_PAIRS],
        "n_parts": (shared[0].n_train, shared[0].n_validation, shared[0].n_test),
        "shares": [f"{share:.0%}".replace("%", " %") for share in FRACTIONS],
        "settings": [(method, _settings(runs_of(shared, method)[0])) for method in methods],
        "command": outcome.command,
        "made": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
        "versions": shared[0].versions,
    }


def _in_order(entries: Sequence[str]) -> list[str]:
    """Return the entries of a row of the table with the most important ones in front."""
    order = sorted(HEADINGS, key=lambda heading: _FIRST.index(heading) if heading in _FIRST else len(_FIRST))
    return [entries[HEADINGS.index(heading)].replace("seeds", "repeats") for heading in order]


def _tests(runs: list[Run], method: str) -> list[float]:
    return [run.test_balanced_accuracy for run in runs_of(runs, method)]


def _counters(outcome: Outcome) -> list[tuple[str, Counter[str]]]:
    found = outcome.comparison.data.found
    return [("Sizes", found.sizes), ("Channels", found.forms), ("Formats", found.formats)]


def _counted(title: str, counts: Counter[str]) -> tuple[str, str]:
    shown = ", ".join(f"{name} ({count})" for name, count in counts.most_common(_SHOWN_SIZES))
    more = len(counts) - _SHOWN_SIZES
    return title, shown + (f", and {more} more" if more > 0 else "")


def _settings(run: Run) -> dict[str, str]:
    """Return the parameters of a method, those that only say how to run left out."""
    idle = ("verbose", "random_state", "device", "image_shape", "checkpoint_dir", "cache_dir", "n_jobs")
    settings: Mapping[str, Any] = run.settings
    return {name: str(value) for name, value in settings.items() if name not in idle and value is not None}
