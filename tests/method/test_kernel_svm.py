import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics.pairwise import rbf_kernel as trusted_kernel
from sklearn.svm import SVC

import oracles
from lmfcn.method.kernel_svm import (
    Decision,
    LatentScale,
    class_numbers,
    distances_in_place,
    fit_svm,
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


def kernel_of(points: np.ndarray, gamma: float = 1.0) -> torch.Tensor:
    return rbf_kernel(squared_distances(torch.from_numpy(points)), gamma)


def test_two_points_by_hand():
    # With k = exp(-4) between them, both weights are 1 / (1 - k), and the decision is 1 at the points themselves.
    kernel = kernel_of(np.array([[-1.0], [1.0]]))
    margin = fit_svm(kernel, torch.tensor([0, 1]), C=10.0)
    weight = 1 / (1 - math.exp(-4))
    assert margin.support.tolist() == [0, 1]
    assert margin.coefficients[:, 0].tolist() == pytest.approx([-weight, weight], rel=1e-3)
    assert margin.intercepts.tolist() == pytest.approx([0], abs=1e-3)
    assert margin.misclassified.tolist() == margin.settled.tolist() == []


def test_six_points_by_hand():
    # Two far groups on a line; a class-1 point (5) sits amid class 0 and cannot be won at this price.
    points = np.array([[0.0], [0.2], [0.4], [9.0], [9.2], [0.2]])
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    margin = fit_svm(kernel_of(points), labels, C=0.5)
    assert margin.misclassified.tolist() == [5]
    assert 5 in margin.support.tolist()
    assert sorted(margin.support.tolist() + margin.settled.tolist()) == list(range(6))


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 10_000), st.integers(4, 40), st.sampled_from([0.1, 1.0, 10.0, 1000.0]), st.integers(2, 4))
def test_misclassified_images_are_support_vectors_and_the_sets_divide_all(seed, n, C, n_classes):
    random = np.random.default_rng(seed)
    points, labels = random.normal(size=(n, 2)), random.integers(0, n_classes, n)
    labels[:n_classes] = range(n_classes)
    margin = fit_svm(kernel_of(points), torch.from_numpy(labels), C)
    support, misclassified, settled = (
        set(indices.tolist()) for indices in (margin.support, margin.misclassified, margin.settled)
    )
    assert misclassified <= support
    assert support.isdisjoint(settled)
    assert support | settled == set(range(n))
    assert margin.support.tolist() == sorted(support)


def test_agrees_with_scikit_learns_own_kernel(random):
    points, labels = random.normal(size=(60, 3)), random.integers(0, 2, 60)
    trusted = SVC(C=3.0, gamma=0.7).fit(points, labels)
    kernel = kernel_of(points, 0.7)
    margin = fit_svm(kernel, torch.from_numpy(labels), C=3.0)
    assert margin.support.tolist() == sorted(trusted.support_.tolist())
    decisions = kernel[:, margin.support] @ margin.coefficients + margin.intercepts
    assert decisions[:, 0].tolist() == pytest.approx(trusted.decision_function(points).tolist(), abs=1e-6)
    assert margin.misclassified.tolist() == np.flatnonzero(trusted.predict(points) != labels).tolist()


def test_permuting_the_images_permutes_the_sets(random):
    points, labels = random.normal(size=(30, 2)), torch.from_numpy(random.integers(0, 2, 30))
    order = random.permutation(30)
    plain = fit_svm(kernel_of(points), labels, C=2.0)
    permuted = fit_svm(kernel_of(points[order]), labels[order], C=2.0)
    for name in ("support", "misclassified", "settled"):
        moved_back = sorted(order[getattr(permuted, name).numpy()].tolist())
        assert moved_back == getattr(plain, name).tolist()


def test_coinciding_points_of_both_classes_are_all_support():
    margin = fit_svm(torch.ones(4, 4, dtype=torch.float64), torch.tensor([0, 1, 0, 1]), C=1.0)
    assert margin.support.tolist() == [0, 1, 2, 3]
    assert len(margin.misclassified) == 2


def test_weights_raise_the_price_of_one_class(random):
    points = random.normal(size=(60, 2))
    labels = torch.from_numpy((np.arange(60) < 8).astype(np.int64))
    plain = fit_svm(kernel_of(points), labels, C=0.5)
    weighted = fit_svm(kernel_of(points), labels, C=0.5, weights=1.0 + 19.0 * labels)
    missed = [int((labels[margin.misclassified] == 1).sum()) for margin in (plain, weighted)]
    assert missed[1] < missed[0]


def test_balance_gives_both_sides_the_same_weight(random):
    points = random.normal(size=(60, 2))
    labels = torch.from_numpy((np.arange(60) < 8).astype(np.int64))
    balanced = fit_svm(kernel_of(points), labels, C=0.5, balanced=True)
    by_weights = fit_svm(kernel_of(points), labels, C=0.5, weights=torch.where(labels == 1, 60 / 16, 60 / 104))
    assert balanced.support.tolist() == by_weights.support.tolist()
    assert torch.allclose(balanced.coefficients, by_weights.coefficients, atol=1e-4)


def test_three_classes_by_hand():
    # Three far corners: in every SVM each corner is a support vector, and the two others share the weight of the one.
    kernel = torch.eye(3, dtype=torch.float64)
    margin = fit_svm(kernel, torch.tensor([0, 1, 2]), C=100.0)
    # Score of class 0: a at its own corner, -b at both others, a = 2 b, a + c = 1, -b + c = -1, so b = 2/3, c = -1/3.
    expected = torch.where(torch.eye(3) == 1, 4 / 3, -2 / 3)
    assert margin.support.tolist() == [0, 1, 2]
    assert torch.allclose(margin.coefficients, expected.double(), atol=1e-3)
    assert margin.intercepts.tolist() == pytest.approx([-1 / 3] * 3, abs=1e-3)
    assert margin.misclassified.tolist() == margin.settled.tolist() == []


def test_many_classes_agree_with_one_scikit_learn_svm_each(random):
    points, labels = random.normal(size=(80, 3)), random.integers(0, 4, 80)
    kernel = kernel_of(points, 0.7)
    margin = fit_svm(kernel, torch.from_numpy(labels), C=3.0)
    trusted = [SVC(C=3.0, gamma=0.7).fit(points, labels == number) for number in range(4)]
    scores = kernel[:, margin.support] @ margin.coefficients + margin.intercepts
    expected = np.stack([svm.decision_function(points) for svm in trusted], axis=1)
    assert scores.numpy() == pytest.approx(expected, abs=1e-6)
    assert set(margin.support.tolist()) == set().union(*(svm.support_.tolist() for svm in trusted))
    assert margin.misclassified.tolist() == np.flatnonzero(expected.argmax(axis=1) != labels).tolist()


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
