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
from lmfcn.benchmark.tables import NOTHING, markdown_table, spread
from lmfcn.util.files import write_text

SUBSETS = ("train", "validation", "test")
SIDES = ("paper", "ours", "difference")
HEADINGS = (
    *("images", "method"),
    *(f"{subset}, {side}" for subset in SUBSETS for side in SIDES),
    *("epoch, paper", "epoch, ours", "repetitions", "remark"),
)
NOT_YET = "not measured yet"
_DIGITS = 4
"""Decimal places of accuracies in the paper."""


@dataclass(frozen=True)
class Line:
    """A row of a table with the runs that reproduce it.

    Attributes
    ----------
    row : Row
    runs : sequence of Run
        The finished ones, by seed.
    remark : str
        Why there are none, or fewer than requested; empty if all are finished.
    """

    row: Row
    runs: Sequence[Run]
    remark: str

    def ours(self, subset: str) -> Summary | None:
        """Return mean and standard deviation of our balanced accuracy on "train", "validation" or "test"."""
        scores = [getattr(run, f"{subset}_balanced_accuracy") for run in self.runs]
        known = [score for score in scores if score is not None]
        return summarize(known) if known else None

    def paper(self, subset: str) -> Summary | None:
        """Return the paper's mean and standard deviation; None on images that the paper does not have."""
        found: Summary = getattr(self.row.printed, subset)
        return found if self.row.is_compared else None

    def difference(self, subset: str) -> float | None:
        """Return our mean minus the paper's."""
        ours, paper = self.ours(subset), self.paper(subset)
        return None if ours is None or paper is None else ours.mean - paper.mean

    @property
    def paper_epoch(self) -> int | None:
        """The epoch that the paper selected."""
        return self.row.printed.epoch if self.row.is_compared else None

    @property
    def epoch(self) -> float | None:
        """The mean of our selected epochs."""
        epochs = [np.mean(run.best_epoch) for run in self.runs if run.best_epoch is not None]
        return float(np.mean(epochs)) if epochs else None

    @property
    def entries(self) -> list[str]:
        """The entries under `HEADINGS`."""
        scores = [entry for subset in SUBSETS for entry in self.scores(subset)]
        printed = self.paper_epoch
        epochs = [NOTHING if printed is None else str(printed), NOTHING if self.epoch is None else f"{self.epoch:.0f}"]
        return [self.row.task.images, self.row.label, *scores, *epochs, str(len(self.runs)), self.remark]

    def scores(self, subset: str) -> list[str]:
        """Return the paper's accuracy, ours and the difference as text."""
        paper, ours, difference = self.paper(subset), self.ours(subset), self.difference(subset)
        return [
            NOTHING if paper is None else spread(paper, _DIGITS),
            NOTHING if ours is None else spread(ours, _DIGITS),
            NOTHING if difference is None else f"{difference:+.4f}",
        ]


def table_lines(reproduction: Reproduction, table: int) -> list[Line]:
    """Return all rows of one of the paper's tables with their finished runs."""
    found, lines = reproduction.runs(), []
    for row in (row for row in reproduction.rows if row.printed.table == table):
        keys = [row.key(seed) for seed in reproduction.seeds]
        runs = [found[key] for key in keys if key in found]
        lines.append(Line(row, runs, _remark(reproduction, row, len(runs))))
    return lines


def _remark(reproduction: Reproduction, row: Row, n_runs: int) -> str:
    obstacle, n_asked = reproduction.obstacle(row), len(reproduction.seeds)
    if obstacle is not None:
        return f"not run: {obstacle}"
    if n_runs == n_asked:
        return ""
    return NOT_YET if n_runs == 0 else f"{n_runs} of {n_asked} repetitions so far"


def summary_sentence(lines: Sequence[Line]) -> str:
    """Return a sentence or two about the differences between our test accuracies and the paper's."""
    papers = [line for line in lines if line.row.is_compared and not line.row.is_ours]
    paired = [(line, found) for line in papers if (found := line.difference("test")) is not None]
    n_ours = sum(bool(line.runs) for line in lines if line.row.is_compared and line.row.is_ours)
    also = f", and {n_ours} of our LMFCN" if n_ours else ""
    measured = f"{len(paired)} of the paper's {len(papers)} rows are measured{also}."
    if not paired:
        return measured
    sizes = [abs(found) for _, found in paired]
    line, largest = max(paired, key=lambda pair: abs(pair[1]))
    return (
        f"{measured} Our mean test balanced accuracy differs from the paper's by {np.median(sizes):.3f} in the median"
        f" row; the largest difference, ours minus the paper's, is {largest:+.3f} ({line.row.task.images},"
        f" {line.row.label})."
    )


@dataclass(frozen=True)
class Outcome:
    """The result of a reproduction, complete or not.

    Attributes
    ----------
    reproduction : Reproduction
    figures : sequence of str
        The requested ones of "figure1" and "figure3".
    failures : sequence of str
        A sentence for each training that failed.
    command : str
        The command that repeats or continues the reproduction.
    """

    reproduction: Reproduction
    figures: Sequence[str]
    failures: Sequence[str]
    command: str

    @cached_property
    def tables(self) -> dict[int, list[Line]]:
        """Our rows beside the paper's, by the number of its table."""
        return {table: table_lines(self.reproduction, table) for table in self.reproduction.tables}

    @property
    def remarks(self) -> list[str]:
        """Remarks for readers of the tables."""
        reproduction = self.reproduction
        remarks = reproduction.notes
        remarks += [f"A training failed: {failure}" for failure in self.failures]
        n_keys, n_done = len(reproduction.keys), len(reproduction.runs())
        if n_done < n_keys:
            remarks.append(f"Finished runs: {n_done} of {n_keys}. The same command goes on.")
        return remarks


EXPLANATION = (
    "Balanced accuracy, mean ± standard deviation over repetitions; difference: ours minus the paper's. LMFCN (paper)"
    " is the paper's method, LMFCN-59 and LMFCN-162 are the same with 59 and 162 latent dimensions. LMFCN is this"
    " package's default recipe with 64 latent dimensions, compared with the paper's LMFCN. Epoch: the selected one,"
    " mean over repetitions. Validation of methods that are not trained in epochs: by cross-validation."
    " Gaussian: the paper's images, drawn as its authors' program draws them. Gaussian (ours): grey, turned by up to 30"
    " degrees, without black corners; the paper has no results on these."
)

_NUMBERS = ("paper", "paper_deviation", "ours", "ours_deviation", "difference")


def write_tables(outcome: Outcome, folder: Path) -> None:
    """Write table2.md, table2.tex, table2.csv and so on."""
    profile = outcome.reproduction.profile
    for table, lines in outcome.tables.items():
        write_text(folder / f"table{table}.md", as_markdown(lines, table, profile))
        write_text(folder / f"table{table}.csv", as_csv(lines, profile))
        write_text(folder / f"table{table}.tex", table_as_latex(lines, table, profile))


def table_as_latex(lines: Sequence[Line], table: int, profile: Profile) -> str:
    """Return one table for LaTeX, without the column of remarks, which is too wide."""
    caption = " ".join(filter(None, [f"{TITLES[table]}.", profile.warning, EXPLANATION]))
    return as_latex([line.entries[:-1] for line in lines], HEADINGS[:-1], caption, f"tab:reproduced{table}")


def as_markdown(lines: Sequence[Line], table: int, profile: Profile) -> str:
    """Return one table with its title, a summary and an explanation."""
    paragraphs = [
        f"# Table {table}: {TITLES[table]}{f', {profile.tag}' if profile.tag else ''}",
        *([f"**{profile.warning}**"] if profile.warning else []),
        summary_sentence(lines),
        markdown_table(HEADINGS, [line.entries for line in lines]),
        EXPLANATION,
    ]
    return "\n\n".join(paragraphs) + "\n"


def as_csv(lines: Sequence[Line], profile: Profile) -> str:
    """Return the table as CSV, numbers with all their digits."""
    setting = profile.name if profile.is_quick or not profile.tag else f"{profile.name}, {profile.tag}"
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    numbers = [f"{subset}_{name}" for subset in SUBSETS for name in _NUMBERS]
    writer.writerow(["profile", "images", "method", *numbers, "paper_epoch", "epoch", "repetitions", "remark"])
    for line in lines:
        scores = [number for subset in SUBSETS for number in _numbers(line, subset)]
        epochs = [line.paper_epoch, line.epoch]
        writer.writerow([setting, line.row.task.images, line.row.label, *scores, *epochs, len(line.runs), line.remark])
    return text.getvalue()


def _numbers(line: Line, subset: str) -> list[float | None]:
    summaries = (line.paper(subset), line.ours(subset))
    pairs: list[tuple[float | None, float | None]] = [
        (None, None) if found is None else (found.mean, found.deviation) for found in summaries
    ]
    return [*pairs[0], *pairs[1], line.difference(subset)]


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
    r"""Escape text for LaTeX, with commands for ± and quotation marks.

    Examples
    --------
    >>> escape_latex("50 % of {A_1} ± 2")
    '50 \\% of \\{A\\_1\\} $\\pm$ 2'
    """
    return "".join(_ESCAPES.get(letter, letter) for letter in text)


def as_latex(rows: Sequence[Sequence[str]], headings: Sequence[str], caption: str, label: str) -> str:
    """Return a LaTeX table; equal neighbours in the first column are printed once.

    Parameters
    ----------
    rows : sequence of sequences of str
    headings : sequence of str
        One per column; the text after a comma goes into a second line.
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
    """Return two heading lines: the shared text of neighbouring columns, and the text of each."""
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
