import sys

import pytest
from small_images import FAST, save_images
from test_cli import lmfcn

from lmfcn import __main__ as commands
from lmfcn.util import progress


@pytest.fixture(scope="session")
def trees(tmp_path_factory):
    """Images of two classes; tests must not change them."""
    return save_images(tmp_path_factory.mktemp("images") / "trees")


@pytest.fixture(scope="session")
def trained(trees, tmp_path_factory):
    """What the real command stderr, and the folder in which it wrote its files."""
    folder = tmp_path_factory.mktemp("trained")
    result = lmfcn("train", trees, "-o", folder / "new" / "trees.lmfcn", *FAST)
    assert result.returncode == 0, result.stderr
    return result, folder / "new"


@pytest.fixture(scope="session")
def model(trees, tmp_path_factory):
    """A model with its report and gallery, trained in this process."""
    path = tmp_path_factory.mktemp("model") / "trees.lmfcn"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["lmfcn", "train", str(trees), "-o", str(path), "--quiet", *FAST])
        with pytest.raises(SystemExit) as ended:
            commands.main()
    assert ended.value.code == 0
    return path


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Run a command in this process; return its exit code and what it printed."""

    # Signs of life come by the clock; what a command prints must not depend on how busy the machine is.
    monkeypatch.setattr(progress, "LONGEST_SILENCE", 3600.0)
    monkeypatch.setattr(progress, "LONGEST_SILENCE_LATER", 3600.0)

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["lmfcn", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            commands.main()
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err

    return run
