import json

import numpy as np
import pytest

from lmfcn.inference.journal import Journal

ODD = "odd \udcff\n.png"


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.lmfcn"
    path.write_bytes(b"weights")
    return path


@pytest.fixture
def output(tmp_path, model, random):
    """Of a run that was stopped after three images."""
    with Journal(tmp_path / "rows.csv", model) as journal:
        for path in ("a.png", ODD, "c.png"):
            journal.add(path, random.random(3))
    return tmp_path / "rows.csv"


def test_what_was_written_comes_back_to_the_last_bit(model, output):
    expected = np.random.default_rng(0).random((3, 3))
    with Journal(output, model, resume=True) as journal:
        assert [path in journal for path in ("a.png", ODD, "c.png", "d.png", "b.png")] == [
            True,
            True,
            True,
            False,
            False,
        ]
        paths, probabilities = zip(*journal.rows(), strict=True)
    assert paths == ("a.png", ODD, "c.png")
    assert np.array_equal(probabilities, expected)


@pytest.mark.parametrize(
    "tail", [b'{"path": "d.p', b'{"path": "d.png", "probabilities": [1.0]}', b"\0\0\0\n{}\n", b"7\n"]
)
def test_half_a_line_is_dropped(model, output, tail):
    with output.with_name("rows.csv.part").open("ab") as file:
        file.write(tail)
    with Journal(output, model, resume=True) as journal:
        assert (len(journal), "d.png" in journal) == (3, False)
        journal.add("d.png", np.ones(3))
        assert [path for path, _ in journal.rows()] == ["a.png", ODD, "c.png", "d.png"]


def test_another_model_is_refused_and_nothing_lost(model, output):
    before = output.with_name("rows.csv.part").read_bytes()
    model.write_bytes(b"other weights")
    with pytest.raises(ValueError, match=r"rows\.csv\.part holds predictions of another model; resume with that one"):
        Journal(output, model, resume=True)
    assert output.with_name("rows.csv.part").read_bytes() == before


@pytest.mark.parametrize(
    "content", ["", "a,b\n", "[]\n", json.dumps({"kind": "lmfcn predictions", "version": 99}) + "\n"]
)
def test_what_is_no_journal_is_refused(model, output, content):
    output.with_name("rows.csv.part").write_text(content)
    with pytest.raises(ValueError, match="was not left by this version of lmfcn predict; remove it, or begin anew"):
        Journal(output, model, resume=True)


def test_without_resume_it_begins_anew_and_an_empty_one_goes(model, output):
    with Journal(output, model) as journal:
        assert "a.png" not in journal
    assert not output.with_name("rows.csv.part").exists()


def test_an_empty_one_beside_an_older_file_says_that_this_is_not_complete(model, output):
    output.write_text("older rows")
    with Journal(output, model):
        pass
    assert output.with_name("rows.csv.part").exists()
