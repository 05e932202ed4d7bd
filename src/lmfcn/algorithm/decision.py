"""The RBF decision on its own: support vectors, their weights, and nothing of the training set besides."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lmfcn.algorithm.geometry import LatentScale, rbf_kernel, squared_distances
from lmfcn.devices import to_device, to_like


@dataclass(frozen=True)
class Decision:
    """The RBF decision from its support vectors alone, independent of the training images.

    Two classes have one score, positive for class 1; more have one score each, one against all the others.

    Attributes
    ----------
    scale : LatentScale
        Leads from the network's latents into the space of the kernel.
    gamma : float
    support_latents : Tensor (n_support, n_features)
        In the space of the kernel.
    coefficients : Tensor (n_support, n_scores)
    intercepts : Tensor (n_scores,)
    """

    scale: LatentScale
    gamma: float
    support_latents: Tensor
    coefficients: Tensor
    intercepts: Tensor

    def scores(self, latents: Tensor) -> Tensor:
        """Return scores (m, n_scores) for latents (m, phi) as the network gives them."""
        kernel = rbf_kernel(squared_distances(self.scale.apply(latents), self.support_latents), self.gamma)
        return kernel @ to_like(self.coefficients, kernel) + to_like(self.intercepts, kernel)

    def tensors(self) -> dict[str, Tensor]:
        """Return the parts that are tensors, by name, for a file."""
        whitening = {} if self.scale.whitening is None else {"whitening": self.scale.whitening}
        return {
            "mean": self.scale.mean,
            "std": self.scale.std,
            **whitening,
            "support_latents": self.support_latents,
            "coefficients": self.coefficients,
            "intercepts": self.intercepts,
        }

    @classmethod
    def of_tensors(cls, tensors: dict[str, Tensor], gamma: float, device: torch.device) -> "Decision":
        """Put a decision together again from what `tensors` named."""
        there = {name: to_device(tensor, device) for name, tensor in tensors.items()}
        scale = LatentScale(there.pop("mean"), there.pop("std"), there.pop("whitening", None))
        return cls(scale=scale, gamma=gamma, **there)
