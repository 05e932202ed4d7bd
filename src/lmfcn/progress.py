"""Progress bars for whatever takes more than a moment."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

SECONDS_BETWEEN_LINES = 60.0
"""In log files and pipes."""

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
    """Show a bar over `n_items` on standard error while the block runs, if `visible`; a plain line in log files."""
    console = Console(stderr=True)
    if visible and not (console.is_terminal or console.is_jupyter):
        console.print(f"{title}: {n_items}", highlight=False, soft_wrap=True)
        yield lambda: None
        return
    with Progress(console=console, disable=not visible) as bar:
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
    console = Console(stderr=True)
    if visible and not console.is_terminal:
        yield _plain_lines(title, n_epochs, console)
        return
    with Progress(*columns, console=console, disable=not visible) as bar:
        task = bar.add_task(title, total=n_epochs, note="")
        yield lambda note: bar.update(task, advance=1, note=note)


@contextmanager
def count_progress(title: str, *, visible: bool) -> Iterator[Callable[[], None]]:
    """Show on standard error how many items are done while the block runs, when nobody knows how many there are.

    Where a bar cannot move, as in log files, there is a line every minute.
    """
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.completed:,.0f}"),
        _Speed(),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    if visible and not console.is_terminal:
        yield _plain_counts(title, console)
        return
    with Progress(*columns, console=console, disable=not visible, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda: bar.advance(task)


class _Speed(ProgressColumn):
    """How many items a second."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.1f} a second")


def _plain_counts(title: str, console: Console) -> Callable[[], None]:
    """Return what counts items, and says every minute how many there are."""
    numbers, start = count(1), time.monotonic()
    told = start

    def advance() -> None:
        nonlocal told
        number, now = next(numbers), time.monotonic()
        if now - told >= SECONDS_BETWEEN_LINES:
            told = now
            speed = number / (now - start)
            console.print(f"{title} {number:,}  {speed:,.1f} a second", highlight=False, soft_wrap=True)

    return advance


def _plain_lines(title: str, n_epochs: int, console: Console) -> Advance:
    """Return what writes a line per epoch, for log files and pipes, where a bar cannot move."""
    numbers = count(1)

    def advance(note: str) -> None:
        console.print(f"{title} {next(numbers)}/{n_epochs}  {note}".rstrip(), highlight=False, soft_wrap=True)

    return advance
