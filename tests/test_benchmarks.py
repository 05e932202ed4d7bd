"""The benchmarks measure what they say."""

import importlib
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.svm import SVC

from lmfcn import LMFCNClassifier, Recipe
from lmfcn.benchmark.runs import Run
from lmfcn.benchmark.tasks import SplitData, Subset

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


def test_a_map_is_compared_with_its_own_windows(plain, textures, monkeypatch):  # noqa: ARG001, puts its folder on the path
    benchmark = importlib.import_module("map")
    tiny = LMFCNClassifier(epochs=1, recipe=Recipe(passes=1), widths=(4, 4), latent_dim=4, random_state=0, device="cpu")
    monkeypatch.setattr(benchmark, "fitted_model", lambda _: tiny.fit(*textures).model_)
    found = benchmark.compare(64, 24, 8, n_tiles=10, repeats=1)
    assert (found["windows"], found["same labels"]) == (36, 1.0)
    assert found["largest difference"] < 1e-5
    assert found["times faster"] > 0


def test_time_to_accuracy_divides_our_seconds_by_theirs(plain, textures, monkeypatch):  # noqa: ARG001, puts its folder on the path
    benchmark = importlib.import_module("time_to_accuracy")

    def runs(method, *curves):
        facts = {"n_train": 20, "n_test": 20, "cpu_seconds": 1.0}
        scores = dict.fromkeys(("train_balanced_accuracy", "test_balanced_accuracy"), 1.0)
        return [
            Run("tiny", method, seed, validation_balanced_accuracy=1.0, validation_by_epoch=curve, **facts, **scores)
            for seed, curve in enumerate(curves)
        ]

    ours = runs("LMFCN", [0.5, 0.9, 0.9], [0.5, 0.8, 0.85], [0.7, 0.8, 1.0])
    theirs = runs("CNN-CE", [0.5, 0.6, 0.7, 0.8, 0.9], [0.5, 0.9, 0.8], [0.5, 0.5, 0.5, 0.9, 0.9])
    monkeypatch.setitem(benchmark.TASKS, "tiny", lambda *_: None)
    monkeypatch.setattr(benchmark, "seconds_of_epochs", lambda *_: ([1.0, 4.0, 6.0], 5.0))
    found = benchmark.measure("tiny", Path(), [*ours, *theirs])
    best, plateau = found["best"], found["plateau"]
    assert (best["epochs_ours"], best["epochs_theirs"]) == ([1, None, 2], [4, 1, 3])
    assert (best["reached"], found["seeds"], best["ratios"]) == (2, 3, [0.2, 0.4])
    assert best["median_ratio"] == pytest.approx(0.3)
    # Means of all their epochs, which are fewer than twenty: 0.7, 0.733 and 0.66.
    assert (plateau["epochs_ours"], plateau["epochs_theirs"]) == ([1, 1, 0], [2, 1, 3])
    assert plateau["ratios"] == [0.4, 0.8, pytest.approx(1 / 15, abs=1e-3)]
    assert benchmark.measure("tiny", Path(), ours) is None


def test_time_to_accuracy_measures_every_epoch(plain, textures, monkeypatch):  # noqa: ARG001, puts its folder on the path
    benchmark = importlib.import_module("time_to_accuracy")
    few = partial(LMFCNClassifier, widths=(4, 4), latent_dim=4, recipe=Recipe(passes=1), device="cpu")
    monkeypatch.setattr(benchmark, "LMFCNClassifier", few)
    ours, theirs = benchmark.seconds_of_epochs(SplitData(*[Subset(*textures)] * 3), {"augmentation": "flips"})
    assert len(ours) == 4  # of six epochs, three come before the refit; and a record that only measures
    assert ours == sorted(ours)
    assert theirs > 0
