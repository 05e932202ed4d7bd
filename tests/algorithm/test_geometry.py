import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics.pairwise import rbf_kernel as trusted_kernel

import oracles
from lmfcn.algorithm.geometry import (
    distances_in_place,
    gamma_from_scale,
    latent_scale,
    rbf_kernel,
    squared_distances,
)

POINTS = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0], [3.0, 0.0]])
SQUARED = torch.tensor(
    [[0.0, 25.0, 1.0, 9.0], [25.0, 0.0, 18.0, 16.0], [1.0, 18.0, 0.0, 10.0], [9.0, 16.0, 10.0, 0.0]],
    dtype=torch.float64,
)


def test_equation_1_by_hand():
    torch.testing.assert_close(squared_distances(POINTS), SQUARED)


def test_equation_2_by_hand():
    kernel = rbf_kernel(SQUARED, gamma=0.5)
    assert kernel[0, 2] == pytest.approx(math.exp(-0.5))
    assert kernel[0, 3] == pytest.approx(math.exp(-4.5))
    assert kernel.diagonal().tolist() == [1.0] * 4


def test_equation_3_by_hand():
    distances = distances_in_place(SQUARED.clone())
    assert distances[0].tolist() == [0.0, 5.0, 1.0, 3.0]


def test_distances_reuse_the_memory_of_the_squares():
    squared = SQUARED.clone()
    assert distances_in_place(squared).data_ptr() == squared.data_ptr()


def test_kernel_leaves_the_squares_alone():
    squared = SQUARED.clone()
    rbf_kernel(squared, 1.0)
    assert torch.equal(squared, SQUARED)


def test_distances_to_other_points():
    others = torch.tensor([[0.0, 0.0], [6.0, 8.0]])
    expected = torch.tensor([[0.0, 100.0], [25.0, 25.0], [1.0, 85.0], [9.0, 73.0]], dtype=torch.float64)
    torch.testing.assert_close(squared_distances(POINTS, others), expected)


points_strategy = st.integers(1, 5).flatmap(
    lambda width: st.lists(
        st.lists(st.floats(-100, 100, width=32), min_size=width, max_size=width), min_size=2, max_size=9
    )
)


@settings(deadline=None)
@given(points_strategy)
def test_distances_agree_with_loops_and_a_trusted_kernel(points):
    latents = torch.tensor(points, dtype=torch.float32)
    squared = squared_distances(latents)
    slow = torch.tensor(oracles.squared_distances(points), dtype=torch.float64)
    torch.testing.assert_close(squared, slow, rtol=1e-5, atol=1e-4)
    trusted = torch.from_numpy(trusted_kernel(latents.double().numpy(), gamma=0.01))
    torch.testing.assert_close(rbf_kernel(squared, 0.01), trusted, rtol=1e-5, atol=1e-5)


def test_distances_survive_a_far_away_centre():
    # Without a common centre, |a|^2 + |b|^2 - 2ab would lose all digits here.
    shifted = squared_distances(POINTS.double() + 2.0**32)
    torch.testing.assert_close(shifted, SQUARED, rtol=1e-9, atol=1e-9)


def test_coinciding_points_have_distance_zero_and_kernel_one():
    squared = squared_distances(torch.full((5, 3), 0.1))
    assert torch.equal(squared, torch.zeros(5, 5, dtype=torch.float64))
    assert torch.equal(rbf_kernel(squared, 3.0), torch.ones(5, 5, dtype=torch.float64))


def test_gamma_by_hand():
    # Entries 0, 2, 0, 2: mean 1, variance 1, two features.
    assert gamma_from_scale(torch.tensor([[0.0, 2.0], [0.0, 2.0]])) == pytest.approx(0.5)
    assert gamma_from_scale(torch.tensor([[0.0, 2.0], [0.0, 2.0]]), factor=3.0) == pytest.approx(1.5)


@settings(deadline=None)
@given(points_strategy.filter(lambda points: len({entry for point in points for entry in point}) > 1))
def test_gamma_agrees_with_loops_and_follows_the_scale(points):
    latents = torch.tensor(points, dtype=torch.float64)
    if latents.var() < 1e-9:
        return
    gamma = gamma_from_scale(latents)
    assert gamma == pytest.approx(oracles.gamma_from_scale(points), rel=1e-6)
    assert gamma_from_scale(latents * 10) == pytest.approx(gamma / 100, rel=1e-6)


def test_gamma_of_coinciding_latents_is_refused():
    with pytest.raises(ValueError, match="they all coincide"):
        gamma_from_scale(torch.zeros(3, 2))


def test_standardized_latents_have_mean_zero_and_spread_one():
    latents = POINTS * torch.tensor([10.0, 0.1]) + 7
    scaled = latent_scale(latents, standardize=True).apply(latents)
    torch.testing.assert_close(scaled.mean(dim=0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(scaled.std(dim=0, correction=0), torch.ones(2))


def test_without_standardizing_latents_stay_as_they_are():
    assert torch.equal(latent_scale(POINTS, standardize=False).apply(POINTS), POINTS)


def test_a_feature_without_spread_adds_nothing():
    latents = torch.tensor([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0 + 1e-6]])
    scaled = latent_scale(latents, standardize=True).apply(latents)
    assert scaled[:, 1].abs().max() < 1e-5
