"""How good predictions are."""

from torch import Tensor


def balanced_accuracy(labels: Tensor, predicted: Tensor) -> float:
    """Return the mean over the classes of the share of their images (n,) that are predicted right.

    Examples
    --------
    >>> import torch
    >>> balanced_accuracy(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 0, 0]))
    0.5
    """
    right = labels == predicted
    recalls = [int(right[labels == label].sum()) / int((labels == label).sum()) for label in labels.unique()]
    return sum(recalls) / len(recalls)
