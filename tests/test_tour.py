"""What docs/tour.md shows is there: its commands, their options, its pictures."""

import re
from pathlib import Path

import pytest

from commands import COMMANDS as KNOWN
from commands import check_command

ROOT = Path(__file__).parent.parent
TOUR = ROOT / "docs" / "tour.md"
SHOWN = re.findall(r"^\$ lmfcn (.+)$|`lmfcn ([a-z]+ [^`]+)`", TOUR.read_text(), flags=re.MULTILINE)
COMMANDS = [first or second for first, second in SHOWN]
LARGEST_PICTURE = 150_000


def test_the_tour_goes_all_the_way():
    names = [command.split()[0] for command in COMMANDS]
    way = ["inspect", "train", "evaluate", "predict", "explain", "audit", "serve", "info"]
    places = [names.index(name) for name in way]
    assert places == sorted(places)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_and_options_exist(line):
    check_command(line)


def test_hints_in_shown_output_are_commands_too():
    hints = re.findall(r"^Next: lmfcn (\w+)", TOUR.read_text(), flags=re.MULTILINE)
    assert {"inspect", *hints} <= set(KNOWN)
    assert hints == ["train", "predict"]


def test_pictures_are_there_and_small():
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", TOUR.read_text())
    assert len(pictures) == 3
    for picture in pictures:
        assert 0 < (TOUR.parent / picture).stat().st_size < LARGEST_PICTURE


def test_the_readme_leads_to_the_tour():
    assert "](docs/tour.md)" in (ROOT / "README.md").read_text()
