import os
import re
import subprocess
import sys

import pytest

from lmfcn import __version__
from lmfcn.baselines.network_training import NetworkRecord
from lmfcn.method.history import History


def lmfcn(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lmfcn", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def demo_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "new" / "folder"
    result = lmfcn("demo", "--output", folder, "--epochs", "2", "--size", "16", "--images", "8", "--seed", "3")
    assert result.returncode == 0, result.stderr
    *_, done, page, own = result.stdout.splitlines()
    assert re.match(r"Done: learnt photographs \([01]\.\d{3} of new tiles right\) and striped noise", done)
    assert page == f"Open in a browser: {folder}/report.html"
    assert re.search(r"lmfcn train my_images -o my_model.lmfcn$", own)
    assert "LMFCN, 16 dimensions" in result.stdout
    assert "2/2 epochs" in result.stderr
    return folder


def test_help_tells_what_there_is():
    result = lmfcn("--help")
    assert result.returncode == 0
    commands = ("demo", "inspect", "audit", "train", "evaluate", "predict", "explain", "compare", "reproduce", "serve")
    places = [result.stdout.index(f"│ {command} ") for command in commands]
    assert places == sorted(places)
    assert "Exit codes: 0 success" in result.stdout
    assert len(result.stdout.splitlines()) <= 46


def test_help_does_not_wait_for_torch():
    heavy = {"torch", "sklearn", "numpy", "matplotlib", "PIL"}
    code = f"import sys, lmfcn.__main__; print(sorted({heavy} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_shells_can_complete_commands():
    code = "import sys; sys.argv = ['lmfcn']; from lmfcn.__main__ import main; main()"
    wanted = {"_LMFCN_COMPLETE": "complete_bash", "COMP_WORDS": "lmfcn tr", "COMP_CWORD": "1"}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **wanted}, timeout=60
    )
    assert result.stdout.split() == ["train"]


def test_version():
    assert lmfcn("--version").stdout == f"lmfcn {__version__}\n"


def test_demo_writes_the_report_and_the_histories(demo_folder):
    assert sorted(path.name for path in demo_folder.iterdir()) == [
        "cnn-16-dimensions.jsonl",
        "explanation.html",
        "lmfcn-16-dimensions-refit.jsonl",
        "lmfcn-16-dimensions.jsonl",
        "lmfcn-2-dimensions.jsonl",
        "photographs.lmfcn",
        "report.html",
    ]
    assert len(History.load(demo_folder / "lmfcn-2-dimensions.jsonl")) == 3
    refit = History.load(demo_folder / "lmfcn-16-dimensions-refit.jsonl")
    assert refit.column("epoch") == [2, 3]
    assert refit.column("phase") == ["refit", "refit"]
    assert len(History.load(demo_folder / "cnn-16-dimensions.jsonl", NetworkRecord)) == 5


def test_the_report_is_self_contained_and_small(demo_folder):
    page = (demo_folder / "report.html").read_text()
    assert len(page) < 5_000_000
    without_pictures = re.sub(r"data:image/[a-z+]+;base64,[A-Za-z0-9+/=]+", "", page)
    assert not re.findall(r"(?:https?:)?//[a-z]", without_pictures)
    # A frame per epoch, the first one twice; the mosaic and the overlay.
    assert len(re.findall(r"data:image/png", page)) == 3 + 1 + 2
    for name in ("LMFCN, 2 dimensions", "LMFCN, 16 dimensions", "CNN, 16 dimensions"):
        assert name in page


@pytest.mark.parametrize("arguments", [["demo", "--epochs", "0"], ["demo", "--size", "4"], ["unknown"], ["demo", "x"]])
def test_wrong_use_ends_with_code_2(arguments):
    result = lmfcn(*arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_brackets_in_an_error_are_shown_and_training_errors_are_one_sentence(monkeypatch, capsys):
    from lmfcn import __main__ as main
    from lmfcn.method.history import TrainingError

    for error in (ImportError("pip install 'lmfcn[report]'"), TrainingError("The latents collapsed [all]")):

        def fail(error=error):
            raise error

        monkeypatch.setattr(main, "app", fail)
        with pytest.raises(SystemExit) as ended:
            main.main()
        assert ended.value.code == 2
        assert capsys.readouterr().err == f"Error: {error}\n"


def test_an_unwritable_folder_is_one_sentence_and_code_2(tmp_path):
    (tmp_path / "taken").write_text("a file")
    result = lmfcn("demo", "--output", tmp_path / "taken")
    assert result.returncode == 2
    assert result.stderr.startswith("Error: ")
    assert "taken" in result.stderr
    assert "Traceback" not in result.stderr
