"""A bar that moves while many runs are measured, with a line for each that is done."""

from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from lmfcn.experiments.runs import Cell


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
