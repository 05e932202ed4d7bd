import json
import sys
from dataclasses import asdict

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import lmfcn
from lmfcn.data.image_form import ImageForm
from lmfcn.export import DisagreementError, export_onnx, export_torch, exported_files
from lmfcn.export.agreement import compare
from lmfcn.export.exported_files import DESCRIPTION, fingerprint, load_onnx_file, load_torch_file
from lmfcn.export.graph import silence_translator, trace
from random_models import random_images, random_model

NAMES = ["two, grey", "five, RGB", "one-vs-all, 16-bit", "boolean, 6-channel"]
LABEL_TYPES = ["tensor(string)", "tensor(int64)", "tensor(double)", "tensor(bool)"]


def metadata(path):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return {name: json.loads(value) for name, value in session.get_modelmeta().custom_metadata_map.items()}


@pytest.mark.parametrize("name", NAMES)
def test_new_images_of_many_sizes_get_the_models_labels_and_scores(models, files, name):
    model, (path, _) = models[name], files[name]
    counts = {(32, 32): 20, (47, 90): 15, (200, 131): 4, (500, 500): 1}
    batches = [random_images(count, size, model.form, seed=count) for size, count in counts.items()]
    found = compare(model, load_onnx_file(path.read_bytes()), batches, tolerance=1e-5)
    assert found.n_images == 40
    assert 0 < found.largest_difference < 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_the_comparison_saw_different_predictions(files, name):
    agreement = files[name][1]
    assert agreement.n_labels > 1
    assert agreement.n_sizes == 8
    assert agreement.largest_difference < 1e-4


@pytest.mark.parametrize(("name", "label_type"), list(zip(NAMES, LABEL_TYPES, strict=True)))
def test_inputs_and_outputs_are_as_documented(models, files, name, label_type):
    model, session = models[name], onnxruntime.InferenceSession(files[name][0], providers=["CPUExecutionProvider"])
    (images,) = session.get_inputs()
    assert images.name == "images"
    assert images.shape == ["batch", "height", "width", model.form.channels]
    assert images.type == {"uint8": "tensor(uint8)", "uint16": "tensor(uint16)"}.get(model.form.pixels, "tensor(float)")
    n_classes = len(model.classes)
    assert [(output.name, output.type, output.shape) for output in session.get_outputs()] == [
        ("label", label_type, ["batch"]),
        ("number", "tensor(int64)", ["batch"]),
        ("scores", "tensor(double)", ["batch", 1 if n_classes == 2 else n_classes]),
        ("probabilities", "tensor(double)", ["batch", n_classes]),
    ]


def test_metadata_say_what_a_program_must_know(files):
    path, agreement = files["two, grey"]
    told = metadata(path)
    assert told["format_version"] == 1
    assert told["lmfcn_version"] == lmfcn.__version__
    assert told["classes"] == ["coarse", "fine; größer"]
    assert told["tolerance"] == 1e-4
    assert told["checked"]["n_images"] == agreement.n_images
    assert told["preprocessing"] == {
        "pixels": "uint8",
        "channels": 1,
        "smallest_side": 8,
        "color": "grey",
        "fit": "crop",
        "size": [24, 20],
        "row_shape": None,
    }
    fingerprints = {metadata(path)["fingerprint"] for path, _ in files.values()}
    assert len(fingerprints) == len(files)


def test_thresholds_give_the_models_prediction_sets(models, files):
    model, (path, _) = models["five, RGB"], files["five, RGB"]
    images = random_images(40, (20, 20), model.form, seed=3)
    predicted = load_onnx_file(path.read_bytes())(images)[2]
    least = metadata(path)["prediction_sets"]["0.8"]
    assert 0 < least < 1
    sets = (predicted >= least) | (predicted == predicted.max(axis=1, keepdims=True))
    assert np.array_equal(sets, model.predict_set(images, 0.8))


def test_the_file_is_plain_and_tells_nothing_about_the_machine(files):
    for path, _ in files.values():
        proto = onnx.load(path)
        onnx.checker.check_model(proto, full_check=True)
        assert {opset.domain for opset in proto.opset_import} == {""}
        assert b"site-packages" not in path.read_bytes()
        assert b"lmfcn/" not in path.read_bytes()
        assert [file.name for file in path.parent.iterdir() if file.suffix != ".onnx"] == []


def test_a_classifier_and_the_users_own_images_in_a_folder_can_be_given(models, files, textures, tmp_path, monkeypatch):
    class Classifier:
        model_ = models["two, grey"]

    monkeypatch.setattr(exported_files, "_translate", lambda _: without_metadata(files["two, grey"][0]))
    found = export_onnx(Classifier(), tmp_path / "Model.ONNX", images=textures[0][:20])
    assert found.n_images == files["two, grey"][1].n_images + 20
    assert metadata(tmp_path / "Model.ONNX")["checked"]["n_images"] == found.n_images


def without_metadata(path):
    proto = onnx.load(path)
    del proto.metadata_props[:]
    return proto


def test_a_file_that_disagrees_is_not_written(files, tmp_path, monkeypatch):
    other = random_model([False, True], ImageForm(1, "uint8"))
    monkeypatch.setattr(exported_files, "_translate", lambda _: without_metadata(files["two, grey"][0]))
    (tmp_path / "old.onnx").write_bytes(b"an older file")
    with pytest.raises(DisagreementError, match=r"disagrees with the model by .*tolerance 0.0001; nothing was written"):
        export_onnx(other, tmp_path / "old.onnx")
    with pytest.raises(DisagreementError, match=r"predicts other labels than the model for \d+ of \d+ images"):
        export_onnx(other, tmp_path / "new.onnx", tolerance=1e6)
    assert [path.name for path in tmp_path.iterdir()] == ["old.onnx"]
    assert (tmp_path / "old.onnx").read_bytes() == b"an older file"


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxscript"])
def test_without_the_extra(models, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"This needs {package}: pip install 'lmfcn\[onnx\]'"):
        export_onnx(models["two, grey"], tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_trouble_inside_torch_is_one_sentence(models, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise TypeError("\nno such operator\nand pages\nmore")

    monkeypatch.setattr("torch.onnx.export", fail)
    with pytest.raises(RuntimeError, match=r"^torch.onnx cannot translate the model: no such operator\. Try other"):
        export_onnx(models["two, grey"], tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A model, and the program that it became."""
    model = random_model(["x", "y", "z"], ImageForm(3, "uint8"))
    images = random_images(4, (16, 16), model.form)
    before = model.decision_function(images)
    path = tmp_path_factory.mktemp("program") / "model.pt2"
    agreement = export_torch(model, path)
    assert np.array_equal(model.decision_function(images), before)
    return model, path, agreement


def test_the_program_predicts_like_the_model(program):
    model, path, agreement = program
    assert (agreement.n_images, agreement.n_sizes) == (78, 8)
    assert agreement.n_labels > 1
    sizes = {(8, 8): 1, (47, 90): 3, (200, 131): 2}
    batches = [random_images(count, size, model.form) for size, count in sizes.items()]
    found = compare(model, load_torch_file(path.read_bytes(), model.classes), batches, tolerance=1e-5)
    assert found.n_images == 6
    assert [file.name for file in path.parent.iterdir()] == ["model.pt2"]


def test_the_program_describes_itself(program):
    model, path, agreement = program
    extra = {DESCRIPTION: ""}
    with silence_translator():
        torch.export.load(path, extra_files=extra)
    told = json.loads(extra[DESCRIPTION])
    assert told["classes"] == ["x", "y", "z"]
    assert told["preprocessing"]["channels"] == 3
    assert told["fingerprint"] == fingerprint(model)
    assert told["checked"] == asdict(agreement)


def test_the_model_is_left_as_it_was(program):
    assert all(weight.requires_grad for weight in program[0].parameters())
    assert "average" not in vars(program[0].members[0])


def test_signals_that_come_as_rows(tmp_path):
    model = random_model(["x", "y"], ImageForm(1, "float", row_shape=(1, -1)), ("last",))
    assert export_torch(model, tmp_path / "model.pt2").n_sizes == 8
    rows = random_images(4, (1, 77), model.form)
    labels, scores, _ = load_torch_file((tmp_path / "model.pt2").read_bytes(), model.classes)(rows)
    assert labels.tolist() == model.predict(rows.reshape(4, 77)).tolist()
    assert scores[:, 0] == pytest.approx(model.decision_function(rows.reshape(4, 77)), abs=1e-5)


def test_a_program_that_disagrees_is_not_written(models, tmp_path, monkeypatch):
    other = random_model(["x", "y"], ImageForm(1, "uint8"))
    monkeypatch.setattr(exported_files, "trace", lambda _: trace(other))
    with pytest.raises(DisagreementError, match="nothing was written"):
        export_torch(models["two, grey"], tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []
