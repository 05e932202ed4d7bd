"""Our rows beside the paper's, as Markdown, LaTeX and CSV tables."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

import numpy as np

from lmfcn.benchmark.paper.printed_tables import TITLES, Row
from lmfcn.benchmark.paper.profiles import Profile
from lmfcn.benchmark.paper.reproduction import Reproduction
from lmfcn.benchmark.runs import Run
from lmfcn.benchmark.statistics import Summary, summarize
from lmfcn.benchmark.tables import NOTHING, markdown_table
from lmfcn.util.files import write_text

PARTS = ("train", "validation", "test")
SIDES = ("paper", "ours", "difference")
HEADINGS = (
    *("images", "method"),
    *(f"{part}, {side}" for part in PARTS for side in SIDES),
    *("epoch, paper", "epoch, ours", "repetitions", "remark"),
)
NOT_YET = "not measured yet"


@dataclass(frozen=True)
class Line:
    """A row of the paper with the runs that answer it.

    Attributes
    ----------
    row : Row
    runs : sequence of Run
        By seed; those that are there.
    remark : str
        Why there are none, or fewer than asked for; empty if all are there.
    """

    row: Row
    runs: Sequence[Run]
    remark: str

    def ours(self, part: str) -> Summary | None:
        """Return mean and standard deviation of our balanced accuracy on "train", "validation" or "test"."""
        scores = [getattr(run, f"{part}_balanced_accuracy") for run in self.runs]
        known = [score for score in scores if score is not None]
        return summarize(known) if known else None

    def paper(self, part: str) -> Summary:
        """Return the paper's mean and standard deviation."""
        found: Summary = getattr(self.row.printed, part)
        return found

    def difference(self, part: str) -> float | None:
        """Return our mean minus the paper's."""
        ours = self.ours(part)
        return None if ours is None else ours.mean - self.paper(part).mean

    @property
    def epoch(self) -> float | None:
        """The mean of our kept epochs."""
        kept = [np.mean(run.best_epoch) for run in self.runs if run.best_epoch is not None]
        return float(np.mean(kept)) if kept else None

    @property
    def entries(self) -> list[str]:
        """What stands under `HEADINGS`."""
        scores = [entry for part in PARTS for entry in self.scores(part)]
        printed = self.row.printed.epoch
        epochs = [NOTHING if printed is None else str(printed), NOTHING if self.epoch is None else f"{self.epoch:.0f}"]
        return [self.row.printed.images, self.row.label, *scores, *epochs, str(len(self.runs)), self.remark]

    def scores(self, part: str) -> list[str]:
        """Return the paper's figure, ours and the difference as text."""
        ours, difference = self.ours(part), self.difference(part)
        return [
            spread(self.paper(part)),
            NOTHING if ours is None else spread(ours),
            NOTHING if difference is None else f"{difference:+.4f}",
        ]


def spread(found: Summary) -> str:
    """Return mean ± standard deviation with as many digits as the paper prints."""
    return f"{found.mean:.4f}" + ("" if found.deviation is None else f" ± {found.deviation:.4f}")


def lines_of(reproduction: Reproduction, table: int) -> list[Line]:
    """Return all rows of one of the paper's tables with the runs that are there."""
    found, lines = reproduction.runs(), []
    for row in (row for row in reproduction.rows if row.printed.table == table):
        cells = [row.cell(seed) for seed in reproduction.seeds]
        runs = [found[cell] for cell in cells if cell in found]
        lines.append(Line(row, runs, _remark(reproduction, row, len(runs))))
    return lines


def _remark(reproduction: Reproduction, row: Row, n_runs: int) -> str:
    obstacle, n_asked = reproduction.obstacle(row), len(reproduction.seeds)
    if obstacle is not None:
        return f"not run: {obstacle}"
    if n_runs == n_asked:
        return ""
    return NOT_YET if n_runs == 0 else f"{n_runs} of {n_asked} repetitions so far"


def in_words(lines: Sequence[Line]) -> str:
    """Say in a sentence or two how near our test accuracies came to the paper's, of the rows that the paper has."""
    papers = [line for line in lines if not line.row.is_ours]
    paired = [(line, found) for line in papers if (found := line.difference("test")) is not None]
    n_ours = sum(bool(line.runs) for line in lines if line.row.is_ours)
    beside = f", and {n_ours} of our defaults" if n_ours else ""
    measured = f"{len(paired)} of the paper's {len(papers)} rows are measured{beside}."
    if not paired:
        return measured
    sizes = [abs(found) for _, found in paired]
    line, largest = max(paired, key=lambda pair: abs(pair[1]))
    return (
        f"{measured} Our mean test balanced accuracy differs from the paper's by {np.median(sizes):.3f} in the median"
        f" row; the largest difference, ours minus the paper's, is {largest:+.3f} ({line.row.printed.images},"
        f" {line.row.label})."
    )


@dataclass(frozen=True)
class Outcome:
    """A reproduction after it has run, whether to its end or not.

    Attributes
    ----------
    reproduction : Reproduction
    figures : sequence of str
        Those that were asked for, of "figure1" and "figure3".
    failures : sequence of str
        A sentence for each training that failed.
    command : str
        What to type to run it again, or to go on.
    """

    reproduction: Reproduction
    figures: Sequence[str]
    failures: Sequence[str]
    command: str

    @cached_property
    def tables(self) -> dict[int, list[Line]]:
        """Our rows beside the paper's, by the number of its table."""
        return {table: lines_of(self.reproduction, table) for table in self.reproduction.tables}

    @property
    def remarks(self) -> list[str]:
        """What a reader should know beside the tables."""
        asked = self.reproduction
        remarks = asked.notes
        remarks += [f"A training failed: {failure}" for failure in self.failures]
        n_cells, n_done = len(asked.cells), len(asked.runs())
        if n_done < n_cells:
            remarks.append(f"Runs that are there: {n_done} of {n_cells}. The same command goes on.")
        return remarks


_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "±": r"$\pm$",
    "“": "``",
    "”": "''",
}


def escape_latex(text: str) -> str:
    r"""Return text that LaTeX prints as it is, with signs for ± and quotation marks.

    Examples
    --------
    >>> escape_latex("50 % of {A_1} ± 2")
    '50 \\% of \\{A\\_1\\} $\\pm$ 2'
    """
    return "".join(_ESCAPES.get(letter, letter) for letter in text)


def as_latex(rows: Sequence[Sequence[str]], headings: Sequence[str], caption: str, label: str) -> str:
    """Return a table whose first column names groups of rows, each once.

    Parameters
    ----------
    rows : sequence of sequences of str
    headings : sequence of str
        One per column; what follows a comma is set below what stands before it.
    caption, label : str
    """
    lines = [
        r"% Needs \usepackage{booktabs}.",
        r"\begin{table*}",
        r"\centering\scriptsize\setlength{\tabcolsep}{2pt}",
        rf"\caption{{{escape_latex(caption)}}}",
        rf"\label{{{label}}}",
        rf"\begin{{tabular}}{{ll{'r' * (len(headings) - 2)}}}",
        r"\toprule",
        *_headings(headings),
    ]
    for _, group in groupby(rows, key=lambda row: row[0]):
        lines.append(r"\midrule")
        for number, row in enumerate(group):
            lines.append(_line([row[0] if number == 0 else "", *row[1:]]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table*}"]) + "\n"


def _headings(headings: Sequence[str]) -> list[str]:
    """Return two lines: what neighbouring columns share, once above them, and what each has of its own."""
    upper, ruled, column = [], [], 1
    for shared, group in groupby(headings, key=lambda heading: heading.partition(", ")[0]):
        n = len(list(group))
        title = escape_latex(shared)
        upper.append(rf"\multicolumn{{{n}}}{{c}}{{{title}}}" if n > 1 else title)
        ruled += [rf"\cmidrule(lr){{{column}-{column + n - 1}}}"] if n > 1 else []
        column += n
    lower = [heading.partition(", ")[2] for heading in headings]
    return [" & ".join(upper) + r" \\", "".join(ruled), _line(lower)]


def _line(entries: Sequence[str]) -> str:
    return " & ".join(escape_latex(entry) for entry in entries) + r" \\"


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
