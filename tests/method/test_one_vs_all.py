from functools import partial

import numpy as np
import pytest
import torch

from lmfcn.compute.parallel import Workers
from lmfcn.method.epoch import Problem, Training
from lmfcn.method.history import TrainingError
from lmfcn.method.network import TextureFCN
from lmfcn.method.one_vs_all import one_against_all, train_side_by_side
from lmfcn.recipe import Recipe


def make(images, labels, seed=0, **changes):
    recipe = Recipe(**{"epochs": 1, "passes": 1, **changes})
    generator = torch.Generator().manual_seed(seed)
    return Training(TextureFCN(1, 3, (4,), generator=generator), Problem(images, labels), recipe, generator)


@pytest.fixture
def problem(textures):
    return textures[0][..., None], torch.from_numpy(textures[1].copy())


def test_one_class_against_the_others():
    images = np.zeros((4, 8, 8, 1), dtype=np.uint8)
    weights = torch.arange(4.0)
    problem = Problem(images, torch.tensor([0, 2, 1, 2]), images[:2], torch.tensor([2, 0]), weights)
    binary = one_against_all(problem, 2)
    assert binary.labels.tolist() == [0, 1, 0, 1]
    assert binary.validation_labels.tolist() == [1, 0]
    assert binary.weights is weights
    assert one_against_all(Problem(images, problem.labels), 0).validation_labels is None


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_order_and_bit_for_bit(problem, jobs):
    seen = []
    tasks = {f"net {seed}": partial(make, *problem, seed=seed) for seed in range(3)}
    threads = torch.get_num_threads()
    results = train_side_by_side(tasks, seen.append, workers=Workers(jobs), n_threads=threads)
    expected = [task().run() for task in tasks.values()]
    assert len(seen) == 3
    assert torch.get_num_threads() == threads
    for one, other in zip(results, expected, strict=True):
        assert torch.equal(one.selected.network.features[0].weight, other.selected.network.features[0].weight)
        assert one.history.column("n_support") == other.history.column("n_support")


def test_messages_and_errors_name_the_network(problem):
    stuck = {"Class 'a'": partial(make, *problem, C=1e-6, wr_close=0, fallback_anchors=False, head_weight=0.0)}
    (trained,) = train_side_by_side(stuck, lambda _: None, workers=Workers(), n_threads=1)
    assert trained.message.startswith("Class 'a': Training ended in epoch 0")
    same = {"Class 'b'": partial(make, np.zeros((8, 8, 8, 1), np.uint8), torch.arange(8) % 2)}
    with pytest.raises(TrainingError, match="Class 'b': All 8 images have the same latents"):
        train_side_by_side(same, lambda _: None, workers=Workers(), n_threads=1)
