"""A table that grows while a comparison runs."""

from types import TracebackType

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lmfcn.experiments.comparing import Comparison
from lmfcn.experiments.runs import Cell, Run
from lmfcn.experiments.statistics import summarize
from lmfcn.experiments.tables import NOTHING, spread


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
