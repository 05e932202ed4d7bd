import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import SVC

from lmfcn.algorithm.geometry import rbf_kernel, squared_distances
from lmfcn.algorithm.margin import fit_margin


def kernel_of(points: np.ndarray, gamma: float = 1.0) -> torch.Tensor:
    return rbf_kernel(squared_distances(torch.from_numpy(points)), gamma)


def test_two_points_by_hand():
    # With k = exp(-4) between them, both weights are 1 / (1 - k), and the decision is 1 at the points themselves.
    kernel = kernel_of(np.array([[-1.0], [1.0]]))
    margin = fit_margin(kernel, torch.tensor([0, 1]), C=10.0)
    weight = 1 / (1 - math.exp(-4))
    assert margin.support.tolist() == [0, 1]
    assert margin.coefficients[:, 0].tolist() == pytest.approx([-weight, weight], rel=1e-3)
    assert margin.intercepts.tolist() == pytest.approx([0], abs=1e-3)
    assert margin.misclassified.tolist() == margin.settled.tolist() == []


def test_six_points_by_hand():
    # Two far groups on a line; a class-1 point (5) sits amid class 0 and cannot be won at this price.
    points = np.array([[0.0], [0.2], [0.4], [9.0], [9.2], [0.2]])
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    margin = fit_margin(kernel_of(points), labels, C=0.5)
    assert margin.misclassified.tolist() == [5]
    assert 5 in margin.support.tolist()
    assert sorted(margin.support.tolist() + margin.settled.tolist()) == list(range(6))


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 10_000), st.integers(4, 40), st.sampled_from([0.1, 1.0, 10.0, 1000.0]), st.integers(2, 4))
def test_misclassified_images_are_support_vectors_and_the_sets_divide_all(seed, n, C, n_classes):
    random = np.random.default_rng(seed)
    points, labels = random.normal(size=(n, 2)), random.integers(0, n_classes, n)
    labels[:n_classes] = range(n_classes)
    margin = fit_margin(kernel_of(points), torch.from_numpy(labels), C)
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
    margin = fit_margin(kernel, torch.from_numpy(labels), C=3.0)
    assert margin.support.tolist() == sorted(trusted.support_.tolist())
    decisions = kernel[:, margin.support] @ margin.coefficients + margin.intercepts
    assert decisions[:, 0].tolist() == pytest.approx(trusted.decision_function(points).tolist(), abs=1e-6)
    assert margin.misclassified.tolist() == np.flatnonzero(trusted.predict(points) != labels).tolist()


def test_permuting_the_images_permutes_the_sets(random):
    points, labels = random.normal(size=(30, 2)), torch.from_numpy(random.integers(0, 2, 30))
    order = random.permutation(30)
    plain = fit_margin(kernel_of(points), labels, C=2.0)
    permuted = fit_margin(kernel_of(points[order]), labels[order], C=2.0)
    for name in ("support", "misclassified", "settled"):
        moved_back = sorted(order[getattr(permuted, name).numpy()].tolist())
        assert moved_back == getattr(plain, name).tolist()


def test_coinciding_points_of_both_classes_are_all_support():
    margin = fit_margin(torch.ones(4, 4, dtype=torch.float64), torch.tensor([0, 1, 0, 1]), C=1.0)
    assert margin.support.tolist() == [0, 1, 2, 3]
    assert len(margin.misclassified) == 2


def test_weights_raise_the_price_of_one_class(random):
    points = random.normal(size=(60, 2))
    labels = torch.from_numpy((np.arange(60) < 8).astype(np.int64))
    plain = fit_margin(kernel_of(points), labels, C=0.5)
    weighted = fit_margin(kernel_of(points), labels, C=0.5, weights=1.0 + 19.0 * labels)
    missed = [int((labels[margin.misclassified] == 1).sum()) for margin in (plain, weighted)]
    assert missed[1] < missed[0]


def test_balance_gives_both_sides_the_same_weight(random):
    points = random.normal(size=(60, 2))
    labels = torch.from_numpy((np.arange(60) < 8).astype(np.int64))
    balanced = fit_margin(kernel_of(points), labels, C=0.5, balanced=True)
    by_weights = fit_margin(kernel_of(points), labels, C=0.5, weights=torch.where(labels == 1, 60 / 16, 60 / 104))
    assert balanced.support.tolist() == by_weights.support.tolist()
    assert torch.allclose(balanced.coefficients, by_weights.coefficients, atol=1e-4)


def test_three_classes_by_hand():
    # Three far corners: in every SVM each corner is a support vector, and the two others share the weight of the one.
    kernel = torch.eye(3, dtype=torch.float64)
    margin = fit_margin(kernel, torch.tensor([0, 1, 2]), C=100.0)
    # Score of class 0: a at its own corner, -b at both others, a = 2 b, a + c = 1, -b + c = -1, so b = 2/3, c = -1/3.
    expected = torch.where(torch.eye(3) == 1, 4 / 3, -2 / 3)
    assert margin.support.tolist() == [0, 1, 2]
    assert torch.allclose(margin.coefficients, expected.double(), atol=1e-3)
    assert margin.intercepts.tolist() == pytest.approx([-1 / 3] * 3, abs=1e-3)
    assert margin.misclassified.tolist() == margin.settled.tolist() == []


def test_many_classes_agree_with_one_scikit_learn_svm_each(random):
    points, labels = random.normal(size=(80, 3)), random.integers(0, 4, 80)
    kernel = kernel_of(points, 0.7)
    margin = fit_margin(kernel, torch.from_numpy(labels), C=3.0)
    trusted = [SVC(C=3.0, gamma=0.7).fit(points, labels == number) for number in range(4)]
    scores = kernel[:, margin.support] @ margin.coefficients + margin.intercepts
    expected = np.stack([svm.decision_function(points) for svm in trusted], axis=1)
    assert scores.numpy() == pytest.approx(expected, abs=1e-6)
    assert set(margin.support.tolist()) == set().union(*(svm.support_.tolist() for svm in trusted))
    assert margin.misclassified.tolist() == np.flatnonzero(expected.argmax(axis=1) != labels).tolist()
