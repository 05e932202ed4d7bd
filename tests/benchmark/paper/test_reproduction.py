import csv
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from lmfcn.benchmark import scheduler
from lmfcn.benchmark.paper.printed_tables import METHODS_BY_LABEL
from lmfcn.benchmark.paper.profiles import PROFILES
from lmfcn.benchmark.paper.reproduced_tables import HEADINGS, Outcome, summary_sentence, table_lines, write_tables
from lmfcn.benchmark.paper.reproduction import Request, prepare
from lmfcn.benchmark.runs import Run, read_lines
from lmfcn.benchmark.statistics import summarize
from lmfcn.benchmark.tables import spread
from lmfcn.method.history import TrainingError
from published_trees import make_trees

PAPER = "LMFCN (paper)"


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    trees = make_trees(tmp_path_factory.mktemp("trees"), side=20)
    return {"BACH": trees["bach"], "BreaKHis": trees["breakhis"], "CRC": trees["crc"], "Salzburg": trees["stex"]}


@pytest.fixture
def measured(monkeypatch):
    """Replace training by made-up results; return the keys that were asked for."""
    keys = []

    def measure(key, parts, choice, changes, beside):
        keys.append(key)
        assert (choice, beside) == ({}, [])  # nothing is tuned, nothing comes along
        epochs = {"epochs": 5, "best_epoch": 2 + key.seed} if "LMFCN" in key.method else {}
        settings = dict(changes.get(key.method, {}))
        yield Run(
            *key, 1.0, 0.8, 0.9 + key.seed / 10, 10, 10, 1.0, split=parts.fingerprint(), settings=settings, **epochs
        )

    monkeypatch.setattr(scheduler, "measure", measure)
    return keys


def silent(_):
    pass


@pytest.fixture
def quick(tmp_path):
    return Request(["table2", "table3"], tmp_path / "out", "quick", size=16)


def test_a_set_that_is_not_given_is_missing_and_not_faked(quick, measured):
    reproduction = prepare(quick)
    assert {row.task.images for row in reproduction.measurable} == {"Gaussian", "Gaussian (ours)"}
    assert reproduction.run(silent) == []
    assert {key.task for key in measured} == {
        f"{images}{more}, quick" for images in ("Gaussian", "Gaussian (ours)") for more in ("", ", 59 dimensions")
    }
    lines = table_lines(reproduction, 2)
    assert len(lines) == 36
    bach = lines[0]
    assert (bach.runs, bach.remark) == ([], "not run: the images were not given (--bach DIR)")
    assert bach.entries[2:5] == ["0.8811 ± 0.0426", "-", "-"]
    (resnet,) = (line for line in lines if line.row.label == "ResNet18" and line.row.task.images == "Gaussian")
    assert resnet.remark == "not run: its weights were not given (--resnet18-weights FILE)"
    notes = reproduction.notes
    assert notes[0] == reproduction.profile.warning
    assert notes[0].startswith(
        "This is the quick profile: few images, few epochs, images of 16 pixels instead of 128, "
    )
    assert "Salzburg is missing: the images were not given (--stex DIR)." in notes
    assert "InceptionV3 is not run: its weights were not given (--inception-weights FILE)." in notes


def test_our_figures_stand_beside_the_papers_with_the_difference(quick, measured):
    reproduction = prepare(quick)
    reproduction.run(silent)
    assert len(measured) == len(set(measured)) == 2 * 2 * 8
    line, on_ours = (line for line in table_lines(reproduction, 2) if line.row.label == "LMFCN (paper)" and line.runs)
    assert on_ours.entries[:2] == ["Gaussian (ours)", "LMFCN (paper)"]
    assert on_ours.entries[8:13] == ["-", "0.9500 ± 0.0707", "-", "-", "2"]  # the paper has no results on these images
    assert dict(zip(HEADINGS, line.entries, strict=True)) == {
        "images": "Gaussian",
        "method": "LMFCN (paper)",
        "train, paper": "1.0000 ± 0.0000",
        "train, ours": "1.0000 ± 0.0000",
        "train, difference": "+0.0000",
        "validation, paper": "1.0000 ± 0.0000",
        "validation, ours": "0.8000 ± 0.0000",
        "validation, difference": "-0.2000",
        "test, paper": "0.9990 ± 0.0022",
        "test, ours": "0.9500 ± 0.0707",
        "test, difference": "-0.0490",
        "epoch, paper": "2",
        "epoch, ours": "2",
        "repetitions": "2",
        "remark": "",
    }
    # Table 2 of the Gaussian images: 0.999, 1 and 1 against our 0.95.
    assert summary_sentence(table_lines(reproduction, 2)) == (
        "3 of the paper's 25 rows are measured, and 1 of our LMFCN. Our mean test balanced accuracy differs from the"
        " paper's by 0.050 in the median row; the largest difference, ours minus the paper's, is -0.050 (Gaussian,"
        " CNN-CE)."
    )


def test_nothing_runs_twice_unless_parameters_or_images_changed(quick, measured):
    prepare(quick).run(silent)
    n_runs = len(measured)
    prepare(quick).run(silent)
    prepare(replace(quick, what=["table2"], only=["CNN-CE,LMFCN (paper)"])).run(silent)
    assert len(measured) == n_runs
    prepare(replace(quick, repeats=3, what=["table2"], only=["CNN-CE"])).run(silent)
    assert measured[n_runs:] == [("Gaussian, quick", "CNN-CE", 2), ("Gaussian (ours), quick", "CNN-CE", 2)]
    larger = replace(quick, size=20)
    assert prepare(larger).runs() == {}
    prepare(larger).run(silent)
    assert len(measured) == 2 * n_runs + 2
    prepare(quick).run(silent)  # its lines are still there
    assert len(measured) == 2 * n_runs + 2
    assert len(prepare(quick).runs()) == n_runs


def test_changed_epochs_repeat_only_what_they_concern(quick, measured, monkeypatch):
    prepare(quick).run(silent)
    n_runs = len(measured)
    monkeypatch.setitem(PROFILES, "quick", replace(PROFILES["quick"], cnn_epochs=9))
    prepare(quick).run(silent)
    assert {key.method for key in measured[n_runs:]} == {"CNN-CE", "CNN-H"}
    assert len(measured) == n_runs + 8


def test_an_interrupted_table_goes_on(quick, measured):
    asked = []

    def stop_at_the_third(key):
        asked.append(key)
        return len(asked) < 3

    reproduction = prepare(replace(quick, what=["table2"]))
    reproduction.run(silent, stop_at_the_third)
    assert len(measured) == 2
    assert "Finished runs: 2 of 16. The same command goes on." in Outcome(reproduction, [], [], "").remarks
    (partial,) = (line for line in table_lines(reproduction, 2) if line.runs)
    assert partial.remark == ""
    assert {line.remark for line in table_lines(reproduction, 2)} >= {"", "not measured yet"}
    reproduction.run(silent)
    assert len(measured) == len(reproduction.keys) == 16


def test_all_tables_of_all_sets(roots, tmp_path, measured):
    reproduction = prepare(Request(["all"], tmp_path, "quick", roots, size=16, repeats=1))
    assert "BACH" in " ".join(reproduction.remarks)  # which is not a whole copy
    reproduction.run(silent)
    tasks = {key.task.removesuffix(", quick") for key in measured}
    assert {"BACH, 162 dimensions", "BreaKHis, 8 classes", "CRC, 59 dimensions", "Salzburg", "CRC, 8 classes"} <= tasks
    lines = [line for table in (2, 3, 4) for line in table_lines(reproduction, table)]
    assert {line.row.label for line in lines if not line.runs} == {"ResNet18", "InceptionV3"}
    outcome = Outcome(reproduction, [], ["BACH, LBP, seed 0: Bad."], "lmfcn reproduce all")
    assert outcome.remarks[-1] == "A training failed: BACH, LBP, seed 0: Bad."
    write_tables(outcome, tmp_path)
    for table, n_rows in ((2, 36), (3, 32), (4, 24)):
        text = (tmp_path / f"table{table}.md").read_text()
        assert f"# Table {table}: " in text
        assert reproduction.profile.warning in text
        assert text.count("\n| ") == n_rows + 1
        assert reproduction.profile.warning in (tmp_path / f"table{table}.tex").read_text()
        rows = list(csv.DictReader((tmp_path / f"table{table}.csv").read_text().splitlines()))
        assert len(rows) == n_rows
        assert {row["profile"] for row in rows} == {"quick"}
    first = next(row for row in rows if row["method"] == "LMFCN (paper)")
    assert float(first["test_difference"]) == pytest.approx(0.9 - 0.6854)
    assert (first["test_paper"], first["test_ours_deviation"], first["repetitions"]) == ("0.6854", "", "1")


def test_the_full_profile_says_nothing_of_quick(tmp_path, measured):
    reproduction = prepare(Request(["table3"], tmp_path, "full", size=16, repeats=1, only=["LBP"]))
    reproduction.run(silent)
    assert measured == [("Gaussian", "LBP", 0), ("Gaussian (ours)", "LBP", 0)]
    write_tables(Outcome(reproduction, [], [], ""), tmp_path)
    for ending in ("md", "tex", "csv"):
        assert "quick" not in (tmp_path / f"table3.{ending}").read_text()
    assert "PFTAS is not run: left out by --only." in reproduction.notes


def test_our_lmfcn_is_not_a_row_of_the_paper(quick, measured):
    reproduction = prepare(replace(quick, only=["LMFCN"], repeats=1))
    reproduction.run(silent)
    assert len(measured) == 2
    assert (
        summary_sentence(table_lines(reproduction, 2)) == "0 of the paper's 25 rows are measured, and 1 of our LMFCN."
    )


def test_runs_come_under_the_names_of_their_rows(quick, measured):
    reproduction = prepare(quick)
    reproduction.run(silent)
    runs = reproduction.printed_runs()
    assert len(runs) == len(measured)
    assert {run.task for run in runs} == {
        "Gaussian, quick",
        "Gaussian (ours), quick",
    }  # 59 dimensions have the same splits
    assert list(dict.fromkeys(run.method for run in runs)) == [
        *("LMFCN (paper)", "LMFCN", "CNN-CE", "CNN-H", "LMFCN-59", "GLCM", "LBP", "PFTAS")
    ]
    assert {reproduction.label_of(key) for key in measured} == {run.method for run in runs}


def test_groups_are_checked(roots, tmp_path):
    apart = prepare(Request(["table2", "table4"], tmp_path, "quick", roots, size=16))
    assert apart.leak_check["CRC, 8 classes, quick"] == "none of its 4 slides is in more than one part of a split."
    assert apart.leak_check["BACH, quick"].startswith(
        "whether a patient is in more than one part of a split cannot be "
    )
    assert len(apart.leak_check) == 7
    separated = prepare(Request(["table2"], tmp_path, "quick", roots, size=16, by_image=True))
    # Two tiles of each of eight textures: some pair is separated whatever the seed.
    assert re.fullmatch(
        r"up to [1-8] of its 8 textures are in more than one part of a split, so that test accuracies are too good\.",
        separated.leak_check["Salzburg, quick"],
    )
    ignored = "Patients, slides and textures are split (--ignore-groups): test accuracies are too good."
    assert ignored in separated.notes
    assert ignored not in apart.notes


def test_a_training_that_fails_leaves_its_row_open(quick, monkeypatch):
    def fail(*_):
        raise TrainingError("The latents collapsed.")
        yield

    monkeypatch.setattr(scheduler, "measure", fail)
    reproduction = prepare(replace(quick, only=["LBP"], repeats=1))
    assert reproduction.run(silent) == [
        f"{images}, quick, LBP, seed 0: The latents collapsed." for images in ("Gaussian", "Gaussian (ours)")
    ]
    assert reproduction.runs() == {}


@pytest.mark.filterwarnings("ignore:Training ended")
def test_runs_of_real_methods_tell_everything(tmp_path, monkeypatch):
    tiny = replace(PROFILES["quick"], n_gaussians=(8, 6, 6), lmfcn_epochs=1, size=16, repeats=1)
    monkeypatch.setitem(PROFILES, "quick", tiny)
    reproduction = prepare(Request(["table2"], tmp_path, "quick", only=[PAPER]))
    assert reproduction.run(silent) == []
    run, on_ours = read_lines(tmp_path / "runs.jsonl")
    assert (run.task, on_ours.task) == ("Gaussian, quick", "Gaussian (ours), quick")
    assert run.split != on_ours.split
    assert (run.method, run.seed, run.n_train, run.n_test) == (PAPER, 0, 16, 12)
    assert (run.settings["latent_dim"], run.settings["recipe"], run.settings["epochs"]) == (16, "paper", 1)
    assert len(run.split) == len(run.digest) == 32
    assert run.machine["cores"] >= 1
    assert "torch" in run.versions
    assert len(run.history[0]["n_support"]) == run.epochs + 1
    assert json.loads((tmp_path / "runs.jsonl").read_text().splitlines()[0])["digest"] == run.digest


def test_the_command_runs_the_same_again(tmp_path):
    request = Request(
        ["table2", "figure1"],
        tmp_path / "an output",
        "quick",
        {"BACH": tmp_path / "bach"},
        {"ResNet18": tmp_path / "w.pth"},
        64,
        3,
        ["LBP", "LMFCN"],
        by_image=True,
        jobs=2,
        scheduler="tcp://10.0.0.1:8786",
    )
    assert shlex.split(request.command) == [
        *("lmfcn", "reproduce", "table2", "figure1", "--profile", "quick", "--output", str(tmp_path / "an output")),
        *("--bach", str(tmp_path / "bach"), "--resnet18-weights", str(tmp_path / "w.pth"), "--size", "64"),
        *("--repeats", "3", "--only", "LBP,LMFCN", "--ignore-groups"),
        *("--jobs", "2", "--scheduler", "tcp://10.0.0.1:8786"),
    ]
    assert request.wanted == ["table2", "figure1"]
    assert Request(["all"]).wanted == ["table2", "table3", "table4", "figure1", "figure3"]


@pytest.mark.parametrize(
    ("heading", "images"),
    [
        ("Results on the paper's Gaussian images", "Gaussian"),
        ("Results on our Gaussian images", "Gaussian (ours)"),
    ],
)
def test_the_numbers_of_the_docs_are_those_of_the_runs(heading, images):
    root = Path(__file__).parents[3]
    text = (root / "docs" / "research" / "reproduction.md").read_text()
    block = next(block for block in text.split("\n## ") if block.startswith(heading))
    rows = [line.strip("| ").split(" | ") for line in block.splitlines() if re.match(r"\| [23] \| ", line)]
    assert rows
    runs = [
        run for run in read_lines(root / "benchmarks" / "reproduction.jsonl") if run.task.partition(",")[0] == images
    ]
    for _, label, dimensions, *entries in rows:
        same = [run for run in runs if run.method == METHODS_BY_LABEL[label] and "pixels" not in run.task]
        if dimensions.isdigit():
            same = [run for run in same if run.settings["latent_dim"] == int(dimensions)]
        assert sorted(run.seed for run in same) == list(range(len(same)))
        assert spread(summarize([run.test_balanced_accuracy for run in same]), 4) in entries, (label, entries)
        assert images != "Gaussian" or entries[-1] == str(len(same))
