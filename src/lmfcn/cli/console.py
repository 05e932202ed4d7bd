"""Console output of the commands: results go to standard output; progress and notes go to standard error.

Every command imports this module, so it must not import anything slow, such as numpy or torch.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from lmfcn.util.progress import step_progress

if TYPE_CHECKING:
    from lmfcn.benchmark.comparison import Comparison
    from lmfcn.benchmark.runs import Run, RunKey
    from lmfcn.predict.evaluation import Estimate, Evaluation


_MOST_CLASSES = 12
"""Classes whose confusion matrix still fits a terminal."""
_MOST_CONFUSIONS = 20


@dataclass(frozen=True)
class CommandConsole:
    """Prints what a command has to say, for a person or as JSON for a program.

    Parameters
    ----------
    quiet : bool
        Print no notes and show no progress.
    as_json : bool
        Print one JSON object instead of text.
    """

    quiet: bool = False
    as_json: bool = False

    def print_result(self, text: str, style: str | None = None) -> None:
        """Print a part of the result to standard output, unless the result is JSON."""
        if not self.as_json:
            Console().print(text, style=style, highlight=False, soft_wrap=True, markup=False)

    def print_table(self, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows of text to standard output, all but the first column aligned to the right."""
        if self.as_json:
            return
        table = Table()
        for column, heading in enumerate(headings):
            table.add_column(escape(heading), justify="right" if column else "left")
        for row in rows:
            table.add_row(*map(escape, row))
        Console().print(table)

    def print_json(self, values: Mapping[str, Any]) -> None:
        """Print the whole result as JSON, if that is wanted."""
        if self.as_json:
            typer.echo(json.dumps(values, indent=2, allow_nan=False))

    def note(self, text: str) -> None:
        """Print a remark to standard error, unless quiet."""
        if not self.quiet:
            Console(stderr=True).print(text, highlight=False, soft_wrap=True, markup=False)

    def suggest(self, command: str) -> None:
        """Print which command usually comes next, unless the result is JSON."""
        if not self.as_json:
            self.note(f"Next: {command}")

    def show_status(self, text: str) -> AbstractContextManager[object]:
        """Show that a block runs which has no progress bar: a spinner, or a line in a pipe every two seconds."""
        return step_progress(text, visible=not self.quiet)

    def load_libraries(self) -> None:
        """Import what every command with a model needs; that takes seconds."""
        with self.show_status("Loading"):
            import lmfcn.classifier  # noqa: F401


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> format_count(1, "image"), format_count(2000, "image")
    ('1 image', '2,000 images')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_estimate(estimate: "Estimate") -> str:
    """Return a share with its confidence interval."""
    return f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"


def write_report(find_writer: Callable[[], Callable[..., None]], path: Path, *content: object) -> str:
    """Write an HTML report and return a line about it; without the packages for it, the line says what to install.

    Parameters
    ----------
    find_writer : callable
        Returns the function that writes the report, or raises ImportError with advice.
    path : Path
        The report.
    *content
        Arguments of that function.
    """
    try:
        write = find_writer()
    except ImportError as error:
        return str(error)
    write(*content)
    return f"Report: {path}"


def print_accuracy(console: CommandConsole, evaluation: "Evaluation", noun: str) -> None:
    """Print the balanced accuracy and the recall of each class; `noun` names one image, such as "test image"."""
    groups = "" if evaluation.n_groups is None else f" of {format_count(evaluation.n_groups, 'group')}"
    score = format_estimate(evaluation.balanced_accuracy)
    console.print_result(f"Balanced accuracy {score} on {format_count(evaluation.n_images, noun)}{groups}")
    rows = [
        [label, str(recall.n), f"{recall.value:.3f}", f"{recall.low:.3f} to {recall.high:.3f}"]
        for label, recall in evaluation.recalls.items()
    ]
    console.print_table(["class", "images", "recall", "95 % interval"], rows)


def print_confusion(console: CommandConsole, evaluation: "Evaluation") -> None:
    """Print the confusion matrix, or only the most frequent confusions if there are many classes."""
    classes = evaluation.classes
    if len(classes) <= _MOST_CLASSES:
        rows = [[label, *map(str, counts)] for label, counts in zip(classes, evaluation.confusion, strict=True)]
        console.print_table(["true, predicted →", *classes], rows)
        return
    confusions = [
        (int(count), classes[row], classes[column])
        for row, counts in enumerate(evaluation.confusion)
        for column, count in enumerate(counts)
        if count and row != column
    ]
    most_frequent = sorted(confusions, reverse=True)[:_MOST_CONFUSIONS]
    console.print_result("Most frequent confusions:")
    console.print_table(
        ["true", "predicted", "images"], [[true, predicted, str(count)] for count, true, predicted in most_frequent]
    )


def print_calibration(console: CommandConsole, evaluation: "Evaluation") -> None:
    """Print how well probabilities are calibrated, and how often prediction sets hold the true class."""
    console.print_result(
        f"Calibration error {evaluation.calibration_error:.3f}, log loss {evaluation.log_loss:.3f},"
        f" Brier score {evaluation.brier_score:.3f}"
    )
    for row in evaluation.coverage:
        console.print_result(
            f"Prediction sets that aim at {row.target:g} held the true class of {row.found:.3f} of the images,"
            f" with {row.mean_size:.2f} classes in a set"
        )


class RunBar:
    """A progress bar over runs that also names the current run; use it in a `with` statement.

    Parameters
    ----------
    n_runs, n_done : int
        All runs, and those that are finished already.
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

    def begin(self, cell: "RunKey") -> bool:
        """Show the run that starts now; return True, as every run may start."""
        text = f"{cell.task}: {cell.method}, repetition {cell.seed + 1}"
        self._progress.update(self._task, description=escape(text))
        return True

    def end(self, line: str) -> None:
        """Print a line about a finished run above the bar."""
        self._progress.console.print(line, highlight=False, markup=False)
        self._progress.advance(self._task)


class LiveTable:
    """A table of the scores so far, with the current runs below it; use it in a `with` statement."""

    def __init__(self, comparison: "Comparison", console: Console) -> None:
        self._comparison = comparison
        self._running: list[RunKey] = []
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

    def begin(self, cell: "RunKey") -> None:
        """Add a run to the current runs."""
        self._running.append(cell)
        self._refresh()

    def end(self, cell: "RunKey") -> None:
        """Remove a run from the current runs; `show_result` refreshes the table next."""
        self._running = [other for other in self._running if other != cell]

    def show_result(self, _: str) -> None:
        """Refresh the table after a run was written to the file."""
        self._refresh()

    def fail(self, sentence: str) -> None:
        """Print a sentence about a failed training above the table."""
        self._live.console.print(sentence, highlight=False, markup=False)
        self._refresh()

    def _refresh(self) -> None:
        self._live.update(self._content(), refresh=True)

    def _current_runs(self) -> str:
        seeds = list(self._comparison.seeds)
        runs = [f"{cell.method}, repeat {seeds.index(cell.seed) + 1} of {len(seeds)}" for cell in self._running]
        return f"Now: {'; '.join(runs)}." if runs else ""

    def _content(self) -> Group:
        return Group(progress_table(self._comparison), Text(self._current_runs()))


def progress_table(comparison: "Comparison") -> Table:
    """Return a table with the scores of each method so far."""
    table = Table("method", title=f"Test balanced accuracy on {comparison.name}")
    for heading in ("test", "repeats", "seconds"):
        table.add_column(heading, justify="right")
    runs = comparison.runs()
    for method in comparison.methods:
        table.add_row(method, *_method_cells([run for run in runs if run.method == method], len(comparison.seeds)))
    return table


def _method_cells(runs: "list[Run]", n_repeats: int) -> list[str]:
    import numpy as np

    from lmfcn.benchmark.statistics import summarize
    from lmfcn.benchmark.tables import NOTHING, spread

    if not runs:
        return [NOTHING, f"0 of {n_repeats}", NOTHING]
    score = spread(summarize([run.test_balanced_accuracy for run in runs]))
    return [score, f"{len(runs)} of {n_repeats}", f"{np.mean([run.cpu_seconds for run in runs]):.1f}"]
