import math
from dataclasses import replace

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


def test_a_matrix_behind_the_scale_by_hand():
    # The latent (3, 5) is (1, 2) after the scale and (1 + 2 * 2, 2) after the matrix, at distance 1 from (5, 1).
    scale = LatentScale(torch.tensor([1.0, 1.0]), torch.tensor([2.0, 2.0]), torch.tensor([[1.0, 0.0], [2.0, 1.0]]))
    assert scale.apply(torch.tensor([[3.0, 5.0]])).tolist() == [[5.0, 2.0]]
    decision = replace(TWO, scale=scale, support_latents=torch.tensor([[5.0, 1.0], [5.0, 2.0]]))
    expected = -math.exp(-0.5) + 2.0 + 0.25
    assert decision.scores(torch.tensor([[3.0, 5.0]])).tolist() == [[pytest.approx(expected, rel=1e-6)]]


def test_a_slope_is_pulled_back_through_the_scale():
    scale = LatentScale(torch.tensor([1.0, 1.0]), torch.tensor([2.0, 4.0]), torch.tensor([[1.0, 0.5], [2.0, 1.0]]))
    latent = torch.tensor([3.0, 5.0], requires_grad=True)
    slope = torch.tensor([0.3, -2.0])
    (scale.apply(latent[None])[0] @ slope).backward()
    torch.testing.assert_close(scale.pull_back(slope), latent.grad)
    plain = LatentScale(scale.mean, scale.std)
    assert plain.pull_back(slope).tolist() == pytest.approx([0.15, -0.5])


@pytest.mark.parametrize("whitening", [None, torch.tensor([[2.0]])])
def test_tensors_bring_the_decision_back(whitening):
    decision = replace(TWO, scale=replace(TWO.scale, whitening=whitening))
    again = Decision.of_tensors(decision.tensors(), decision.gamma, torch.device("cpu"))
    points = torch.linspace(-3, 3, 7)[:, None]
    assert torch.equal(again.scores(points), decision.scores(points))
    assert torch.equal(again.scores(points), TWO.scores(points)) == (whitening is None)


def test_a_class_from_one_score_or_several():
    assert class_numbers(torch.tensor([[0.0], [1e-9], [-1.0]])).tolist() == [0, 1, 0]
    assert class_numbers(torch.tensor([[-3.0, -1.0, -2.0], [5.0, 5.0, 0.0]])).tolist() == [1, 0]
