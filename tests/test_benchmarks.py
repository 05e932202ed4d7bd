"""The benchmarks measure what they say."""

import functools
import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.svm import SVC

from lmfcn import make_gaussians

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def plain(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("plain")


@pytest.fixture
def speed(plain):  # noqa: ARG001, whose folder must be on the path
    return importlib.import_module("speed")


def test_the_plain_epoch_is_the_papers(plain, textures):
    images, labels = textures[0][..., None], textures[1]
    torch.manual_seed(0)
    network = plain.plain_network(1, 4)
    pixels = [torch.from_numpy(image.transpose(2, 0, 1).astype(np.float32) / 255) for image in images]
    latents = plain.encode_one_by_one(network, pixels)
    svm = SVC(C=10, gamma=1 / (4 * latents.var())).fit(latents, labels)
    n_moved = len(svm.support_) + int((svm.predict(latents) != labels).sum())
    before = network[0].weight.clone()
    assert plain.plain_epoch(network, images, labels, torch.optim.SGD(network.parameters(), lr=0.1)) == n_moved
    assert not torch.equal(before, network[0].weight)


def test_plain_anchors_by_hand(plain):
    places = np.array([0.0, 1.0, 2.5, 3.0, 7.0])
    distances = abs(places[:, None] - places)
    found = plain.anchors(distances, np.array([0, 0, 0, 1, 0]), np.array([0, 3]), np.array([1, 2, 4]), 2)
    assert found[0].tolist() == [1, 2]
    assert found[3].tolist() == []


def test_falls_and_missed_goals_are_named(speed):
    good = dict.fromkeys(speed.GOALS, 100.0) | {"a / b": 1.0, "seconds": 5.0}
    assert speed.compare(good, good) == []
    worse = good | {"a / b": 0.7, "seconds": 1.0, "encoding / matrix product, 64x64": 0.5}
    complaints = speed.compare(worse, good)
    assert "a / b fell from 1.00 to 0.70" in complaints
    assert "encoding / matrix product, 64x64 is 0.50, the goal 0.65" in complaints
    assert not any("seconds" in sentence for sentence in complaints)
    sys.modules.pop("speed")


def test_operations_of_a_small_image_by_hand(speed):
    # 8x8 with 64 filters, 4x4 with 128, 2x2 with 64; nine products and sums each.
    assert speed.operations(8, 1) == 18 * (64 * 64 + 16 * 64 * 128 + 4 * 128 * 64)


@pytest.fixture
def methods(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("methods")

    def tiny(_, seed):
        random = np.random.default_rng(seed)
        return (make_gaussians(10, 16, random, stds=(10, 60)) for _ in range(3))

    monkeypatch.setattr(module, "TASKS", {"tiny": tiny})
    quick = {"epochs": 2, "latent_dim": 4, "widths": (6,)}
    monkeypatch.setattr(module, "CHANGES", dict.fromkeys(("LMFCN", "CNN-CE"), quick))
    monkeypatch.setattr(module, "CNNSVC", functools.partial(module.CNNSVC, latent_dim=4))
    monkeypatch.setattr(module, "FisherSVC", functools.partial(module.FisherSVC, latent_dim=4, n_modes=2))
    monkeypatch.setattr(sys, "argv", ["methods.py", str(tmp_path), "--output", str(tmp_path / "runs.jsonl")])
    return module


def test_the_table_of_all_methods(methods, tmp_path, monkeypatch, capsys):
    command = [*sys.argv, "--seeds", "0", "1", "--methods", "LMFCN", "CNN-CE", "LBP", "random-fcn"]
    monkeypatch.setattr(sys, "argv", command)
    methods.main()
    lines = (tmp_path / "runs.jsonl").read_text().splitlines()
    runs = [json.loads(line) for line in lines]
    names = {"LMFCN", "CNN-CE", "CNN + SVM", "FV-CNN", "LBP", "random-fcn"}
    assert {(run["method"], run["seed"]) for run in runs} == {(name, seed) for name in names for seed in (0, 1)}
    for run in runs:
        tried, trains = len(run["tried"]), run["method"] not in ("LBP", "random-fcn")
        assert tried == (3 if run["seed"] == 0 and trains else 1)
        assert 0.5 <= run["train_balanced_accuracy"] <= 1
        assert 0 <= run["validation_balanced_accuracy"] <= 1
        assert (run["epochs"] == 2) == trains
    chosen = {run["method"]: run["chosen"] for run in runs if run["seed"] == 0}
    assert all(run["chosen"] == chosen[run["method"]] for run in runs)
    # Nothing is run twice, and a line that was cut off is left out.
    with (tmp_path / "runs.jsonl").open("a") as file:
        file.write('{"task": "ti')
    methods.main()
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == len(lines) + 1
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", [*command, "--table"])
    methods.main()
    shown = capsys.readouterr()
    assert shown.out.count("\n| ") == 1 + len(names)
    assert "line 13: not a whole JSON object" in shown.err


def test_networks_without_weights_are_left_out_unless_asked_for(methods, monkeypatch):
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--methods", "ResNet18"])
    with pytest.raises(ValueError, match="weights is missing"):
        methods.main()
