"""Which training images decide: the support vectors that weigh most for and against a class."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lmfcn.explain.class_score import ClassScore, class_number
from lmfcn.inference.model import TextureModel


@dataclass(frozen=True)
class Deciding:
    """What every support vector adds to the decision value of one class for one image.

    The weights and the intercept sum to the value, exactly: nothing is approximated or left out.

    Attributes
    ----------
    label
        The class that the value speaks for.
    value : float
        The decision value; for the first of two classes it is that of the second one, negated.
    intercept : float
        Constant of the decision.
    weights : array (n_support,)
        Coefficient times kernel, in the order of the model's support vectors.
    """

    label: Any
    value: float
    intercept: float
    weights: np.ndarray

    def for_it(self, top: int = 5) -> np.ndarray:
        """Return the support vectors that add most to the value, at most `top`, the strongest first."""
        order = np.argsort(-self.weights, kind="stable")[:top]
        return order[self.weights[order] > 0]

    def against_it(self, top: int = 5) -> np.ndarray:
        """Return the support vectors that take most from the value, at most `top`, the strongest first."""
        order = np.argsort(self.weights, kind="stable")[:top]
        return order[self.weights[order] < 0]

    def rest(self, top: int = 5) -> float:
        """Return the sum of the weights of all support vectors that neither list names."""
        named = np.concatenate([self.for_it(top), self.against_it(top)])
        return float(np.delete(self.weights, named).sum())


def deciding(model: TextureModel, latent: np.ndarray, label: Any) -> Deciding:
    """Take the decision value of a class apart by support vectors.

    Parameters
    ----------
    model : TextureModel
    latent : array (phi,)
        Of one image, as `model.transform` gives it.
    label
        One of `model.classes`.

    Examples
    --------
    >>> from lmfcn import LMFCNClassifier, make_gaussians
    >>> X, y = make_gaussians(n_per_class=10, size=16, random_state=0)
    >>> model = LMFCNClassifier(epochs=1, latent_dim=4, random_state=0).fit(X, y).model_
    >>> found = deciding(model, model.transform(X[:1])[0], label=1)
    >>> bool(abs(found.weights.sum() + found.intercept - model.decision_function(X[:1])[0]) < 1e-9)
    True
    """
    number = class_number(model.classes, label)
    score = ClassScore.of(model.decision, number)
    weights = score.weights(torch.as_tensor(latent)).numpy()
    return Deciding(model.classes[number], float(weights.sum()) + score.intercept, score.intercept, weights)
