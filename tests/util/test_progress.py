import io

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


def test_a_log_file_gets_a_line_every_minute(clock, capsys):
    with progress.item_progress(NAME, 4000, visible=True) as advance:
        for seconds in (0, 59, 1, 30, 29, 0, 61):
            clock.now += seconds
            advance()
    assert capsys.readouterr().err.splitlines() == [f"{NAME}: 4000", f"{NAME}: 3 of 4,000", f"{NAME}: 7 of 4,000"]


def test_what_was_done_before_counts(clock, capsys):
    with progress.item_progress("Mapping", 4000, n_before=1500, visible=True) as advance:
        clock.now += 60
        advance()
    assert capsys.readouterr().err.splitlines() == ["Mapping: 1,500 of 4,000", "Mapping: 1,501 of 4,000"]


def test_nobody_knows_how_many(clock, capsys):
    with progress.count_progress(NAME, visible=True) as advance:
        for _ in range(120):
            clock.now += 0.5
            advance()
    assert capsys.readouterr().err.splitlines() == [f"{NAME} 120  2.0 a second"]


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
    with progress.epoch_progress(NAME, 2, visible=True) as advance:
        advance("validation 0.500")
    with progress.count_progress(NAME, visible=True) as advance:
        advance()
    assert terminal.getvalue().count(NAME) >= 3
    assert "scan(1)" not in terminal.getvalue()
    assert "50%" in terminal.getvalue()  # the one before, and the one now
