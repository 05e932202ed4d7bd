"""From scores to classes, and how good those are."""

from torch import Tensor


def class_numbers(scores: Tensor) -> Tensor:
    """Return the class (n,) that scores (n, n_scores) speak for: the sign of one, the largest of several.

    Examples
    --------
    >>> import torch
    >>> class_numbers(torch.tensor([[-0.5], [2.0]])).tolist()
    [0, 1]
    >>> class_numbers(torch.tensor([[-0.5, -0.1, -0.3]])).tolist()
    [1]
    """
    return (scores[:, 0] > 0).long() if scores.shape[1] == 1 else scores.argmax(dim=1)


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
