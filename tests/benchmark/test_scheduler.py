import importlib.util
import json
import runpy
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import pieces_of_work as pieces
from lmfcn import make_gaussians
from lmfcn.benchmark import runs as runs_module
from lmfcn.benchmark import scheduler
from lmfcn.benchmark.runs import Run, RunKey, append_run, read_lines, read_runs
from lmfcn.benchmark.tasks import SplitData, Subset
from lmfcn.compute.parallel import LostWorkerError
from lmfcn.method.history import TrainingError
from lmfcn.util.files import LockFile

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def load_script(name):
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


study = load_script("study")
QUICK = {"epochs": 2, "latent_dim": 4, "widths": (6,), "device": "cpu"}


def tiny(_, seed):
    random = np.random.default_rng(seed)
    return SplitData(*(Subset(*make_gaussians(10, 16, random, stds=(10, 60))) for _ in range(3)))


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Run the command on a tiny task with tiny networks."""
    monkeypatch.setattr("lmfcn.baselines.feature_svm.C_FACTORS", (1.0,))
    monkeypatch.setattr("lmfcn.baselines.feature_svm.GAMMA_FACTORS", (1.0, 0.3))
    monkeypatch.setattr(study, "TASKS", {"tiny": tiny, "lung": study.TASKS["lung"]})
    monkeypatch.setattr(study, "CHANGES", {"LMFCN": QUICK, "CNN-CE": QUICK, "FV-CNN": {"n_modes": 2}})
    fixed = [str(tmp_path), "--output", str(tmp_path / "new" / "runs.jsonl"), "--tasks", "tiny"]
    return lambda *arguments: study.main([*fixed, *arguments])


@pytest.fixture
def output(tmp_path):
    return tmp_path / "new" / "runs.jsonl"


def run_of(task, method, seed, chosen=None):
    return Run(task, method, seed, 1.0, 0.9, 0.8, 10, 10, 1.0, chosen=chosen or {})


def test_tasks_of_the_same_images_take_over_a_choice(monkeypatch, tmp_path):
    order = []

    def measured(key, _data, choice, *_):
        order.append((key.task, key.seed, choice))
        yield run_of(*key, chosen={"learning_rate": 0.5} if choice is None else dict(choice))

    monkeypatch.setattr("lmfcn.benchmark.scheduler.measure", measured)
    output, tasks = tmp_path / "runs.jsonl", {"few": partial(tiny, None), "many": partial(tiny, None)}
    shared = {"output": output, "changes": {}, "on_top_of_cnn": (), "tuned_on": {"few": "many"}}
    scheduler.Study(tasks, ["CNN-H"], [0, 1], **shared).run(print)
    taken = {"learning_rate": 0.5}
    assert order == [("many", 0, None), ("few", 0, taken), ("few", 1, taken), ("many", 1, taken)]
    order.clear()
    output.unlink()
    with pytest.raises(ValueError, match="Seed 0 of many chooses the parameters of CNN-H on few, but is not in"):
        scheduler.Study({"few": tasks["few"]}, ["CNN-H"], [0], **shared).run(print)


def test_a_study_from_the_first_run_to_the_table(command, output, capsys):
    asked = ["--methods", "LMFCN", "CNN-CE", "LBP", "random-fcn", "--seeds", "1", "0"]
    assert command(*asked) == 0
    runs = read_runs(output)
    names = {"LMFCN", "CNN-CE", "CNN + SVM", "FV-CNN", "LBP", "random-fcn"}
    assert set(runs) == {("tiny", name, seed) for name in names for seed in (0, 1)}
    told = capsys.readouterr().out.splitlines()
    assert len(told) == len(runs)
    assert told[0].startswith("tiny       LMFCN                       seed 0 | test ")
    assert ", 2 epochs, " in told[0]
    for key, run in runs.items():
        tuned = key.method not in ("LMFCN", "LBP", "random-fcn")
        assert len(run.tried) == (4 if key.seed == 0 and tuned else 1)
        assert run.chosen == runs[key._replace(seed=0)].chosen
        assert run.split == runs[key._replace(method="LBP")].split
    assert runs["tiny", "LBP", 0].split != runs["tiny", "LBP", 1].split
    before = output.read_text()
    assert command(*asked) == 0
    assert output.read_text() == before
    assert capsys.readouterr().out == ""
    assert command("--table", "--methods", *sorted(names), "--against", "LBP") == 0
    shown = capsys.readouterr().out
    rows = [line for line in shown.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 * (1 + len(names)) + 2  # of the task, the overview, the comparison
    assert "| LMFCN minus LBP | difference |" in shown


def test_an_interrupted_study_goes_on_behind_a_broken_line(command, output):
    output.parent.mkdir()
    append_run(output, run_of("tiny", "LBP", 0))
    with output.open("a") as file:
        file.write('{"task": "ti')
    with pytest.warns(UserWarning, match="line 2: not a whole JSON object"):
        assert command("--methods", "LBP", "--seeds", "0", "1") == 0
    lines = output.read_text().splitlines()
    assert len(lines) == 3
    assert json.loads(lines[2])["seed"] == 1


def test_no_line_of_the_file_is_parsed_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(scheduler, "measure", lambda key, *_: [run_of(*key)])
    lines, parse = [], runs_module._parse
    monkeypatch.setattr(runs_module, "_parse", lambda line: lines.append(line) or parse(line))
    output = tmp_path / "runs.jsonl"
    for seed in range(20):
        append_run(output, run_of("other", "LBP", seed))
    told = []

    def add_another(line):
        told.append(line)
        append_run(output, run_of("another", "LBP", len(told)))  # as another process may do

    asked = scheduler.Study({"tiny": partial(tiny, None)}, ["LBP"], range(10), output, {}, tuning_seed=None)
    assert asked.run(add_another) == []
    assert len(told) == len(asked.finished()) == 10
    assert len(lines) == 40 == len(output.read_text().splitlines())


def test_two_studies_do_not_add_to_the_same_file(command, output, capsys):
    asked = ["--methods", "LBP", "--seeds", "0"]
    output.parent.mkdir()
    with LockFile(output, "busy"):
        assert command(*asked) == 2
    assert "Another process is adding runs to" in capsys.readouterr().err
    assert not output.exists()
    # One that was killed keeps nobody out, and nothing is left behind in the end.
    assert command(*asked) == 0
    assert [path.name for path in output.parent.iterdir()] == ["runs.jsonl"]


def test_a_choice_that_was_made_before_is_taken(command, output):
    output.parent.mkdir()
    append_run(output, run_of("tiny", "CNN-H", 0, {"weight_decay": 0.3}))
    assert command("--methods", "CNN-H", "--seeds", "2") == 0
    assert read_runs(output)["tiny", "CNN-H", 2].settings["weight_decay"] == 0.3


def test_a_seed_without_a_choice_is_refused_before_anything_runs(command, output, capsys):
    assert command("--methods", "LBP", "CNN-H", "--seeds", "3") == 2
    assert "Seed 0 of tiny chooses the parameters of CNN-H on tiny, but is not in" in capsys.readouterr().err
    assert not output.exists()
    assert command("--methods", "LBP", "--seeds", "3") == 0  # which has nothing to tune


def test_a_training_that_fails_does_not_stop_the_others(command, output, monkeypatch, capsys):
    def fail(key, parts, *others):
        if key.method == "CNN-H":
            raise TrainingError("The latents collapsed.")
        yield run_of(*key)
        assert parts.train.images.shape == (20, 16, 16)
        assert len(others) == 3

    monkeypatch.setattr(scheduler, "measure", fail)
    assert command("--methods", "CNN-H", "LBP", "--seeds", "0", "1") == 1
    assert set(read_runs(output)) == {("tiny", "LBP", 0), ("tiny", "LBP", 1)}
    said = capsys.readouterr().out
    assert "tiny, CNN-H, seed 0: The latents collapsed. Going on with the next." in said
    assert "tiny, CNN-H, seed 1: Seed 0 of tiny has left no choice of parameters." in said


def test_what_is_there_beside_the_cnn_is_not_measured_again(command, output, monkeypatch):
    wanted = []
    monkeypatch.setattr(scheduler, "measure", lambda *arguments: wanted.append(arguments) or iter([]))
    output.parent.mkdir()
    append_run(output, run_of("tiny", "FV-CNN", 0))
    command("--methods", "CNN-CE", "--seeds", "0")
    assert wanted[0][0] == RunKey("tiny", "CNN-CE", 0)
    assert wanted[0][-1] == ["CNN + SVM"]


@pytest.fixture
def counted(monkeypatch):
    """Replace measuring by counting; return the keys that were measured and with which choice."""
    keys = []

    def measure(key, parts, choice, changes, beside):
        keys.append((key, choice))
        assert (changes, list(beside), len(parts.train.labels)) == ({"LBP": changes["LBP"]}, [], 20)
        yield run_of(*key)

    monkeypatch.setattr(scheduler, "measure", measure)
    return keys


def test_a_cell_is_repeated_if_parameters_or_data_changed(tmp_path, counted):
    def run(n_jobs=None, *, data="first", **parameters):
        changes = {"LBP": {"n_jobs": n_jobs, **parameters}}
        asked = scheduler.Study(
            {"tiny": partial(tiny, None)}, ["LBP"], [0], tmp_path / "runs.jsonl", changes, (), data={"tiny": data}
        )
        assert asked.run(lambda _: None) == []
        return asked

    first = run()
    assert len(counted) == 1
    run()
    run(n_jobs=1)  # which is no part of the result
    assert len(counted) == 1
    run(validation_fraction=0.1)
    run(data="second")
    assert len(counted) == 3
    run()  # whose line is still there
    assert len(counted) == 3
    (found,) = first.finished().values()
    assert found.digest == first.digest(found.key)
    assert len({run.digest for run in read_lines(tmp_path / "runs.jsonl")}) == 3


def test_lines_without_a_digest_count_as_done(tmp_path, counted):
    path = tmp_path / "runs.jsonl"
    append_run(path, run_of("tiny", "LBP", 0))
    append_run(path, run_of("tiny", "gone", 0))
    asked = scheduler.Study(
        {"tiny": partial(tiny, None)}, ["LBP"], [0], path, {"LBP": {"validation_fraction": 0.1}}, ()
    )
    assert asked.run(lambda _: None) == []
    assert counted == []
    assert asked.digest(RunKey("tiny", "gone", 0)) is None


def test_digests_with_candidates_are_those_of_earlier_versions(tmp_path):
    asked = scheduler.Study({"gaussians": tiny}, ["CNN-CE"], [0], tmp_path / "runs.jsonl", study.CHANGES)
    assert asked.digest(RunKey("gaussians", "CNN-CE", 0)) == "7cf6e3cb180a72bc74d256f399fbfd2f"
    written = read_runs(BENCHMARKS / "study.jsonl")[RunKey("gaussians", "CNN-CE", 0)]
    assert written.digest in (None, asked.digest(written.key))


def test_without_a_tuning_seed_nothing_is_tuned(tmp_path, monkeypatch):
    choices = []
    monkeypatch.setattr(scheduler, "measure", lambda *arguments: choices.append(arguments[2]) or iter([]))
    tasks = {"tiny": partial(tiny, None)}
    scheduler.Study(tasks, ["CNN-CE"], [3, 4], tmp_path / "runs.jsonl", {}, (), None).run(lambda _: None)
    assert choices == [{}, {}]


def test_threads_and_weights_are_passed_on(command, tmp_path, monkeypatch, capsys):
    threads = []
    monkeypatch.setattr(scheduler, "WithThreads", lambda function, count: threads.append(count) or function)
    weights = tmp_path / "resnet18.pth"
    assert command("--methods", "ResNet18", "--seeds", "0", "--threads", "3", "--weights", str(weights)) == 2
    assert threads == [3]
    assert "resnet18.pth" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--tasks", "lng"], "--tasks must be one of 'tiny', 'lung', got 'lng'."),
        (["--methods", "SVM"], "got 'SVM'."),
        (["--table", "--against", "none"], "got 'none'."),
        (["--seeds", "one"], "invalid int value: 'one' (--help lists the options)."),
        (["--seeds", "-1"], "--seeds"),
        (["--jobs", "0"], "--jobs must be at least 1, got 0."),
        (["--scheduler", "nowhere://", "--methods", "LBP"], "which `dask scheduler` prints, got 'nowhere://'"),
        (["--threads", "0"], "--threads must be at least 1, got 0."),
        (["--table"], "does not exist; without --table the runs are measured."),
        (["--methods", "ResNet18"], "weights is missing"),
        (["--tasks", "lung", "--methods", "LBP"], "groups.csv, a table of the images"),
    ],
)
def test_bad_input_ends_with_one_sentence(command, capsys, arguments, sentence):
    assert command(*arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("Error: ")
    assert said.count("\n") == 1
    assert sentence in said


def small_study(output, task=pieces.tiny_task, **workers):
    changes = {"LMFCN": QUICK, "CNN-CE": {**QUICK, "epochs": 1}}
    methods = ["LBP", "CNN-CE", "CNN + SVM", "LMFCN"]
    return scheduler.Study({"tiny": task}, methods, [0, 1], output, changes, on_top_of_cnn=["CNN + SVM"], **workers)


def without_seconds(path):
    return {key: _timeless(vars(run)) for key, run in read_runs(path).items()}


def _timeless(value):
    if isinstance(value, dict):
        return {name: _timeless(one) for name, one in value.items() if "seconds" not in name}
    return [_timeless(one) for one in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def serial_runs(tmp_path_factory):
    output = tmp_path_factory.mktemp("serial") / "runs.jsonl"
    assert small_study(output).run(lambda _: None) == []
    return without_seconds(output)


def test_two_processes_measure_the_same_bit_for_bit(serial_runs, tmp_path):
    begun, ended, told = [], [], []
    parallel = small_study(tmp_path / "runs.jsonl", jobs=2, by_repeat=True)
    assert parallel.run(told.append, lambda key: begun.append(key) or True, ended.append) == []
    assert without_seconds(tmp_path / "runs.jsonl") == serial_runs
    assert len(told) == len(serial_runs) == 8
    assert sorted(begun) == sorted(ended)
    assert len(begun) == 6  # those of CNN + SVM come with CNN-CE


@pytest.mark.thorough
def test_a_worker_killed_in_the_middle_changes_nothing(serial_runs, cluster, tmp_path):
    def kill_the_victim():
        while not (tmp_path / "victim").exists() or not (tmp_path / "victim").read_text():
            time.sleep(0.05)
        cluster.kill(int((tmp_path / "victim").read_text()))

    address, killer = cluster.grow_to(2), threading.Thread(target=kill_the_victim)
    killer.start()
    task = partial(pieces.deadly_task, tmp_path)
    assert small_study(tmp_path / "runs.jsonl", task, scheduler=address).run(lambda _: None) == []
    killer.join()
    assert len([worker for worker in cluster.workers if worker.poll() is None]) == 1
    assert without_seconds(tmp_path / "runs.jsonl") == serial_runs


def test_other_seeds_wait_for_the_one_that_tunes(tmp_path):
    asked = small_study(tmp_path / "runs.jsonl")
    keys = list(asked.keys())
    first = RunKey("tiny", "CNN-CE", 0)
    waiting = [key for key in keys if key != first and asked._must_wait(key, [first], [key])]
    assert waiting == [RunKey("tiny", "CNN-CE", 1), RunKey("tiny", "CNN + SVM", 0)]
    assert not any(asked._must_wait(key, [RunKey("tiny", "LBP", 0), RunKey("tiny", "LMFCN", 0)], [key]) for key in keys)


def test_a_piece_that_nobody_survives_is_a_failure(tmp_path, monkeypatch):
    def lose(function, works, **_):
        for work in works:
            yield work, LostWorkerError("3 processes died.") if work.key.method == "LBP" else function(work)

    monkeypatch.setattr(scheduler, "as_completed", lose)
    monkeypatch.setattr(scheduler, "measure", lambda key, *_: [run_of(*key)])
    told = []
    failures = small_study(tmp_path / "runs.jsonl").run(told.append)
    assert failures == [f"tiny, LBP, seed {seed}: 3 processes died." for seed in (0, 1)]
    assert "tiny, LBP, seed 0: 3 processes died. Going on with the next." in told
    assert {key.method for key in read_runs(tmp_path / "runs.jsonl")} == {"CNN-CE", "CNN + SVM", "LMFCN"}


def test_the_folder_of_the_data_must_be_there(tmp_path, capsys):
    assert study.main(["--methods", "LBP"]) == 2
    assert study.main([str(tmp_path / "nothing")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "Error: DATA is missing: the folder that holds lung, neu and usptex."
    assert said[1].endswith("nothing is none.")


def test_an_interrupt_says_how_to_go_on(command, monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(scheduler, "measure", interrupt)
    assert command("--methods", "LBP") == 130
    assert "the same command goes on" in capsys.readouterr().err


def test_the_tables_of_the_docs_are_those_of_the_runs_that_are_kept(capsys):
    assert study.main(["--table", "--output", str(BENCHMARKS / "study.jsonl"), "--against", "random-fcn"]) == 0
    shown = capsys.readouterr().out
    told = (BENCHMARKS.parent / "docs" / "research" / "baselines.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in told if line.startswith("| ") and "±" in line]
    assert len(rows) > 30
    for row in rows:
        method, *accuracies = row.split(" | ")[:5]  # training, validation, test and the number of seeds
        assert " | ".join([method, *accuracies]) in shown
    assert "| LMFCN minus random-fcn |" in shown


def test_the_tables_of_the_recipe_are_those_of_the_runs_that_are_kept():
    tables = runpy.run_path(str(BENCHMARKS / "recipe_tables.py"))
    runs = list(read_runs(BENCHMARKS / "study.jsonl").values())
    told = (BENCHMARKS.parent / "docs" / "research" / "recipe.md").read_text(encoding="utf-8")
    for name in ("accuracies", "differences", "costs", "support"):
        assert tables[name](runs) in told


def test_a_table_of_nothing_is_refused(command, output, capsys):
    output.parent.mkdir()
    append_run(output, run_of("other", "LBP", 0))
    assert command("--table") == 2
    assert "runs.jsonl holds no run of these methods on these tasks." in capsys.readouterr().err


def test_the_script_is_a_command(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["study.py", "--table", "--output", "nothing"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(study.__file__, run_name="__main__")
    assert ended.value.code == 2
    assert capsys.readouterr().err == "Error: nothing does not exist; without --table the runs are measured.\n"
