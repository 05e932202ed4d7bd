import io
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from lmfcn import __main__ as commands
from lmfcn.benchmark.runs import read_runs
from lmfcn.cli import compare as command
from lmfcn.util.files import LockFile


@pytest.fixture
def folder(tmp_path, random):
    for label, low in (("bark", 0), ("wood", 100)):
        (tmp_path / "trees" / label).mkdir(parents=True)
        for number in range(8):
            pixels = random.integers(low, low + 150, (16, 16), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "trees" / label / f"{number}.png")
    return tmp_path / "trees"


@pytest.fixture
def lmfcn(monkeypatch, capsys, tmp_path):
    """Run the command in this process; return its exit code and what it printed."""
    monkeypatch.setattr("lmfcn.baselines.feature_svm.C_FACTORS", (1.0,))
    monkeypatch.setattr("lmfcn.baselines.feature_svm.GAMMA_FACTORS", (1.0,))

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["lmfcn", "compare", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            commands.main()
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err

    return run


FAST = ("--methods", "pftas,LBP", "--repeats", "2")


def test_compare_tells_and_writes(lmfcn, folder, tmp_path):
    code, stdout, _ = lmfcn(folder, *FAST, "--quiet")
    assert code == 0
    lines = stdout.splitlines()
    assert lines[0].startswith("trees      LBP                         seed 0 | test ")
    assert len([line for line in lines if line.startswith("trees ")]) == 4
    assert " has the best mean test balanced accuracy, " in stdout
    assert "2 repeats are too few to tell " in stdout
    assert stdout.endswith("Report: comparison/report.html\n")
    names = sorted(path.name for path in (tmp_path / "comparison").iterdir())
    assert names == ["report.html", "results.csv", "results.md", "runs.jsonl"]
    again, stdout, _ = lmfcn(folder, *FAST, "--quiet")
    assert again == 0
    assert not stdout.startswith("trees ")
    assert len(read_runs(tmp_path / "comparison" / "runs.jsonl")) == 4


def test_a_terminal_gets_a_table_that_moves(lmfcn, folder, monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(command, "Console", lambda: Console(file=screen, force_terminal=True, width=90))
    code, stdout, _ = lmfcn(folder, *FAST, "--output", "out")
    assert code == 0
    assert "seed 0" not in stdout
    shown = screen.getvalue()
    assert "Test balanced accuracy on trees" in shown
    assert "Now: PFTAS, repeat 2 of 2." in shown
    assert shown.count("2 of 2") >= 2


def test_several_runs_at_a_time_share_the_table(lmfcn, folder, monkeypatch, tmp_path):
    from lmfcn.benchmark import scheduler as studies

    asked = []

    def two_at_a_time(function, works, *, jobs, scheduler, catch):
        asked.append((jobs, scheduler, catch))
        for pair in zip(works, works, strict=True):
            yield from [(work, function(work)) for work in pair]

    screen = io.StringIO()
    monkeypatch.setattr(command, "Console", lambda: Console(file=screen, force_terminal=True, width=90))
    monkeypatch.setattr(studies, "as_completed", two_at_a_time)
    places = ("--jobs", "2", "--scheduler", "tcp://somewhere:8786")
    assert lmfcn(folder, *FAST, *places)[0] == 0
    assert asked == [(2, "tcp://somewhere:8786", studies.LostWorkerError)]
    assert "Now: LBP, repeat 1 of 2; PFTAS, repeat 1 of 2." in screen.getvalue()
    assert "Now: PFTAS, repeat 2 of 2." in screen.getvalue()
    assert " ".join(places) in (tmp_path / "comparison" / "results.md").read_text()


def test_an_address_that_is_none_leaves_no_folder(lmfcn, folder, tmp_path):
    code, _, stderr = lmfcn(folder, *FAST, "--quiet", "--scheduler", "http://localhost:8787")
    assert code == 2
    assert "dashboard" in stderr
    assert not (tmp_path / "comparison").exists()


def test_two_comparisons_do_not_share_a_folder(lmfcn, folder, tmp_path):
    (tmp_path / "comparison").mkdir()
    with LockFile(tmp_path / "comparison" / "runs.jsonl", "busy"):
        code, _, stderr = lmfcn(folder, *FAST, "--quiet")
    assert code == 2
    assert "wait until it has ended, or give another --output" in " ".join(stderr.split())


def test_the_time_budget_ends_it_with_what_is_there(lmfcn, folder, monkeypatch, tmp_path):
    clock = iter([0.0, 1.0, 2.0, 61.0])  # the start, and before each run
    # Only the command's clock: other threads look at the real one.
    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    code, stdout, _ = lmfcn(folder, *FAST, "--quiet", "--time-budget", "1")
    assert code == 0
    assert len(read_runs(tmp_path / "comparison" / "runs.jsonl")) == 2
    assert "- Complete repeats: 1 of 2," in stdout


def test_an_interrupt_leaves_tables_and_code_130(lmfcn, folder, monkeypatch, tmp_path):
    from lmfcn.benchmark import scheduler as studies

    whole = studies.measure

    def interrupted(key, *others):
        if key.seed == 1:
            raise KeyboardInterrupt
        yield from whole(key, *others)

    monkeypatch.setattr(studies, "measure", interrupted)
    code, stdout, _ = lmfcn(folder, *FAST, "--quiet")
    assert code == 130
    assert "The same command goes on." in stdout
    assert "LBP" in (tmp_path / "comparison" / "results.md").read_text()
    code, _, stderr = lmfcn(folder, *FAST, "--quiet", "--seed", "1", "--output", "other")
    assert (code, stderr) == (130, "Stopped before anything was measured.\n")


def test_a_failed_training_ends_with_code_1(lmfcn, folder, monkeypatch):
    from lmfcn.benchmark import scheduler as studies
    from lmfcn.method.history import TrainingError

    whole = studies.measure

    def failing(key, *others):
        if key.method == "PFTAS":
            raise TrainingError("The features are not finite.")
        yield from whole(key, *others)

    monkeypatch.setattr(studies, "measure", failing)
    code, stdout, _ = lmfcn(folder, *FAST, "--quiet")
    assert code == 1
    assert "- A training failed: trees, PFTAS, seed 0: The features are not finite." in stdout
    code, stdout, stderr = lmfcn(folder, "--methods", "PFTAS", "--repeats", "1", "--quiet", "--output", "other")
    assert code == 1
    assert stdout == "trees, PFTAS, seed 0: The features are not finite. Going on with the next.\n"
    assert stderr == "No method could be measured.\n"
    screen = io.StringIO()
    monkeypatch.setattr(command, "Console", lambda: Console(file=screen, force_terminal=True, width=120))
    assert lmfcn(folder, "--methods", "PFTAS,LBP", "--repeats", "1", "--output", "third")[0] == 1
    assert screen.getvalue().count("PFTAS, seed 0: The features are not finite. Going on with the next.") == 1


def test_without_a_repeat_in_common_there_is_no_verdict_yet(lmfcn, folder, monkeypatch, tmp_path):
    from lmfcn.benchmark import scheduler as studies
    from lmfcn.method.history import TrainingError

    whole = studies.measure

    def failing(key, *others):
        if key.seed == (key.method == "LBP"):
            raise TrainingError("Not this time.")
        yield from whole(key, *others)

    monkeypatch.setattr(studies, "measure", failing)
    code, stdout, stderr = lmfcn(folder, *FAST, "--quiet")
    assert (code, stderr) == (1, "")
    assert stdout.endswith("No repeat is complete yet; run the same command to continue.\n")
    assert [path.name for path in (tmp_path / "comparison").iterdir()] == ["runs.jsonl"]
    monkeypatch.setattr(studies, "measure", whole)
    assert lmfcn(folder, *FAST, "--quiet")[0] == 0


def test_without_the_extra_everything_but_the_report_is_there(lmfcn, folder, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "lmfcn.report.comparison_page", None)
    code, stdout, _ = lmfcn(folder, *FAST, "--quiet")
    assert code == 0
    assert "pip install 'lmfcn[report]'" in stdout
    assert not (tmp_path / "comparison" / "report.html").exists()
    assert (tmp_path / "comparison" / "results.csv").exists()


def test_quick_is_said_everywhere(lmfcn, folder, tmp_path):
    code, stdout, _ = lmfcn(folder, "--methods", "LBP", "--quick", "--quiet")
    assert code == 0
    assert "- This was a quick look" in stdout
    assert {run.seed for run in read_runs(tmp_path / "comparison-quick" / "runs.jsonl").values()} == {0, 1, 2}
    for name in ("results.md", "report.html"):
        assert "trees, quick" in (tmp_path / "comparison-quick" / name).read_text()
    code, stdout, _ = lmfcn(folder, "--methods", "LBP", "--repeats", "1", "--quiet")  # the real comparison after it
    assert code == 0
    assert stdout.endswith("Report: comparison/report.html\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing"], "nothing does not exist."),
        (["trees", "--methods", "SVM"], "There is no method 'svm'; there are LMFCN; "),
        (["trees", "--color", "red"], "--color must be one of 'keep', 'grey', 'rgb', got 'red'."),
        (["trees/bark"], "must hold one folder of images per class"),
        (["one"], "one must hold at least two classes, got one: bark."),
        (["few"], "Class 'wood' has 2 images, too few for the fractions"),
        (["groups.csv"], "The 2 groups cannot be split so that every class is in every part"),
        (["trees", "--output", "groups.csv"], "groups.csv"),
        (["trees", "--resnet18-weights", "none.pth"], "none.pth must be a file of weights, but there is none"),
        (["trees", "--inception-weights", "none.pth"], "none.pth must be a file of weights, but there is none"),
    ],
)
def test_mistakes_end_with_one_sentence_and_code_2(lmfcn, folder, tmp_path, arguments, sentence):
    for name, labels in (("one", ["bark"]), ("few", ["bark", "wood"])):
        for label in labels:
            (tmp_path / name / label).mkdir(parents=True)
            for number in range(2 if label == "wood" else 8):
                (tmp_path / name / label / f"{number}.png").write_bytes((folder / label / f"{number}.png").read_bytes())
    rows = [f"trees/{label}/{number}.png,{label},{number % 2}" for label in ("bark", "wood") for number in range(8)]
    (tmp_path / "groups.csv").write_text("path,label,group\n" + "\n".join(rows))
    code, _, stderr = lmfcn(*arguments, "--quiet")
    assert code == 2
    assert stderr.startswith("Error: ")
    assert stderr.count("\n") == 1
    assert sentence in stderr
