import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmfcn.compute.moments import (
    N_MIXTURES,
    Pairs,
    correlation_maps,
    correlations,
    deviation_maps,
    mix,
    mixing,
    n_correlations,
    of_covariances,
    standard_deviation,
)
from lmfcn.method.network import TextureFCN

SIGNS = "--+--+-++-+---+-"


def test_deviations_by_hand():
    # Means 2 and 5; variances (1 + 1 + 4 + 4) / 4 = 2.5 and 0.
    maps = torch.tensor([[[[1.0, 3.0], [0.0, 4.0]], [[5.0, 5.0], [5.0, 5.0]]]])
    found = deviation_maps(maps, TextureFCN.average)
    torch.testing.assert_close(found[0, 0], torch.tensor([[1.0, 1.0], [4.0, 4.0]]) / 2.5**0.5)
    assert torch.equal(found[0, 1], torch.zeros(2, 2))


def test_means_of_deviation_maps_are_standard_deviations(random):
    """The slow twin: NumPy."""
    values = random.normal(size=(3, 4, 9, 7))
    found = deviation_maps(torch.from_numpy(values), TextureFCN.average).mean(dim=(2, 3))
    np.testing.assert_allclose(found, values.std(axis=(2, 3)), rtol=1e-5)


def test_nothing_is_divided_by_zero():
    found = standard_deviation(torch.tensor([0.0, -1e-9, 4.0]))
    assert bool((found > 0).all())
    assert abs(float(found[2]) - 2) < 1e-5


def test_correlations_by_hand():
    # Means 2, 0 and 5; deviations 1, 2 and 0; the first two go in opposite directions.
    maps = torch.tensor([[[[1.0, 3.0]], [[2.0, -2.0]], [[5.0, 5.0]]]])
    expected = torch.tensor([[1.0, 2.0, 0.0, -1.0, 0.0, 0.0]])
    torch.testing.assert_close(correlations(maps), expected, atol=1e-4, rtol=0)
    found = torch.cat(list(correlation_maps(maps, TextureFCN.average)), dim=1)
    torch.testing.assert_close(TextureFCN.average(found), expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(found[0, 0], torch.tensor([[1.0, 1.0]]), atol=1e-4, rtol=0)
    torch.testing.assert_close(found[0, 3], torch.tensor([[-1.0, -1.0]]), atol=1e-4, rtol=0)


def test_correlations_are_those_of_numpy(random):
    """The slow twin: NumPy, image by image."""
    mixtures = random.normal(size=(3, 4, 9, 7)) + random.normal(size=(3, 1, 9, 7))
    found = correlations(torch.from_numpy(mixtures))
    assert found.shape == (3, n_correlations(4)) == (3, 10)
    for image, row in zip(mixtures.reshape(3, 4, -1), found.numpy(), strict=True):
        np.testing.assert_allclose(row[:4], image.std(axis=1), rtol=1e-3)
        between = [np.corrcoef(image)[i, j] for i in range(4) for j in range(i + 1, 4)]
        np.testing.assert_allclose(row[4:], between, atol=1e-3)


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 6), st.integers(0, 10))
def test_means_of_correlation_maps_are_correlations(n_mixtures, height, width, seed):
    generator = torch.Generator().manual_seed(seed)
    mixtures = torch.randn(2, n_mixtures, height, width, generator=generator, dtype=torch.float64)
    means = [TextureFCN.average(maps) for maps in correlation_maps(mixtures, TextureFCN.average)]
    torch.testing.assert_close(torch.cat(means, dim=1), correlations(mixtures))


def test_the_gradient_of_correlations(generator):
    mixtures = torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(correlations, mixtures)


def test_constant_maps_have_correlations_of_zero_and_a_finite_gradient():
    maps = torch.full((1, 3, 4, 4), 0.7, requires_grad=True)
    found = correlations(maps)
    torch.testing.assert_close(found, torch.zeros(1, 6), atol=1e-4, rtol=0)
    found.sum().backward()
    assert bool(maps.grad.isfinite().all())


def test_mixtures_are_sums_with_signs_that_never_change():
    matrix = mixing(64, torch.zeros((), dtype=torch.float64)).numpy()
    assert matrix.shape == (64, N_MIXTURES)
    # Models are of no use with other signs, so these are written down.
    assert "".join("+" if value > 0 else "-" for value in matrix[0]) == SIGNS
    assert np.array_equal(np.abs(matrix), np.full((64, 16), 1 / 8))
    assert np.linalg.matrix_rank(matrix) == 16
    maps = torch.arange(2.0 * 64).view(2, 64, 1, 1)
    assert np.allclose(mix(maps, torch.from_numpy(matrix).float())[..., 0, 0], maps[..., 0, 0].numpy() @ matrix)


def test_few_maps_are_their_own_mixtures():
    assert torch.equal(mixing(3, torch.zeros(())), torch.eye(3))
    assert n_correlations(3) == 6


def test_pairs_begin_with_each_mixture_and_itself():
    assert [tuple(pair) for pair in torch.stack(Pairs.of(3)).T.tolist()] == [
        (0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)
    ]  # fmt: skip


def test_covariances_become_deviations_and_correlations():
    found = of_covariances(torch.tensor([4.0, 9.0, -3.0]))
    torch.testing.assert_close(found, torch.tensor([2.0, 3.0, -0.5]), atol=1e-4, rtol=0)
