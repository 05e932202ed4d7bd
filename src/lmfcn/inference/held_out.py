"""What a model is judged by when there is no test set."""

from dataclasses import dataclass

import numpy as np
import torch

from lmfcn.algorithm.score import balanced_accuracy


@dataclass(frozen=True)
class HeldOut:
    """What the model says about images when the last SVM has not learnt from them.

    Attributes
    ----------
    positions : array (m,)
        Indices into X; validation images that were given beside X follow after those of X.
    numbers : array (m,)
        Their true classes.
    probabilities : array (m, n_classes)
    seen : bool
        Whether the networks that this was said with had been trained on these images; it is then too good. (After
        closing epochs, the networks of the model have been, but this was said before.)
    """

    positions: np.ndarray
    numbers: np.ndarray
    probabilities: np.ndarray
    seen: bool

    @property
    def balanced_accuracy(self) -> float | None:
        """The mean over the classes of the share of images that are recognised; None without images."""
        if len(self.numbers) == 0:
            return None
        predicted = torch.from_numpy(self.probabilities.argmax(axis=1))
        return balanced_accuracy(torch.from_numpy(self.numbers), predicted)
