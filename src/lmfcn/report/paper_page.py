"""The page of a reproduction, for readers who did not run it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from lmfcn.experiments.own_data import FRACTIONS
from lmfcn.experiments.paper.outcome import Outcome
from lmfcn.experiments.paper.printed import TITLES
from lmfcn.experiments.paper.profiles import OURS
from lmfcn.experiments.paper.side_by_side import PARTS, Line, in_words
from lmfcn.experiments.paper.table_files import EXPLANATION
from lmfcn.experiments.runs import Run
from lmfcn.report.page import write_page
from lmfcn.report.paper_figures import Picture, pictures_there
from lmfcn.report.paper_runs import pictures_by_set
from lmfcn.report.paper_strips import paper_strips
from lmfcn.report.style import as_svg, svg_address

_PARTS = tuple(reversed(PARTS))
"""The test first: what a narrow screen shows without being moved."""


def write_reproduction_report(outcome: Outcome, folder: Path) -> None:
    """Write report.html; a file of that name is replaced whole or not at all."""
    write_page(folder / "report.html", "reproduction.html", _content(outcome, folder))


def _content(outcome: Outcome, folder: Path) -> dict[str, Any]:
    reproduction = outcome.reproduction
    profile, runs = reproduction.profile, reproduction.printed_runs()
    pictures = list(pictures_there(outcome.figures, profile, folder))
    return {
        "profile": profile,
        "tag": f" ({profile.tag})" if profile.tag else "",
        "shares": [f"{share:.0%}".replace("%", " %") for share in FRACTIONS],
        "remarks": [remark for remark in outcome.remarks if remark != profile.warning],  # which has a place of its own
        "parts": _PARTS,
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


def _picture(picture: Picture, record: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    return {
        "number": picture.figure[-1],
        "sv_close": picture.sv_close,
        "source": svg_address((folder / f"{picture.file}.svg").read_bytes()),
        "file": picture.file,
        "training": "our defaults" if picture.training == OURS else "the paper's preset",
        "record": record,
    }


def _images(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return what the first repetition on each set was divided into."""
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
    """Return versions or machine of the last run, or of a figure if there is no run."""
    found = [record[name] for _, record in pictures] + [getattr(run, name) for run in runs]
    return {key: value for key, value in (found[-1] if found else {}).items() if value is not None}
