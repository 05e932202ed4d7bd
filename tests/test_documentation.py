import os
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lmfcn import model_file
from lmfcn.explain import gallery
from lmfcn.export import exported_files
from lmfcn.label import describe
from lmfcn.training import checkpoints

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), ROOT / "CONTRIBUTING.md", *ROOT.glob("src/**/README.md")]


def test_the_code_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    block = re.sub(r"n_per_class=\d+, size=\d+", "n_per_class=8, size=16", block)
    block = block.replace("LMFCNClassifier(", "LMFCNClassifier(epochs=1, latent_dim=4, ")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {})
    assert (tmp_path / "history.jsonl").exists()
    assert (tmp_path / "model.lmfcn").exists()
    assert 0.0 <= float(capsys.readouterr().out.split()[0]) <= 1.0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_files_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert os.path.exists(page.parent / target), target


def test_the_targets_of_the_readme_are_in_the_makefile():
    named = set(re.findall(r"`?make ([a-z]+)", (ROOT / "README.md").read_text()))
    defined = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert {"demo", "test"} <= named <= defined


def test_every_function_in_the_map_of_the_method_exists():
    folder = ROOT / "src/lmfcn/method"
    rows = re.findall(r"`([\w./]+\.py)` · ([^|\n;]+)", (folder / "README.md").read_text())
    assert len(rows) > 30
    for file, names in rows:
        source = (folder / file).read_text()
        for name in re.findall(r"`(?:\w+\.)?(\w+)`", names):
            assert re.search(rf"(def|class) {name}\b|\b{name} ?[:=]", source), (file, name)


def test_the_way_of_one_fit_is_one_table_of_files_that_exist():
    section = (ROOT / "CONTRIBUTING.md").read_text().split("## The way of one fit")[1].split("## Rules")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    assert [len(row) for row in rows] == [3] * len(rows)
    assert [row[0] for row in rows[2:]] == [str(number) for number in range(1, 16)]
    files = re.findall(r"`([\w/]+\.py)`", section)
    assert len(files) > 25
    for file in files:
        assert (ROOT / file if file.startswith("benchmarks") else ROOT / "src/lmfcn" / file).exists(), file


def test_versions_of_files_are_those_of_the_code():
    table = (ROOT / "docs/models.md").read_text().split("| file | format version |")[1].split("\n\n")[0]
    told = dict(re.findall(r"^\| ([^|]+) \| (\d+)", table, flags=re.MULTILINE))
    assert {file: int(version) for file, version in told.items()} == {
        "model without a frozen network": model_file.VERSION,
        "model with a frozen network": model_file.VERSION_WITH_TRUNK,
        "model with scales or deviations": model_file.VERSION_WITH_SCALES,
        "model with correlations": model_file.VERSION_WITH_CORRELATIONS,
        "gallery": gallery.VERSION,
        "features of `lmfcn label`": describe.VERSION,
        "checkpoint": checkpoints.VERSION,
        "ONNX and torch.export file": exported_files.FORMAT_VERSION,
    }


def test_first_steps_example(capsys):
    example = runpy.run_path(str(ROOT / "examples" / "first_steps.py"))
    assert 0.0 <= example["main"](n_per_class=8, size=16, epochs=1) <= 1.0
    assert "training images that weigh most" in capsys.readouterr().out


def test_many_classes_example(tmp_path, capsys):
    example = runpy.run_path(str(ROOT / "examples" / "many_classes.py"))
    assert example["main"](tmp_path, tile=32, epochs=1) > 0.5
    shown = capsys.readouterr().out
    assert "cannot be ruled out" in shown
    assert "new tiles" in shown


def test_map_mosaic_example(tmp_path, capsys):
    example = runpy.run_path(str(ROOT / "examples" / "map_mosaic.py"))
    assert example["main"](tmp_path, epochs=1, step=128, stride=16) >= 0.9
    assert "farther than 32 pixels from a border" in capsys.readouterr().out
    assert (tmp_path / "map" / "overlay.png").exists()


def test_own_folder_example(tmp_path, monkeypatch, capsys, random):
    for i in range(40):
        path = tmp_path / ("bright" if i % 2 else "dark") / f"{i}.png"
        path.parent.mkdir(exist_ok=True)
        pixels = random.integers(0, 100, (64, 64)) + 100 * (i % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    script = (
        (ROOT / "examples" / "own_folder.py")
        .read_text()
        .replace("random_state=0, verbose", "epochs=1, latent_dim=4, widths=(6, 8), verbose")
    )
    monkeypatch.setattr("sys.argv", ["own_folder.py", str(tmp_path)])
    exec(compile(script, "own_folder.py", "exec"), {})
    assert "bright" in capsys.readouterr().out
    assert len([line for line in script.splitlines() if line and not line.startswith(('"""', "import", "from"))]) < 15


def test_explain_prediction_example(tmp_path, capsys):
    example = runpy.run_path(str(ROOT / "examples" / "explain_prediction.py"))
    found = example["main"](tmp_path, n_per_class=8, size=16, epochs=1)
    assert found.map.values.shape == (16, 32)
    assert "for class 0:" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["map.png", "model.gallery", "model.lmfcn"]


def test_own_network_example(tmp_path, capsys):
    example = runpy.run_path(str(ROOT / "examples" / "own_network.py"))
    assert example["main"](tmp_path, n_per_class=10, size=32, epochs=1) > 0.8
    assert "features of the network: 420" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["model.lmfcn"]


def test_own_augmentation_example(capsys):
    example = runpy.run_path(str(ROOT / "examples" / "own_augmentation.py"))
    assert 0.0 <= example["main"](n_per_class=8, size=16, epochs=1) <= 1.0
    assert "48 images of 16 originals" in capsys.readouterr().out


def test_own_loss_example():
    example = runpy.run_path(str(ROOT / "examples" / "own_loss.py"))
    costs, _ = example["main"](n_per_class=10, size=16, epochs=2)
    assert len(costs) > 2
    assert costs[-1] < costs[0]


@pytest.mark.filterwarnings("ignore")  # of other packages
def test_tensorboard_example(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    example = runpy.run_path(str(ROOT / "examples" / "track_training.py"))
    classifier = example["track_in_tensorboard"](tmp_path, epochs=2, latent_dim=4)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    found = [event.value for event in events.Scalars("training/n_support")]
    assert found == classifier.history_.column("n_support")


@pytest.mark.filterwarnings("ignore")
def test_mlflow_example(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    monkeypatch.chdir(tmp_path)
    example = runpy.run_path(str(ROOT / "examples" / "track_training.py"))
    predicted = example["track_in_mlflow"](tmp_path, epochs=2, latent_dim=4)
    assert set(predicted.tolist()) <= {0, 1}
    (run,) = mlflow.search_runs(experiment_names=["textures"], output_format="list")
    assert "training.n_support" in run.data.metrics


def test_napari_example(tmp_path):
    from large_images import quarters, save_model
    from lmfcn.maps.run import MapRequest, map_image

    Image.fromarray(quarters(100, 130)).save(tmp_path / "a.png")
    save_model(tmp_path / "model.lmfcn")
    map_image(MapRequest(tmp_path / "model.lmfcn", tmp_path / "a.png", tmp_path / "map", 32, outputs=["ome-tiff"]))
    example = runpy.run_path(str(ROOT / "examples" / "napari_map.py"))
    (pixels, _, _), (labels, options, kind) = example["map_layers"](tmp_path / "a.png", tmp_path / "map")
    assert (pixels.shape, labels.shape, kind) == ((100, 130, 3), (7, 9), "labels")
    assert labels.min() >= 1
    covered = [length * side for length, side in zip(labels.shape, options["scale"], strict=True)]
    assert covered == [100, 130]


def test_compare_methods_example(tmp_path, capsys):
    random = np.random.default_rng(0)
    for label, grain in (("fine", 1), ("coarse", 4)):
        (tmp_path / "cloth" / label).mkdir(parents=True)
        for number in range(15):
            pixels = random.integers(0, 256, (16 // grain, 16 // grain), dtype=np.uint8)
            picture = Image.fromarray(np.kron(pixels, np.ones((grain, grain), np.uint8)))
            picture.save(tmp_path / "cloth" / label / f"{number}.png")
    example = runpy.run_path(str(ROOT / "examples" / "compare_methods.py"))
    tiny = {"epochs": 1, "latent_dim": 4, "widths": (6,)}
    changes = {"LMFCN": tiny, "CNN + SVM": tiny, "random-fcn": {"latent_dim": 4, "widths": (6,)}}
    outcome = example["main"](str(tmp_path / "cloth"), str(tmp_path / "out"), size=16, repeats=1, changes=changes)
    scores = {run.method: run.test_balanced_accuracy for run in outcome.runs}
    assert set(scores) == {"LMFCN", "CNN + SVM", "LBP", "random-fcn"}
    assert scores["LMFCN"] > 0.5 < scores["LBP"]
    assert outcome.verdict.sentences[0] in capsys.readouterr().out
    assert (tmp_path / "out" / "report.html").exists()


def test_save_textures_example(tmp_path):
    from lmfcn.data.sources import open_collection

    example = runpy.run_path(str(ROOT / "examples" / "save_textures.py"))
    assert example["main"](tmp_path, tile=128) == 3 * 4 * 4
    images = open_collection(tmp_path)
    assert set(images.split.tolist()) == {"train", "val", "test"}
    assert images[0].shape == (128, 128, 1)
