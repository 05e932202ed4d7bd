import json
import re

import pytest

from lmfcn.experiments.paper.outcome import Outcome
from lmfcn.experiments.paper.profiles import QUICK_SENTENCE
from lmfcn.experiments.paper.request import Request, prepare
from lmfcn.experiments.runs import Run, append_run
from lmfcn.report import reproduction_report_writer
from lmfcn.report.paper_figures import PICTURES
from lmfcn.report.paper_strips import paper_strips


def outcome_of(folder, profile="quick", **others):
    reproduction = prepare(Request(["table2", "table3"], folder, profile, repeats=2, size=16, **others))
    digests = {task: study.digest for study in reproduction.studies() for task in study.tasks}
    for cell in reproduction.cells:
        trained = {}
        if "LMFCN" in cell.method or "CNN" in cell.method:
            trained = {"epochs": 2, "best_epoch": 1, "validation_by_epoch": [0.5, 0.8, 0.7]}
            trained["seconds_by_epoch"] = [0.1, 1.0, 2.0 + cell.seed]
        more = {"split": "f00d", "versions": {"lmfcn": "0.1"}, "machine": {"cores": 2}, "settings": {"C<": 10}}
        score = 0.99 if cell.method == "CNN-H" else 0.9
        run = Run(*cell, 1.0, 0.9, score, 24, 8, 3.0, digest=digests[cell.task](cell), **more, **trained)
        append_run(reproduction.output, run)
    return Outcome(reproduction, ["figure1", "figure3"], ["Gaussian, LBP: <no>."], "lmfcn reproduce table2 & more")


@pytest.fixture
def outcome(tmp_path):
    return outcome_of(tmp_path)


def page_of(outcome, folder):
    reproduction_report_writer()(outcome, folder)
    return (folder / "report.html").read_text()


def test_the_page_shows_all_rows_with_the_difference(outcome, tmp_path):
    page = page_of(outcome, tmp_path)
    rows = re.findall(r"<tr[^>]*><td>(.*?)</td>\n(.*?)</tr>", page, flags=re.DOTALL)
    assert len([label for label, _ in rows if not label.startswith("Gaussian,")]) >= 30 + 27
    (best,) = (entries for label, entries in rows if label == "CNN-H ★")
    cells = [re.sub(r"<.*?>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", best)]
    assert cells[:3] == ["1.0000 ± 0.0000", "0.9900 ± 0.0000", "-0.0100"]
    assert cells[-3:] == ["56", "1", "2"]
    assert page.count("not run: the images were not given (--bach DIR)") == 2  # once a table
    assert "ResNet18 is not run: its weights were not given (--resnet18-weights FILE)." in page
    assert 'ResNet18<span class="soft">not run</span>' in page
    assert "BACH is missing: the images were not given (--bach DIR)." in page


def test_the_page_is_escaped_and_needs_nothing_else(outcome, tmp_path):
    page = page_of(outcome, tmp_path)
    assert "lmfcn reproduce table2 &amp; more" in page
    assert "A training failed: Gaussian, LBP: &lt;no&gt;." in page
    assert "C&lt;" in page
    assert page.count("<summary>CNN-CE</summary>") == page.count("<summary>LBP</summary>") == 1
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert page.count("<img") == page.count(' alt="')
    assert len(page) < 5_000_000


def test_quick_is_said_in_every_section_and_full_nowhere(outcome, tmp_path):
    page = page_of(outcome, tmp_path)
    assert QUICK_SENTENCE.replace("'", "&#39;") in page
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    silent = [heading for heading in headings if "(quick profile)" not in heading]
    assert silent == ["In short", "Parameters", "Run it again"]
    (tmp_path / "full").mkdir()
    full = page_of(outcome_of(tmp_path / "full", "full"), tmp_path / "full")
    assert "quick" not in full


def test_figures_that_are_there_are_shown(outcome, tmp_path):
    profile = outcome.reproduction.profile
    for picture in PICTURES:
        (tmp_path / f"{picture.file}.svg").write_text("<svg/>")
        (tmp_path / f"{picture.file}.png").write_bytes(b"")
        record = {"digest": picture.digest(profile), "epoch_shown": 3, "kept_epoch": 4, "seconds": 1.5}
        record |= {"test_balanced_accuracy": 0.75, "parameters": {"epochs": 7}, "versions": {}, "machine": {}}
        (tmp_path / f"{picture.file}.json").write_text(json.dumps(record))
    page = page_of(outcome, tmp_path)
    assert "Figure 1, our defaults (quick profile)" in page
    assert "Figure 3, the paper&#39;s preset (quick profile)" in page
    assert "in epoch 3, split by the SVM" in page
    assert "Kept epoch: 4, test balanced accuracy 0.750, 1.5 s." in page


def test_a_page_of_nothing_is_a_page(tmp_path):
    reproduction = prepare(Request(["table4"], tmp_path, "full"))
    page = page_of(Outcome(reproduction, [], [], "lmfcn reproduce table4"), tmp_path)
    assert "0 of 24 rows are measured." in page


def test_strips_have_a_row_for_every_line(outcome):
    lines = [line for line in outcome.tables[2] if line.runs]
    (axes,) = paper_strips(lines).axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["Gaussian: LMFCN", "Gaussian: LMFCN, our defaults", "Gaussian: CNN-CE", "Gaussian: CNN-H"]
