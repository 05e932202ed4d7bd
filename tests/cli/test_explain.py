import json
import re

import numpy as np
import pytest
from PIL import Image

from lmfcn.explain.gallery import Gallery, save_gallery
from small_model import fitted, gallery, quick, textures, three


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model with its gallery, the same model without one, and two images to explain."""
    folder = tmp_path_factory.mktemp("explain")
    fitted().save(folder / "model.lmfcn")
    fitted().save(folder / "alone.lmfcn")
    save_gallery(gallery(), folder / "model.gallery")
    images, _ = textures(1, 24, 32, seed=5)
    Image.fromarray(images[0]).save(folder / "new.png")
    (folder / "b").mkdir()
    Image.fromarray(images[2]).save(folder / "b" / "new.png")
    return folder


@pytest.fixture
def run(monkeypatch, capsys):
    """The command in this process: exit code, standard output and standard error."""
    from lmfcn.__main__ import main

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["lmfcn", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return run


def test_explain_tells_and_writes(folder, tmp_path, run):
    out = tmp_path / "new" / "folder"
    code, stdout, stderr = run(
        "explain", folder / "model.lmfcn", folder / "new.png", "-o", out, "--top", "2", "--class", "fine"
    )
    assert (code, stderr) == (0, "")
    for text in (f"{folder / 'new.png'}: ", "probabilities: ", "cannot be ruled out (90 %): ", "against fine:"):
        assert text in stdout
    weights = [float(weight) for weight in re.findall(r"^ {4,} ([+-]\d\.\d+)  ", stdout, flags=re.MULTILINE)]
    (value,) = re.findall(r"= +([+-]\d\.\d+)  decision value of fine", stdout)
    assert sum(weights) == pytest.approx(float(value), abs=1e-3)
    assert "fine/" in stdout
    assert sorted(path.name for path in out.iterdir()) == ["001-new.png", "explanation.html"]
    with Image.open(out / "001-new.png") as overlay:
        assert overlay.size == (11 * 32, 11 * 24)


def test_explain_as_json_and_without_a_gallery(folder, tmp_path, run):
    images = [folder / "new.png", folder / "b" / "new.png"]
    code, out, err = run("explain", folder / "model.lmfcn", *images, "-o", tmp_path, "--format", "json", "--json", "-q")
    assert (code, err) == (0, "")
    entries = json.loads(out)
    assert [entry["image"] for entry in entries] == [str(path) for path in images]
    assert json.loads((tmp_path / "explanation.json").read_text()) == entries
    for entry in entries:
        listed = sum(image["weight"] for image in entry["for"] + entry["against"])
        assert listed + entry["rest"]["weight"] + entry["intercept"] == pytest.approx(entry["value"], abs=1e-9)
        assert (tmp_path / entry["overlay"]).exists()
        assert entry["label"] == entry["explained"] == max(entry["probabilities"], key=entry["probabilities"].get)
    code, out, _ = run("explain", folder / "alone.lmfcn", images[0], "-o", tmp_path)
    assert code == 0
    assert "There is no gallery beside the model" in out
    assert re.search(r"[+]\d\.\d+  (fine|coarse|stripes)\n", out)


def test_bad_input_is_one_sentence_and_code_2(folder, tmp_path, run):
    model, image = folder / "model.lmfcn", folder / "new.png"
    other = quick(random_state=1).fit(*three())
    save_gallery(Gallery.of(other, *three()), tmp_path / "other.gallery")
    Image.new("RGB", (16, 16)).save(tmp_path / "colour.png")
    Image.new("L", (4, 4)).save(tmp_path / "tiny.png")
    cases = [
        ([tmp_path / "nothing.lmfcn", image], "nothing.lmfcn"),
        ([image, image], "is not in the safetensors format"),
        ([model, tmp_path / "nothing.png"], "nothing.png: does not exist"),
        ([model, model], "model.lmfcn: is not an image of a known format"),
        ([model, tmp_path], "is neither|is a folder, not a file"),
        ([model, tmp_path / "colour.png"], "3 channels, but the classifier was fitted on images with 1"),
        ([model, tmp_path / "tiny.png"], "at least 8x8 pixels, got 4x4"),
        ([model, image, "--class", "mud"], "There is no class 'mud'; the model knows coarse, fine, stripes"),
        ([model, image, "--gallery", tmp_path / "no.gallery"], "no.gallery"),
        ([model, image, "--gallery", tmp_path / "other.gallery"], "The gallery belongs to another model"),
        ([model, image, "--gallery", model], "is not a file of the kind 'lmfcn gallery'"),
        ([model, image, "--format", "pdf"], "--format must be"),
        ([model, image, "--top", "0"], "--top"),
        ([model], "IMAGE"),
    ]
    for arguments, message in cases:
        code, _, err = run("explain", *arguments, "-o", tmp_path / "out")
        assert code == 2, arguments
        assert re.search(message, err), (message, err)
        assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labelled")
    for i, (image, label) in enumerate(zip(*three(), strict=True)):
        wrong = "coarse" if i == 30 else label
        (folder / wrong).mkdir(exist_ok=True)
        Image.fromarray(image).save(folder / wrong / f"{i:02d}.png")
    return folder


def test_audit_finds_a_planted_error(labelled, tmp_path, run):
    code, stdout, stderr = run("audit", labelled, "--quick", "--quiet", "-o", tmp_path / "out")
    assert (code, stderr) == (0, "")
    assert stdout.startswith("Cross-validated balanced accuracy 0.")
    assert " of 36 images look" in stdout
    assert "coarse/30.png, labelled coarse: looks like stripes" in stdout
    rows = (tmp_path / "out" / "audit.csv").read_text().splitlines()
    assert len(rows) == 37
    assert "coarse/30.png" in rows[1]
    page = (tmp_path / "out" / "audit.html").read_text()
    assert f"lmfcn audit {labelled} --quick" in page
    assert "an untrained network" in page


def test_audit_with_a_model(labelled, folder, tmp_path, run):
    code, out, _ = run("audit", labelled, "--model", folder / "model.lmfcn", "-o", tmp_path, "-q")
    assert code == 0
    assert "30.png" in out


def test_audit_trains_a_model(labelled, tmp_path, run, monkeypatch):
    from lmfcn.explain import audit as audit_latents

    monkeypatch.setattr(audit_latents, "LMFCNClassifier", quick)
    code, out, err = run("audit", labelled, "-o", tmp_path)
    assert code == 0
    assert "30.png" in out
    assert "Cross-validation" in err
    assert "a model that was trained on them" in (tmp_path / "audit.html").read_text()


def test_bad_input_of_audit(labelled, folder, tmp_path, run):
    (tmp_path / "table.csv").write_text("path\na.png\n")
    np.savez(tmp_path / "one.npz", images=np.zeros((6, 16, 16), np.uint8), labels=["a"] * 6)
    cases = [
        ([tmp_path / "nothing"], "does not exist"),
        ([tmp_path / "table.csv"], "has no labels; an audit needs the class of every image"),
        ([tmp_path / "one.npz", "--quick"], "at least two classes"),
        ([labelled, "--quick", "--model", folder / "model.lmfcn"], "give only one of them"),
        ([labelled, "--size", "32", "--model", folder / "model.lmfcn"], "--size and --color apply to a new training"),
        ([labelled, "--model", tmp_path / "no.lmfcn"], "no.lmfcn"),
        ([labelled, "--color", "blue"], "--color must be"),
    ]
    for arguments, message in cases:
        code, _, err = run("audit", *arguments, "-o", tmp_path / "out")
        assert code == 2, arguments
        assert re.search(message, err), (message, err)
