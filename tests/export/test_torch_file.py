import json
from dataclasses import asdict

import numpy as np
import pytest
import torch

from lmfcn.data.form import ImageForm
from lmfcn.export import DisagreementError, export_torch, torch_file
from lmfcn.export.agreement import compare
from lmfcn.export.description import fingerprint
from lmfcn.export.graph import silence, trace
from lmfcn.export.torch_file import DESCRIPTION, run_torch
from random_models import random_images, random_model


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A model, and the program that it became."""
    model = random_model(["x", "y", "z"], ImageForm(3, "uint8"))
    images = random_images(4, (16, 16), model.form)
    before = model.decision_function(images)
    path = tmp_path_factory.mktemp("program") / "model.pt2"
    agreement = export_torch(model, path)
    assert np.array_equal(model.decision_function(images), before)
    return model, path, agreement


def test_the_program_answers_as_the_model_does(program):
    model, path, agreement = program
    assert (agreement.n_images, agreement.n_sizes) == (78, 8)
    assert agreement.n_labels > 1
    sizes = {(8, 8): 1, (47, 90): 3, (200, 131): 2}
    batches = [random_images(count, size, model.form) for size, count in sizes.items()]
    found = compare(model, run_torch(path.read_bytes(), model.classes), batches, tolerance=1e-5)
    assert found.n_images == 6
    assert [file.name for file in path.parent.iterdir()] == ["model.pt2"]


def test_the_program_describes_itself(program):
    model, path, agreement = program
    extra = {DESCRIPTION: ""}
    with silence():
        torch.export.load(path, extra_files=extra)
    told = json.loads(extra[DESCRIPTION])
    assert told["classes"] == ["x", "y", "z"]
    assert told["preprocessing"]["channels"] == 3
    assert told["fingerprint"] == fingerprint(model)
    assert told["checked"] == asdict(agreement)


def test_the_model_is_left_as_it_was(program):
    assert all(weight.requires_grad for weight in program[0].parameters())
    assert "average" not in vars(program[0].members[0])


def test_signals_that_come_as_rows(tmp_path):
    model = random_model(["x", "y"], ImageForm(1, "float", row_shape=(1, -1)), ("last",))
    assert export_torch(model, tmp_path / "model.pt2").n_sizes == 8
    rows = random_images(4, (1, 77), model.form)
    labels, scores, _ = run_torch((tmp_path / "model.pt2").read_bytes(), model.classes)(rows)
    assert labels.tolist() == model.predict(rows.reshape(4, 77)).tolist()
    assert scores[:, 0] == pytest.approx(model.decision_function(rows.reshape(4, 77)), abs=1e-5)


def test_a_program_that_disagrees_is_not_written(models, tmp_path, monkeypatch):
    other = random_model(["x", "y"], ImageForm(1, "uint8"))
    monkeypatch.setattr(torch_file, "trace", lambda _: trace(other))
    with pytest.raises(DisagreementError, match="nothing was written"):
        export_torch(models["two, grey"], tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []
