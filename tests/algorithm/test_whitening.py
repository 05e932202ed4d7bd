import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from lmfcn.algorithm.whitening import SHRINKAGE, within_class_covariance, within_class_whitening

# Two classes of two points each, one above the other; they scatter by 1 along the first axis and by 2 along the second.
POINTS = torch.tensor([[-1.0, -2.0], [1.0, 2.0], [4.0, 3.0], [6.0, -1.0]], dtype=torch.float64)
LABELS = torch.tensor([0, 0, 1, 1])


def test_the_covariance_within_classes_by_hand():
    # Around their means: (-1, -2), (1, 2), (-1, 2), (1, -2), so the axes are uncorrelated.
    expected = torch.tensor([[1.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
    torch.testing.assert_close(within_class_covariance(POINTS, LABELS), expected)


def test_whitening_by_hand():
    # In units of the mean variance 2.5: 0.4 and 1.6; with half of the identity 0.7 and 1.3.
    found = within_class_whitening(POINTS, LABELS, shrinkage=0.5)
    expected = torch.diag(torch.tensor([0.7, 1.3], dtype=torch.float64).rsqrt())
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=0)


def drawn(n_images: int, n_latents: int, n_classes: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n_images) % n_classes
    mixing = torch.randn(n_latents, n_latents, generator=generator, dtype=torch.float64)
    latents = torch.randn(n_images, n_latents, generator=generator, dtype=torch.float64) @ mixing
    return latents + 3 * labels[:, None], labels


@settings(deadline=None, max_examples=30)
@given(st.integers(4, 20), st.integers(1, 5), st.integers(1, 4), st.integers(0, 10**6))
def test_the_covariance_agrees_with_its_slow_twin(n_images, n_latents, n_classes, seed):
    latents, labels = drawn(n_images, n_latents, n_classes, seed)
    expected = oracles.within_class_covariance(latents.tolist(), labels.tolist())
    assert within_class_covariance(latents, labels).numpy() == pytest.approx(np.array(expected), abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(st.integers(8, 30), st.integers(1, 6), st.floats(0.1, 1.0), st.integers(0, 10**6))
def test_whitened_latents_scatter_alike_in_all_directions(n_images, n_latents, shrinkage, seed):
    latents, labels = drawn(n_images, n_latents, 2, seed)
    whitening = within_class_whitening(latents, labels, shrinkage)
    covariance = within_class_covariance(latents, labels)
    shrunk = (1 - shrinkage) * covariance / covariance.diagonal().mean() + shrinkage * torch.eye(n_latents)
    product = whitening @ shrunk @ whitening
    assert product.numpy() == pytest.approx(torch.eye(n_latents).numpy(), abs=5e-2 / shrinkage)  # three digits are kept
    assert torch.equal(whitening, whitening.T)


def test_units_do_not_matter():
    latents, labels = drawn(20, 3, 2, 0)
    once, twice = (within_class_whitening(factor * latents, labels) for factor in (1.0, 1e4))
    torch.testing.assert_close(once, twice, atol=2e-3, rtol=0)


def test_full_shrinkage_changes_nothing():
    latents, labels = drawn(20, 3, 2, 0)
    assert torch.equal(within_class_whitening(latents, labels, 1.0), torch.eye(3, dtype=torch.float64))


@pytest.mark.parametrize("labels", [[0, 0, 1, 1], [0, 1, 2, 3], [0, 0, 0, 2]])
def test_classes_without_scatter_leave_the_latents_as_they_are(labels):
    latents = torch.tensor(labels, dtype=torch.float32)[:, None] * torch.ones(1, 3)
    assert torch.equal(within_class_whitening(latents, torch.tensor(labels)), torch.eye(3))


@pytest.mark.parametrize(("n_classes", "n_kept"), [(2, 64), (40, 80), (50, 90)])
def test_so_many_directions_are_kept(n_classes, n_kept):
    latents, labels = drawn(120, 90, n_classes, 0)
    assert within_class_whitening(latents, labels).shape == (90, n_kept)


def test_the_widest_directions_are_kept():
    latents, labels = drawn(120, 90, 2, 0)
    spreads = (latents @ within_class_whitening(latents, labels)).var(dim=0, correction=0)
    covariance = within_class_covariance(latents, labels)
    shrunk = 0.7 * covariance / covariance.diagonal().mean() + 0.3 * torch.eye(90)
    variances, directions = torch.linalg.eigh(shrunk)
    whole = latents @ directions @ torch.diag(variances.rsqrt()) @ directions.T
    expected = torch.linalg.eigvalsh(torch.cov(whole.T, correction=0)).flip(0)
    assert spreads.numpy() == pytest.approx(expected[:64].numpy(), rel=0.05)


def test_directions_in_which_no_image_differs_are_not_kept():
    latents, labels = drawn(40, 90, 2, 0)
    whitening = within_class_whitening(latents, labels)
    assert whitening.shape == (90, 39)  # 40 images differ in 39 directions
    new = torch.randn(5, 90, dtype=torch.float64) @ torch.linalg.svd(latents - latents.mean(0)).Vh[39:].T
    outside = new @ torch.linalg.svd(latents - latents.mean(0)).Vh[39:]
    assert (outside @ whitening).abs().max() < 2e-2 * outside.abs().max()


def test_rounding_is_no_scatter():
    images = torch.rand(2, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    latents, labels = images.repeat(3, 1), torch.arange(2).repeat(3)
    assert torch.equal(within_class_whitening(latents, labels), torch.eye(6, dtype=torch.float64))


def test_more_latents_than_images():
    latents, labels = drawn(6, 40, 2, 0)
    whitening = within_class_whitening(latents.float(), labels)
    assert whitening.dtype == torch.float32
    assert bool(torch.isfinite(whitening).all())
    assert torch.equal(whitening, whitening.half().float())
    # Directions that no image moves in have the identity's share alone.
    assert float(torch.linalg.eigvalsh(whitening).max()) == pytest.approx(SHRINKAGE**-0.5, abs=5e-3)


def test_inputs_stay_as_they_are():
    latents, labels = drawn(12, 3, 2, 0)
    before = latents.clone(), labels.clone()
    within_class_whitening(latents, labels)
    assert torch.equal(latents, before[0])
    assert torch.equal(labels, before[1])
