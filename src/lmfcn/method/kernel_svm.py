"""Steps 2 and 3: distances, gamma and kernel (equations 1-3), the SVM, its sets S, Q and R, its decision."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lmfcn.compute.resources import to_device, to_like, to_precise


@dataclass(frozen=True)
class LatentScale:
    """Maps latents into the space of the kernel: shift and scale of every feature, then perhaps a whitening matrix."""

    mean: Tensor
    std: Tensor
    whitening: Tensor | None = None

    def apply(self, latents: Tensor) -> Tensor:
        """Return the latents (n, phi) in the space of the kernel."""
        standardized = (latents - self.mean) / self.std
        return standardized if self.whitening is None else standardized @ self.whitening

    def pull_back(self, gradient: Tensor) -> Tensor:
        """Return a gradient in the kernel's space as a gradient (phi,) with respect to the network's latents."""
        unwhitened = gradient if self.whitening is None else to_like(self.whitening, gradient) @ gradient
        return unwhitened / to_like(self.std, gradient)


def latent_scale(latents: Tensor, *, standardize: bool) -> LatentScale:
    """Measure mean and standard deviation of each feature, or 0 and 1 without `standardize`.

    A feature without spread keeps the scale 1, so that it adds nothing instead of dividing by zero.
    """
    if not standardize:
        return LatentScale(torch.zeros_like(latents[0]), torch.ones_like(latents[0]))
    mean, std = latents.mean(dim=0), latents.std(dim=0, correction=0)
    return LatentScale(mean, torch.where(has_spread(mean, std), std, 1.0))


def has_spread(mean: Tensor, std: Tensor) -> Tensor:
    """Return which features (phi,) vary by more than the rounding errors of single precision."""
    return std > 1e-5 * mean.abs() + 1e-12


def squared_distances(latents: Tensor, others: Tensor | None = None) -> Tensor:
    """Return squared Euclidean distances, *P* (n, m), equation 1.

    Computed as |a|^2 + |b|^2 - 2ab in double precision around a common centre, which keeps the
    cancellation below the precision of the latents themselves.
    """
    latents, others = to_precise(latents), None if others is None else to_precise(others)
    # The centre of the known points, so that one new point far away does not change the others.
    centre = (latents if others is None else others).mean(dim=0)
    a = latents - centre
    b = a if others is None else others - centre
    squared = torch.addmm((b * b).sum(dim=1), a, b.T, alpha=-2.0)
    squared.add_((a * a).sum(dim=1)[:, None]).clamp_(min=0.0)
    if others is None:
        squared.fill_diagonal_(0.0)
    return squared


def gamma_from_scale(latents: Tensor, factor: float = 1.0) -> float:
    """Return the kernel's coefficient *gamma* = factor / (phi Var T), so that it follows the scale of the latents.

    Var is taken over all entries of *T* and divides by their number, as scikit-learn's "scale" does.
    """
    variance = float(to_precise(latents).var(correction=0))
    if variance == 0.0:
        raise ValueError("gamma cannot follow the scale of the latents: they all coincide.")
    return factor / (latents.shape[1] * variance)


def rbf_kernel(squared: Tensor, gamma: float) -> Tensor:
    """Return the kernel matrix *K* = exp(-gamma P), equation 2."""
    return torch.mul(squared, -gamma).exp_()


def distances_in_place(squared: Tensor) -> Tensor:
    """Turn *P* into the distances *D* = sqrt(P), equation 3, in the same memory."""
    return squared.sqrt_()


@dataclass(frozen=True)
class FittedSVM:
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


def fit_svm(
    kernel: Tensor, labels: Tensor, C: float, *, balanced: bool = False, weights: Tensor | None = None
) -> FittedSVM:
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
        Penalty of a margin violation.
    balanced : bool
        Whether both sides of every SVM weigh the same, however many images they have.
    weights : Tensor (n,), optional
        Factor on `C` for each image.
    """
    from sklearn.svm import SVC  # here, because a fitted model needs no scikit-learn

    n_classes = int(labels.max()) + 1
    matrix, importance = kernel.cpu().numpy(), None if weights is None else weights.cpu().numpy()
    coefficients = torch.zeros(len(labels), 1 if n_classes == 2 else n_classes, dtype=torch.float64)
    intercepts = torch.zeros(coefficients.shape[1], dtype=torch.float64)
    is_support = torch.zeros(len(labels), dtype=torch.bool)
    for score, positive in enumerate([1] if n_classes == 2 else range(n_classes)):
        # The seed has no effect on the result, but without it scikit-learn draws from NumPy's global generator.
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
    return FittedSVM(support, wrong.nonzero()[:, 0], settled.nonzero()[:, 0], coefficients[support], intercepts)


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
        """Return a decision from the tensors that `tensors` returned."""
        there = {name: to_device(tensor, device) for name, tensor in tensors.items()}
        scale = LatentScale(there.pop("mean"), there.pop("std"), there.pop("whitening", None))
        return cls(scale=scale, gamma=gamma, **there)


def class_numbers(scores: Tensor) -> Tensor:
    """Return the predicted class (n,) of scores (n, n_scores): by the sign of one score, or the largest of several.

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
    """Return the mean recall over the classes of labels (n,).

    Examples
    --------
    >>> import torch
    >>> balanced_accuracy(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 0, 0]))
    0.5
    """
    correct = labels == predicted
    recalls = [int(correct[labels == label].sum()) / int((labels == label).sum()) for label in labels.unique()]
    return sum(recalls) / len(recalls)
