"""Moments of feature maps: means, standard deviations, correlations.

All of them are means of maps, so that they can be explained place by place. Correlations are those of a few *mixtures*
of the maps, sums of all of them with random signs: all pairs of maps would be thousands of numbers.
"""

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv2d

from lmfcn.compute.resources import to_like

_LEAST_VARIANCE = 1e-6
"""Added to a variance, which is about 1 for most maps. Exporters to ONNX drop an addend of 1e-8."""

_LEAST_CORRELATED = 1e-4
"""The same for mixtures: a correlation divides by a variance, and where there is next to none it is rounding."""

N_MIXTURES = 16
"""More brought nothing, with three times as many correlations (docs/research/correlations.md)."""


def standard_deviation(variances: Tensor) -> Tensor:
    """Return the square root of variances, a little more where they are zero: it is divided by."""
    return (variances.clamp(min=0) + _LEAST_VARIANCE).sqrt()


def deviation_maps(maps: Tensor, average: Callable[[Tensor], Tensor]) -> Tensor:
    """Return maps (b, c, h, w) whose means are the standard deviations of `maps`.

    A value is the squared difference from the mean, divided by the standard deviation. So an explanation can tell where
    in the image a standard deviation comes from.

    Parameters
    ----------
    maps : Tensor (b, c, h, w)
    average : callable
        Returns the means (b, c) of maps.

    Examples
    --------
    >>> import torch
    >>> deviation_maps(torch.tensor([[[[1.0, 3.0]]]]), lambda maps: maps.mean(dim=(2, 3))).round(decimals=3)
    tensor([[[[1., 1.]]]])
    """
    squares = (maps - average(maps)[:, :, None, None]).square()
    return squares / standard_deviation(average(squares))[:, :, None, None]


class Pairs(NamedTuple):
    """All pairs of k mixtures, each mixture with itself first: the numbers (p,) of both."""

    first: Tensor
    second: Tensor

    @classmethod
    def of(cls, n_mixtures: int, device: torch.device | None = None) -> "Pairs":
        """Return the pairs of some mixtures."""
        each = torch.arange(n_mixtures, device=device)
        first, second = torch.triu_indices(n_mixtures, n_mixtures, offset=1, device=device)
        return cls(torch.cat([each, first]), torch.cat([each, second]))


def n_correlations(n_channels: int) -> int:
    """Return how many numbers `correlations` makes of so many maps.

    Examples
    --------
    >>> n_correlations(2), n_correlations(64)
    (3, 136)
    """
    n_mixtures = min(n_channels, N_MIXTURES)
    return n_mixtures * (n_mixtures + 1) // 2


def mixing(n_channels: int, like: Tensor) -> Tensor:
    """Return the matrix (n_channels, k) that mixes maps; few maps stay as they are.

    Examples
    --------
    >>> mixing(2, torch.zeros(())).tolist(), mixing(64, torch.zeros(())).unique().tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [-0.125, 0.125])
    """
    return to_like(torch.from_numpy(_signs(n_channels)), like)


@functools.cache
def _signs(n_channels: int) -> np.ndarray:
    if n_channels <= N_MIXTURES:
        return np.eye(n_channels)
    # NumPy's old generator, whose numbers will never change: models rely on them.
    signs = 2 * np.random.RandomState(n_channels).randint(2, size=(n_channels, N_MIXTURES)) - 1
    return signs / np.sqrt(n_channels)


def mix(maps: Tensor, matrix: Tensor) -> Tensor:
    """Return the mixtures (b, k, h, w) of maps (b, c, h, w) by a matrix (c, k)."""
    return conv2d(maps, matrix.T[:, :, None, None])


def correlations(mixtures: Tensor) -> Tensor:
    """Return the standard deviations of mixtures (b, k, h, w) and, behind them, the correlations of all pairs (b, p).

    Examples
    --------
    >>> correlations(torch.tensor([[[[1.0, 3.0]], [[2.0, -2.0]]]])).round(decimals=3)
    tensor([[ 1.,  2., -1.]])
    """
    apart = mixtures.flatten(2)
    apart = apart - apart.mean(dim=2, keepdim=True)
    covariances = apart @ apart.transpose(1, 2) / apart.shape[2]
    pairs = Pairs.of(covariances.shape[1], covariances.device)
    return of_covariances(covariances[:, pairs.first, pairs.second])


def correlation_maps(mixtures: Tensor, average: Callable[[Tensor], Tensor]) -> Iterator[Tensor]:
    """Go through maps (b, ..., h, w) whose means are the `correlations` of mixtures (b, k, h, w).

    A value is the product of two mixtures at that place, their means subtracted, in units of their deviations. These
    are many maps, so they come in parts: first each mixture with itself, then each with those behind it.
    """
    apart = mixtures - average(mixtures)[:, :, None, None]
    scaled = apart / _least_correlated(average(apart.square()))[:, :, None, None]
    yield apart * scaled
    for number in range(mixtures.shape[1] - 1):
        yield scaled[:, number : number + 1] * scaled[:, number + 1 :]


def of_covariances(covariances: Tensor) -> Tensor:
    """Return standard deviations and correlations (..., p) from the covariances (..., p) of all pairs."""
    return covariances / _units(covariances)


def _least_correlated(variances: Tensor) -> Tensor:
    """Return standard deviations of mixtures, a little more where they are small."""
    return (variances.clamp(min=0) + _LEAST_CORRELATED).sqrt()


def _units(covariances: Tensor) -> Tensor:
    """Return what divides the covariances (..., p) of all pairs: a deviation for a variance, else two of them."""
    n_mixtures = (int((8 * covariances.shape[-1] + 1) ** 0.5) - 1) // 2
    pairs = Pairs.of(n_mixtures, covariances.device)
    deviations = _least_correlated(covariances[..., :n_mixtures])
    between = deviations[..., pairs.first[n_mixtures:]] * deviations[..., pairs.second[n_mixtures:]]
    return torch.cat([deviations, between], dim=-1)
