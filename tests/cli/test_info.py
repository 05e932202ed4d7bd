import copy
import json
import re

from lmfcn import LMFCNClassifier, Recipe, __version__
from lmfcn.model_file import describe_model, save
from small_model import fitted
from small_trunk import trunk_classifier


def test_info_tells_what_a_model_is(command, model):
    code, printed, _ = command("info", model)
    assert code == 0
    stdout = dict(line.split("  ", 1) for line in printed.splitlines())
    stdout = {name.strip(): text.strip() for name, text in stdout.items()}
    assert stdout["classes"] == "bark, wood"
    assert stdout["images"] == "1 channel of uint8, of any size from 8x8"
    assert stdout["trained on"] == "16 images (bark 8, wood 8), with 4 others held out for validation"
    assert stdout["accuracy"].endswith(" balanced, on 4 validation images")
    assert stdout["file"].endswith(" MB, format version 5")
    assert stdout["network"] == "texture-fcn, trained from scratch"
    assert re.fullmatch(r"complete, with \d+ threads?", stdout["training"])
    assert stdout["sizes"].startswith("training images of ")
    assert stdout["seed"] == "0"
    assert "latent_dim 2" in stdout["parameters"]
    assert f"lmfcn {__version__}" in stdout["versions"]


def test_info_as_json(command, model):
    code, stdout, _ = command("info", model, "--json")
    assert code == 0
    values = json.loads(stdout)
    assert values["n_bytes"] == model.stat().st_size
    assert len(values["data"]["fingerprint"]) == 32
    assert values["networks"]["count"] == 2
    assert "histories" not in values
    assert values["interrupted"] is False
    assert values["format_version"] == 5
    assert values["threads"] >= 1
    assert values["trunk"] is None


def test_a_frozen_network_is_told_with_its_licence_and_hash(command, tmp_path, monkeypatch):
    model = trunk_classifier().model_
    trunk = {"name": "efficientnet-lite0", "licence": "Apache-2.0", "sha256": "0123456789abcdef" * 4}
    told = {**describe_model(model), "trunk": trunk}
    monkeypatch.setattr("lmfcn.model_file.describe_model", lambda _: told)
    fitted().save(tmp_path / "any.lmfcn")
    _, stdout, _ = command("info", tmp_path / "any.lmfcn")
    expected = "efficientnet-lite0, frozen, licence Apache-2.0, SHA-256 of its weights 0123456789abcdef...\n"
    assert f"network      {expected}" in stdout
    trunk["licence"] = None
    assert "frozen, licence unknown, SHA-256" in command("info", tmp_path / "any.lmfcn")[1]


def test_an_interrupted_training_is_told(command, tmp_path):
    model = copy.deepcopy(fitted().model_)
    model.record |= {"interrupted": True, "threads": 1}
    save(model, tmp_path / "model.lmfcn")
    told = "training     interrupted by the user before its last epoch, with 1 thread\n"
    assert told in command("info", tmp_path / "model.lmfcn")[1]


def test_a_model_that_tells_little(command, textures, tmp_path):
    classifier = LMFCNClassifier(epochs=1, latent_dim=2, widths=(4,), recipe=Recipe(passes=1), random_state=0).fit(
        *textures
    )
    classifier.model_.record = {}
    classifier.save(tmp_path / "bare.lmfcn")
    code, stdout, _ = command("info", "bare.lmfcn")
    assert code == 0
    assert "classes      0, 1" in stdout
    assert "versions" not in stdout


def test_no_model(command, trees):
    assert command("info", "none.lmfcn")[0] == 2
    code, _, stderr = command("info", trees / "bark" / "0.png")
    assert code == 2
    assert "is not in the safetensors format" in stderr


def test_refit_epochs_are_printed(command, textures, tmp_path):
    classifier = LMFCNClassifier(epochs=3, latent_dim=2, widths=(4,), recipe=Recipe(passes=1), random_state=0).fit(
        *textures
    )
    classifier.save(tmp_path / "model.lmfcn")
    _, printed, _ = command("info", tmp_path / "model.lmfcn")
    score = classifier.history_[classifier.best_epoch_].validation_balanced_accuracy
    told = f"{classifier.best_epoch_} selected (epoch score {score:.3f}), then 1 refit epoch on all images"
    assert f"epoch        {told}\n" in printed
