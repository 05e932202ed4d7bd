"""What commands print: results to standard output; progress, tables and notes to standard error."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from lmfcn.benchmark.comparison import Comparison
from lmfcn.benchmark.runs import Cell, Run
from lmfcn.benchmark.statistics import summarize
from lmfcn.benchmark.tables import NOTHING, spread

if TYPE_CHECKING:
    from lmfcn.predict.evaluation import Estimate, Evaluation


@dataclass(frozen=True)
class Teller:
    """Speaks as the user wants it: for a reader, in few words, or for a program."""

    quiet: bool = False
    as_json: bool = False

    def say(self, text: str, style: str | None = None) -> None:
        """Tell a part of the result, unless a program listens."""
        if not self.as_json:
            Console().print(text, style=style, highlight=False, soft_wrap=True, markup=False)

    def note(self, text: str) -> None:
        """Tell what is good to know, unless nobody wants to."""
        if not self.quiet:
            Console(stderr=True).print(text, highlight=False, soft_wrap=True, markup=False)

    def hint(self, command: str) -> None:
        """Tell what one does next, to people."""
        if not self.as_json:
            self.note(f"Next: {command}")

    def busy(self, text: str) -> AbstractContextManager[object]:
        """Show a sign of life on a terminal while a block runs that has no bar of its own."""
        return nullcontext() if self.quiet else Console(stderr=True).status(escape(text))

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show rows of text, all but the first column aligned to the right."""
        if self.as_json:
            return
        table = Table()
        for place, heading in enumerate(headings):
            table.add_column(escape(heading), justify="right" if place else "left")
        for row in rows:
            table.add_row(*map(escape, row))
        Console().print(table)

    def give(self, values: Mapping[str, Any]) -> None:
        """Hand the result to the program that listens, if one does."""
        if self.as_json:
            typer.echo(json.dumps(values, indent=2, allow_nan=False))


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def write_report(find_writer: Callable[[], Callable[..., None]], path: Path, *content: object) -> str:
    """Write a page and return what to say about it; without the packages for it, the rest is there all the same.

    Parameters
    ----------
    find_writer : callable
        Returns the function that writes the page, or raises ImportError with advice.
    path : Path
        Of the page.
    *content
        What that function takes.
    """
    try:
        write = find_writer()
    except ImportError as error:
        return str(error)
    write(*content)
    return f"Report: {path}"


_MOST_CLASSES = 12


def tell_accuracy(teller: Teller, found: "Evaluation", what: str) -> None:
    """Tell the balanced accuracy and the recall of each class."""
    groups = "" if found.n_groups is None else f" of {counted(found.n_groups, 'group')}"
    score = with_interval(found.balanced_accuracy)
    teller.say(f"Balanced accuracy {score} on {counted(found.n_images, what)}{groups}")
    rows = [
        [label, str(recall.n), f"{recall.value:.3f}", f"{recall.low:.3f} to {recall.high:.3f}"]
        for label, recall in found.recalls.items()
    ]
    teller.table(["class", "images", "recognised", "95 % interval"], rows)


def tell_confusion(teller: Teller, found: "Evaluation") -> None:
    """Tell what was taken for what: the whole matrix of a few classes, the commonest confusions of many."""
    if len(found.classes) <= _MOST_CLASSES:
        rows = [[label, *map(str, counts)] for label, counts in zip(found.classes, found.confusion, strict=True)]
        teller.table(["true, predicted →", *found.classes], rows)
        return
    wrong = [
        (int(count), found.classes[row], found.classes[column])
        for row, counts in enumerate(found.confusion)
        for column, count in enumerate(counts)
        if count and row != column
    ]
    teller.say("The commonest confusions:")
    teller.table(
        ["true", "predicted", "images"], [[true, guess, str(n)] for n, true, guess in sorted(wrong, reverse=True)[:20]]
    )


def tell_calibration(teller: Teller, found: "Evaluation") -> None:
    """Tell whether probabilities and prediction sets can be trusted."""
    teller.say(
        f"Calibration error {found.calibration_error:.3f}, log loss {found.log_loss:.3f},"
        f" Brier score {found.brier_score:.3f}"
    )
    for row in found.coverage:
        teller.say(
            f"Prediction sets that aim at {row.target:g} held the true class of {row.found:.3f} of the images,"
            f" with {row.mean_size:.2f} classes in a set"
        )


def with_interval(estimate: "Estimate") -> str:
    """Return a share with the ends of its interval."""
    return f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"


class RunBar:
    """Shows how many runs are done, which one is being measured, and when the rest will be; for a `with` statement.

    Parameters
    ----------
    n_runs, n_done : int
        All runs, and those that are there already.
    console : Console
    """

    def __init__(self, n_runs: int, n_done: int, console: Console) -> None:
        columns = (BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, TextColumn("{task.description}"), console=console)
        self._task = self._progress.add_task("", total=n_runs, completed=n_done)

    def __enter__(self) -> "RunBar":
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.update(self._task, description="")
        self._progress.__exit__(kind, error, trace)

    def begin(self, cell: Cell) -> bool:
        """Say what is measured now; nothing is ever refused."""
        text = f"{cell.task}: {cell.method}, repetition {cell.seed + 1}"
        self._progress.update(self._task, description=escape(text))
        return True

    def tell(self, line: str) -> None:
        """Show a line above the bar; each is about a run that has ended."""
        self._progress.console.print(line, highlight=False, markup=False)
        self._progress.advance(self._task)


class LiveTable:
    """Shows what is measured so far and what is being measured; use it in a `with` statement."""

    def __init__(self, comparison: Comparison, console: Console) -> None:
        self._comparison = comparison
        self._running: list[Cell] = []
        self._live = Live(self._content(), console=console, auto_refresh=False)

    def __enter__(self) -> "LiveTable":
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.clear()
        self._refresh()
        self._live.__exit__(kind, error, trace)

    def begin(self, cell: Cell) -> None:
        """Show a run among those that are under way."""
        self._running.append(cell)
        self._refresh()

    def end(self, cell: Cell) -> None:
        """Show it there no more; its line is told next."""
        self._running = [other for other in self._running if other != cell]

    def tell(self, _: str) -> None:
        """Show a run that has been added to the file."""
        self._refresh()

    def fail(self, sentence: str) -> None:
        """Leave a sentence about a training that failed above the table."""
        self._live.console.print(sentence, highlight=False, markup=False)
        self._refresh()

    def _refresh(self) -> None:
        self._live.update(self._content(), refresh=True)

    def _now(self) -> str:
        seeds = list(self._comparison.seeds)
        runs = [f"{cell.method}, repeat {seeds.index(cell.seed) + 1} of {len(seeds)}" for cell in self._running]
        return f"Now: {'; '.join(runs)}." if runs else ""

    def _content(self) -> Group:
        return Group(progress_table(self._comparison), Text(self._now()))


def progress_table(comparison: Comparison) -> Table:
    """Return a row for each method with what is known of it so far."""
    table = Table("method", title=f"Test balanced accuracy on {comparison.name}")
    for heading in ("test", "repeats", "seconds"):
        table.add_column(heading, justify="right")
    runs = comparison.runs()
    for method in comparison.methods:
        table.add_row(method, *_entries([run for run in runs if run.method == method], len(comparison.seeds)))
    return table


def _entries(runs: list[Run], n_repeats: int) -> list[str]:
    if not runs:
        return [NOTHING, f"0 of {n_repeats}", NOTHING]
    score = spread(summarize([run.test_balanced_accuracy for run in runs]))
    return [score, f"{len(runs)} of {n_repeats}", f"{np.mean([run.cpu_seconds for run in runs]):.1f}"]
