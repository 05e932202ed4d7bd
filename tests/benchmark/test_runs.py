import json
from dataclasses import asdict, replace

import pytest

from lmfcn.benchmark import runs as runs_module
from lmfcn.benchmark.runs import Run, RunKey, RunReader, append_run, read_lines, read_runs

RUN = Run(
    task="lung",
    method="LMFCN",
    seed=0,
    train_balanced_accuracy=1.0,
    validation_balanced_accuracy=0.9,
    test_balanced_accuracy=0.8,
    n_train=10,
    n_test=20,
    cpu_seconds=1.5,
    chosen={"learning_rate": 0.001},
    best_epoch=[1, 2],
    validation_by_epoch=[0.5, 0.9, 0.7, 0.9],
    seconds_by_epoch=[1.0, 2.0, 3.0, 4.0],
)


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "runs.jsonl"
    assert read_runs(path) == {}
    runs = [RUN, replace(RUN, seed=1), replace(RUN, method="LBP", best_epoch=None)]
    for run in runs:
        append_run(path, run)
    assert list(read_runs(path).values()) == runs
    assert set(read_runs(path)) == {("lung", "LMFCN", 0), ("lung", "LMFCN", 1), ("lung", "LBP", 0)}


def test_the_last_run_of_a_cell_counts(tmp_path):
    append_run(tmp_path / "runs", RUN)
    append_run(tmp_path / "runs", replace(RUN, test_balanced_accuracy=0.7))
    (run,) = read_runs(tmp_path / "runs").values()
    assert run.test_balanced_accuracy == 0.7


def test_a_half_written_line_is_reported_and_swallows_nothing(tmp_path):
    path = tmp_path / "runs.jsonl"
    append_run(path, RUN)
    with path.open("a") as file:
        file.write('{"task": "lu')
    append_run(path, replace(RUN, seed=1))
    with pytest.warns(UserWarning, match=r"runs.jsonl, line 2: not a whole JSON object; left out\."):
        runs = read_runs(path)
    assert [key.seed for key in runs] == [0, 1]


@pytest.fixture
def parsed(monkeypatch):
    """Lines that have been parsed, in their order."""
    lines, parse = [], runs_module._parse
    monkeypatch.setattr(runs_module, "_parse", lambda line: lines.append(line) or parse(line))
    return lines


def test_a_reader_parses_each_line_once(tmp_path, parsed):
    reader, path = RunReader(tmp_path / "runs.jsonl"), tmp_path / "runs.jsonl"
    assert reader.read() == []
    expected = []
    for seed in range(5):
        for method in ("LBP", "LMFCN"):
            expected.append(replace(RUN, seed=seed, method=method))
            append_run(path, expected[-1])
        assert reader.read() == expected == reader.read()
    assert len(parsed) == 10


def test_a_line_under_way_counts_when_it_is_whole(tmp_path):
    path = tmp_path / "runs.jsonl"
    reader = RunReader(path)
    append_run(path, RUN)
    append_run(path, replace(RUN, seed=1, task="other"))
    content = path.read_bytes()
    half = content.index(b"other")
    path.write_bytes(content[:half])
    with pytest.warns(UserWarning, match=r"line 2: not a whole JSON object; left out\."):
        assert [run.seed for run in reader.read()] == [0]
    with path.open("ab") as file:
        file.write(content[half:-1])  # whole, but without the end of the line
    assert [run.task for run in reader.read()] == ["lung", "other"]
    append_run(path, replace(RUN, seed=2))
    assert [run.seed for run in reader.read()] == [0, 1, 2] == [run.seed for run in read_lines(path)]


def test_a_cut_line_is_told_by_its_number_and_later_lines_are_read(tmp_path, parsed):
    path = tmp_path / "runs.jsonl"
    append_run(path, RUN)
    reader = RunReader(path)
    reader.read()
    with path.open("a") as file:
        file.write('{"task": "lu')
    append_run(path, replace(RUN, seed=1))
    with pytest.warns(UserWarning, match=r"runs.jsonl, line 2: not a whole JSON object; left out\."):
        assert [run.seed for run in reader.read()] == [0, 1]
    assert [run.seed for run in reader.read()] == [0, 1]  # and is not told again
    assert len(parsed) == 3


@pytest.mark.parametrize("seeds", [[7], [7, 8, 9]])
def test_a_file_that_was_replaced_is_read_anew(tmp_path, seeds):
    path, other = tmp_path / "runs.jsonl", tmp_path / "other.jsonl"
    for seed in (0, 1):
        append_run(path, replace(RUN, seed=seed))
    reader = RunReader(path)
    assert len(reader.read()) == 2
    for seed in seeds:
        append_run(other, replace(RUN, seed=seed))
    other.replace(path)
    assert [run.seed for run in reader.read()] == seeds
    path.write_bytes(b"")
    assert reader.read() == []
    path.unlink()
    assert reader.read() == []


def test_a_line_that_is_no_run_is_reported(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text('[1]\n\n{"task": "lung", "method": "LMFCN", "n_train": 1, "n_test": 1, "cpu_seconds": 1}\n')
    with pytest.warns(UserWarning, match="left out") as told:
        assert read_runs(path) == {}
    assert "line 1: not a whole JSON object" in str(told[0].message)
    assert "line 3: without seed, train_balanced_accuracy, validation_balanced" in str(told[1].message)


def test_lines_of_other_versions_have_fewer_and_more_fields(tmp_path):
    path = tmp_path / "runs.jsonl"
    needed = list(asdict(RUN))[:9]
    path.write_text(json.dumps({name: asdict(RUN)[name] for name in needed} | {"from the future": 1}) + "\n")
    (run,) = read_runs(path).values()
    assert run.key == RunKey("lung", "LMFCN", 0)
    assert (run.split, run.epochs, run.chosen, run.validation_by_epoch) == (None, None, {}, None)


def test_a_number_that_json_does_not_know_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        append_run(tmp_path / "runs", replace(RUN, cpu_seconds=float("nan")))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("score", "seconds"), [(0.4, 1.0), (0.5, 1.0), (0.6, 2.0), (0.9, 2.0), (0.91, None)])
def test_seconds_until_an_accuracy(score, seconds):
    assert RUN.seconds_to_reach(score) == seconds
    assert replace(RUN, validation_by_epoch=None, seconds_by_epoch=None).seconds_to_reach(score) is None


def test_names_of_earlier_versions_are_translated(tmp_path):
    path = tmp_path / "runs.jsonl"
    former = {"learning_rate": 0.001, "views": "turns"}
    values = {**asdict(RUN), "method": "LMFCN, paper's preset", "chosen": former, "tried": [[{}, 0.5], [former, None]]}
    path.write_text(json.dumps({**values, "settings": {"views": "flips", "loss": "hinge"}}) + "\n")
    (run,) = read_runs(path).values()
    current = {"learning_rate": 0.001, "augmentation": "dihedral"}
    assert run.key == RunKey("lung", "LMFCN (paper)", 0)
    assert (run.chosen, run.tried) == (current, [[{}, 0.5], [current, None]])
    assert run.settings == {"augmentation": "flips", "loss": "hinge"}
