import json
from dataclasses import replace

import pytest

from lmfcn.benchmark.paper.profiles import PROFILES
from lmfcn.report import paper_figures, paper_figures_drawer
from lmfcn.report.paper_figures import PICTURES, existing_pictures, setting_title

TINY = replace(PROFILES["quick"], n_gaussians=(10, 6, 6), size=16, figure_epochs=1)
pytestmark = pytest.mark.filterwarnings("ignore:Training ended")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    paper_figures_drawer()(["figure1", "figure3"], TINY, folder)
    return folder


def test_every_picture_comes_as_svg_png_and_record(folder):
    names = {path.name for path in folder.iterdir()}
    assert names == {f"{picture.file}.{ending}" for picture in PICTURES for ending in ("svg", "png", "json")}
    assert (folder / "figure1.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (folder / "figure3.svg").read_bytes()
    record = json.loads((folder / "figure3.json").read_text())
    assert (record["profile"], record["kept_epoch"] in (0, 1)) == ("quick", True)
    told = {name: record["parameters"][name] for name in ("latent_dim", "sv_close", "wr_close", "sh_close", "recipe")}
    assert told == {"latent_dim": 2, "sv_close": 5, "wr_close": 1, "sh_close": 0, "recipe": "paper"}
    assert record["history"][0]["n_support"] > 0
    assert 0 <= record["test_balanced_accuracy"] <= 1
    first = json.loads((folder / "figure1.json").read_text())
    assert first["epoch_shown"] in (0, 1)
    assert (first["parameters"]["recipe"], first["parameters"]["sv_close"]) == ("paper", 3)
    ours = json.loads((folder / "figure1-our-defaults.json").read_text())["parameters"]
    assert (ours["recipe"]["support_loss"], ours["sv_close"]) == ("contrast", 3)


@pytest.mark.parametrize("picture", [one for one in PICTURES if one.figure == "figure1"], ids=lambda one: one.file)
def test_figure_1_draws_the_anchors_that_its_training_has(picture, monkeypatch, tmp_path):
    asked = []

    def anchor_figure(space, labels, limits, k, *, any_class):
        asked.append((k, any_class))
        return drawn(space, labels, limits, k, any_class=any_class)

    drawn = paper_figures.anchor_figure
    monkeypatch.setattr(paper_figures, "anchor_figure", anchor_figure)
    monkeypatch.setattr(paper_figures, "PICTURES", [picture])
    paper_figures.draw_figures(["figure1"], TINY, tmp_path)
    assert asked == [(picture.parameters(TINY)["sv_close"], picture.training == "LMFCN (paper)")]
    assert asked[0][0] == 3


def test_another_size_is_said_in_the_picture(folder):
    assert "Quick profile: not the paper's setting" in (folder / "figure3.svg").read_text()
    smaller = replace(PROFILES["full"], size=16, repeats=1)
    assert setting_title(smaller) == "Images of 16 pixels: not the paper's setting"
    assert setting_title(replace(smaller, size=128)) == ""  # one training, however many repetitions


def test_the_full_profile_trains_for_as_long_as_the_paper():
    assert PROFILES["full"].figure_epochs == 20


def test_what_is_drawn_is_not_drawn_again(folder, monkeypatch):
    trained = []
    monkeypatch.setattr("lmfcn.report.paper_figures.train_for_figure", lambda *_, **__: trained.append(1) or 1 / 0)
    paper_figures_drawer()(["figure1", "figure3"], TINY, folder)
    assert trained == []
    with pytest.raises(ZeroDivisionError):
        paper_figures_drawer()(["figure1"], replace(TINY, figure_epochs=2), folder)
    assert len(trained) == 1
    assert [picture.file for picture, _ in existing_pictures(["figure3"], TINY, folder)] == [
        *("figure3", "figure3-our-defaults")
    ]


def test_a_broken_record_counts_as_none(folder, tmp_path):
    for ending in ("svg", "png"):
        (tmp_path / f"figure1.{ending}").write_bytes((folder / f"figure1.{ending}").read_bytes())
    (tmp_path / "figure1.json").write_text("{")
    assert list(existing_pictures(["figure1"], TINY, tmp_path)) == []
    (tmp_path / "figure1.json").write_text("[]")
    assert list(existing_pictures(["figure1"], TINY, tmp_path)) == []
