from dataclasses import replace

import numpy as np
import pytest

from lmfcn.experiments.exhibit import exhibit_path, read_exhibit, write_exhibit
from lmfcn.experiments.runs import append_run, read_runs
from lmfcn.tensor_files import FileError
from some_comparison import exhibit_of, run_of

ORIGIN = {"task": "cloth", "method": "LMFCN", "seed": 0, "split": "abc"}


def test_what_is_written_is_read(tmp_path, random):
    exhibit = exhibit_of(random, n_hardest=2)
    write_exhibit(tmp_path / "exhibit", exhibit, ORIGIN)
    read = read_exhibit(tmp_path / "exhibit", ORIGIN)
    assert (read.classes, read.explained) == (exhibit.classes, exhibit.explained)
    for mine, other in zip([*read.learnt, *read.test], [*exhibit.learnt, *exhibit.test], strict=True):
        assert np.array_equal(mine, other)
        assert mine.dtype == other.dtype
    assert len(read.hardest) == 2
    for mine, other in zip(read.hardest, exhibit.hardest, strict=True):
        assert (mine.predicted, mine.confidence, mine.similarities) == (1, 0.9, [0.9, 0.8, 0.7])
        for shown, expected in zip([mine.shown, *mine.nearest], [other.shown, *other.nearest], strict=True):
            assert np.array_equal(shown.pixels, expected.pixels)
            assert shown[1:] == expected[1:]


def test_an_exhibit_of_another_run_is_none(tmp_path, random):
    assert read_exhibit(tmp_path / "nothing", ORIGIN) is None
    write_exhibit(tmp_path / "exhibit", exhibit_of(random), ORIGIN)
    assert read_exhibit(tmp_path / "exhibit", {**ORIGIN, "split": "other images"}) is None


def test_a_damaged_file_is_refused(tmp_path, random):
    write_exhibit(tmp_path / "exhibit", exhibit_of(random), ORIGIN)
    (tmp_path / "exhibit").write_bytes((tmp_path / "exhibit").read_bytes()[:-100])
    with pytest.raises(FileError, match="truncated"):
        read_exhibit(tmp_path / "exhibit", ORIGIN)


def test_a_run_leaves_its_exhibit_beside_the_file_of_runs(tmp_path, random):
    run = run_of("LMFCN, paper's preset", 0, 0.5)
    shown = replace(run, exhibit=exhibit_of(random))
    append_run(tmp_path / "runs.jsonl", shown)
    assert "exhibit" not in (tmp_path / "runs.jsonl").read_text()
    assert list(read_runs(tmp_path / "runs.jsonl").values()) == [run]
    path = exhibit_path(tmp_path / "runs.jsonl", run.method)
    assert path == tmp_path / "exhibit-lmfcn-paper-s-preset.safetensors"
    assert read_exhibit(path, run.origin).classes == shown.exhibit.classes
