import math

import pytest
import torch

from lmfcn.algorithm.decision import Decision
from lmfcn.algorithm.geometry import LatentScale
from lmfcn.algorithm.score import class_numbers

TWO = Decision(
    scale=LatentScale(torch.tensor([1.0]), torch.tensor([2.0])),
    gamma=0.5,
    support_latents=torch.tensor([[0.0], [1.0]]),
    coefficients=torch.tensor([[-1.0], [2.0]], dtype=torch.float64),
    intercepts=torch.tensor([0.25], dtype=torch.float64),
)


def test_scores_by_hand():
    # The latent 3 is (3 - 1) / 2 = 1 in the space of the kernel: at distance 1 and 0 from the support vectors.
    expected = -math.exp(-0.5) + 2.0 + 0.25
    assert TWO.scores(torch.tensor([[3.0]])).tolist() == [[pytest.approx(expected, rel=1e-6)]]


def test_tensors_bring_the_decision_back():
    again = Decision.of_tensors(TWO.tensors(), TWO.gamma, torch.device("cpu"))
    points = torch.linspace(-3, 3, 7)[:, None]
    assert torch.equal(again.scores(points), TWO.scores(points))


def test_a_class_from_one_score_or_several():
    assert class_numbers(torch.tensor([[0.0], [1e-9], [-1.0]])).tolist() == [0, 1, 0]
    assert class_numbers(torch.tensor([[-3.0, -1.0, -2.0], [5.0, 5.0, 0.0]])).tolist() == [1, 0]
