"""Progress bars for whatever takes more than a moment."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Advance = Callable[[str], None]
"""Moves the bar one epoch on, with a note to show beside it."""


def progress_note(score: float | None, n_support: int | None = None) -> str:
    """Say in a few words how an epoch went."""
    parts = [
        "" if score is None else f"validation {score:.3f}",
        "" if n_support is None else f"{n_support} support vectors",
    ]
    return "  ".join(part for part in parts if part)


@contextmanager
def item_progress(title: str, n_items: int, *, visible: bool) -> Iterator[Callable[[], None]]:
    """Show a bar over `n_items` on standard error while the block runs, if `visible`."""
    with Progress(console=Console(stderr=True), disable=not visible) as bar:
        task = bar.add_task(title, total=n_items)
        yield lambda: bar.advance(task)


@contextmanager
def epoch_progress(title: str, n_epochs: int, *, visible: bool) -> Iterator[Advance]:
    """Show a bar over `n_epochs` on standard error while the block runs, if `visible`."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not visible) as bar:
        task = bar.add_task(title, total=n_epochs, note="")
        yield lambda note: bar.update(task, advance=1, note=note)
