"""Progress bars on a terminal, and progress lines in log files."""

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
"""Interval of progress lines in log files and pipes."""

Advance = Callable[[str], None]
"""Advances the bar by one epoch, with a note to show beside it."""


def progress_note(score: float | None, n_support: int | None = None) -> str:
    """Return a short note about an epoch."""
    parts = [
        "" if score is None else f"validation {score:.3f}",
        "" if n_support is None else f"{n_support} support vectors",
    ]
    return "  ".join(part for part in parts if part)


@contextmanager
def item_progress(title: str, n_items: int, *, n_before: int = 0, visible: bool) -> Iterator[Callable[[], None]]:
    """Show a bar over `n_items` on standard error while the block runs, if `visible`.

    An earlier run finished `n_before` of them, which are left out of the estimate of the remaining time. In log files
    there is a line at the start and then one every minute.
    """
    console = Console(stderr=True)
    if visible and not (console.is_terminal or console.is_jupyter):
        _print(console, f"{title}: {n_items}" if n_before == 0 else f"{title}: {n_before:,} of {n_items:,}")
        yield _count_items(console, lambda number, _: f"{title}: {n_before + number:,} of {n_items:,}")
        return
    with Progress(_title_column(), *Progress.get_default_columns()[1:], console=console, disable=not visible) as bar:
        task = bar.add_task(title, total=n_items, completed=n_before)
        yield lambda: bar.advance(task)


@contextmanager
def epoch_progress(title: str, n_epochs: int, *, visible: bool) -> Iterator[Advance]:
    """Show a bar over `n_epochs` on standard error while the block runs, if `visible`."""
    columns = (
        _title_column(),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    if visible and not console.is_terminal:
        yield _print_epochs(title, n_epochs, console)
        return
    with Progress(*columns, console=console, disable=not visible) as bar:
        task = bar.add_task(title, total=n_epochs, note="")
        yield lambda note: bar.update(task, advance=1, note=note)


@contextmanager
def count_progress(title: str, *, visible: bool) -> Iterator[Callable[[], None]]:
    """Show on standard error how many items are done while the block runs, if their total is unknown.

    In log files there is a line every minute.
    """
    columns = (
        SpinnerColumn(),
        _title_column(),
        TextColumn("{task.completed:,.0f}"),
        _Speed(),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    if visible and not console.is_terminal:
        yield _count_items(console, lambda number, seconds: f"{title} {number:,}  {number / seconds:,.1f} a second")
        return
    with Progress(*columns, console=console, disable=not visible, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda: bar.advance(task)


class _Speed(ProgressColumn):
    """A column with the number of items per second."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.1f} a second")


def _title_column() -> TextColumn:
    """Return a column for titles without markup, as file names may contain brackets."""
    return TextColumn("{task.description}", markup=False)


def _print(console: Console, line: str) -> None:
    console.print(line, highlight=False, soft_wrap=True, markup=False, emoji=False)


def _count_items(console: Console, line: Callable[[int, float], str]) -> Callable[[], None]:
    """Return a function that counts items, and prints a line with their number and the seconds once a minute."""
    numbers, start = count(1), time.monotonic()
    last_line = start

    def advance() -> None:
        nonlocal last_line
        number, now = next(numbers), time.monotonic()
        if now - last_line >= SECONDS_BETWEEN_LINES:
            last_line = now
            _print(console, line(number, now - start))

    return advance


def _print_epochs(title: str, n_epochs: int, console: Console) -> Advance:
    """Return a function that prints a line per epoch, for log files and pipes."""
    numbers = count(1)

    def advance(note: str) -> None:
        _print(console, f"{title} {next(numbers)}/{n_epochs}  {note}".rstrip())

    return advance
