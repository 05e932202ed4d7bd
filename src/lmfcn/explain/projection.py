"""Latents on a plane, for people to look at."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Projection:
    """The plane in which latents differ most (principal components).

    Attributes
    ----------
    mean : array (phi,)
    axes : array (2, phi)
        Of length 1 and at right angles; the largest entry of each is positive.
    shares : tuple of two floats
        Shares of the variance that the axes show.

    Examples
    --------
    >>> latents = np.array([[0.0, 0.0, 1.0], [4.0, 0.0, 1.0], [0.0, 2.0, 1.0], [4.0, 2.0, 1.0]])
    >>> plane = Projection.of(latents)
    >>> plane.place(latents).round(6).tolist()
    [[-2.0, -1.0], [2.0, -1.0], [-2.0, 1.0], [2.0, 1.0]]
    >>> plane.shares
    (0.8, 0.2)
    """

    mean: np.ndarray
    axes: np.ndarray
    shares: tuple[float, float]

    @classmethod
    def of(cls, latents: np.ndarray) -> "Projection":
        """Find the plane of latents (n, phi)."""
        latents = np.asarray(latents, dtype=np.float64)
        mean = latents.mean(axis=0)
        variances, vectors = np.linalg.eigh((latents - mean).T @ (latents - mean))
        axes = np.zeros((2, latents.shape[1]))
        axes[: min(2, len(variances))] = vectors.T[::-1][:2]
        axes *= np.where(np.take_along_axis(axes, abs(axes).argmax(axis=1)[:, None], axis=1) < 0, -1.0, 1.0)
        largest = np.append(variances[::-1].clip(min=0.0), 0.0)[:2] / max(float(variances.sum()), 1e-300)
        return cls(mean, axes, (round(float(largest[0]), 6), round(float(largest[1]), 6)))

    def place(self, latents: np.ndarray) -> np.ndarray:
        """Return the places (n, 2) of latents (n, phi) on the plane."""
        return (np.asarray(latents, dtype=np.float64) - self.mean) @ self.axes.T
