"""The soak finds what it is made for; the whole of it runs by `make soak`."""

import importlib
import json
import os
import random
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from small_model import quick

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def soak_path(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def soak(*arguments):
    """What `python benchmarks/soak` prints, in a process of its own: its parts are forked."""
    program = [sys.executable, str(BENCHMARKS / "soak"), *arguments]
    return subprocess.run(program, capture_output=True, text=True, check=False)


def test_a_part_prints_a_table_whose_promises_are_kept():
    done = soak("images", "--seconds", "1")
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert lines[0] == "| what | promise | found | ok | command |"
    assert any("mutated image files" in line and "| yes | `python benchmarks/soak images` |" in line for line in lines)


def test_an_unknown_part_is_named():
    done = soak("imagess")
    assert done.returncode == 2
    assert "there is no part 'imagess'; there are images" in done.stderr


FIND = "import json, sys; from soak.faults import find_faults; print(json.dumps(find_faults(0, sys.argv[1:])))"


def planted(*names):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(BENCHMARKS), *sys.path]), "OMP_NUM_THREADS": "1"}
    program = [sys.executable, "-W", "ignore", "-c", FIND, *names]
    done = subprocess.run(program, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_faults_are_found_by_the_row_that_is_meant_for_them():
    names = ["a leaked file handle", "a foreign exception", "a library that prints", "a changed file that passes"]
    rows = planted(*names)
    assert [row["what"] for row in rows] == [f"planted: {name}" for name in names]
    assert all(row["ok"] for row in rows), rows


@pytest.mark.thorough
def test_every_planted_fault_is_found():
    rows = planted()
    assert len(rows) >= 10
    assert all(row["ok"] for row in rows), rows


def test_the_part_that_dies_is_a_row(monkeypatch):
    apart, images = importlib.import_module("soak.apart"), importlib.import_module("soak.images")
    monkeypatch.setattr(images, "run", lambda *_: os._exit(7))
    (row,) = apart.run_apart("images", 1, 0)
    assert (row["ok"], row["found"]) == (False, "died with status 1792")


def test_the_table_stands_between_its_markers(tmp_path, monkeypatch):
    main = importlib.import_module("soak.__main__")
    rows = importlib.import_module("soak.rows")
    page = tmp_path / "reliability.md"
    page.write_text(f"before\n{main.BEGIN}\nold\n{main.END}\nafter\n")
    monkeypatch.setattr(main, "RELIABILITY", page)
    main.write_table([rows.row("a|b", "kept", "kept", True, "do it")], "minutes")
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "| a/b | kept | kept | yes | `do it` |" in text
    assert "old" not in text


def test_power_is_lost_only_by_what_was_not_synced(tmp_path):
    children = importlib.import_module("soak.children")
    place = tmp_path / "place"
    place.mkdir()
    (place / "old").write_bytes(b"o" * 100)
    children.note_all_as_synced(place)

    def work():
        for name in ("synced", "not"):
            with open(name, "wb") as file:
                file.write(b"x" * 100)
                file.flush()
                if name == "synced":
                    os.fsync(file.fileno())

    assert children.start(work, place).wait().code == 0
    children.lose_power(place, random.Random(1))
    assert (place / "old").read_bytes() == b"o" * 100
    assert (place / "synced").read_bytes() == b"x" * 100
    assert (place / "not").read_bytes() != b"x" * 100


def test_needed_size_by_hand():
    coverage = importlib.import_module("soak.coverage")
    # Nine in ten are right with at least 0.6, so that the second class of no image is needed.
    predicted = np.array([[0.7, 0.3]] * 18 + [[0.6, 0.4]] * 2)
    assert coverage.needed_size(predicted, np.array([0] * 18 + [1] * 2)) == 1.0
    assert coverage.needed_size(predicted, np.array([0] * 15 + [1] * 5)) == pytest.approx(2.0)


def test_coverage_of_a_small_model():
    coverage = importlib.import_module("soak.coverage")
    task = partial(coverage.four_textures, counts=(8, 4, 10), size=18)
    line = coverage.measure(task, Path(), 0, lambda random_state: quick(random_state=random_state))
    assert (line["n_train"], line["n_held_out"], line["n_test"], line["n_classes"]) == (48, 16, 40, 4)
    assert 1 <= line["size"] <= 4
    rows = coverage.summarize("tiny", [line, line])
    assert [row["what"].split(": ")[1] for row in rows] == [
        "sets hold the class",
        "classes in a set",
        "calibration error",
    ]


def test_lowest_versions_and_licences_by_hand():
    distribution = importlib.import_module("soak.distribution")
    assert distribution.lowest_versions(["numpy>=2.0", "torch>=2.7"]) == ["numpy==2.0", "torch==2.7"]
    assert not any(distribution.PERMISSIVE.search(name) for name in ("GPL-3.0", "Proprietary", "AGPL-3.0-only"))
    assert all(distribution.PERMISSIVE.search(name) for name in ("BSD-3-Clause", "MIT", "LGPL-2.1"))


def test_a_licence_that_is_not_compatible_is_named(tmp_path, monkeypatch):
    distribution = importlib.import_module("soak.distribution")
    (tmp_path / "docs").mkdir()
    text = "| package | licence |\n|---|---|\n| good | MIT |\n| bad | GPL-3.0-only |\n"
    (tmp_path / "docs" / "licences.md").write_text(text)
    monkeypatch.setattr(distribution, "ROOT", tmp_path)
    (row,) = distribution.licences(tmp_path)
    assert (row["ok"], row["found"]) == (False, "1 of 2; not bad (GPL-3.0-only)")
