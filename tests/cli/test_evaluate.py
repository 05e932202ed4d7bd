import csv
import json

import numpy as np
import pytest
from PIL import Image
from small_images import save_images


@pytest.fixture(scope="module")
def new_trees(tmp_path_factory):
    return save_images(tmp_path_factory.mktemp("new") / "trees", n_per_class=6, seed=1)


def test_evaluate_tells_everything(command, model, new_trees):
    code, stdout, stderr = command("evaluate", model, new_trees)
    assert code == 0
    for text in (
        "Balanced accuracy ",
        " on 12 images",
        "recall",
        "predicted →",
        "Calibration error",
        "aim at 0.9",
    ):
        assert text in stdout
    assert "Note" not in stderr
    assert "\x1b" not in stdout


def test_json_and_csv_agree(command, model, new_trees, tmp_path):
    code, stdout, stderr = command("evaluate", model, new_trees, "--json", "--quiet", "--csv", "rows.csv")
    assert (code, stderr) == (0, "")
    values = json.loads(stdout)
    counts = np.array(values["confusion"]["counts"])
    assert counts.sum(axis=1).tolist() == [6, 6]
    rows = list(csv.DictReader((tmp_path / "rows.csv").read_text().splitlines()))
    right = [row["true"] == row["predicted"] for row in rows]
    assert np.trace(counts) == sum(right)
    assert values["accuracy"] == pytest.approx(np.mean(right))
    assert values["n_training_images"] == 0


def test_training_images_are_noticed(command, model, trees):
    code, stdout, _ = command("evaluate", model, trees)
    assert code == 0
    assert (
        "20 of the 20 images have a near-identical training image, 20 of them an exact copy;"
        " on new images the model may be worse."
    ) in stdout


def test_near_identical_training_images_are_left_out_of_a_second_accuracy(command, model, trees, new_trees, tmp_path):
    """Two darker copies of training images among new ones; the model file is all that is needed to see it."""
    for label in ("bark", "wood"):
        (tmp_path / "mixed" / label).mkdir(parents=True)
        for file in sorted((new_trees / label).iterdir()):
            (tmp_path / "mixed" / label / file.name).write_bytes(file.read_bytes())
        with Image.open(sorted((trees / label).iterdir())[0]) as picture:
            picture.point(lambda value: value // 2 + 20).save(tmp_path / "mixed" / label / "copy.png")
    _, stdout, _ = command("evaluate", model, "mixed")
    assert "2 of the 14 images have a near-identical training image; without them the balanced accuracy is" in stdout
    values = json.loads(command("evaluate", model, "mixed", "--json", "--quiet")[1])
    alone = json.loads(command("evaluate", model, new_trees, "--json", "--quiet")[1])
    assert (values["n_training_images"], values["n_near_training_images"]) == (0, 2)
    assert values["balanced_accuracy_without_them"] == alone["balanced_accuracy"]
    assert alone["n_near_training_images"] == 0
    assert alone["balanced_accuracy_without_them"] is None


def test_groups_come_from_file_names(command, model, new_trees):
    _, stdout, _ = command("evaluate", model, new_trees, "--groups-from", r"([0-9])\.png")
    assert " on 12 images of 6 groups" in stdout
    for pattern, sentence in [
        (
            "(",
            "The pattern '(' for groups is not a regular expression: missing ), unterminated subpattern at position 0.",
        ),
        (r"\d+", "must have brackets around what names the group, such as 'num_([0-9]+)'."),
        ("num_([0-9]+)", "The pattern 'num_([0-9]+)' for groups is not found in the file name '0.png'"),
    ]:
        code, stdout, stderr = command("evaluate", model, new_trees, "--groups-from", pattern, "--quiet")
        assert (code, stdout) == (2, "")
        assert sentence in stderr


def test_a_part_and_bad_files(command, model, new_trees, tmp_path):
    lines = [
        f"{new_trees}/{label}/{n}.png,{label},{'test' if n < 2 else 'old'}"
        for label in ("bark", "wood")
        for n in range(6)
    ]
    (tmp_path / "bad.png").write_bytes(b"")
    (tmp_path / "table.csv").write_text("\n".join(["path,label,split", *lines, "bad.png,wood,old"]))
    assert " on 4 test images" in command("evaluate", model, "table.csv")[1]
    code, _, stderr = command("evaluate", model, "table.csv", "--part", "old")
    assert code == 2
    assert "bad.png: is empty (0 bytes)" in stderr
    code, stdout, stderr = command("evaluate", model, "table.csv", "--part", "all", "--skip-bad")
    assert code == 0
    assert " on 12 images" in stdout
    assert "Left out: bad.png" in stderr
    code, _, stderr = command("evaluate", model, "table.csv", "--part", "new")
    assert code == 2
    assert "The split has the parts ['old', 'test'], not 'new'." in stderr


def test_mistakes_are_one_sentence(command, model, new_trees, tmp_path):
    content = model.read_bytes()
    (tmp_path / "cut.lmfcn").write_bytes(content[: len(content) // 2])
    (tmp_path / "text.lmfcn").write_text("not a model at all, but long enough")
    (tmp_path / "oak").mkdir()
    (tmp_path / "oak" / "oak").symlink_to(new_trees / "bark")
    colors = save_images(tmp_path / "colors", n_per_class=2, channels=3)
    for arguments, sentence in [
        ((tmp_path / "none.lmfcn", new_trees), "none.lmfcn does not exist."),
        ((tmp_path / "cut.lmfcn", new_trees), "cut.lmfcn is truncated"),
        ((tmp_path / "text.lmfcn", new_trees), "text.lmfcn is not in the safetensors format"),
        ((model, tmp_path / "none"), "none does not exist."),
        ((model, tmp_path / "oak"), "labels that the model does not know: 'oak'; it knows 'bark', 'wood'."),
        ((model, colors), "X has 3 channels, but the classifier was fitted on images with 1"),
    ]:
        code, stdout, stderr = command("evaluate", *arguments, "--quiet")
        assert (code, stdout) == (2, "")
        assert sentence in stderr
        assert stderr.startswith("Error: ")
