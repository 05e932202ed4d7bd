import errno
import json
import os

import numpy as np
import pytest

from lmfcn.predict.journal import Journal

ODD = "odd \udcff\n.png"
PATHS = ["tiles", ODD]


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.lmfcn"
    path.write_bytes(b"weights")
    return path


@pytest.fixture
def output(tmp_path, model, random):
    """The output file of a run that was interrupted after three images."""
    with Journal(tmp_path / "rows.csv", model, PATHS) as journal:
        for path in ("a.png", ODD, "c.png"):
            journal.add(path, random.random(3))
    return tmp_path / "rows.csv"


def test_probabilities_are_restored_exactly(model, output):
    expected = np.random.default_rng(0).random((3, 3))
    with Journal(output, model, PATHS, resume=True) as journal:
        assert [path in journal for path in ("a.png", ODD, "c.png", "d.png", "b.png")] == [
            True,
            True,
            True,
            False,
            False,
        ]
        paths, probabilities, _ = zip(*journal.rows(), strict=True)
    assert paths == ("a.png", ODD, "c.png")
    assert np.array_equal(probabilities, expected)


@pytest.mark.parametrize(
    "tail", [b'{"path": "d.p', b'{"path": "d.png", "probabilities": [1.0]}', b"\0\0\0\n{}\n", b"7\n"]
)
def test_incomplete_lines_are_dropped(model, output, tail):
    with output.with_name("rows.csv.part").open("ab") as file:
        file.write(tail)
    with Journal(output, model, PATHS, resume=True) as journal:
        assert (len(journal), "d.png" in journal) == (3, False)
        journal.add("d.png", np.ones(3))
        assert [path for path, *_ in journal.rows()] == ["a.png", ODD, "c.png", "d.png"]


def test_a_line_that_was_changed_is_dropped_with_those_behind_it(model, output):
    path = output.with_name("rows.csv.part")
    header, *lines = path.read_bytes().splitlines(keepends=True)
    assert b"0." in lines[1]
    path.write_bytes(b"".join([header, lines[0], lines[1].replace(b"0.", b"1.", 1), lines[2]]))
    with Journal(output, model, PATHS, resume=True) as journal:
        assert [name for name, *_ in journal.rows()] == ["a.png"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full")
def test_a_full_disk_is_named_and_closing_does_not_hide_it(model, output):
    with Journal(output, model, PATHS) as journal:
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, journal._file.fileno())
        os.close(full)
        with pytest.raises(OSError, match=r"No space left on device: '.*rows\.csv'"):
            journal.add("a.png", np.ones(3))


def test_another_model_is_refused_and_nothing_lost(model, output):
    before = output.with_name("rows.csv.part").read_bytes()
    model.write_bytes(b"other weights")
    with pytest.raises(ValueError, match=r"rows\.csv\.part holds predictions of another model; resume with that one"):
        Journal(output, model, PATHS, resume=True)
    assert output.with_name("rows.csv.part").read_bytes() == before


@pytest.mark.parametrize("content", ["a,b\n", "[]\n", json.dumps({"kind": "lmfcn predictions", "version": 99}) + "\n"])
def test_other_files_are_refused(model, output, content):
    output.with_name("rows.csv.part").write_text(content)
    with pytest.raises(ValueError, match="was not left by this version of lmfcn predict; remove it, or begin anew"):
        Journal(output, model, PATHS, resume=True)


@pytest.mark.parametrize(
    ("begun", "named"), [(["/tiles"], r"\(/tiles\)"), (["-", "/d", "/b", "/c", "/a"], r"\(-, /a, /b and 2 more\)")]
)
def test_other_paths_are_refused_and_nothing_lost(model, tmp_path, begun, named):
    with Journal(tmp_path / "rows.csv", model, begun) as journal:
        journal.add("/tiles/a.png", np.ones(3))
    before = journal.path.read_bytes()
    with pytest.raises(
        ValueError, match=rf"part holds predictions for other PATHS {named}; resume with these, or leave"
    ):
        Journal(tmp_path / "rows.csv", model, ["/others"], resume=True)
    assert journal.path.read_bytes() == before


@pytest.mark.parametrize("paths", [[ODD, "./tiles/"], ["x/../tiles", ODD, ODD], [os.path.abspath("tiles"), ODD]])
def test_the_same_paths_may_be_spelled_otherwise(model, output, paths):
    with Journal(output, model, paths, resume=True) as journal:
        assert [path in journal for path in ("./a.png", "x/../c.png", os.path.abspath("a.png"), "x/a.png")] == [
            True,
            True,
            True,
            False,
        ]


def test_relative_paths_refer_to_the_folder_where_they_were_given(model, output, tmp_path, monkeypatch):
    start = os.getcwd()
    monkeypatch.chdir(tmp_path)
    paths = [os.path.join(start, path) for path in PATHS]
    with Journal(output, model, paths, resume=True) as journal:
        assert ("a.png" in journal, os.path.join(start, "a.png") in journal) == (False, True)
        journal.add("a.png", np.ones(3))
    monkeypatch.chdir(start)
    with Journal(output, model, PATHS, resume=True) as journal:
        assert [path in journal for path in ("a.png", "c.png", str(tmp_path / "a.png"))] == [True, True, True]
        assert [path for path, *_ in journal.rows()] == ["a.png", ODD, "c.png", "a.png"]


def test_a_journal_without_paths_is_refused(model, output):
    part = output.with_name("rows.csv.part")
    first, *rows = part.read_text().splitlines(keepends=True)
    old = {name: value for name, value in json.loads(first).items() if name not in ("paths", "folder")}
    part.write_text(json.dumps(old) + "\n" + "".join(rows))
    with pytest.raises(ValueError, match=r"rows\.csv\.part was not left by this version of lmfcn predict; remove it"):
        Journal(output, model, PATHS, resume=True)


@pytest.mark.parametrize("resume", [False, True])
def test_a_second_one_is_refused_while_the_first_is_open(model, output, resume):
    pytest.importorskip("fcntl")
    with Journal(output, model, PATHS, resume=True) as first:
        with pytest.raises(
            ValueError, match=r"Another lmfcn predict is writing .*rows\.csv; wait until it has ended, or"
        ):
            Journal(output, model, PATHS, resume=resume)
        first.add("d.png", np.ones(3))
        assert [path for path, *_ in first.rows()] == ["a.png", ODD, "c.png", "d.png"]
    with Journal(output, model, PATHS, resume=True) as second:
        assert len(second) == 4


def test_file_systems_without_locks(model, output, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def cannot(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", cannot)
    with Journal(output, model, PATHS, resume=True) as journal:
        assert len(journal) == 3
    assert {path.name for path in output.parent.iterdir()} == {"model.lmfcn", "rows.csv.part"}


def test_the_lock_file_is_removed(model, output):
    def names():
        return {path.name for path in output.parent.iterdir()}

    with Journal(output, model, PATHS, resume=True) as journal:
        assert names() == {"model.lmfcn", "rows.csv.part", "rows.csv.lock"}
    assert names() == {"model.lmfcn", "rows.csv.part"}
    with pytest.raises(ValueError, match="holds predictions for other PATHS"):
        Journal(output, model, ["others"], resume=True)
    assert names() == {"model.lmfcn", "rows.csv.part"}
    with Journal(output, model, PATHS, resume=True) as journal:
        journal.remove()
    assert names() == {"model.lmfcn"}


def test_without_resume_the_journal_is_overwritten_and_removed_if_empty(model, output):
    with Journal(output, model, PATHS) as journal:
        assert "a.png" not in journal
    assert not output.with_name("rows.csv.part").exists()


def test_an_empty_journal_stays_beside_an_older_output(model, output):
    output.write_text("older rows")
    with Journal(output, model, PATHS):
        pass
    assert output.with_name("rows.csv.part").exists()
