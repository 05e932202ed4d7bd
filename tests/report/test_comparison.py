import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lmfcn.data.collections import ImageCollection
from lmfcn.experiments.comparing import Comparison, Outcome
from lmfcn.experiments.own_data import look_at
from lmfcn.experiments.runs import Run
from lmfcn.report import comparison_report_writer
from lmfcn.report.rivals import learning_curves, strip_plot

SCORES = {
    "LMFCN": [0.9, 0.95, 0.92],
    "CNN-CE": [0.8, 0.81, 0.79],
    "CNN + SVM": [0.8, 0.82, 0.8],
    "LBP": [0.6, 0.6, 0.6],
}


def run_of(method, seed, score):
    trained = {}
    if method != "LBP":
        trained = {"epochs": 2, "best_epoch": 1, "validation_by_epoch": [0.5, 0.8, 0.7 + seed / 100]}
        trained["seconds_by_epoch"] = [0.1, 1.0, 12.0 + seed + 100 * (method == "LMFCN")]
    if method == "LMFCN":
        trained |= {"n_support_first": 40, "n_support_kept": 17}
    more = {"split": str(seed), "versions": {"lmfcn": "0.1"}, "n_validation": 8, "settings": {"C": 10, "verbose": True}}
    return Run("<cloth>", method, seed, 1.0, 0.9, score, 24, 8, 3.0, **more, **trained)


RUNS = [run_of(method, seed, score) for method, scores in SCORES.items() for seed, score in enumerate(scores)]


@pytest.fixture
def outcome(random):
    images = random.integers(0, 256, (40, 16, 16), dtype=np.uint8)
    images[1] = images[0]
    collection = ImageCollection(images, labels=["bark & co"] * 20 + ["wood"] * 20)
    data = look_at(collection, range(3))
    comparison = Comparison(
        "<cloth>", collection, data, list(SCORES), {"GLCM": "This needs mahotas."}, range(3), Path("runs.jsonl"), {}
    )
    return Outcome(comparison, RUNS, [], "lmfcn compare cloth")


@pytest.fixture
def page(outcome, tmp_path):
    comparison_report_writer()(outcome, tmp_path / "report.html")
    return (tmp_path / "report.html").read_text()


def test_the_verdict_comes_first_and_the_winner_is_marked(page, outcome):
    for sentence in outcome.verdict.sentences:
        assert page.index(sentence) < page.index("<table")
    assert re.findall(r'<tr class="best"><td>(.*?)</td>', page) == ["LMFCN ★"]
    entries = re.search(r'class="best">(.*?)</tr>', page, flags=re.DOTALL).group(1)
    assert re.findall(r"<td>(.*?)</td>", entries)[1:4] == ["0.923 ± 0.025", "3", "3"]
    assert "40 → 17" in entries


def test_a_reader_finds_data_parameters_versions_and_the_command(page):
    assert "<td>bark &amp; co</td><td>20</td>" in page
    assert "image 0 and image 1 (identical files)" in page
    assert "Pairs of images that are the same or nearly the same: 1; " in page
    assert "<tr><th>C</th><td>10</td></tr>" in page
    assert "<th>verbose</th>" not in page
    assert "<code>lmfcn compare cloth</code>" in page
    assert "lmfcn 0.1" in page
    assert "GLCM is left out: This needs mahotas." in page
    assert "60 %, 20 %, 20 %" in page


def test_the_page_is_self_contained_accessible_and_small(page):
    assert len(page) < 5_000_000
    assert "<cloth>" not in page
    without_pictures = re.sub(r"data:image/[a-z+]+;base64,[A-Za-z0-9+/=]+", "", page)
    assert not re.findall(r"(?:https?:)?//[a-z]", without_pictures)
    assert "<script" not in page
    assert Counter(re.findall(r"<img [^>]*?(alt)=", without_pictures))["alt"] == page.count("<img ") == 2
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


def test_strips_show_every_repeat_and_the_means():
    axes = strip_plot(SCORES).axes[0]
    dots = [collection for collection in axes.collections if len(collection.get_offsets()) == 3]
    assert [sorted(dot.get_offsets()[:, 0].tolist()) for dot in dots] == [sorted(scores) for scores in SCORES.values()]
    assert len({tuple(dot.get_offsets()[i]) for dot in dots for i in range(3)}) == 12  # none hides another
    assert [label.get_text() for label in axes.get_yticklabels()] == list(SCORES)
    means = [bar.get_segments()[0][0][0] for bar in axes.collections if bar not in dots]
    assert means == pytest.approx([np.mean(scores) for scores in SCORES.values()])
    assert strip_plot({"LBP": [0.5]}).axes[0].collections[0].get_offsets().tolist() == [[0.5, 0.0]]


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
    assert "How training went" not in text
    assert "More than chance?" not in text
