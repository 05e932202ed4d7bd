import json
import re

import pytest

from lmfcn.benchmark.paper import reproduction as request
from lmfcn.benchmark.paper.reproduced_tables import Outcome
from lmfcn.benchmark.paper.reproduction import Request, prepare
from lmfcn.report import reproduction_report_writer
from lmfcn.report.paper_figures import PICTURES, paper_accuracy_plot
from published_trees import make_trees
from some_reproduction import outcome_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reproduction")


@pytest.fixture(scope="module")
def outcome(folder):
    return outcome_of(folder)


@pytest.fixture(scope="module")
def page(outcome, folder):
    return page_of(outcome, folder)


def page_of(outcome, folder):
    reproduction_report_writer()(outcome, folder)
    return (folder / "report.html").read_text()


def test_the_page_shows_all_rows_with_the_difference(page):
    rows = re.findall(r'<tr[^>]*><th scope="row">(.*?)</th>\n(.*?)</tr>', page, flags=re.DOTALL)
    assert len(rows) == 36 + 32
    best, on_ours = (entries for label, entries in rows if label.startswith("CNN-H <span"))
    cells = [re.sub(r"<.*?>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", best)]
    assert cells[:3] == ["1.0000 ± 0.0000", "0.9900 ± 0.0000", "-0.0100"]
    assert cells[-3:] == ["56", "1", "2"]
    assert [re.sub(r"<.*?>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", on_ours)][:3] == [
        *("-", "0.9900 ± 0.0000", "-")
    ]
    assert page.count("not run: the images were not given (--bach DIR)") == 2  # once a table
    assert "ResNet18 is not run: its weights were not given (--resnet18-weights FILE)." in page
    assert 'ResNet18<span class="soft why">not run</span>' in page
    assert "BACH is missing: the images were not given (--bach DIR)." in page


def test_the_page_is_escaped_and_needs_nothing_else(page):
    assert "lmfcn reproduce table2 &amp; more" in page
    assert "A training failed: Gaussian, LBP: &lt;no&gt;." in page
    assert "C&lt;" in page
    assert page.count("<summary>CNN-CE</summary>") == page.count("<summary>LBP</summary>") == 1
    assert not re.findall(r'src="(?!data:)|href="(?!#)', page)
    assert page.count("<img") == page.count(' alt="')
    assert len(page) < 5_000_000


def test_quick_is_said_in_every_section_and_full_nowhere(outcome, page, tmp_path):
    assert outcome.reproduction.profile.warning.replace("'", "&#39;") in page
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    silent = [heading for heading in headings if "(quick profile)" not in heading]
    assert silent == ["In short", "Parameters", "Run it again"]
    full = page_of(outcome_of(tmp_path, "full", repeats=5, size=None, only=["LBP"]), tmp_path)
    assert "quick" not in full
    assert "not the full profile" not in full


def test_another_setting_is_said_in_every_section(tmp_path):
    page = page_of(outcome_of(tmp_path, "full", repeats=1, only=["LBP"]), tmp_path)
    assert "This is not the full profile: images of 16 pixels instead of 128, 1 repetition instead of 5." in page
    assert "<h2>Table 3: LMFCN and handcrafted features (images of 16 pixels, 1 repetition)</h2>" in page


def test_figures_that_are_there_are_shown(outcome, tmp_path):
    profile = outcome.reproduction.profile
    for picture in PICTURES:
        (tmp_path / f"{picture.file}.svg").write_text("<svg/>")
        (tmp_path / f"{picture.file}.png").write_bytes(b"")
        record = {"digest": picture.digest(profile), "epoch_shown": 3, "kept_epoch": 4, "seconds": 1.5}
        record |= {"test_balanced_accuracy": 0.75, "parameters": {"epochs": 7}, "versions": {}, "machine": {}}
        (tmp_path / f"{picture.file}.json").write_text(json.dumps(record))
    page = page_of(outcome, tmp_path)
    assert "Figure 1, LMFCN (paper) (quick profile)" in page
    assert "Figure 1, LMFCN (quick profile)" in page
    assert "Figure 3, LMFCN (paper) (quick profile)" in page
    assert "in epoch 3 of 7, split by the SVM" in page
    assert page.count("vectors to the 3 nearest correctly classified images") == 2
    assert page.count("two latent dimensions, 5 anchors per support vector") == 2
    assert "Selected epoch: 4, test balanced accuracy 0.750, 1.5 s." in page


def test_a_page_of_nothing_is_a_page(tmp_path):
    reproduction = prepare(Request(["table4"], tmp_path, "full"))
    page = page_of(Outcome(reproduction, [], [], "lmfcn reproduce table4"), tmp_path)
    assert "0 of the paper&#39;s 21 rows are measured." in page


def test_the_accuracy_plot_has_a_row_for_every_line(outcome):
    lines = [line for line in outcome.tables[2] if line.runs]
    (axes,) = paper_accuracy_plot(lines).axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    methods = ["LMFCN (paper)", "LMFCN", "CNN-CE", "CNN-H"]
    assert labels == [f"{images}: {method}" for images in ("Gaussian", "Gaussian (ours)") for method in methods]


def test_the_page_shows_what_the_runs_said_under_the_names_of_the_rows(page):
    names = ["LMFCN (paper)", "LMFCN", "CNN-CE", "CNN-H", "LMFCN-59", "GLCM", "LBP", "PFTAS"]
    for kind in ("Confusion matrix", "Reliability diagram"):
        assert re.findall(rf'alt="{kind} of (.*?): ', page) == 2 * names  # the paper's images and ours
    # 60 predictions in each of two repetitions.
    assert len(re.findall(r"<figcaption>\d+ of 120 wrong: ", page)) == 2 * len(names)
    assert "Number of support vectors on Gaussian, quick in every epoch" in page
    courses = re.search(r"one line per repetition: (LMFCN \(paper\), from .*?)\"", page)[1]
    assert [course.rpartition(", from ")[0] for course in courses.split("; ")] == [
        *("LMFCN (paper)", "LMFCN", "LMFCN-59")
    ]
    assert "<summary>LMFCN-59</summary>" in page
    assert "preset</summary>" not in page


def test_runs_without_predictions_have_no_pictures_of_them(tmp_path):
    outcome = outcome_of(tmp_path, only=["LBP"], n_test=0)
    page = page_of(outcome, tmp_path)
    assert 'id="confusions"' not in page
    assert 'id="support"' not in page
    assert "#calibration" not in page


def test_the_leak_check_is_shown(tmp_path):
    crc = make_trees(tmp_path / "trees", side=20)["crc"]
    page = page_of(outcome_of(tmp_path, what=["table3"], roots={"CRC": crc}, only=["LBP"]), tmp_path)
    assert (
        "<strong>Leak check.</strong> CRC, quick: none of its 4 slides is in more than one part of a split.</li>"
        in page
    )


@pytest.mark.thorough
def test_a_page_of_everything_stays_below_5_mb(tmp_path, monkeypatch):
    monkeypatch.setattr(request, "check_requirements", lambda *_: None)  # which would read the weights
    weights = tmp_path / "weights.pth"
    weights.write_bytes(b"")
    trees = make_trees(tmp_path / "trees", side=20)
    everything = {
        "what": ["all"],
        "repeats": 5,
        "n_test": 400,
        "roots": {"BACH": trees["bach"], "BreaKHis": trees["breakhis"], "CRC": trees["crc"], "Salzburg": trees["stex"]},
        "weights": {"ResNet18": weights, "InceptionV3": weights},
    }
    page = page_of(outcome_of(tmp_path, "full", **everything), tmp_path)
    assert page.count("Number of support vectors on ") == 9
    assert "left out to keep this page small" in page
    assert len(page) < 4_000_000  # the four figures take less than the rest of 5 MB
