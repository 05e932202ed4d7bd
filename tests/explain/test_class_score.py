import math

import numpy as np
import pytest
import torch

from lmfcn.algorithm.decision import Decision
from lmfcn.algorithm.geometry import LatentScale
from lmfcn.explain.class_score import ClassScore, class_number, support_classes


def some_score(generator, n=8, phi=5, gamma=0.1):
    support = torch.randn(n, phi, dtype=torch.float64, generator=generator)
    return ClassScore(gamma, support, torch.randn(n, dtype=torch.float64, generator=generator), 0.3)


def some_decision(coefficients):
    coefficients = torch.tensor(coefficients, dtype=torch.float64)
    zeros, intercepts = torch.zeros(len(coefficients), 2), torch.arange(1.0, coefficients.shape[1] + 1)
    return Decision(LatentScale(torch.zeros(2), torch.ones(2)), 0.5, zeros, coefficients, intercepts)


def test_three_support_vectors_by_hand():
    support = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]], dtype=torch.float64)
    score = ClassScore(0.1, support, torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64), -0.25)
    weights = score.weights(torch.tensor([0.0, 1.0]))
    expected = [2 * math.exp(-0.1), -math.exp(-0.1 * 18), 0.5]  # squared distances 1, 9 + 9, 0
    assert weights.tolist() == pytest.approx(expected, abs=1e-12)
    assert score.value(torch.tensor([0.0, 1.0])) == pytest.approx(sum(expected) - 0.25, abs=1e-12)


def test_mean_slope_of_one_support_vector_by_hand():
    # f(x) = exp(-x^2): from 0 to 2 it falls by 1 - exp(-4), over a way of 2.
    score = ClassScore(1.0, torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, dtype=torch.float64), 5.0)
    assert float(score.mean_slope(torch.tensor([2.0]))) == pytest.approx((math.exp(-4) - 1) / 2, abs=1e-14)


@pytest.mark.parametrize("length", [1e-3, 0.3, 1.0, 10.0])
def test_mean_slope_is_the_mean_of_gradients_along_the_way(generator, length):
    score = some_score(generator)
    latent = length * torch.randn(5, dtype=torch.float64, generator=generator)
    mean = torch.zeros(5, dtype=torch.float64)
    steps = 500
    for step in range(steps):  # the slow twin: a gradient at every step
        place = latent * (step + 0.5) / steps
        for coefficient, support in zip(score.coefficients, score.support_latents, strict=True):
            apart = place - support
            mean -= 2 * score.gamma * coefficient * math.exp(-score.gamma * float(apart @ apart)) * apart / steps
    assert torch.allclose(score.mean_slope(latent), mean, atol=1e-4)


@pytest.mark.parametrize("length", [0.0, 1e-9, 1e-4, 1.0, 30.0, 1e4])
def test_mean_slope_times_latent_is_the_rise_of_the_score(generator, length):
    score = some_score(generator)
    latent = length * torch.randn(5, dtype=torch.float64, generator=generator)
    slope = score.mean_slope(latent)
    rise = score.value(latent) - score.value(torch.zeros(5))
    assert float(slope @ latent) == pytest.approx(rise, abs=1e-12)
    assert bool(torch.isfinite(slope).all())


def test_at_the_origin_the_mean_slope_is_the_gradient(generator):
    score = some_score(generator)
    origin = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    squared = (origin - score.support_latents).square().sum(dim=1)
    ((-score.gamma * squared).exp() @ score.coefficients).backward()
    assert torch.allclose(score.mean_slope(torch.zeros(5)), origin.grad, atol=1e-12)
    assert torch.allclose(score.mean_slope(torch.full((5,), 1e-5)), origin.grad, atol=1e-4)


def test_the_first_of_two_classes_has_the_negative_score():
    decision = some_decision([[1.0], [-2.0]])
    first, second = ClassScore.of(decision, 0), ClassScore.of(decision, 1)
    assert first.coefficients.tolist() == [-1.0, 2.0]
    assert second.coefficients.tolist() == [1.0, -2.0]
    assert (first.intercept, second.intercept) == (-1.0, 1.0)


def test_classes_of_support_vectors_as_far_as_coefficients_tell():
    two = some_decision([[0.5], [-0.5]])
    assert support_classes(two).tolist() == [1, 0]
    three = some_decision([[0.5, -0.1, 0.0], [0.0, 0.0, 0.2], [-0.3, 0.0, -0.1], [-0.3, 0.0, 0.0]])
    assert support_classes(three).tolist() == [0, 2, 1, -1]


def test_classes_by_name_or_value():
    assert class_number(np.array(["bark", "wood"]), "wood") == 1
    assert class_number(np.array([2, 7]), 7) == class_number(np.array([2, 7]), "7") == 1
    with pytest.raises(ValueError, match="There is no class 'steel'; the model knows bark, wood"):
        class_number(np.array(["bark", "wood"]), "steel")
