import numpy as np
from PIL import Image
from test_cli import lmfcn


def test_inspect_tells_and_judges(tmp_path, random):
    for i in range(8):
        path = tmp_path / ("bark" if i % 2 else "wood") / f"{i}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(random.integers(0, 255, (16, 16)).astype(np.uint8)).save(path)
    result = lmfcn("inspect", tmp_path)
    assert result.returncode == 0
    for text in ("8 images, 2 classes", "bark", "16x16 (8)", "PNG (8)", "Fit for training."):
        assert text in result.stdout
    (tmp_path / "wood" / "bad.png").write_bytes(b"")
    result = lmfcn("inspect", tmp_path, "--quiet")
    assert result.returncode == 1
    assert "bad.png: is empty (0 bytes)" in result.stdout
    assert "Not fit for training." in result.stdout
    assert result.stderr == ""


def test_inspect_of_nothing_ends_with_code_2(tmp_path):
    result = lmfcn("inspect", tmp_path / "nothing")
    assert result.returncode == 2
    assert "does not exist" in result.stderr
