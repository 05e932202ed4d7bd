"""What makes images of one class differ counts less: the last SVM's latents, whitened within classes."""

import torch
from torch import Tensor

from lmfcn.devices import to_cpu_double, to_like

SHRINKAGE = 0.3
"""Share of the covariance that is taken as equal in all directions, which few images cannot measure."""

_ROUNDING = 1e-9
"""Share of a variance that rounding makes of none."""

N_DIRECTIONS = 64
"""So many directions are kept, or two for each class if that is more: the others hold a few percent of the spread."""


def within_class_whitening(latents: Tensor, labels: Tensor, shrinkage: float = SHRINKAGE) -> Tensor:
    """Return the matrix (phi, k) behind which images of one class scatter about alike in all directions.

    The inverse square root of the within-class covariance, of which a share `shrinkage` is replaced by a multiple of
    the identity, in units of its mean variance. A direction then counts as much as it tells classes apart by, measured
    in what images of one class differ by (within-class covariance normalisation: Hatch, Kajarekar and Stolcke, 2006).
    Of many directions the k of greatest spread are kept. All numbers fit into half precision, so that a file loses
    nothing. Classes without any scatter leave the latents as they are.

    Parameters
    ----------
    latents : Tensor (n, phi)
    labels : Tensor (n,)
        Their classes 0, 1, ...
    shrinkage : float
        From 0, which trusts the covariance, to 1, which takes all directions as equal.

    Examples
    --------
    Two classes that differ along the second axis and scatter along the first, which then counts half as much:

    >>> import torch
    >>> latents = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [-1.0, 1.0], [1.0, 1.0]])
    >>> within_class_whitening(latents, torch.tensor([0, 0, 1, 1]), shrinkage=0.4).round(decimals=2)
    tensor([[0.7900, 0.0000],
            [0.0000, 1.5800]])
    """
    precise, classes = to_cpu_double(latents), labels.cpu()
    identity = torch.eye(latents.shape[1], dtype=torch.float64)
    covariance = within_class_covariance(precise, classes)
    variance = covariance.diagonal().mean()
    whitening = identity
    if variance > _ROUNDING * precise.var(dim=0, correction=0).mean():
        # The smallest variance is the identity's share, so nothing is divided by a number near zero.
        whitening = _inverse_root((1 - shrinkage) * covariance / variance + shrinkage * identity)
    n_most = max(N_DIRECTIONS, 2 * (int(classes.max()) + 1))
    if n_most < len(identity):
        whitening = whitening @ _widest(precise @ whitening, n_most)
    return to_like(whitening.half(), latents)


def within_class_covariance(latents: Tensor, labels: Tensor) -> Tensor:
    """Return the covariance (phi, phi) of latents (n, phi) around the mean of their own class."""
    n_classes = int(labels.max()) + 1
    sums = latents.new_zeros(n_classes, latents.shape[1]).index_add_(0, labels, latents)
    means = sums / labels.bincount(minlength=n_classes).clamp(min=1)[:, None]
    around = latents - means[labels]
    return around.T @ around / len(latents)


def _inverse_root(covariance: Tensor) -> Tensor:
    """Return the symmetric matrix whose square is the inverse."""
    variances, directions = torch.linalg.eigh(covariance)
    return (directions * variances.clamp(min=1e-6).rsqrt()) @ directions.T


def _widest(latents: Tensor, n_directions: int) -> Tensor:
    """Return the directions (phi, k) of greatest spread, each with its largest component positive.

    Fewer than `n_directions` where few images have no spread in more: any direction would do there, and new images
    would have a spread that means nothing.
    """
    spreads, directions = torch.linalg.eigh(torch.cov(latents.T, correction=0))
    n_spread = int((spreads > _ROUNDING * spreads[-1]).sum())
    directions = directions.flip(1)[:, : max(1, min(n_directions, n_spread))]
    largest = directions.gather(0, directions.abs().argmax(dim=0, keepdim=True))
    return directions * largest.sign()
