import re
from dataclasses import replace

import numpy as np
import pytest

from lmfcn.benchmark.comparison import Outcome
from lmfcn.benchmark.model_summary import N_HARDEST
from lmfcn.data.framing import THUMBNAIL_SIDE
from lmfcn.report import comparison_report_writer
from lmfcn.report.comparison_page import _PICTURE_BYTES
from lmfcn.report.curves import accuracy_plot, learning_curves
from some_comparison import CLASSES, RUNS, SCORES, outcome_of, run_of, small_outcome, some_summary


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    return small_outcome(tmp_path_factory.mktemp("comparison"), np.random.default_rng(0))


@pytest.fixture(scope="module")
def page(outcome):
    path = outcome.comparison.output.with_name("report.html")
    comparison_report_writer()(outcome, path)
    return path.read_text()


def page_of(outcome, folder):
    comparison_report_writer()(outcome, folder / "report.html")
    return (folder / "report.html").read_text()


def test_the_verdict_comes_first_and_a_clear_winner_is_marked(page, outcome, tmp_path):
    for sentence in outcome.verdict.sentences:
        assert page.index(sentence) < page.index("<table")
    clear = [run if run.method == "LMFCN" else replace(run, test_balanced_accuracy=0.3) for run in outcome.runs]
    page = page_of(replace(outcome, runs=clear), tmp_path)
    assert "★ and green: the winner, ahead of every other method by more than chance explains." in page
    assert re.findall(r'<tr class="best"><th scope="row">(.*?) <', page) == ["LMFCN"]
    assert page.count('★</span><span class="hidden">, the winner</span>') == 1
    entries = re.search(r'class="best">(.*?)</tr>', page, flags=re.DOTALL).group(1)
    assert re.findall(r"<td>(.*?)</td>", entries)[:3] == ["0.923 ± 0.025", "3", "3"]
    assert "<td>40 → 17</td><td>31</td>" in entries


def test_a_winner_that_chance_explains_has_no_star(page):
    assert "Chance alone may explain its lead" in page or "It cannot be told apart from" in page
    assert "★</span>" not in page
    assert 'class="best"' not in page
    assert "No method has a ★: chance alone may explain why the first one leads." in page


def test_few_predictions_make_no_calibration_curve(page, outcome, tmp_path):
    text = page_of(replace(outcome, runs=[run for run in outcome.runs if run.seed == 0]), tmp_path)
    assert "Not shown: 40 predictions of all repeats together are too few; 100 are needed." in text
    assert "Reliability diagram" not in text
    assert "too few; 100" not in page


def test_the_number_of_test_images_is_told(page):
    told = "Each repeat was tested on 40 images; one image changes a balanced accuracy by up to 0.025."
    assert page.index(told) < page.index("<table")


def test_a_reader_finds_data_parameters_versions_and_the_command(page):
    assert '<th scope="row">bark &amp; co</th><td>20</td>' in page
    assert "image 0 and image 1 (identical files)" in page
    assert "Images that are the same as another or nearly the same: 2 in 1 group." in page
    assert '<tr><th scope="row">C</th><td>10</td></tr>' in page
    assert ">verbose</th>" not in page
    assert "<code>lmfcn compare cloth</code>" in page
    assert "lmfcn 0.1.\nSeconds were measured on: system a &amp; b, cores 2.</p>" in page
    assert "GLCM is left out: This needs mahotas." in page
    assert "60 %, 20 %, 20 %" in page


def test_the_page_is_self_contained_accessible_and_small(page):
    assert len(page) < 5_000_000
    assert "<cloth>" not in page
    without_pictures = re.sub(r"data:image/[a-z+]+;base64,[A-Za-z0-9+/=]+", "", page)
    assert not re.findall(r"(?:https?:)?//[a-z]", without_pictures)
    assert "<script" not in page
    # accuracies, curves, support vectors, latents; a matrix and a diagram a method; a hard image; examples
    n_pictures = 4 + 2 * 4 + 4 + 2 * 4
    assert len(re.findall(r'<img [^>]*?alt="[^"]+"', without_pictures)) == page.count("<img ") == n_pictures
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


def test_accuracies_show_every_repeat_and_the_means():
    axes = accuracy_plot(SCORES).axes[0]
    dots = [collection for collection in axes.collections if len(collection.get_offsets()) == 3]
    assert [sorted(dot.get_offsets()[:, 0].tolist()) for dot in dots] == [sorted(scores) for scores in SCORES.values()]
    assert len({tuple(dot.get_offsets()[i]) for dot in dots for i in range(3)}) == 12  # none hides another
    assert [label.get_text() for label in axes.get_yticklabels()] == list(SCORES)
    means = [bar.get_segments()[0][0][0] for bar in axes.collections if bar not in dots]
    assert means == pytest.approx([np.mean(scores) for scores in SCORES.values()])
    assert accuracy_plot({"LBP": [0.5]}).axes[0].collections[0].get_offsets().tolist() == [[0.5, 0.0]]


def test_curves_against_epochs_and_seconds():
    figure = learning_curves(RUNS, list(SCORES))
    by_epoch, by_seconds = figure.axes
    assert len(by_epoch.lines) == len(by_seconds.lines) == 2 * 3  # the two CNNs share theirs
    labels = [line.get_label() for line in by_epoch.lines if not line.get_label().startswith("_")]
    assert labels == ["LMFCN", "CNN-CE and CNN + SVM"]
    assert list(by_epoch.lines[1].get_ydata()) == [0.5, 0.8, 0.71]
    assert list(by_seconds.lines[1].get_xdata()) == [0.1, 1.0, 113.0]


def test_nothing_that_trains_has_no_curves(outcome, tmp_path):
    assert learning_curves(RUNS, ["LBP"]) is None
    alone = Outcome(outcome.comparison, [run for run in RUNS if run.method == "LBP"], [], "lmfcn compare cloth")
    comparison_report_writer()(alone, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "Training curves" not in text
    assert "More than chance?" not in text


def test_confusions_and_calibration_are_told_in_words(page):
    assert "15 of 120 wrong: bark &amp; co predicted as wood 15 of 60 times." in page
    assert page.count("ECE 0.025: 90 % sure on average, 88 % right.") == 2 * len(SCORES)  # below it and as its alt
    assert "support vectors of the epoch&#39;s SVM in every epoch, one line per repeat: LMFCN, from 40 to 15" in page


def test_the_model_summary_is_shown(page):
    assert (
        "LMFCN misclassified 10 of 30 test images in the first repeat; these are the 1 with the highest confidence."
        in page
    )
    assert 'alt="Test image hard 0: bark &amp; co, predicted wood"' in page
    assert page.count('alt="Support vector near ') == 3
    assert "support vectors of the final SVM, 10 of 30 training and validation images" in page


def test_weights_are_told_without_their_folder(outcome, tmp_path):
    given = {"weights": "/home/somebody/resnet18.pth"}
    runs = [replace(run, settings=given) if run.method == "LBP" else run for run in outcome.runs]
    comparison_report_writer()(replace(outcome, runs=runs), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert '<tr><th scope="row">weights</th><td>resnet18.pth</td></tr>' in text
    assert "somebody" not in text


def test_sums_over_networks_are_told_where_there_are_several(page, outcome, tmp_path):
    assert "for several networks" not in page
    assert "network per class" not in page
    per_class = [replace(run, best_epoch=[1, 2]) if run.method == "LMFCN" else run for run in outcome.runs]
    # The word alone among the settings of another method says nothing.
    said = [replace(run, settings={"size": "one-vs-all"}) if run.method == "CNN-CE" else run for run in outcome.runs]
    texts = []
    for runs in (per_class, said):
        comparison_report_writer()(replace(outcome, runs=runs), tmp_path / "report.html")
        texts.append((tmp_path / "report.html").read_text())
    assert "the selected epoch; for several networks, the sum." in texts[0]
    assert "For methods with a network per class (LMFCN), support vectors by epoch" in texts[0]
    assert "for several networks" not in texts[1]
    assert "network per class" not in texts[1]


def test_sentences_are_separated_by_spaces(tmp_path):
    summary = some_summary(np.random.default_rng(0))
    summary.test.marked[:] = False
    right = outcome_of(RUNS, summary, tmp_path / "runs.jsonl", np.zeros((40, 16, 16), np.uint8), np.repeat(CLASSES, 20))
    comparison_report_writer()(right, tmp_path / "report.html")
    assert re.search(r"the ones with the lowest confidence\.\s+Beside each: ", (tmp_path / "report.html").read_text())


def test_runs_of_older_versions_lack_pictures_only(outcome, tmp_path):
    silent = {"classes": None, "test_classes": None, "predicted_classes": None, "n_support_by_epoch": None}
    old = replace(outcome, runs=[replace(run, **silent, split="another") for run in outcome.runs])
    comparison_report_writer()(old, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    for name in ("confusions", "calibration", "latents", "mistakes", "support"):
        assert f'id="{name}"' not in text
        assert f'href="#{name}"' not in text
    assert 'id="result"' in text


@pytest.mark.thorough
def test_the_largest_comparison_stays_below_5_mb(random, tmp_path):
    names = [f"class of number {number}" for number in range(24)]
    long = {"validation_by_epoch": random.uniform(size=101).tolist(), "classes": None}
    runs = [
        run_of(method, seed, 0.5, **long, seconds_by_epoch=np.cumsum(random.uniform(size=101)).tolist())
        for method in ["LMFCN", *(f"method {number}" for number in range(19))]
        for seed in range(6)
    ]
    images = random.integers(0, 256, (24 * 6, 64, 64, 3), dtype=np.uint8)
    summary = some_summary(random, 24, N_HARDEST, THUMBNAIL_SIDE, 3000)
    outcome = outcome_of(runs, summary, tmp_path / "runs.jsonl", images, np.repeat(names, 6))
    comparison_report_writer()(outcome, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    # Nobody knows how large the pictures of the methods are, but they do not get more than this.
    assert 2_000_000 < len(page) + 2 * _PICTURE_BYTES < 5_000_000
    assert "of the first 5, until training ended" in page
    assert page.count('alt="Support vector ') == 3 * N_HARDEST
