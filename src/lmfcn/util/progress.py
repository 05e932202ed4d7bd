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
def item_progress(title: str, n_items: int, *, n_before: int = 0, visible: bool) -> Iterator[Callable[[], None]]:
    """Show a bar over `n_items` on standard error while the block runs, if `visible`.

    Of these, `n_before` were done by an earlier run, so they tell nothing about how long the others take. Where a bar
    cannot move, as in log files, there is a line at the start and then one every minute.
    """
    console = Console(stderr=True)
    if visible and not (console.is_terminal or console.is_jupyter):
        _print(console, f"{title}: {n_items}" if n_before == 0 else f"{title}: {n_before:,} of {n_items:,}")
        yield _every_minute(console, lambda number, _: f"{title}: {n_before + number:,} of {n_items:,}")
        return
    with Progress(_title(), *Progress.get_default_columns()[1:], console=console, disable=not visible) as bar:
        task = bar.add_task(title, total=n_items, completed=n_before)
        yield lambda: bar.advance(task)


@contextmanager
def epoch_progress(title: str, n_epochs: int, *, visible: bool) -> Iterator[Advance]:
    """Show a bar over `n_epochs` on standard error while the block runs, if `visible`."""
    columns = (
        _title(),
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
        _title(),
        TextColumn("{task.completed:,.0f}"),
        _Speed(),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    if visible and not console.is_terminal:
        yield _every_minute(console, lambda number, seconds: f"{title} {number:,}  {number / seconds:,.1f} a second")
        return
    with Progress(*columns, console=console, disable=not visible, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda: bar.advance(task)


class _Speed(ProgressColumn):
    """How many items a second."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.1f} a second")


def _title() -> TextColumn:
    """Return a column that shows titles as they are; names of files may hold what looks like markup."""
    return TextColumn("{task.description}", markup=False)


def _print(console: Console, line: str) -> None:
    console.print(line, highlight=False, soft_wrap=True, markup=False, emoji=False)


def _every_minute(console: Console, line: Callable[[int, float], str]) -> Callable[[], None]:
    """Return what counts items, and every minute prints a line made of their number and the seconds until then."""
    numbers, start = count(1), time.monotonic()
    told = start

    def advance() -> None:
        nonlocal told
        number, now = next(numbers), time.monotonic()
        if now - told >= SECONDS_BETWEEN_LINES:
            told = now
            _print(console, line(number, now - start))

    return advance


def _plain_lines(title: str, n_epochs: int, console: Console) -> Advance:
    """Return what writes a line per epoch, for log files and pipes, where a bar cannot move."""
    numbers = count(1)

    def advance(note: str) -> None:
        _print(console, f"{title} {next(numbers)}/{n_epochs}  {note}".rstrip())

    return advance
