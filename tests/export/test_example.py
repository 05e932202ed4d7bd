"""examples/onnx_only.py gives lmfcn's predictions without lmfcn, torch and scikit-learn."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

EXAMPLE = Path(__file__).parents[2] / "examples" / "onnx_only.py"

# A module that is None in sys.modules cannot be imported.
ALONE = """
import json, runpy, sys
sys.modules.update(dict.fromkeys(["torch", "lmfcn", "sklearn", "scipy", "tifffile", "onnx"]))
example = runpy.run_path(sys.argv[1])
for model_path, image_paths in json.loads(sys.argv[2]):
    model = example["Model"](model_path)
    for path in image_paths:
        label, scores, probabilities = model.predict(model.prepare(example["read_image"](path)))
        label = label.item() if hasattr(label, "item") else label
        print(json.dumps([label, scores.tolist(), probabilities.tolist()]))
"""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Image files of every kind that Pillow reads at full depth."""
    folder, random = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    grey = random.integers(0, 256, (60, 51), dtype=np.uint8)
    colour = random.integers(0, 256, (45, 70, 3), dtype=np.uint8)
    deep = random.integers(0, 65536, (50, 40), dtype=np.uint16)
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(grey).save(folder / "grey.png")
    Image.fromarray(grey).save(folder / "grey.tif")
    Image.fromarray(grey > 99).save(folder / "two_levels.png")
    Image.fromarray(grey).convert("LA").save(folder / "grey_alpha.png")
    Image.fromarray(colour).save(folder / "colour.png")
    Image.fromarray(colour).save(folder / "turned.jpg", exif=turned)
    Image.fromarray(colour).convert("P").save(folder / "palette.png")
    Image.fromarray(colour).convert("CMYK").save(folder / "cmyk.jpg")
    Image.fromarray(deep).save(folder / "deep.png")
    Image.fromarray(deep[:30, :30]).save(folder / "deep.tif")
    return folder


@pytest.fixture(scope="module")
def cases(pictures):
    flat = ["grey.png", "grey.tif", "two_levels.png", "grey_alpha.png", "colour.png", "turned.jpg", "palette.png"]
    names = {
        "two, grey": [*flat, "cmyk.jpg"],
        "five, RGB": [*flat, "cmyk.jpg"],
        "one-vs-all, 16-bit": ["deep.png", "deep.tif"],
    }
    return {name: [str(pictures / file) for file in files] for name, files in names.items()}


def test_the_same_predictions_without_lmfcn_and_torch(models, files, cases, tmp_path):
    many = np.random.default_rng(0).uniform(size=(2, 33, 35, 6))  # double precision, which lmfcn takes too
    for number, image in enumerate(many):
        np.save(tmp_path / f"{number}.npy", image)
    asked = {**cases, "boolean, 6-channel": [str(tmp_path / "0.npy"), str(tmp_path / "1.npy")]}
    work = json.dumps([(str(files[name][0]), paths) for name, paths in asked.items()])
    command = [sys.executable, "-c", ALONE, str(EXAMPLE), work]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    predictions = iter(map(json.loads, result.stdout.splitlines()))
    for name, paths in asked.items():
        model, X = models[name], many if name == "boolean, 6-channel" else paths
        for label, score, probability in zip(
            model.predict(X), model.decision_function(X), model.predict_proba(X), strict=True
        ):
            found = next(predictions)
            assert found[0] == label
            assert found[1] == pytest.approx(np.ravel(score), abs=1e-5)
            assert found[2] == pytest.approx(probability, abs=1e-5)


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(EXAMPLE))


def test_it_prints_a_line_per_image(files, cases, example, capsys, models):
    example["main"](files["two, grey"][0], *cases["two, grey"][:2])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[1] for line in lines] == models["two, grey"].predict(cases["two, grey"][:2]).tolist()


def test_images_that_do_not_fit_are_refused_with_a_reason(files, example, pictures, tmp_path):
    np.save(tmp_path / "five.npy", np.zeros((20, 20, 5)))
    np.save(tmp_path / "small.npy", np.zeros((20, 7, 6)))
    np.save(tmp_path / "line.npy", np.zeros(20))
    np.save(tmp_path / "many.npy", np.zeros((2, 20, 20, 6)))
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "text.png").write_text("no picture")
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(tmp_path / "small.png")
    for name, path, message in (
        ("boolean, 6-channel", tmp_path / "five.npy", "has 5 channel.s. of float, but the model takes 6 channel.s. of"),
        ("boolean, 6-channel", tmp_path / "small.npy", "is smaller than 8x8 pixels"),
        ("one-vs-all, 16-bit", pictures / "grey.png", "1 channel.s. of uint8, but the model takes 1 .* of uint16"),
        ("two, grey", tmp_path / "small.png", "is too small to cut out 24x20 pixels"),
        ("two, grey", tmp_path / "text.png", "cannot identify image file"),
        ("two, grey", tmp_path / "nothing.png", r"/nothing\.png: No such file or directory\.$"),
        ("boolean, 6-channel", tmp_path / "nothing.npy", r"/nothing\.npy: No such file or directory\.$"),
        ("boolean, 6-channel", tmp_path / "empty.npy", "No data left in file"),
        ("boolean, 6-channel", tmp_path / "line.npy", r"must hold an array .height, width. or .*, got shape \(20,\)"),
        ("boolean, 6-channel", tmp_path / "many.npy", r"must hold an array .*, got shape \(2, 20, 20, 6\)"),
    ):
        with pytest.raises(SystemExit, match=message):
            example["main"](files[name][0], path)


def test_the_order_of_bytes_in_a_file_does_not_matter(files, example, tmp_path, capsys):
    image = np.random.default_rng(0).integers(0, 65536, (40, 40), dtype=np.uint16)
    for order in "<>":
        np.save(tmp_path / "image.npy", image.astype(f"{order}u2"))
        example["main"](files["one-vs-all, 16-bit"][0], tmp_path / "image.npy")
    one, other = capsys.readouterr().out.splitlines()
    assert one == other


def test_deep_colour_is_refused_because_pillow_would_cut_it(files, example, tmp_path):
    import tifffile

    tifffile.imwrite(tmp_path / "deep.tif", np.zeros((40, 40, 3), np.uint16), photometric="rgb")
    with pytest.raises(SystemExit, match="16 bits per colour, which Pillow cannot read"):
        example["main"](files["five, RGB"][0], tmp_path / "deep.tif")


def test_another_onnx_file_is_not_ours(example, tmp_path, files):
    import onnx

    proto = onnx.load(files["five, RGB"][0])
    del proto.metadata_props[:]
    onnx.save(proto, tmp_path / "other.onnx")
    (tmp_path / "text.onnx").write_text("no model")
    for name, message in (
        ("other.onnx", "is not a file of `lmfcn export` in format 1"),
        ("text.onnx", "parsing failed"),
    ):
        with pytest.raises(SystemExit, match=f"{name} cannot be used: .*{message}"):
            example["main"](tmp_path / name, "image.png")
