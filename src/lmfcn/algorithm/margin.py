"""Step 3: the SVM on the kernel, and who stands where in its margin (S, Q, R)."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from sklearn.svm import SVC
from torch import Tensor


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
        Indices of correctly classified images outside the margin, *R*.
    coefficients : Tensor (n_support,)
        Weight of each support vector in the decision, positive for class 1.
    intercept : float
        Constant of the decision.
    """

    support: Tensor
    misclassified: Tensor
    settled: Tensor
    coefficients: Tensor
    intercept: float


def fit_margin(
    kernel: Tensor, labels: Tensor, C: float, class_weight: Mapping[int, float] | str | None = None
) -> Margin:
    """Fit the SVM on a precomputed kernel *K* (n, n) and sort the images into S, Q and R.

    Parameters
    ----------
    kernel : Tensor (n, n)
    labels : Tensor (n,)
        Classes 0 and 1.
    C : float
        Price of a margin violation.
    class_weight : mapping, "balanced" or None
        Factor on `C` for each class, as in scikit-learn.
    """
    svm = SVC(C=C, kernel="precomputed", class_weight=class_weight)
    svm.fit(kernel.cpu().numpy(), labels.cpu().numpy())
    support = torch.from_numpy(svm.support_).to(kernel.device, torch.int64)
    coefficients = torch.from_numpy(svm.dual_coef_[0]).to(kernel)
    order = support.argsort()  # scikit-learn lists them class by class
    support, coefficients, intercept = support[order], coefficients[order], float(svm.intercept_[0])
    weights = kernel.new_zeros(len(labels)).index_put((support,), coefficients)
    wrong = (kernel @ weights + intercept > 0) != (labels == 1)
    settled = ~wrong
    settled[support] = False
    return Margin(support, wrong.nonzero()[:, 0], settled.nonzero()[:, 0], coefficients, intercept)
