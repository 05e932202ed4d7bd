import numpy as np
import pytest

from lmfcn import LMFCNClassifier
from lmfcn.export import export_onnx, export_torch


@pytest.mark.parametrize("thing", ["model.lmfcn", None, LMFCNClassifier()])
def test_only_models_can_be_exported(tmp_path, thing):
    with pytest.raises(ValueError, match="Expected a TextureModel or a fitted LMFCNClassifier, got"):
        export_onnx(thing, tmp_path / "model.onnx")


@pytest.mark.parametrize(("write", "ending"), [(export_onnx, ".onnx"), (export_torch, ".pt2")])
def test_places_where_no_file_can_be_written(models, tmp_path, write, ending):
    model = models["two, grey"]
    (tmp_path / "file").write_text("")
    (tmp_path / f"folder{ending}").mkdir()
    with pytest.raises(ValueError, match=rf"The file must end in {ending}, got 'model.pb'"):
        write(model, tmp_path / "model.pb")
    for parent in ("nowhere", "file"):
        with pytest.raises(FileNotFoundError, match=f"The folder .*{parent} does not exist; create it first"):
            write(model, tmp_path / parent / f"model{ending}")
    with pytest.raises(IsADirectoryError, match="is a folder; name a file"):
        write(model, tmp_path / f"folder{ending}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", f"folder{ending}"]


def test_a_folder_without_permission(models, tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write anywhere, so a real folder would not do
    with pytest.raises(PermissionError, match="may not be written to; choose another one"):
        export_torch(models["two, grey"], tmp_path / "model.pt2")


@pytest.mark.parametrize("tolerance", [0, -1e-4, np.nan, np.inf, "1", True])
def test_bad_tolerance(models, tmp_path, tolerance):
    with pytest.raises(ValueError, match="tolerance must be a positive number, got"):
        export_torch(models["two, grey"], tmp_path / "model.pt2", tolerance=tolerance)
