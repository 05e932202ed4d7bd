import csv
import sys

import pytest

from labelling import write_textures
from lmfcn import __main__ as main
from lmfcn.data.sources import open_images
from lmfcn.label.suggest import HEADER, suggest_images
from small_model import fitted


def test_suggested_images_are_different_and_unsure(tmp_path):
    write_textures(tmp_path, 6, seed=3)
    images, model = open_images(tmp_path), fitted().model_
    rows = suggest_images(model, images, 5)
    assert [row[0] for row in rows] == ["1", "2", "3", "4", "5"]
    assert len({row[1] for row in rows}) == 5
    predicted = model.predict_proba(images)
    for _, path, label, probability, _, second in rows:
        chances = sorted(predicted[images.paths.index(path)])
        assert (float(probability), float(second)) == pytest.approx((chances[-1], chances[-2]), abs=1e-4)
        assert label in model.classes


def test_the_command_writes_a_table_and_names_bad_files(tmp_path, monkeypatch, capsys):
    images = tmp_path / "new"
    images.mkdir()
    write_textures(images, 2)
    (images / "bad.png").write_text("hello")
    fitted().save(tmp_path / "m.lmfcn")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["lmfcn", "suggest", str(tmp_path / "m.lmfcn"), str(images), *arguments])
        with pytest.raises(SystemExit) as ended:
            main.main()
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err

    code, out, err = run("-n", "3")
    rows = list(csv.reader(out.splitlines()))
    assert (code, tuple(rows[0]), len(rows)) == (0, HEADER, 4)
    assert "bad.png: is not an image of a known format: left out." in err
    assert run("-n", "3", "-o", str(tmp_path / "s.csv"))[0] == 0
    assert (tmp_path / "s.csv").read_text() == out
    assert run("-n", "0")[0] == 2
