"""`lmfcn label` from its arguments on, and what it writes at the end."""

import sys

import pytest

from labelling import write_mosaic, write_textures
from lmfcn import __main__ as main
from lmfcn.label.labels import TABLE
from lmfcn.label.session import LabellingSession
from lmfcn.serve import server as running
from lmfcn.serve.finish import finish
from lmfcn.serve.labelling import FinishOrder


@pytest.fixture
def label(monkeypatch, capsys):
    """Run the command, which stops at once; return its exit code and what it printed."""
    monkeypatch.setattr(running, "run", lambda _app, _listening, open_at: open_at)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["lmfcn", "label", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main.main()
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err

    return run


def test_the_command_says_where_the_page_is_and_goes_on_with_the_table(label, tmp_path):
    write_textures(tmp_path, 3)
    (tmp_path / TABLE).write_text("path,label,when,by\n00.png,fine,,hand\n")
    code, out, err = label(tmp_path, "--port", 0, "--network", "texture-fcn", "--device", "cpu")
    assert (code, err) == (0, "")
    first, second, last = out.splitlines()
    assert first == f"9 images, 1 label so far; everything is kept in {tmp_path / TABLE}."
    assert second.startswith("The page is at http://127.0.0.1:")
    assert len(second.partition("#token=")[2].split()[0]) >= 20
    assert last == "Stopped."
    assert not list(tmp_path.glob("*.lock"))


def test_what_cannot_be_labelled_ends_with_one_sentence(label, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    write_textures(tmp_path / "bad", 1)
    (tmp_path / "bad" / TABLE).write_text("name\nx\n")
    for arguments, reason in [
        ([tmp_path / "none"], "none does not exist."),
        ([tmp_path / "empty"], "No image was found in"),
        ([tmp_path / "bad"], "must have the columns path, label, when, by in its first line, but path is not"),
        ([tmp_path / "empty", "--network", "resnet"], "--network must be one of 'auto', 'efficientnet-lite0'"),
        ([tmp_path / "bad", "--groups-from", "x"], "must have brackets"),
    ]:
        code, _, err = label(*arguments)
        assert code == 2
        assert reason in err.replace("\n", " "), err


def test_the_command_takes_an_image(label, tmp_path):
    path = write_mosaic(tmp_path / "a.png")
    code, out, err = label(path, "--port", 0, "--network", "texture-fcn", "--device", "cpu")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"256x160 pixels, 0 strokes so far; everything is kept in {path}.strokes.jsonl."
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]  # nothing is written before the first stroke


def test_images_that_cannot_be_labelled_end_with_one_sentence(label, tmp_path):
    path = write_mosaic(tmp_path / "a.png")
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "other.jsonl").write_text("path,label\n")
    for arguments, reason in [
        ([tmp_path / "text.png"], "text.png"),
        ([path, "--window", 300], "has 256x160 pixels (width x height), too few for a window of 300"),
        ([path, "--window", 8], "--window must be at least 32 pixels, got 8."),
        ([path, "--resolution", 0.5], "does not contain its pixel size"),
        ([path, "--table", tmp_path / "other.jsonl"], "must start with a line such as"),
        ([path, "--labelled"], "a.png is a file, but --labelled is for a folder; leave it out."),
        ([path, "--groups-from", "(x)"], "a.png is a file, but --groups-from is for a folder; leave it out."),
        ([tmp_path, "--window", 64], "is a folder, but --window is for an image; leave it out."),
    ]:
        code, _, err = label(*arguments, "--network", "texture-fcn")
        assert code == 2, err
        assert reason in err.replace("\n", " "), err


def test_the_end_without_a_training(tmp_path):
    images = tmp_path / "images"
    write_textures(images, 2)
    with LabellingSession(images, network="texture-fcn", device="cpu") as session:
        session.put([0, 2], "wood")
        order = FinishOrder(folder=str(tmp_path / "out"), files="copies", train=False)
        assert list(finish(session, order, print)) == [
            f"{tmp_path / 'out' / 'labels.csv'}: the labels; lmfcn train reads it.",
            f"{tmp_path / 'out' / 'classes'}: class folders, copies.",
        ]
        with pytest.raises(ValueError, match="is inside the folder with the images"):
            list(finish(session, FinishOrder(folder=str(images / "out")), print))
    assert (tmp_path / "out/classes/wood/00.png").is_file()


@pytest.mark.thorough
def test_the_end_with_a_model_and_its_report(tmp_path):
    images, announced = tmp_path / "images", []
    truth = write_textures(images, 6)
    with LabellingSession(images, network="texture-fcn", device="cpu") as session:
        session.put(list(range(18)), [truth[name] for name in session.names])
        written = list(finish(session, FinishOrder(folder=str(tmp_path / "out")), announced.append))
    assert "balanced accuracy" in written[1]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "labels.csv", "model.lmfcn", "model.gallery", "model.html",
    }  # fmt: skip
    assert announced[0] == "Training model.lmfcn with the network texture-fcn"
