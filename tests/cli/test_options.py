import json
import tomllib

import pytest
from small_images import FAST

from lmfcn.cli.options import write_config


def test_what_is_saved_can_be_used_again(command, trees, model, tmp_path):
    code, _, _ = command(
        "train", trees, "-o", "first.lmfcn", *FAST, "--no-report", "--quiet", "--save-config", "run.toml"
    )
    assert code == 0
    saved = tomllib.loads((tmp_path / "run.toml").read_text())["train"]
    assert saved["data"] == str(trees)
    assert (saved["epochs"], saved["latent_dim"], saved["no_report"]) == (1, 2, True)
    assert "config" not in saved
    assert "save_config" not in saved
    code, stdout, _ = command("train", "--config", "run.toml", "-o", "second.lmfcn")
    assert code == 0
    assert "Model: second.lmfcn" in stdout
    assert (tmp_path / "second.lmfcn").read_bytes() == model.read_bytes()


def test_the_command_line_beats_the_file_and_tables_of_other_commands_are_left_alone(command, model, trees, tmp_path):
    (tmp_path / "run.toml").write_text('[predict]\nformat = "jsonl"\nset = 0.5\n[train]\nepochs = 3\n')
    code, stdout, _ = command("predict", model, trees / "bark" / "0.png", "--config", "run.toml")
    assert code == 0
    assert "set" in json.loads(stdout)
    code, stdout, _ = command("predict", model, trees / "bark" / "0.png", "--config", "run.toml", "--format", "csv")
    assert stdout.startswith("path,label,probability,set\n")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("epoch = 3", "lmfcn train has no option 'epoch'; did you mean 'epochs'?"),
        ("[train]\nlatent-dims = 3", "did you mean 'latent_dim'?"),
        ("xyz = 3", "lmfcn train has no option 'xyz'; there are augmentation, batch_size, "),
        ('epochs = "many"', "epochs must be a whole number, got 'many'."),
        ("epochs = 1.5", "epochs must be a whole number, got 1.5."),
        ("epochs = true", "epochs must be a whole number, got True."),
        ("skip_bad = 1", "skip_bad must be true or false, got 1."),
        ("holdout = false", "holdout must be a number, got False."),
        ("color = 3", "color must be a text in quotes, got 3."),
        ("epochs = ", "run.toml is not a TOML file"),
    ],
)
def test_mistakes_in_the_file(command, tmp_path, text, sentence):
    (tmp_path / "run.toml").write_text(text)
    code, _, stderr = command("train", "trees", "--config", "run.toml")
    assert code == 2
    assert sentence in stderr
    assert stderr.count("\n") == 1


def test_values_out_of_range_are_refused_as_on_the_command_line(command, tmp_path):
    (tmp_path / "run.toml").write_text("epochs = 0")
    (tmp_path / "trees").mkdir()
    code, _, stderr = command("train", "trees", "--config", "run.toml")
    assert code == 2
    assert "--epochs" in stderr


def test_a_missing_file(command):
    code, _, stderr = command("train", "trees", "--config", "none.toml")
    assert code == 2
    assert "none.toml" in stderr


def test_any_text_survives(tmp_path):
    options = {
        "text": 'a"b\\c\n\t\x7f ü 😀',
        "list": ["a", "b, c"],
        "number": 1e-05,
        "whole": 3,
        "yes": True,
        "no": None,
    }
    write_config(tmp_path / "run.toml", "train", options)
    del options["no"]
    assert tomllib.loads((tmp_path / "run.toml").read_text(encoding="utf-8")) == {"train": options}


def test_sentences_name_options_of_the_command():
    from lmfcn.cli.options import name_options

    assert name_options("Give checkpoint_dir to go on.") == "Give --checkpoint to go on."
    assert name_options("use color='grey' or 'rgb', or files") == "use --color grey or rgb, or files"
    assert name_options("try a smaller learning_rate (or sh_close).") == "try a smaller --learning-rate (or sh_close)."
    told = "To go on, call fit again with the same data, parameters and checkpoint_dir='my run'."
    assert name_options(told) == "To go on, run the same command again with --checkpoint 'my run'."
    told = "strategy must be one of 'joint', 'one-vs-all', got 'both'."
    assert name_options(told) == f"--{told}"
    assert name_options("recipe must be 'default', 'paper' or a lmfcn.Recipe, got 'x'.").endswith("'paper', got 'x'.")
    assert name_options("n_jobs=1.", known=["--seed"]) == "n_jobs=1."
    assert name_options("n_jobs=1.") == "--jobs 1."
    for untouched in (
        "/data/learning_rate/a.png",
        "has no option 'batch_size'",
        "epochs, of which they are a part",
        "images must have",
    ):
        assert name_options(untouched) == untouched
