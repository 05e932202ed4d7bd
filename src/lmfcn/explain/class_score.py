"""The decision value of one class, taken apart: by support vectors, and by latent features."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lmfcn.algorithm.decision import Decision
from lmfcn.algorithm.geometry import rbf_kernel, squared_distances
from lmfcn.devices import to_cpu_double

_NO_WAY = 1e-12
"""Squared distances below this are no way to integrate along."""


@dataclass(frozen=True)
class ClassScore:
    """The score that is positive for one class, *f(z)* = sum of c_i exp(-gamma |z - s_i|^2), plus b.

    Latents here are those of the space in which the kernel measures.

    Attributes
    ----------
    gamma : float
    support_latents : Tensor (n_support, phi)
        The *s_i*, in double precision.
    coefficients : Tensor (n_support,)
        The *c_i*.
    intercept : float
        The *b*.

    Examples
    --------
    Two support vectors at a distance of 2, and an image at the first one:

    >>> import torch
    >>> places = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    >>> score = ClassScore(0.25, places, torch.tensor([1.0, -1.0], dtype=torch.float64), intercept=0.5)
    >>> [round(weight, 3) for weight in score.weights(torch.tensor([0.0])).tolist()]
    [1.0, -0.368]
    >>> round(score.value(torch.tensor([0.0])), 3)
    1.132
    """

    gamma: float
    support_latents: Tensor
    coefficients: Tensor
    intercept: float

    @classmethod
    def of(cls, decision: Decision, number: int) -> "ClassScore":
        """Return the score of a class; the one score of two classes speaks for class 1, its negative for class 0."""
        single = decision.coefficients.shape[1] == 1
        column, sign = (0, 1.0 if number == 1 else -1.0) if single else (number, 1.0)
        support, coefficients = map(to_cpu_double, (decision.support_latents, decision.coefficients[:, column]))
        return cls(decision.gamma, support, sign * coefficients, sign * float(decision.intercepts[column]))

    def weights(self, latent: Tensor) -> Tensor:
        """Return what each support vector adds (n_support,) to the score of a latent (phi,)."""
        return self._kernel(latent) * self.coefficients

    def value(self, latent: Tensor) -> float:
        """Return the score of a latent (phi,)."""
        return float(self.weights(latent).sum()) + self.intercept

    def mean_slope(self, latent: Tensor) -> Tensor:
        """Return the gradient (phi,) of the score, averaged over the straight way from the origin to a latent (phi,).

        Its product with the latent is the score of the latent minus that of the origin, exactly: the integral of a
        Gaussian along a line is known. At the origin itself it is the gradient there.
        """
        latent = latent.double()
        way = float(latent @ latent)
        if way < _NO_WAY:
            share, moment = self._kernel(latent), 0.5 * self._kernel(latent)
        else:
            share, moment = self._integrals(latent, way)
        factors = 2 * self.gamma * self.coefficients
        return (factors * share) @ self.support_latents - (factors @ moment) * latent

    def _integrals(self, latent: Tensor, way: float) -> tuple[Tensor, Tensor]:
        """Return the integrals (n_support,) of K(t latent, s) and of t K(t latent, s) over t from 0 to 1."""
        along = -(self.support_latents @ latent)
        aside = (self.support_latents.square().sum(dim=1) - along.square() / way).clamp(min=0.0)
        steepness = math.sqrt(self.gamma * way)
        covered = _gaussian_area(steepness * along / way, steepness * (1 + along / way)) / steepness
        share = (-self.gamma * aside).exp() * covered
        # By parts; in this form the product of mean slope and latent is exact whatever the rounding of `share`.
        rise = self._kernel(latent) - self._kernel(torch.zeros_like(latent))
        return share, -(rise / (2 * self.gamma) + along * share) / way

    def _kernel(self, latent: Tensor) -> Tensor:
        return rbf_kernel(squared_distances(latent[None], self.support_latents), self.gamma)[0]


def _gaussian_area(start: Tensor, end: Tensor) -> Tensor:
    """Return the integral of exp(-u^2) from start to end, start below end, without cancellation far from 0."""
    flip = start + end > 0
    low, high = torch.where(flip, -end, start), torch.where(flip, -start, end)
    # Now most of the range is below 0, where the complementary function of the negated ends is small and precise.
    return 0.5 * math.sqrt(math.pi) * (torch.erfc(-high) - torch.erfc(-low))


def class_number(classes: np.ndarray, label: object) -> int:
    """Return the position of a label among the classes, given as it is or as text.

    Examples
    --------
    >>> class_number(np.array([3, 5]), "5")
    1
    """
    names = [str(name) for name in classes.tolist()]
    if str(label) not in names:
        raise ValueError(f"There is no class {str(label)!r}; the model knows {', '.join(names)}.")
    return names.index(str(label))


def support_classes(decision: Decision) -> np.ndarray:
    """Return the class number (n_support,) of each support vector as far as its coefficients tell, else -1.

    A support vector adds to the score of its own class and takes from others, but may have no part in some scores.
    """
    signs = decision.coefficients.sign().cpu().numpy()
    if signs.shape[1] == 1:
        return (signs[:, 0] > 0).astype(int)
    known = np.where((signs > 0).any(axis=1), signs.argmax(axis=1), -1)
    left = signs == 0
    return np.where((known < 0) & (left.sum(axis=1) == 1), left.argmax(axis=1), known)
