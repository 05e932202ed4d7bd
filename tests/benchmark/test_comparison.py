import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_verdict import BEST, NEAR, WORST

from lmfcn.benchmark.comparison import Outcome, Request, as_csv, as_markdown, gaps_table, prepare, write_results
from lmfcn.benchmark.measure import DEFAULT_METHODS, METHODS, RUN_ORDER, choose_methods, runnable_methods
from lmfcn.benchmark.runs import read_lines, read_runs
from lmfcn.benchmark.verdict import make_verdict
from lmfcn.data.collection import ImageCollection

TINY = {"epochs": 2, "latent_dim": 4, "widths": (6,), "device": "cpu"}
CHANGES = {"LMFCN": TINY, "CNN-CE": TINY}


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch):
    monkeypatch.setattr("lmfcn.baselines.feature_svm.C_FACTORS", (1.0,))
    monkeypatch.setattr("lmfcn.baselines.feature_svm.GAMMA_FACTORS", (1.0, 0.3))


@pytest.fixture
def folder(tmp_path, random):
    return texture_folder(tmp_path / "cloth", random)


def texture_folder(folder, random, n=10):
    for label, grain in (("fine", 1), ("coarse", 4)):
        (folder / label).mkdir(parents=True)
        for number in range(n):
            pixels = random.integers(0, 256, (16 // grain, 16 // grain), dtype=np.uint8)
            picture = Image.fromarray(np.kron(pixels, np.ones((grain, grain), np.uint8)))
            picture.save(folder / label / f"{number}.png")
    return folder


def request(folder, **options):
    return Request(folder, folder.parent / "out", **{"methods": ["LBP", "PFTAS"], "repeats": 2, **options})


def outcome_of(asked, changes=CHANGES, may_start=lambda _: True):
    comparison = prepare(asked, changes)
    failures = comparison.run(lambda _: None, may_start)
    return Outcome(comparison, comparison.runs(), failures, asked.command)


def test_a_comparison_from_folder_to_tables(folder):
    asked = request(folder, methods=["cnn-ce", "LBP,LMFCN, ResNet18", "CNN + SVM"], seed=3)
    outcome = outcome_of(asked)
    names = {"LBP", "LMFCN", "CNN-CE", "CNN + SVM"}
    assert {(run.method, run.seed) for run in outcome.runs} == {(name, seed) for name in names for seed in (3, 4)}
    assert set(outcome.comparison.left_out) == {"ResNet18"}
    for run in outcome.runs:
        assert (run.n_train, run.n_validation, run.n_test) == (12, 4, 4)
        assert len(run.tried) == (4 if run.seed == 3 and run.method.startswith("CNN") else 1)
    assert len({run.split for run in outcome.runs}) == 2
    write_results(outcome, asked.output)
    text = (asked.output / "results.md").read_text()
    assert text.startswith("# Methods compared on cloth\n\n")
    assert outcome.verdict.sentences[0] in text
    assert f"| {outcome.verdict.winner} |" in text  # not in bold: two repeats are too few to tell
    assert "- Each repeat was tested on 4 images; one image changes a balanced accuracy by up to 0.250." in text
    assert "- ResNet18 is left out: " in text
    assert "20 images; classes: coarse (10), fine (10). No image is the same" in text
    assert f"```\n{asked.command}\n```" in text
    rows = list(csv.DictReader((asked.output / "results.csv").read_text().splitlines()))
    assert len(rows) == 8
    assert {row["method"] for row in rows} == names
    assert float(rows[0]["test_balanced_accuracy"]) == next(
        run.test_balanced_accuracy for run in outcome.runs if run.key == ("cloth", "CNN + SVM", 3)
    )
    assert json.loads(rows[0]["chosen"]) == json.loads(rows[2]["chosen"])  # that of the CNN whose network it uses
    check_summary(asked, outcome)


def check_summary(asked, outcome):
    """Only LMFCN's first repeat has one, and it is there when nothing is left to run."""
    (path,) = asked.output.glob("exhibit-*")
    written = path.read_bytes()
    again = outcome_of(asked)
    assert path.read_bytes() == written
    run, summary = again.model_summary
    assert run.key == ("cloth", "LMFCN", 3)
    assert summary.classes == run.classes == ["coarse", "fine"]
    assert np.array_equal(summary.test.marked, np.not_equal(run.test_classes, run.predicted_classes))
    assert all(hard.picture.name.endswith(".png") for hard in summary.hardest)
    assert all(run.model_summary is None for run in outcome.runs)
    path.write_bytes(written[:-9])
    with pytest.warns(UserWarning, match="Left out of the report: .* is truncated"):
        assert again.model_summary is None


def test_all_methods_end_a_repeat_before_the_next_begins(folder):
    asked = request(folder, methods=["PFTAS", "random-fcn", "LBP"])
    outcome = outcome_of(asked, {"random-fcn": {"latent_dim": 4, "widths": (6,)}})
    order = [(run.seed, run.method) for run in read_runs(asked.output / "runs.jsonl").values()]
    assert order == [(seed, method) for seed in (0, 1) for method in ("LBP", "PFTAS", "random-fcn")]
    assert outcome.shared == outcome.runs


def test_what_the_time_cuts_off_is_done_the_next_time(folder):
    begun = []
    first = outcome_of(request(folder), may_start=lambda key: begun.append(key) or len(begun) <= 3)
    assert len(first.runs) == 3
    assert first.verdict.n_repeats == 1
    assert {run.seed for run in first.shared} == {0}
    assert "Complete repeats: 1 of 2, and only those count here. The same command goes on." in first.remarks
    assert len(as_csv(first.runs).splitlines()) == 1 + 3
    before = (folder.parent / "out" / "runs.jsonl").read_text()
    whole = outcome_of(request(folder))
    assert len(whole.runs) == 4
    assert (folder.parent / "out" / "runs.jsonl").read_text().startswith(before)
    assert not [remark for remark in whole.remarks if "Complete" in remark]


def test_a_method_that_was_not_reached_is_named(folder):
    cut = outcome_of(request(folder), may_start=lambda key: key.method == "LBP")
    assert cut.waiting == ["PFTAS"]
    assert "Complete repeats: 0 of 2. Not in the verdict: PFTAS has 0. The same command goes on." in cut.remarks
    assert cut.verdict.sentences[0].startswith("Preliminary: only LBP was measured")
    assert "behind" not in as_markdown(cut)


def test_a_method_that_is_added_does_not_undo_the_verdict_of_the_others(folder):
    outcome_of(request(folder, repeats=3))
    changes = {"random-fcn": {"latent_dim": 4, "widths": (6,)}}
    asked = request(folder, methods=["LBP", "PFTAS", "random-fcn"], repeats=3)
    cut = outcome_of(asked, changes, lambda key: key.seed == 0)
    assert (cut.verdict.n_repeats, len(cut.runs), len(cut.shared)) == (3, 7, 6)
    assert cut.verdict.sentences[0].endswith(" alone; not in it: random-fcn.")
    assert "Complete repeats: 1 of 3. Not in the verdict: random-fcn has 1. The same command goes on." in cut.remarks
    whole = outcome_of(asked, changes)
    assert (whole.verdict.n_repeats, len(whole.shared), whole.waiting) == (3, 9, [])
    assert whole.verdict is whole.verdict  # judged once


def test_runs_with_other_parameters_do_not_count(folder):
    asked = request(folder, repeats=1)
    outcome_of(asked, {"PFTAS": {"validation_fraction": 0.1}})
    now = prepare(asked, {})
    assert [run.method for run in now.runs()] == ["LBP"]
    now.run(lambda _: None)
    assert {run.method for run in now.runs()} == {"LBP", "PFTAS"}
    (pftas,) = (run for run in now.runs() if run.method == "PFTAS")
    assert pftas.settings["validation_fraction"] == 0.0
    assert len(read_lines(now.output)) == 3


def test_runs_of_other_data_are_not_mixed(folder, random):
    outcome_of(request(folder, repeats=1))
    with pytest.raises(ValueError, match=r"holds runs of 'cloth', not of 'cloth, quick'; give another --output\."):
        outcome_of(request(folder, repeats=1, quick=True))
    with pytest.raises(ValueError, match="holds runs of other images, labels, groups or sizes than 'cloth' has now"):
        outcome_of(request(folder, size=8))
    Image.fromarray(random.integers(0, 256, (16, 16), dtype=np.uint8)).save(folder / "fine" / "0.png")
    with pytest.raises(ValueError, match="holds runs of other images"):
        outcome_of(request(folder))


def test_every_method_has_its_place_in_the_order():
    assert set(RUN_ORDER) == set(METHODS)
    assert len(RUN_ORDER) == len(METHODS)
    assert choose_methods(["all"]) == list(RUN_ORDER)
    assert set(choose_methods(DEFAULT_METHODS)) == set(DEFAULT_METHODS)
    assert choose_methods(["lmfcn (PAPER),LMFCN,untrained"]) == ["LMFCN, untrained", "LMFCN (paper)"]


@pytest.mark.parametrize(
    ("names", "sentence"),
    [(["LBP", "SVM"], r"There is no method 'svm'; there are LMFCN; .*; and all\."), ([","], "names no method")],
)
def test_names_of_no_method_are_refused(names, sentence):
    with pytest.raises(ValueError, match=sentence):
        choose_methods(names)


def test_methods_that_cannot_take_the_images_are_left_out(random):
    deep = ImageCollection(random.integers(0, 60000, (4, 16, 16, 5)).astype(np.uint16), labels=[0, 0, 1, 1])
    able, left_out = runnable_methods(["LBP", "LMFCN", "ResNet18", "CNN-CE"], deep)
    assert able == ["LMFCN", "CNN-CE"]
    assert left_out["LBP"].startswith("LBP is defined for 8-bit grey or RGB images, got 5 channels of uint16 pixels;")
    assert left_out["ResNet18"] == "its weights were not given (--resnet18-weights FILE)."
    with pytest.raises(ValueError, match="None of the methods can run: LBP is defined for"):
        runnable_methods(["LBP"], deep)


def test_of_two_classes_the_wide_cnn_is_the_same_network(random):
    images = random.integers(0, 256, (6, 16, 16), dtype=np.uint8)
    two, three = (ImageCollection(images, labels=np.arange(6) % n) for n in (2, 3))
    both = ["CNN-CE", "CNN multiclass"]
    assert runnable_methods(both, two) == (
        ["CNN-CE"],
        {"CNN multiclass": "with two classes it is the same network as CNN-CE."},
    )
    assert runnable_methods(both, three) == (both, {})
    assert runnable_methods(["CNN multiclass"], two) == (["CNN multiclass"], {})


def test_weights_that_are_given_reach_their_method(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("lmfcn.benchmark.measure.check_requirements", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    Path("resnet18.pth").touch()
    asked = request(folder, weights={"ResNet18": Path("resnet18.pth")})
    assert asked.command.endswith(" --resnet18-weights resnet18.pth")
    comparison = prepare(asked, {"ResNet18": {"n_components": 4}})
    assert comparison.methods == ["LBP", "PFTAS", "ResNet18"]
    assert comparison.changes["ResNet18"] == {"n_components": 4, "weights": str(tmp_path / "resnet18.pth")}
    with pytest.raises(ValueError, match=r"none\.pth must be a file of weights, but there is none of that name\."):
        prepare(request(folder, weights={"InceptionV3": tmp_path / "none.pth"}))


def test_a_collection_is_called_by_its_whole_name(folder, tmp_path):
    dotted = folder.rename(tmp_path / "cloth.v2")
    assert prepare(request(dotted)).name == "cloth.v2"
    rows = [f"{path},{path.parent.name}" for path in sorted(dotted.glob("*/*.png"))]
    (tmp_path / "table.csv").write_text("\n".join(["path,label", *rows]))
    assert prepare(request(tmp_path / "table.csv", quick=True)).name == "table, quick"


def test_a_missing_extra_leaves_out_only_its_methods(folder, monkeypatch):
    def needs(module, extra):
        raise ImportError(f"This needs {module}: pip install 'lmfcn[{extra}]' (none).")

    monkeypatch.setattr("lmfcn.baselines.descriptors.needs", needs)
    comparison = prepare(request(folder, methods=["LBP", "random-fcn"]), {})
    assert comparison.methods == ["random-fcn"]
    assert comparison.left_out == {"LBP": "This needs mahotas: pip install 'lmfcn[textures]' (none)."}


def test_mixed_sizes_are_compared_as_they_are(folder, random):
    Image.fromarray(random.integers(0, 256, (24, 20), dtype=np.uint8)).save(folder / "fine" / "large.png")
    changes = {"random-fcn": {"latent_dim": 4, "widths": (6,)}}
    outcome = outcome_of(request(folder, repeats=1, methods=["LBP", "random-fcn"]), changes)
    assert len(outcome.runs) == 2
    assert outcome.comparison.data.found.sizes == {"16x16": 20, "20x24": 1}  # width x height


def test_the_command_is_what_was_asked():
    plain = Request("my images")
    assert plain.command == "lmfcn compare 'my images' --output comparison --repeats 5"
    asked = Request("a", "b", ["LBP", "LMFCN"], None, 32, "grey", 7, ignore_split=True, quick=True, jobs=4)
    assert asked.command == (
        "lmfcn compare a --output b --repeats 3 --methods LBP,LMFCN --size 32 --color grey --seed 7"
        " --ignore-split --quick --jobs 4"
    )
    assert Request("a", scheduler="tcp://b:8786").command.endswith(" --repeats 5 --scheduler tcp://b:8786")


def test_what_each_method_is_behind():
    assert gaps_table(make_verdict([*WORST, *NEAR, *BEST])).splitlines() == [
        "| behind CNN-CE | by | 95 % interval | p, Holm's correction | more than chance |",
        "|---|---|---|---|---|",
        "| GLCM | 0.010 | -0.019 to +0.039 | 0.399 | no |",
        "| LBP | 0.200 | +0.187 to +0.213 | < 0.001 | yes |",
    ]


def test_two_repeats_are_not_tested():
    assert gaps_table(make_verdict([*BEST[:2], *WORST[:2]])).endswith("| LBP | 0.195 | - | - | - |")


def test_a_row_of_text_for_each_run():
    heading, first, *rest = as_csv([*NEAR, *BEST]).splitlines()
    assert heading.startswith("task,method,seed,test_balanced_accuracy,")
    assert first.startswith("steel,CNN-CE,0,0.91,0.9,1.0,3000,1000,1000,120.0,,")
    assert first.endswith(",split 0,{}")
    assert len(rest) == 9
