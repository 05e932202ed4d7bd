import re

import pytest
from test_cli import lmfcn

from lmfcn.cli.export import _summary, export
from lmfcn.data.image_form import ImageForm
from lmfcn.explain.gallery import save_gallery
from lmfcn.export import Agreement
from lmfcn.model_file import save
from random_models import random_model
from small_model import fitted, gallery


@pytest.fixture(scope="module")
def model_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.lmfcn"
    save(random_model(["x", "y", "z"], ImageForm(3, "uint8"), ("last",)), path)
    return path


@pytest.mark.thorough
def test_an_onnx_file_comes_without_a_word_about_how(model_path, tmp_path):
    result = lmfcn("export", model_path, "-o", tmp_path / "model.onnx", "--quiet")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_it_says_what_was_compared(model_path, tmp_path, capsys):
    export(model_path, tmp_path / "model.pt2")
    shown = capsys.readouterr()
    assert " MB, 3 classes, images of 3 channels of uint8." in shown.out
    assert "Compared with the model on 78 images of 8 sizes" in shown.out
    assert "all labels equal, scores and probabilities within" in shown.out
    assert "Comparing" in shown.err


def test_the_images_of_the_gallery_are_compared_too(tmp_path, capsys):
    save(fitted().model_, tmp_path / "model.lmfcn")
    export(tmp_path / "model.lmfcn", tmp_path / "without.pt2", quiet=False)
    n_before = int(re.search(r"on (\d+) images", capsys.readouterr().out)[1])
    save_gallery(gallery(), tmp_path / "model.gallery")
    export(tmp_path / "model.lmfcn", tmp_path / "with.pt2", quiet=False)
    shown = capsys.readouterr().out
    assert f"on {n_before + 36} images" in shown
    assert "(3 of 3 classes predicted)" in shown


def test_a_comparison_on_one_class_only_is_told(tmp_path):
    model, file = fitted().model_, tmp_path / "model.onnx"
    file.write_bytes(b"")
    assert "Only one class was predicted; --images FOLDER" in _summary(model, Agreement(5, 1, 1, 0.0), file)
    assert "Only one" not in _summary(model, Agreement(5, 1, 2, 0.0), file)


def test_wrong_use_is_one_sentence_and_code_2(model_path, tmp_path):
    result = lmfcn("export", model_path, "-o", tmp_path / "model.h5")
    assert result.returncode == 2
    assert result.stderr == "Error: The output must end in .onnx or .pt2, got 'model.h5'.\n"
    assert list(tmp_path.iterdir()) == []


def test_not_a_model_and_not_there(tmp_path):
    (tmp_path / "model.lmfcn").write_bytes(b"0123456789" * 10)
    with pytest.raises(ValueError, match=r"model.lmfcn is not in the safetensors format"):
        export(tmp_path / "model.lmfcn", tmp_path / "model.onnx")
    with pytest.raises(FileNotFoundError):
        export(tmp_path / "nothing.lmfcn", tmp_path / "model.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model.lmfcn"]
