"""What makes images of one class differ counts less: the last SVM's latents, whitened within classes."""

import torch
from torch import Tensor

SHRINKAGE = 0.3
"""Share of the covariance that is taken as equal in all directions, which few images cannot measure."""


def within_class_whitening(latents: Tensor, labels: Tensor, shrinkage: float = SHRINKAGE) -> Tensor:
    """Return the matrix (phi, phi) under which images of one class scatter about alike in all directions.

    The inverse square root of the within-class covariance, of which a share `shrinkage` is replaced by a multiple of
    the identity, in units of its mean variance. Latents times this matrix are those in which a direction counts as much
    as it tells classes apart by, measured in what images of one class differ by (within-class covariance
    normalisation: Hatch, Kajarekar and Stolcke, 2006). All numbers fit into half precision, so that a file loses
    nothing. Classes without any scatter leave the latents as they are.

    Parameters
    ----------
    latents : Tensor (n, phi)
    labels : Tensor (n,)
        Their classes 0, 1, ...
    shrinkage : float
        From 0, which trusts the covariance, to 1, which changes nothing.

    Examples
    --------
    Two classes that scatter along the first axis only; half of what is left of it counts there.

    >>> import torch
    >>> latents = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [-1.0, 1.0], [1.0, 1.0]])
    >>> within_class_whitening(latents, torch.tensor([0, 0, 1, 1]), shrinkage=0.4).round(decimals=3)
    tensor([[0.7910, 0.0000],
            [0.0000, 1.5811]])
    """
    identity = torch.eye(latents.shape[1], dtype=torch.float64)
    covariance = within_class_covariance(latents.cpu().double(), labels.cpu())
    variance = covariance.diagonal().mean()
    if not variance > 0:
        return identity.to(latents)
    shrunk = (1 - shrinkage) * covariance / variance + shrinkage * identity
    # The smallest variance is the identity's share, so nothing is divided by a number near zero.
    variances, directions = torch.linalg.eigh(shrunk)
    whitening = (directions * variances.clamp(min=1e-6).rsqrt()) @ directions.T
    return whitening.half().to(latents)


def within_class_covariance(latents: Tensor, labels: Tensor) -> Tensor:
    """Return the covariance (phi, phi) of latents (n, phi) around the mean of their own class."""
    n_classes = int(labels.max()) + 1
    sums = latents.new_zeros(n_classes, latents.shape[1]).index_add_(0, labels, latents)
    means = sums / labels.bincount(minlength=n_classes).clamp(min=1)[:, None]
    around = latents - means[labels]
    return around.T @ around / len(latents)
