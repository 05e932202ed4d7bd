"""Every command with input that it cannot use: one sentence, exit code 2, nothing written."""

import subprocess
import sys

import pytest
from small_images import FAST, save_images

from lmfcn.data.sources import open_collection
from small_model import quick

QUICK_TABLE = ("reproduce", "table2", "--profile", "quick")
TAKES_MODEL = {
    "evaluate": ("evaluate", "BAD", "trees", "--csv", "out"),
    "predict": ("predict", "BAD", "image.png", "-o", "out"),
    "explain": ("explain", "BAD", "image.png", "-o", "out"),
    "audit": ("audit", "trees", "--model", "BAD", "-o", "out"),
    "map": ("map", "BAD", "image.png", "-o", "out"),
    "serve": ("serve", "BAD", "--port", "0"),
    "export": ("export", "BAD", "-o", "out.onnx"),
    "info": ("info", "BAD"),
}
BAD_MODELS = {
    "missing": "missing does not exist.",
    "trees": "trees is not a file.",
    "half.lmfcn": "half.lmfcn is truncated",
    "text.lmfcn": "text.lmfcn is not in the safetensors format, so lmfcn did not write it.",
}
TAKES_DATA = {
    "inspect": ("inspect", "BAD"),
    "train": ("train", "BAD", "-o", "out/model.lmfcn", *FAST),
    "evaluate": ("evaluate", "model.lmfcn", "BAD", "--csv", "out"),
    "audit": ("audit", "BAD", "--quick", "-o", "out"),
    "compare": ("compare", "BAD", "--quick", "-o", "out"),
    "reproduce": (*QUICK_TABLE, "--crc", "BAD", "-o", "out"),
}
BAD_DATA = {
    "missing": "missing does not exist.",
    "image.png": "image.png is neither a folder nor a .csv, .tsv, .txt or .npz file.",
    "empty": "empty must hold one folder of images per class, but no image was found in it.",
}
OF_A_PUBLISHED_SET = {
    "missing": "missing is not a folder.",
    "image.png": "image.png is not a folder.",
    "empty": "empty is not a complete copy of CRC textures",
}
WRITES = {
    "demo": ("demo", "-o", "BAD"),
    "train": ("train", "trees", "-o", "BAD", *FAST),
    "train, report": ("train", "trees", "-o", "out/m.lmfcn", "--report", "BAD", *FAST),
    "train, options": ("train", "trees", "-o", "out/m.lmfcn", "--save-config", "BAD", *FAST),
    "evaluate": ("evaluate", "model.lmfcn", "trees", "--csv", "BAD"),
    "predict": ("predict", "model.lmfcn", "image.png", "-o", "BAD"),
    "explain": ("explain", "model.lmfcn", "image.png", "-o", "BAD"),
    "audit": ("audit", "trees", "--quick", "-o", "BAD"),
    "compare": ("compare", "trees", "--quick", "-o", "BAD"),
    "reproduce": (*QUICK_TABLE, "-o", "BAD"),
    "export": ("export", "model.lmfcn", "-o", "BAD"),
}
THROUGH_THE_SHELL = {
    "demo": (WRITES["demo"], "taken"),
    **{name: (arguments, "missing") for name, arguments in (TAKES_MODEL | TAKES_DATA).items()},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model that takes no time to train."""
    folder = tmp_path_factory.mktemp("model")
    trees = open_collection(save_images(folder / "trees"))
    quick().fit(trees).save(folder / "model.lmfcn")
    return folder / "model.lmfcn"


@pytest.fixture
def place(tmp_path, model):
    """A folder with everything that can be wrong."""
    save_images(tmp_path / "trees", n_per_class=3)
    save_images(tmp_path / "one", n_per_class=3)
    for path in (tmp_path / "one" / "wood").iterdir():
        path.unlink()
    (tmp_path / "one" / "wood").rmdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "taken").write_text("a file where a folder should be")
    (tmp_path / "image.png").write_bytes((tmp_path / "trees" / "bark" / "0.png").read_bytes())
    (tmp_path / "text.lmfcn").write_text("hello, I am not a model")
    content = model.read_bytes()
    (tmp_path / "model.lmfcn").write_bytes(content)
    (tmp_path / "half.lmfcn").write_bytes(content[: len(content) // 2])
    return tmp_path


@pytest.fixture
def refused(command, place):
    """Run a command that must be refused; return its sentence."""

    def run(arguments, bad):
        before = sorted(place.rglob("*"))
        code, out, err = command(*(bad if argument == "BAD" else argument for argument in arguments))
        assert (code, out) == (2, "")
        assert sorted(place.rglob("*")) == before
        *_, sentence = err.strip().splitlines()
        assert sentence.startswith("Error: ")
        assert "Errno" not in sentence
        assert ".part" not in sentence
        return sentence.removeprefix("Error: ")

    return run


@pytest.mark.parametrize("bad", BAD_MODELS)
@pytest.mark.parametrize("name", TAKES_MODEL)
def test_what_is_no_model(refused, name, bad):
    late = name == "audit" and bad == "missing"  # its model is an option
    assert refused(TAKES_MODEL[name], bad).startswith("missing: No such file" if late else BAD_MODELS[bad])


@pytest.mark.parametrize("bad", BAD_DATA)
@pytest.mark.parametrize("name", TAKES_DATA)
def test_what_is_no_collection_of_images(refused, name, bad):
    expected = OF_A_PUBLISHED_SET if name == "reproduce" else BAD_DATA
    assert expected[bad] in refused(TAKES_DATA[name], bad)


@pytest.mark.parametrize("name", ["train", "audit", "compare"])
def test_one_class_is_not_enough(refused, name):
    assert refused(TAKES_DATA[name], "one") == "one must hold at least two classes, got one: bark."


@pytest.mark.usefixtures("place")
def test_one_class_is_a_finding_of_inspect_and_a_question_to_a_model(command):
    code, out, _ = command("inspect", "one")
    assert code == 1
    assert "Problem: There must be at least two classes, but there is 1.\nNot fit for training." in out
    code, out, _ = command("evaluate", "model.lmfcn", "one")
    assert code == 0
    assert "on 3 images" in out


@pytest.mark.parametrize("name", WRITES)
def test_where_nothing_can_be_written(refused, name):
    sentence = refused(WRITES[name], "taken/out.onnx")
    assert "taken" in sentence


@pytest.mark.parametrize("name", ["demo", "explain", "audit", "compare", "reproduce"])
def test_a_file_where_a_folder_is_written(refused, name):
    assert refused(WRITES[name], "taken") == "taken is a file; give the name of a folder."


@pytest.mark.parametrize("name", ["train", "train, report", "evaluate", "predict"])
def test_a_folder_where_a_file_is_written(refused, name):
    assert refused(WRITES[name], "empty") == "empty is a folder; give the name of a file."


@pytest.mark.parametrize(
    ("bad", "reason"), [("missing", "does not exist"), ("text.lmfcn", "is not an image"), ("empty", "is a folder")]
)
def test_what_is_no_image(refused, command, bad, reason):
    assert refused(("explain", "model.lmfcn", "BAD", "-o", "out"), bad).startswith(f"{bad}: {reason}")
    if bad == "empty":
        assert refused(("predict", "model.lmfcn", "BAD", "-o", "out"), bad).startswith("No image was found")
        return
    code, out, err = command("predict", "model.lmfcn", bad, "image.png")
    assert (code, len(out.splitlines())) == (1, 2)
    assert err.startswith(f"{bad}: {reason}")


@pytest.mark.parametrize("name", THROUGH_THE_SHELL)
def test_through_the_real_command_line(place, name):
    arguments, bad = THROUGH_THE_SHELL[name]
    words = [bad if argument == "BAD" else argument for argument in arguments]
    result = subprocess.run(
        [sys.executable, "-m", "lmfcn", *words], capture_output=True, text=True, timeout=300, cwd=place
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: ")
    assert len(result.stderr.splitlines()) == 1
    assert not (place / "out").exists()
