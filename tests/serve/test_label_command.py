"""`lmfcn label` from its arguments on, and what it writes at the end."""

import sys

import pytest

from labelling import write_textures
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
