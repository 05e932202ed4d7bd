"""Step 2: distances between latents, the kernel's width and the kernel (equations 1-3)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lmfcn.devices import to_like, to_precise


@dataclass(frozen=True)
class LatentScale:
    """Shift and scale of every latent feature, perhaps with a matrix behind them, that lead into the kernel's space."""

    mean: Tensor
    std: Tensor
    whitening: Tensor | None = None

    def apply(self, latents: Tensor) -> Tensor:
        """Return `latents` moved into the space of the kernel."""
        standardized = (latents - self.mean) / self.std
        return standardized if self.whitening is None else standardized @ self.whitening

    def pull_back(self, slope: Tensor) -> Tensor:
        """Return the slope (phi,) over the network's latents of what has this slope in the kernel's space."""
        behind = slope if self.whitening is None else to_like(self.whitening, slope) @ slope
        return behind / to_like(self.std, slope)


def latent_scale(latents: Tensor, *, standardize: bool) -> LatentScale:
    """Measure mean and standard deviation of each feature, or 0 and 1 without `standardize`.

    A feature without spread keeps the scale 1, so that it adds nothing instead of dividing by zero.
    """
    if not standardize:
        return LatentScale(torch.zeros_like(latents[0]), torch.ones_like(latents[0]))
    mean, std = latents.mean(dim=0), latents.std(dim=0, correction=0)
    return LatentScale(mean, torch.where(has_spread(mean, std), std, 1.0))


def has_spread(mean: Tensor, std: Tensor) -> Tensor:
    """Tell which features vary by more than the rounding errors of single precision."""
    return std > 1e-5 * mean.abs() + 1e-12


def squared_distances(latents: Tensor, others: Tensor | None = None) -> Tensor:
    """Return squared Euclidean distances, *P* (n, m), equation 1.

    Computed as |a|^2 + |b|^2 - 2ab in double precision around a common centre, which keeps the
    cancellation below the precision of the latents themselves.
    """
    latents, others = to_precise(latents), None if others is None else to_precise(others)
    # The centre of the known points, so that one new point far away does not touch the others.
    centre = (latents if others is None else others).mean(dim=0)
    a = latents - centre
    b = a if others is None else others - centre
    squared = torch.addmm((b * b).sum(dim=1), a, b.T, alpha=-2.0)
    squared.add_((a * a).sum(dim=1)[:, None]).clamp_(min=0.0)
    if others is None:
        squared.fill_diagonal_(0.0)
    return squared


def gamma_from_scale(latents: Tensor, factor: float = 1.0) -> float:
    """Return the kernel's width *gamma* = factor / (phi Var T), so that it follows the scale of the latents.

    Var is taken over all entries of *T* and divides by their number, as scikit-learn's "scale" does.
    """
    variance = float(to_precise(latents).var(correction=0))
    if variance == 0.0:
        raise ValueError("gamma cannot follow the scale of the latents: they all coincide.")
    return factor / (latents.shape[1] * variance)


def rbf_kernel(squared: Tensor, gamma: float) -> Tensor:
    """Return the kernel matrix *K* = exp(-gamma P), equation 2."""
    return torch.mul(squared, -gamma).exp_()


def distances_in_place(squared: Tensor) -> Tensor:
    """Turn *P* into the distances *D* = sqrt(P), equation 3, in the same memory."""
    return squared.sqrt_()
