import json

import numpy as np
import pytest
import torch

from lmfcn.data.form import ImageForm
from lmfcn.export import DisagreementError, export_torch, torch_file
from lmfcn.export.agreement import compare
from lmfcn.export.graph import silence, trace
from lmfcn.export.torch_file import DESCRIPTION, run_torch
from random_models import random_images, random_model


@pytest.mark.parametrize("name", ["two, grey", "one-vs-all, 16-bit", "signals in rows"])
def test_the_program_answers_as_the_model_does(models, tmp_path, name):
    model, path = models[name], tmp_path / "model.pt2"
    agreement = export_torch(model, path)
    assert agreement.n_labels > 1
    sizes = [(8, 8), (47, 90), (200, 131)] if name != "signals in rows" else [(1, 8), (1, 900)]
    batches = [random_images(3 if height > 8 else 1, (height, width), model.form) for height, width in sizes]
    found = compare(model, run_torch(path.read_bytes(), model.classes), batches, tolerance=1e-5)
    assert found.n_images == sum(map(len, batches))
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt2"]


def test_the_program_describes_itself(models, tmp_path):
    export_torch(models["two, grey"], tmp_path / "model.pt2")
    extra = {DESCRIPTION: ""}
    with silence():
        torch.export.load(tmp_path / "model.pt2", extra_files=extra)
    told = json.loads(extra[DESCRIPTION])
    assert told["classes"] == models["two, grey"].classes.tolist()
    assert told["preprocessing"]["size"] == [24, 20]


def test_a_program_that_disagrees_is_not_written(models, tmp_path, monkeypatch):
    other = random_model(["x", "y"], ImageForm(1, "uint8"))
    monkeypatch.setattr(torch_file, "trace", lambda _: trace(other))
    with pytest.raises(DisagreementError, match="nothing was written"):
        export_torch(models["two, grey"], tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


def test_the_model_is_left_as_it_was(tmp_path):
    model = random_model(["x", "y"], ImageForm(1, "uint8"))
    images = random_images(4, (16, 16), model.form)
    before = model.decision_function(images)
    export_torch(model, tmp_path / "model.pt2")
    assert np.array_equal(model.decision_function(images), before)
    assert all(weight.requires_grad for weight in model.parameters())
    assert "average" not in vars(model.members[0])
