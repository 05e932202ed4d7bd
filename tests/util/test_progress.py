import io
import itertools
import time

import pytest
from rich.console import Console

from lmfcn.util import progress

NAME = "scan[bold](1):cat:.png"


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves; there is no terminal."""

    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    moved = Clock()
    monkeypatch.setattr(progress, "time", moved)
    return moved


@pytest.fixture
def terminal(monkeypatch):
    """What is shown on a terminal, without colours."""
    text = io.StringIO()
    shown = Console(file=text, force_terminal=True, color_system=None, width=120)
    monkeypatch.setattr(progress, "Console", lambda **_: shown)
    return text


def test_a_log_file_gets_a_line_every_two_seconds(clock, capsys):
    with progress.item_progress(NAME, 8, visible=True) as advance:
        for seconds in (0, 1, 1, 1, 1, 0):
            clock.now += seconds
            advance()
    assert capsys.readouterr().err.splitlines() == [
        f"{NAME}: 8",
        f"{NAME}: 3 of 8, about 3 s left",
        f"{NAME}: 5 of 8, about 2 s left",
    ]


def test_lines_become_rarer_the_longer_it_takes(clock, capsys):
    with progress.item_progress("Mapping", 10**6, visible=True) as advance:
        for _ in range(4000):
            clock.now += 1
            advance()
    seconds = [int(line.split()[1].replace(",", "")) for line in capsys.readouterr().err.splitlines()[1:]]
    gaps = [later - sooner for sooner, later in itertools.pairwise(seconds)]
    assert seconds[0] == 2
    assert max(gaps[:80]) == 2
    assert 35 <= max(gaps) <= 60
    assert len(seconds) < 500


def test_nothing_is_silent_for_two_seconds_while_nothing_advances():
    start, times = time.monotonic(), []

    class Log(io.StringIO):
        def write(self, text):
            if text.strip():
                times.append(time.monotonic() - start)
            return super().write(text)

    with progress.LogLines(Console(file=Log(), width=80), lambda seconds: f"working {seconds:.0f} s"):
        time.sleep(4.2)
    gaps = [later - sooner for sooner, later in zip([0.0, *times], [*times, 4.2], strict=True)]
    assert len(times) == 2
    assert max(gaps) <= 2.2


@pytest.mark.parametrize("has_widgets", [True, False])
def test_a_notebook_without_widgets_gets_lines_and_no_warning(monkeypatch, has_widgets):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr(progress, "find_spec", lambda _: object() if has_widgets else None)
    console = progress._console()
    assert console.is_jupyter == has_widgets
    assert progress._draws(console) == has_widgets


def test_a_step_is_told_only_if_it_takes_long(clock, capsys):
    with progress.step_progress("Final SVM", visible=True):
        clock.now += 1
    assert capsys.readouterr().err == ""


def test_short_steps_one_after_the_other_are_not_silent_together(clock, capsys):
    for start, title in ((100, "gallery"), (101.5, "report"), (150, "later")):
        clock.now = start
        with progress.LogLines(Console(stderr=True), lambda seconds, title=title: f"{title}: {seconds:g} s") as lines:
            clock.now += 1.5
            lines.beat()
    # Nothing was written for 3 s. "later" does not follow at once, so its silence starts anew.
    assert capsys.readouterr().err == "report: 1.5 s\n"


def test_an_epoch_bar_counts_rounds_and_parts_of_them(clock, capsys):
    with progress.epoch_progress("Training", 4, visible=True) as bar:
        clock.now += 1.5  # encoding
        bar.move_to(0.25)
        clock.now += 1
        bar.move_to(0.5)
        clock.now += 2
        bar.move_to(1, "epoch 0: epoch score 0.500")
        bar.say("Finishing with epoch 0; press Ctrl-C again to stop without a model.")
        bar.begin("Refit")
    # Per epoch 1.5 s of encoding, then 1 s for every quarter: 4 * 4.5 - 2.5.
    assert capsys.readouterr().err.splitlines() == [
        "Training: 0/4 epochs and 50% of the next, 2 s, about 16 s left",
        "Training: 1/4 epochs, epoch 0: epoch score 0.500, 4 s, about 14 s left",
        "Finishing with epoch 0; press Ctrl-C again to stop without a model.",
        "Refit: 1/4 epochs, 4 s, about 14 s left",
    ]


def test_epochs_of_an_earlier_run_took_no_time(clock, capsys):
    with progress.epoch_progress("Training", 4, visible=True) as bar:
        bar.resume(2, "epoch 2: epoch score 0.500")
        clock.now += 3
        bar.move_to(3, "epoch 3: epoch score 0.600")
    assert capsys.readouterr().err.splitlines() == [
        "Training: 2/4 epochs, epoch 2: epoch score 0.500",
        "Training: 3/4 epochs, epoch 3: epoch score 0.600, 3 s, about 3 s left",
    ]


def test_what_was_done_before_counts(clock, capsys):
    with progress.item_progress("Mapping", 4000, n_before=1500, visible=True) as advance:
        clock.now += 60
        advance()
    assert capsys.readouterr().err.splitlines() == [
        "Mapping: 1,500 of 4,000",
        "Mapping: 1,501 of 4,000, about 41 h 39 min left",
    ]


def test_nobody_knows_how_many(clock, capsys):
    with progress.count_progress(NAME, visible=True) as advance:
        for _ in range(10):
            clock.now += 0.5
            advance()
    assert capsys.readouterr().err.splitlines() == [f"{NAME} 4  2.0 a second", f"{NAME} 8  2.0 a second"]


def test_nothing_is_shown_unless_it_is_wanted(clock, capsys):
    for shown in (
        progress.item_progress("Mapping", 3, visible=False),
        progress.count_progress("Mapping", visible=False),
    ):
        with shown as advance:
            clock.now += 100
            advance()
    assert capsys.readouterr().err == ""


def test_a_bar_shows_names_as_they_are(terminal):
    with progress.item_progress(NAME, 4, n_before=1, visible=True) as advance:
        advance()
    with progress.epoch_progress(NAME, 2, visible=True) as bar:
        bar.move_to(1, "epoch 0: epoch score 0.500")
        bar.say("[bold]as it is")
    with progress.count_progress(NAME, visible=True) as advance:
        advance()
    assert terminal.getvalue().count(NAME) >= 3
    assert "scan(1)" not in terminal.getvalue()
    assert "1/2 epochs  epoch 0: epoch score 0.500" in terminal.getvalue()
    assert "[bold]as it is" in terminal.getvalue()
    assert "50%" in terminal.getvalue()  # the one before, and the one now
