"""A loss term of your own, added to LMFCN's in every optimiser step.

A callback with a method `extra_loss` may add to the loss. The term here pulls latents of one class towards their mean.

python examples/own_loss.py
"""

from typing import Any

import torch
from torch import Tensor

from lmfcn import Callback, LMFCNClassifier, make_gaussians


class CompactClasses(Callback):
    """Adds the mean squared distance of latents to the mean of their class in the batch."""

    def __init__(self, weight: float = 0.1) -> None:
        self.weight = weight
        self.costs: list[float] = []

    def extra_loss(self, training: Any, latents: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        """Return the cost of a batch of latents (b, n_latents) with class numbers (b,)."""
        apart = [latents[labels == label] for label in labels.unique()]
        cost = torch.cat([part - part.mean(dim=0) for part in apart]).square().sum(dim=1).mean()
        self.costs.append(float(cost.detach()))
        return self.weight * cost


def main(n_per_class: int = 40, size: int = 64, epochs: int = 5) -> tuple[list[float], float]:
    """Train with the term; return its cost in every step, and the held-out accuracy."""
    X, y = make_gaussians(n_per_class, size, random_state=0)
    term = CompactClasses()
    classifier = LMFCNClassifier(epochs=epochs, random_state=0).fit(X, y, callbacks=[term])
    accuracy = classifier.held_out_.balanced_accuracy
    print(f"cost of the term: {term.costs[0]:.4f} at first, {term.costs[-1]:.4f} at last; accuracy {accuracy:.3f}")
    return term.costs, accuracy


if __name__ == "__main__":
    main()
