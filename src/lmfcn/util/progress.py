"""Progress bars on a terminal, and progress lines in log files and pipes.

Nothing is silent for more than two seconds: bars refresh themselves, and a thread writes lines where there is no
terminal, also while nothing advances.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import TracebackType

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
)
from rich.text import Text

LONGEST_SILENCE, LONGEST_SILENCE_LATER = 2.0, 60.0
_SHARE_SILENT = 0.01
_SECONDS_BETWEEN_BEATS = 0.25


def progress_note(epoch: int, score: float | None, n_support: int | None = None) -> str:
    """Return a short note about an epoch; `score` is the one that selects epochs.

    Examples
    --------
    >>> progress_note(3, 0.669, 45)
    'epoch 3: epoch score 0.669, 45 support vectors'
    """
    parts = [
        "" if score is None else f"epoch score {score:.3f}",
        "" if n_support is None else f"{n_support} support vectors",
    ]
    told = _joined(*parts)
    return f"epoch {epoch}: {told}" if told else ""


def format_seconds(seconds: float) -> str:
    """Return a duration for people.

    Examples
    --------
    >>> format_seconds(9.6), format_seconds(75), format_seconds(3720)
    ('10 s', '1 min 15 s', '1 h 2 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def _console() -> Console:
    """Return the console on standard error. In a notebook without ipywidgets it is plain: rich would warn."""
    console = Console(stderr=True)
    if console.is_jupyter and find_spec("ipywidgets") is None:
        return Console(stderr=True, force_jupyter=False)
    return console


def _draws(console: Console) -> bool:
    """Return whether a bar can move there."""
    return console.is_terminal or console.is_jupyter


class LogLines:
    """Writes a line to a log file or pipe whenever it was silent for a while; use it in a `with` statement.

    A while is two seconds at first. It grows with the time that has passed, up to a minute, so that a training of a day
    does not fill a disk.

    Parameters
    ----------
    console : Console
    describe : callable
        Returns the line, given the seconds since the start.
    """

    def __init__(self, console: Console, describe: Callable[[float], str]) -> None:
        self._console, self._describe = console, describe
        self._start = time.monotonic()
        self._last = _last_line_before(self._start)
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._beat_until_ended, daemon=True)

    def __enter__(self) -> "LogLines":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        _PREVIOUS.update(ended=time.monotonic(), last_line=self._last)

    def write(self, line: str | None = None) -> None:
        """Write a line now; without one, the line that describes the present."""
        with self._lock:
            self._last = time.monotonic()
            _print(self._console, self._describe(self._last - self._start) if line is None else line)

    def beat(self) -> None:
        """Write a line if it was silent for long enough."""
        now = time.monotonic()
        allowed = min(LONGEST_SILENCE_LATER, max(LONGEST_SILENCE, _SHARE_SILENT * (now - self._start)))
        # The next beat would come too late.
        if now - self._last >= allowed - _SECONDS_BETWEEN_BEATS:
            self.write()

    def _beat_until_ended(self) -> None:
        while not self._ended.wait(_SECONDS_BETWEEN_BEATS):
            self.beat()


_PREVIOUS = {"ended": -math.inf, "last_line": -math.inf}
"""When the previous lines ended, and when its last one was written: two short steps may be a long silence."""


def _last_line_before(start: float) -> float:
    """Return since when it has been silent, for lines that start now."""
    follows = 0 <= start - _PREVIOUS["ended"] < _SECONDS_BETWEEN_BEATS
    return _PREVIOUS["last_line"] if follows else start


class TimeLeft:
    """Estimates the time that is left from what was done since the start.

    Examples
    --------
    >>> TimeLeft(total=10, done_before=2).text(done=4, seconds=6.0)
    'about 18 s left'
    """

    def __init__(self, total: float, done_before: float = 0) -> None:
        self.total, self.done_before = total, done_before

    def text(self, done: float, seconds: float) -> str:
        """Return the time left after so many seconds, or an empty text if there is nothing to judge by."""
        if done <= self.done_before or done >= self.total:
            return ""
        return f"about {format_seconds(seconds * (self.total - done) / (done - self.done_before))} left"


@contextmanager
def item_progress(title: str, n_items: int, *, n_before: int = 0, visible: bool) -> Iterator[Callable[[], None]]:
    """Show a bar over `n_items` on standard error while the block runs, if `visible`.

    An earlier run finished `n_before` of them, which are left out of the estimate of the remaining time. In log files
    there is a line at the start and then one now and then.
    """
    console = _console()
    if visible and not _draws(console):
        left, done = TimeLeft(n_items, n_before), n_before

        def line(seconds: float) -> str:
            return _joined(f"{title}: {done:,} of {n_items:,}", left.text(done, seconds))

        with LogLines(console, line) as lines:
            lines.write(f"{title}: {n_items}" if n_before == 0 else None)

            def advance() -> None:
                nonlocal done
                done += 1
                lines.beat()

            yield advance
        return
    with Progress(_title_column(), *Progress.get_default_columns()[1:], console=console, disable=not visible) as bar:
        task = bar.add_task(title, total=n_items, completed=n_before)
        yield lambda: bar.advance(task)


class EpochBar:
    """What a training reports: its phase, how many epochs are done, and messages. This one shows nothing.

    Parameters
    ----------
    title : str
        What happens at present.
    n_epochs : int
    """

    def __init__(self, title: str, n_epochs: int) -> None:
        self.title, self.note, self.done = title, "", 0.0
        self.left = TimeLeft(n_epochs)
        self._start = time.monotonic()
        self._first_batch: tuple[float, float] | None = None

    def begin(self, title: str) -> None:
        """Show what happens from now on."""
        self.title, self.note = title, ""
        self.refresh(new_line=True)

    def resume(self, done: float, note: str) -> None:
        """Count epochs of an earlier run, which took no time in this one."""
        self.left.done_before += done - self.done
        self.move_to(done, note)

    def move_to(self, done: float, note: str | None = None) -> None:
        """Show that so many epochs are done; a part of one counts as a fraction. A note tells of a whole one."""
        self.done, self.note = done, self.note if note is None else note
        if self._first_batch is None and done > self.left.done_before:
            self._first_batch = (time.monotonic() - self._start, done - self.left.done_before)
        self.refresh(new_line=note is not None)

    def refresh(self, *, new_line: bool) -> None:
        """Show the present state; a log file gets a line for it if `new_line`."""

    def say(self, text: str) -> None:
        """Print a message at once, beside the bar."""

    def time_left(self) -> str:
        """Return an estimate, or an empty text before the second batch."""
        seconds, done = time.monotonic() - self._start, self.done - self.left.done_before
        if self._first_batch is None or done >= 1:
            return self.left.text(self.done, seconds)
        # An epoch starts with encoding all images, which must not be counted for every batch.
        before, first = self._first_batch
        if done <= first:
            return ""
        epoch = before + (seconds - before) * (1 - first) / (done - first)
        return f"about {format_seconds(max(0.0, epoch * (self.left.total - self.left.done_before) - seconds))} left"


class _TerminalBar(EpochBar):
    def __init__(self, title: str, n_epochs: int, bar: Progress) -> None:
        super().__init__(title, n_epochs)
        self._bar = bar
        self._task = bar.add_task(title, total=n_epochs, note="", left="")

    def refresh(self, *, new_line: bool) -> None:  # noqa: ARG002
        # Rounding must not take an epoch away from the count.
        done = round(self.done, 6)
        self._bar.update(self._task, description=self.title, completed=done, note=self.note, left=self.time_left())

    def say(self, text: str) -> None:
        _print(self._bar.console, text)


class _LogBar(EpochBar):
    def __init__(self, title: str, n_epochs: int, console: Console) -> None:
        super().__init__(title, n_epochs)
        self.lines = LogLines(console, self._line)

    def refresh(self, *, new_line: bool) -> None:
        if new_line:
            self.lines.write()
        else:
            self.lines.beat()

    def say(self, text: str) -> None:
        self.lines.write(text)

    def _line(self, seconds: float) -> str:
        done = round(self.done, 6)
        part = "" if done == int(done) else f" and {done % 1:.0%} of the next"
        passed = format_seconds(seconds) if seconds >= 1 else ""
        return _joined(f"{self.title}: {int(done)}/{self.left.total} epochs{part}", self.note, passed, self.time_left())


@contextmanager
def epoch_progress(title: str, n_epochs: int, *, visible: bool) -> Iterator[EpochBar]:
    """Show a bar over `n_epochs` on standard error while the block runs, if `visible`."""
    console = _console()
    if not visible:
        yield EpochBar(title, n_epochs)
    elif not _draws(console):
        log = _LogBar(title, n_epochs, console)
        with log.lines:
            yield log
    else:
        columns = (
            _title_column(),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("epochs  {task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        with Progress(*columns, console=console) as bar:
            yield _TerminalBar(title, n_epochs, bar)


def say(text: str, *, visible: bool) -> None:
    """Print a line on standard error, if `visible`."""
    if visible:
        _print(Console(stderr=True), text)


@contextmanager
def step_progress(title: str, *, visible: bool) -> Iterator[None]:
    """Show on standard error that a step without countable parts is going on, and for how long.

    A log file hears of it only if the step takes more than two seconds.
    """
    console = _console()
    if visible and not _draws(console):
        with LogLines(console, lambda seconds: f"{title}: {format_seconds(seconds)}"):
            yield
        return
    columns = (SpinnerColumn(), _title_column(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not visible, transient=True) as bar:
        bar.add_task(title, total=None)
        yield


@contextmanager
def count_progress(title: str, *, visible: bool) -> Iterator[Callable[[], None]]:
    """Show on standard error how many items are done while the block runs, if their total is unknown.

    In log files there is a line now and then.
    """
    console = _console()
    if visible and not _draws(console):
        number = 0

        def line(seconds: float) -> str:
            return f"{title} {number:,}  {number / max(seconds, 1e-9):,.1f} a second"

        with LogLines(console, line) as lines:

            def advance() -> None:
                nonlocal number
                number += 1
                lines.beat()

            yield advance
        return
    columns = (SpinnerColumn(), _title_column(), TextColumn("{task.completed:,.0f}"), _Speed(), TimeElapsedColumn())
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


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _print(console: Console, line: str) -> None:
    console.print(line, highlight=False, soft_wrap=True, markup=False, emoji=False)
