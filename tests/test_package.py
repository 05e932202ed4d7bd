import subprocess
import sys

import pytest

import lmfcn
from lmfcn.files import write_text


def test_public_names():
    assert sorted(lmfcn.__all__) == ["LMFCNClassifier", "TextureModel", "__version__", "load", "make_gaussians"]
    assert dir(lmfcn) == sorted(lmfcn.__all__)
    for name in lmfcn.__all__:
        assert getattr(lmfcn, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Classifier'"):
        lmfcn.Classifier  # noqa: B018


def test_import_stays_light():
    code = "import lmfcn, sys; print(sorted({'torch', 'sklearn', 'matplotlib'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "first")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\ud800")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]
