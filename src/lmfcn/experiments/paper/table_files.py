"""The tables as files: Markdown to read, LaTeX to print, CSV to compute with."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from lmfcn.experiments.paper.latex import as_latex
from lmfcn.experiments.paper.outcome import Outcome
from lmfcn.experiments.paper.printed import TITLES
from lmfcn.experiments.paper.profiles import Profile
from lmfcn.experiments.paper.side_by_side import HEADINGS, PARTS, Line, in_words
from lmfcn.experiments.tables import markdown_table
from lmfcn.files import write_text

EXPLANATION = (
    "Balanced accuracy, mean ± standard deviation over repetitions; difference: ours minus the paper's. LMFCN is the"
    " paper's preset, “our defaults” this package's own recipe with 64 latent dimensions. Epoch: the kept one, mean"
    " over repetitions. Validation of methods that are not trained in epochs: by cross-validation."
)

_NUMBERS = ("paper", "paper_deviation", "ours", "ours_deviation", "difference")


def as_markdown(lines: Sequence[Line], table: int, profile: Profile) -> str:
    """Return one table, with what it is and how near it came."""
    parts = [
        f"# Table {table}: {TITLES[table]}{f', {profile.tag}' if profile.tag else ''}",
        *([f"**{profile.warning}**"] if profile.warning else []),
        in_words(lines),
        markdown_table(HEADINGS, [line.entries for line in lines]),
        EXPLANATION,
    ]
    return "\n\n".join(parts) + "\n"


def as_csv(lines: Sequence[Line], profile: Profile) -> str:
    """Return one row for each of the table, numbers with all their digits."""
    setting = profile.name if profile.is_quick or not profile.tag else f"{profile.name}, {profile.tag}"
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    numbers = [f"{part}_{name}" for part in PARTS for name in _NUMBERS]
    writer.writerow(["profile", "images", "method", *numbers, "paper_epoch", "epoch", "repetitions", "remark"])
    for line in lines:
        scores = [number for part in PARTS for number in _numbers(line, part)]
        epochs = [line.row.printed.epoch, line.epoch]
        writer.writerow(
            [setting, line.row.printed.images, line.row.label, *scores, *epochs, len(line.runs), line.remark]
        )
    return text.getvalue()


def _numbers(line: Line, part: str) -> list[float | None]:
    paper, ours = line.paper(part), line.ours(part)
    measured = [None, None] if ours is None else [ours.mean, ours.deviation]
    return [paper.mean, paper.deviation, *measured, line.difference(part)]


def write_tables(outcome: Outcome, folder: Path) -> None:
    """Write table2.md, table2.tex, table2.csv and so on."""
    profile = outcome.reproduction.profile
    for table, lines in outcome.tables.items():
        write_text(folder / f"table{table}.md", as_markdown(lines, table, profile))
        write_text(folder / f"table{table}.csv", as_csv(lines, profile))
        write_text(folder / f"table{table}.tex", table_as_latex(lines, table, profile))


def table_as_latex(lines: Sequence[Line], table: int, profile: Profile) -> str:
    """Return one table for LaTeX, without remarks, which have no room there."""
    caption = " ".join(filter(None, [f"{TITLES[table]}.", profile.warning, EXPLANATION]))
    return as_latex([line.entries[:-1] for line in lines], HEADINGS[:-1], caption, f"tab:reproduced{table}")
