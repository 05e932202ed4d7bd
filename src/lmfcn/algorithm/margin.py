"""Step 3: the SVM on the kernel, and who stands where in its margin (S, Q, R)."""

from dataclasses import dataclass

import torch
from sklearn.svm import SVC
from torch import Tensor

from lmfcn.algorithm.score import class_numbers
from lmfcn.devices import to_like


@dataclass(frozen=True)
class Margin:
    """A fitted large-margin classifier, *f_sv*, and the three sets that it makes of the training images.

    Attributes
    ----------
    support : Tensor (n_support,)
        Indices of the support vectors, *S*, ascending.
    misclassified : Tensor
        Indices of the misclassified images, *Q*; they all are support vectors.
    settled : Tensor
        Indices of correctly classified images outside every margin, *R*.
    coefficients : Tensor (n_support, n_scores)
        Weight of each support vector in each score. Two classes have one score, positive for class 1.
    intercepts : Tensor (n_scores,)
        Constants of the scores.
    """

    support: Tensor
    misclassified: Tensor
    settled: Tensor
    coefficients: Tensor
    intercepts: Tensor


def fit_margin(
    kernel: Tensor, labels: Tensor, C: float, *, balanced: bool = False, weights: Tensor | None = None
) -> Margin:
    """Fit the SVM on a precomputed kernel *K* (n, n) and sort the images into S, Q and R.

    With more than two classes there is one SVM for each, against all the others; S is the union of their
    support vectors. An image outside all margins has a score of at least 1 for its own class and at most -1
    for any other, so Q is a part of S here too.

    Parameters
    ----------
    kernel : Tensor (n, n)
    labels : Tensor (n,)
        Classes 0, 1, ..., each with at least one image.
    C : float
        Price of a margin violation.
    balanced : bool
        Whether both sides of every SVM weigh the same, however many images they have.
    weights : Tensor (n,), optional
        Factor on `C` for each image.
    """
    n_classes = int(labels.max()) + 1
    matrix, importance = kernel.cpu().numpy(), None if weights is None else weights.cpu().numpy()
    coefficients = torch.zeros(len(labels), 1 if n_classes == 2 else n_classes, dtype=torch.float64)
    intercepts = torch.zeros(coefficients.shape[1], dtype=torch.float64)
    is_support = torch.zeros(len(labels), dtype=torch.bool)
    for score, positive in enumerate([1] if n_classes == 2 else range(n_classes)):
        # It decides nothing, but without a seed of its own the SVM draws one from NumPy's global generator.
        svm = SVC(C=C, kernel="precomputed", class_weight="balanced" if balanced else None, random_state=0)
        svm.fit(matrix, (labels == positive).cpu().numpy(), sample_weight=importance)
        coefficients[svm.support_, score] = torch.from_numpy(svm.dual_coef_[0])
        intercepts[score] = float(svm.intercept_[0])
        is_support[svm.support_] = True
    coefficients, intercepts = to_like(coefficients, kernel), to_like(intercepts, kernel)
    wrong = class_numbers(kernel @ coefficients + intercepts) != labels
    is_support = is_support.to(kernel.device)
    settled = ~wrong & ~is_support
    support = is_support.nonzero()[:, 0]
    return Margin(support, wrong.nonzero()[:, 0], settled.nonzero()[:, 0], coefficients[support], intercepts)
