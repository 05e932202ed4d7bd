import json

from lmfcn import LMFCNClassifier, Recipe, __version__


def test_info_tells_what_a_model_is(command, model):
    code, printed, _ = command("info", model)
    assert code == 0
    stdout = dict(line.split("  ", 1) for line in printed.splitlines())
    stdout = {name.strip(): text.strip() for name, text in stdout.items()}
    assert stdout["classes"] == "bark, wood"
    assert stdout["images"] == "1 channel of uint8, of any size from 8x8"
    assert stdout["trained on"] == "16 images (bark 8, wood 8), with 4 others held out for validation"
    assert stdout["accuracy"].endswith(" balanced, on 4 validation images")
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
