"""The page of a reproduction, for readers who did not run it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from lmfcn.experiments.own_data import FRACTIONS
from lmfcn.experiments.paper.outcome import Outcome
from lmfcn.experiments.paper.printed import TITLES
from lmfcn.experiments.paper.profiles import OURS, QUICK_SENTENCE
from lmfcn.experiments.paper.sets import GAUSSIAN
from lmfcn.experiments.paper.side_by_side import PARTS, Line, in_words
from lmfcn.experiments.paper.table_files import EXPLANATION
from lmfcn.experiments.runs import Run
from lmfcn.report.page import write_page
from lmfcn.report.paper_figures import Picture, pictures_there
from lmfcn.report.paper_strips import paper_strips
from lmfcn.report.rivals import learning_curves
from lmfcn.report.style import as_svg, svg_address

_PARTS = tuple(reversed(PARTS))
"""The test first: what a narrow screen shows without being moved."""


def write_reproduction_report(outcome: Outcome, folder: Path) -> None:
    """Write report.html; a file of that name is replaced whole or not at all."""
    write_page(folder / "report.html", "reproduction.html", _content(outcome, folder))


def _content(outcome: Outcome, folder: Path) -> dict[str, Any]:
    reproduction = outcome.reproduction
    runs = list(reproduction.runs().values())
    pictures = list(pictures_there(outcome.figures, reproduction.profile, folder))
    return {
        "quick": QUICK_SENTENCE if reproduction.profile.is_quick else "",
        "profile": reproduction.profile,
        "shares": [f"{share:.0%}".replace("%", " %") for share in FRACTIONS],
        "remarks": [remark for remark in outcome.remarks if remark != QUICK_SENTENCE],  # which has a place of its own
        "parts": _PARTS,
        "tables": [_table(number, lines) for number, lines in outcome.tables.items()],
        "explanation": EXPLANATION,
        "curves": _curves(runs),
        "pictures": [_picture(picture, record, folder) for picture, record in pictures],
        "images": _images(runs),
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
        groups.setdefault(line.row.printed.images, []).append(_row(line, best=line in _best(lines, line)))
    return {
        "number": number,
        "title": TITLES[number],
        "sentence": in_words(lines),
        "groups": groups,
        "with_epochs": any(line.row.printed.epoch for line in lines),
        "strips": as_svg(paper_strips(measured)) if measured else None,
    }


def _row(line: Line, *, best: bool) -> dict[str, Any]:
    *_, printed_epoch, epoch, n_runs, remark = line.entries
    return {
        "label": line.row.label,
        "best": best,
        "scores": [line.scores(part) for part in _PARTS],
        "epochs": (printed_epoch, epoch),
        "n_runs": n_runs,
        "remark": remark,
    }


def _best(lines: Sequence[Line], of: Line) -> list[Line]:
    """Return our best rows of the images of a row, where there is something to choose from."""
    same = [line for line in lines if line.row.printed.images == of.row.printed.images and line.runs]
    scores = {id(line): line.scores("test")[1].split()[0] for line in same}
    return [line for line in same if len(same) > 1 and scores[id(line)] == max(scores.values())]


def _curves(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Return a title and a picture for every task that something was trained on."""
    shown = []
    for task in dict.fromkeys(run.task for run in runs):
        mine = [run for run in runs if run.task == task]
        figure = learning_curves(mine, list(dict.fromkeys(run.method for run in mine)))
        if figure is not None:
            shown.append((task, as_svg(figure)))
    return shown


def _picture(picture: Picture, record: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    return {
        "number": picture.figure[-1],
        "source": svg_address((folder / f"{picture.file}.svg").read_bytes()),
        "file": picture.file,
        "training": "our defaults" if picture.training == OURS else "the paper's preset",
        "record": record,
    }


def _images(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return what the first repetition of each task was divided into."""
    first = {run.task: run for run in sorted(runs, key=lambda run: -run.seed)}
    return [
        {
            "task": task,
            "counts": (run.n_train, run.n_validation, run.n_test),
            "drawn": task.startswith(GAUSSIAN),
            "split": run.split,
        }
        for task, run in sorted(first.items())
    ]


def _settings(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the parameters of every method, once for all tasks on which they are the same."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for run in runs:
        values = {key: value for key, value in run.settings.items() if value is not None and key != "random_state"}
        one = found.setdefault((run.method, repr(values)), {"method": run.method, "values": values, "tasks": []})
        one["tasks"] += [] if run.task in one["tasks"] else [run.task]
    return [found[key] for key in sorted(found)]


def _latest(runs: Sequence[Run], pictures: Sequence[tuple[Picture, Mapping[str, Any]]], name: str) -> dict[str, Any]:
    """Return versions or machine of the last run, or of a figure if there is no run."""
    found = [record[name] for _, record in pictures] + [getattr(run, name) for run in runs]
    return {key: value for key, value in (found[-1] if found else {}).items() if value is not None}
