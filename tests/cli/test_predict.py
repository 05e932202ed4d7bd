import csv
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from small_images import save_images

import lmfcn


def without_signs_of_life(stderr):
    """The lines that do not depend on how busy the machine is."""
    return [line for line in stderr.splitlines() if not re.match(r"(Loading|Predicting)\b.*\d", line)]


def test_the_real_command_reads_paths_from_a_pipe(model, trees, tmp_path):
    (tmp_path / "bad.png").write_text("no image")
    paths = [*sorted(trees.rglob("*.png")), tmp_path / "bad.png", tmp_path / "missing.png"]
    result = subprocess.run(
        [sys.executable, "-m", "lmfcn", "predict", model, "-", "--proba"],
        input="\n".join(map(str, paths)) + "\n",
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    rows = list(csv.DictReader(result.stdout.splitlines()))
    assert [row["path"] for row in rows] == [str(path) for path in paths[:-2]]
    expected = lmfcn.load(model).predict_proba([str(path) for path in paths[:-2]])
    found = np.array([[float(row["p(bark)"]), float(row["p(wood)"])] for row in rows])
    assert np.allclose(found, expected, atol=1e-5)
    assert without_signs_of_life(result.stderr) == [
        f"{tmp_path / 'bad.png'}: is not an image of a known format",
        f"{tmp_path / 'missing.png'}: does not exist",
        "20 images predicted, 2 could not be used.",
    ]


def test_a_reader_that_leaves_early_is_no_error(model, trees):
    command = f"yes '{trees}/bark/0.png' | head -400 | '{sys.executable}' -m lmfcn predict '{model}' - | head -1"
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120)
    assert (result.stdout, without_signs_of_life(result.stderr)) == ("path,label,probability\n", [])


def test_json_lines_with_sets_and_rejections(command, model, trees, tmp_path):
    arguments = ("--proba", "--set", "0.7", "--reject", "1", "-o", "rows.jsonl")
    code, stdout, stderr = command("predict", model, trees, *arguments)
    assert (code, stdout, stderr) == (0, "", "20 images predicted.\n")
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert {row["path"] for row in rows} == {str(path) for path in trees.rglob("*.png")}
    loaded = lmfcn.load(model)
    for row in rows:
        assert set(row["probabilities"]) == {"bark", "wood"}
        assert row["label"] is None
        predicted = np.array([list(row["probabilities"].values())])
        assert row["set"] == loaded.classes[loaded.sets_of(predicted, 0.7)[0]].tolist()


def test_odd_names_survive_as_csv(command, model, trees, tmp_path):
    odd = tmp_path / 'a,"b"\nc.png'
    odd.write_bytes((trees / "bark" / "0.png").read_bytes())
    code, stdout, _ = command("predict", model, odd, trees / "bark" / "1.png", "--format", "csv", "--set", "0.5")
    assert code == 0
    rows = list(csv.DictReader(stdout.splitlines(keepends=True)))
    assert rows[0]["path"] == str(odd)
    assert set(rows[1]["set"].split("|")) <= {"bark", "wood"}


def test_a_table_for_people(command, model, trees):
    _code, stdout, _ = command("predict", model, trees / "bark" / "1.png", "--format", "table", "--reject", "1")
    heading, line = stdout.splitlines()
    assert heading.split() == ["label", "probability", "path"]
    assert line.split()[0] == "-"
    assert line.endswith("bark/1.png")
    assert line.index(str(trees)) == heading.index("path")


def test_other_sizes_are_taken_as_the_model_takes_them_and_other_channels_refused(command, model, tmp_path):
    save_images(tmp_path / "large", n_per_class=1, side=24)
    save_images(tmp_path / "tiny", n_per_class=1, side=4)
    Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(tmp_path / "color.png")
    code, stdout, stderr = command("predict", model, "large", "tiny", "color.png")
    assert code == 1
    assert stdout.count("large") == 2
    assert stderr.count("Images must have at least 8x8 pixels, got 4x4.") == 2
    assert "color.png: X has 3 channels, but the classifier was fitted on images with 1" in stderr


def test_nothing_is_left_half_written(command, model, trees, tmp_path, monkeypatch):
    from lmfcn.predict.writers import RowFormatter

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(RowFormatter, "line", stop)
    (tmp_path / "rows.csv").write_text("before")
    code, stdout, _ = command("predict", model, trees, "-o", "rows.csv")
    assert (code, stdout) == (130, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv", "rows.csv.part"]
    assert (tmp_path / "rows.csv").read_text() == "before"


@pytest.mark.parametrize("place", [(), ("-o", "rows.csv")])
def test_without_a_usable_image_nothing_is_left(command, model, tmp_path, place):
    code, stdout, stderr = command("predict", model, "nothere.png", "nor this.png", *place)
    assert (code, stdout) == (2, "")
    assert stderr.splitlines() == [
        "nothere.png: does not exist",
        "nor this.png: does not exist",
        "Error: No image could be used; the reasons are above.",
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["MODEL", "empty"], "No image was found; give images, folders that hold some, or paths on standard input."),
        (
            ["MODEL", "empty", "--format", "xml"],
            "--format must be one of 'table', 'csv', 'jsonl', 'parquet', got 'xml'.",
        ),
        (["MODEL", "empty", "--reject", "2"], "--reject must be between 0 and 1, got 2.0."),
        (["MODEL", "empty", "--resume"], "--resume needs a file; add -o FILE."),
        (["MODEL", "empty", "--format", "parquet"], "--format parquet needs a file; add -o FILE."),
        (["MODEL", "empty", "-o", "none/rows.csv"], "none/rows.csv"),
        (["MODEL", "empty", "--set", "1"], "--set must be between 0 and 1, got 1.0."),
        (["none.lmfcn", "empty"], "none.lmfcn"),
        (["empty", "empty"], "empty is not a file."),
    ],
)
def test_mistakes_end_with_one_sentence_and_code_2(command, model, tmp_path, arguments, sentence):
    (tmp_path / "empty").mkdir()
    code, stdout, stderr = command("predict", *[model if word == "MODEL" else word for word in arguments])
    assert (code, stdout) == (2, "")
    assert sentence in stderr
    assert stderr.count("\n") == 1


def test_images_of_no_class_get_no_label(command, model, trees, tmp_path):
    Image.fromarray(np.tile(np.array([0, 255], dtype=np.uint8), (16, 8))).save(tmp_path / "stripes.png")
    options = ("--none-of-these", "0.4", "-o", "rows.jsonl")
    code, _, stderr = command("predict", model, tmp_path / "stripes.png", trees, *options)
    assert code == 0, stderr
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    expected = lmfcn.load(model).typicality([row["path"] for row in rows])
    assert [row["typicality"] for row in rows] == pytest.approx(expected.tolist(), abs=1e-6)
    assert [row["label"] is None for row in rows] == (expected <= 0.4).tolist()
    assert rows[0]["label"] is None
    code, stdout, _ = command("predict", model, trees / "bark" / "0.png", "--none-of-these", "0.4", "--format", "csv")
    assert stdout.splitlines()[0] == "path,label,probability,typicality"
    code, _, stderr = command("predict", model, trees, "--none-of-these", "0.001")
    assert code == 2
    assert "the smallest share of --none-of-these is" in stderr
