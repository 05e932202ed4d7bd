"""The final SVM on the latents of the trained networks, with within-class whitening."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from lmfcn.compute.resources import to_cpu_double, to_like
from lmfcn.method.kernel_svm import (
    Decision,
    FittedSVM,
    LatentScale,
    fit_svm,
    gamma_from_scale,
    latent_scale,
    rbf_kernel,
    squared_distances,
)
from lmfcn.model import class_centres, nearest_centre
from lmfcn.recipe import Recipe
from lmfcn.training.calibration import select_most_likely

SHRINKAGE = 0.3
"""Share of the covariance that is taken as equal in all directions, which few images cannot measure."""

_ROUNDING = 1e-9
"""Share of a variance that rounding makes of none."""

SHRINKAGES = (0.3, 0.6, 0.9)
"""Of these, cross-validation chooses the one for the features of a frozen network: it differs from set to set."""

N_DIRECTIONS = 64
"""So many directions are kept, or two for each class if that is more: the others hold a few percent of the spread."""


MIRRORED = 0.75
"""Share of the scatter that comes from mirror images, where they are known."""


def within_class_whitening(
    latents: Tensor, labels: Tensor, shrinkage: float = SHRINKAGE, differences: Tensor | None = None
) -> Tensor:
    """Return the matrix (phi, k) behind which images of one class scatter about alike in all directions.

    The inverse square root of the within-class covariance, of which a share `shrinkage` is replaced by a multiple of
    the identity, in units of its mean variance. A direction then counts as much as it tells classes apart by, measured
    in what images of one class differ by (within-class covariance normalisation: Hatch, Kajarekar and Stolcke, 2006).
    Of many directions the k of greatest spread are kept. All numbers fit into half precision, so that a file loses
    nothing. Classes without any scatter leave the latents as they are.

    Parameters
    ----------
    latents : Tensor (n, phi)
    labels : Tensor (n,)
        Their classes 0, 1, ...
    shrinkage : float
        From 0, which trusts the covariance, to 1, which takes all directions as equal.
    differences : Tensor (m, phi), optional
        Latents of mirror images minus those of their images. They tell nothing about classes either, and few images
        are enough to measure them.

    Examples
    --------
    Two classes that differ along the second axis and scatter along the first, which then counts half as much:

    >>> import torch
    >>> latents = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [-1.0, 1.0], [1.0, 1.0]])
    >>> within_class_whitening(latents, torch.tensor([0, 0, 1, 1]), shrinkage=0.4).round(decimals=2)
    tensor([[0.7900, 0.0000],
            [0.0000, 1.5800]])
    """
    precise, classes = to_cpu_double(latents), labels.cpu()
    if _are_few(latents, classes, differences):
        return ScatterOfFew(precise, classes, differences).whitening(shrinkage, latents)
    whitening = identity = torch.eye(latents.shape[1], dtype=torch.float64)
    scatter = _scatter(precise, classes, differences)
    if len(scatter):
        # The smallest variance is the identity's share, so nothing is divided by a number near zero.
        whitening = _inverse_root((1 - shrinkage) * scatter.T @ scatter + shrinkage * identity)
    n_most = _most_directions(classes)
    if n_most < len(identity):
        whitening = whitening @ _widest(precise @ whitening, n_most)
    return to_like(whitening.half(), latents)


def within_class_covariance(latents: Tensor, labels: Tensor) -> Tensor:
    """Return the covariance (phi, phi) of latents (n, phi) around the mean of their own class."""
    around = _around_class_means(latents, labels)
    return around.T @ around / len(latents)


def _around_class_means(latents: Tensor, labels: Tensor) -> Tensor:
    n_classes = int(labels.max()) + 1
    sums = latents.new_zeros(n_classes, latents.shape[1]).index_add_(0, labels, latents)
    means = sums / labels.bincount(minlength=n_classes).clamp(min=1)[:, None]
    return latents - means[labels]


def _scatter(latents: Tensor, labels: Tensor, differences: Tensor | None) -> Tensor:
    """Return rows (m, phi) whose products add up to the covariance of what is to count little, of mean variance 1.

    These are differences to the class means, and those to mirror images; no rows if all of them are zero.
    """
    parts = [(1.0, _around_class_means(latents, labels))]
    if differences is not None and len(differences):
        parts = [(1 - MIRRORED, parts[0][1]), (MIRRORED, to_cpu_double(differences))]
    least = _ROUNDING * latents.var(dim=0, correction=0).mean()
    parts = [(share, rows) for share, rows in parts if rows.square().mean() > least]
    total = sum(share for share, _ in parts)
    scaled = [(share / total / len(rows) / rows.square().mean()).sqrt() * rows for share, rows in parts]
    return torch.cat(scaled) if scaled else latents[:0]


def _most_directions(labels: Tensor) -> int:
    return max(N_DIRECTIONS, 2 * (int(labels.max()) + 1))


def _are_few(latents: Tensor, labels: Tensor, differences: Tensor | None) -> bool:
    n_rows = len(latents) + (0 if differences is None else len(differences))
    return max(n_rows, _most_directions(labels)) < latents.shape[1]


class ScatterOfFew:
    """How fewer images than features scatter within their classes, by matrices (n, n) instead of (phi, phi).

    The images span few of the directions of the covariance; in all others only the identity's share is left. What
    takes long is the same for every shrinkage, and is done once.

    Parameters
    ----------
    latents : Tensor (n, phi)
        In double precision.
    labels : Tensor (n,)
    differences : Tensor (m, phi), optional
        To mirror images.
    """

    def __init__(self, latents: Tensor, labels: Tensor, differences: Tensor | None = None) -> None:
        self._n_most = _most_directions(labels)
        scatter = _scatter(latents, labels, differences)
        self._is_none = len(scatter) == 0
        squares, left = torch.linalg.eigh(scatter @ scatter.T)
        held = squares > _ROUNDING * squares.amax() if len(squares) else squares > 0
        self._squares = squares[held]
        self._directions = scatter.T @ (left[:, held] * self._squares.rsqrt())

    def whitening(self, shrinkage: float, latents: Tensor) -> Tensor:
        """Return the matrix (phi, k) of `within_class_whitening` for these latents."""
        whitened = self._whiten(to_cpu_double(latents), shrinkage)
        centred = whitened - whitened.mean(dim=0)
        squares, left = torch.linalg.eigh(centred @ centred.T)
        n_spread = int((squares > _ROUNDING * squares[-1]).sum())
        chosen = slice(-max(1, min(self._n_most, n_spread)), None)
        directions = (centred.T @ (left[:, chosen] * squares[chosen].clamp(min=1e-300).rsqrt())).flip(1)
        # The matrix is symmetric, so that it may be applied to the directions as rows.
        return to_like(self._whiten(_with_largest_positive(directions).T, shrinkage).T.half(), latents)

    def _whiten(self, rows: Tensor, shrinkage: float) -> Tensor:
        if self._is_none:
            return rows
        rest = shrinkage**-0.5
        factors = ((1 - shrinkage) * self._squares + shrinkage).rsqrt() - rest
        return rest * rows + (rows @ self._directions * factors) @ self._directions.T


def _inverse_root(covariance: Tensor) -> Tensor:
    """Return the symmetric matrix whose square is the inverse."""
    variances, directions = torch.linalg.eigh(covariance)
    return (directions * variances.clamp(min=1e-6).rsqrt()) @ directions.T


def _widest(latents: Tensor, n_directions: int) -> Tensor:
    """Return the directions (phi, k) of greatest spread, each with its largest component positive.

    Fewer than `n_directions` where few images have no spread in more: any direction would do there, and new images
    would have a spread that means nothing.
    """
    spreads, directions = torch.linalg.eigh(torch.cov(latents.T, correction=0))
    n_spread = int((spreads > _ROUNDING * spreads[-1]).sum())
    directions = directions.flip(1)[:, : max(1, min(n_directions, n_spread))]
    return _with_largest_positive(directions)


def _with_largest_positive(directions: Tensor) -> Tensor:
    """Return directions (phi, k), each with the sign that makes its largest component positive."""
    return directions * directions.gather(0, directions.abs().argmax(dim=0, keepdim=True)).sign()


C_FACTORS = (1.0, 0.1, 10.0)
GAMMA_FACTORS = (1.0, 0.3, 0.1, 3.0)
"""Factors on the recipe's own C and gamma that cross-validation tries where latents are not whitened; 1 comes first."""

NEVER_HELD_OUT = -1
"""The fold of images that are in every training part."""

KernelOf = Callable[[Tensor], Tensor]
"""From the images (m,) that may be learnt from to the kernel (n, n) of all."""


@dataclass(frozen=True)
class SVMCandidate:
    """How to fit an SVM: in which space of the latents, with which price and which width of the kernel.

    Attributes
    ----------
    C : float
    gamma_factor : float
        Factor on the recipe's own gamma. It means nothing where the kernel is given.
    whiten : bool
        Whether latents are whitened within classes, likewise.
    shrinkage : float
        How far the covariance of whitening is shrunk; it means nothing without whitening.
    balanced : bool
        Whether both sides of every SVM weigh the same.
    weights : Tensor (n,), optional
        Factor on C for each image.
    """

    C: float
    gamma_factor: float = 1.0
    whiten: bool = False
    balanced: bool = False
    weights: Tensor | None = field(default=None, compare=False)
    shrinkage: float = SHRINKAGE

    def fit(self, kernel: Tensor, labels: Tensor, part: Tensor | None = None) -> FittedSVM:
        """Fit on a whole kernel, or on the images that `part` lists."""
        weights = self.weights
        if part is not None:
            kernel, labels = kernel[part[:, None], part], labels[part]
            weights = None if weights is None else weights[part]
        return fit_svm(kernel, labels, self.C, balanced=self.balanced, weights=weights)


def svm_candidates(recipe: Recipe, weights: Tensor | None = None, shrinkage: float = SHRINKAGE) -> list[SVMCandidate]:
    """Return the candidates that cross-validation may choose from; the recipe's own comes first.

    Whitened latents have a scale of their own that fits every set we measured, and nothing is left to choose; without
    `refit` nothing may be chosen.
    """
    own = SVMCandidate(recipe.C, 1.0, recipe.whiten, recipe.balanced, weights, shrinkage)
    return [own] if recipe.whiten or not recipe.refit else grid(own, C_FACTORS, GAMMA_FACTORS)


def grid(rule: SVMCandidate, c_factors: Sequence[float], gamma_factors: Sequence[float]) -> list[SVMCandidate]:
    """Return a rule with all these factors on its C and gamma."""
    return [
        replace(rule, C=rule.C * c_factor, gamma_factor=rule.gamma_factor * gamma_factor)
        for gamma_factor in gamma_factors
        for c_factor in c_factors
    ]


class Mirrored(NamedTuple):
    """Latents (m, phi) of the mirror images of those images whose rows (m,) are given."""

    rows: Tensor
    latents: Tensor


@dataclass(frozen=True)
class FinalSVM:
    """The decision of a finished model.

    Attributes
    ----------
    decision : Decision
    support : Tensor (n_support,)
        Rows of its support vectors, ascending.
    rule : SVMCandidate
        The one that was chosen.
    held_out : Tensor (m,)
        Rows that were scored by SVMs that had not learnt from them.
    held_out_scores : Tensor (m, n_scores)
        Each from an SVM, and under a rule, that its image had no part in.
    held_out_distances : Tensor (m,) or None
        Squared distance of each held-out image to the nearest class centre, likewise; None if there is only a kernel.
    """

    decision: Decision
    support: Tensor
    rule: SVMCandidate
    held_out: Tensor
    held_out_scores: Tensor
    held_out_distances: Tensor | None = None


def fit_final_svm(
    latents: Tensor,
    labels: Tensor,
    folds: Tensor,
    recipe: Recipe,
    candidates: Sequence[SVMCandidate],
    mirrored: Mirrored | None = None,
) -> FinalSVM:
    """Fit the SVM on all latents, after cross-validation that scores every image of a fold.

    Parameters
    ----------
    latents : Tensor (n, phi)
        As the networks give them.
    labels : Tensor (n,)
        Classes 0, 1, ...
    folds : Tensor (n,)
        Each image's fold, or NEVER_HELD_OUT; every class must be left when a fold is taken away. With training
        images in every part and validation images in the folds, an SVM is judged by images that the networks
        have not seen.
    recipe : Recipe
        Tell whether latents are standardised, and their gamma.
    candidates : sequence of SVMCandidate
        Of these the one under which the held-out classes are most likely.
    mirrored : Mirrored, optional
        Latents of mirror images, for whitening.
    """
    spaces = _Spaces(latents, labels, recipe, mirrored)
    rule, scores = spaces.choose(candidates, folds)
    space = spaces.of(rule)
    gamma = space.gamma * rule.gamma_factor
    svm = rule.fit(rbf_kernel(space.squared, gamma), labels)
    decision = Decision(space.scale, gamma, space.latents[svm.support], svm.coefficients, svm.intercepts)
    held_out = (folds != NEVER_HELD_OUT).nonzero()[:, 0]
    return FinalSVM(decision, svm.support, rule, held_out, scores, spaces.distances(rule, folds)[held_out.cpu()])


def cross_validate(
    latents: Tensor,
    labels: Tensor,
    folds: Tensor,
    recipe: Recipe,
    candidates: Sequence[SVMCandidate],
    mirrored: Mirrored | None = None,
) -> tuple[SVMCandidate, Tensor]:
    """Return what `fit_final_svm` would choose, and the scores of the held-out images, without the last fit."""
    return _Spaces(latents, labels, recipe, mirrored).choose(candidates, folds)


@dataclass(frozen=True)
class _Space:
    """Latents (n, phi) in the space of the kernel, their squared distances (n, n), and the recipe's gamma there."""

    scale: LatentScale
    latents: Tensor
    squared: Tensor
    gamma: float


class _Spaces:
    """Latents as candidates see them: standardised by all images, or whitened by those that may be learnt from."""

    def __init__(self, latents: Tensor, labels: Tensor, recipe: Recipe, mirrored: Mirrored | None = None) -> None:
        self._latents, self._labels, self._recipe, self._mirrored = latents, labels, recipe, mirrored
        self._plain: _Space | None = None
        self._last: tuple[float, Tensor] | None = None
        self._scatters: dict[bytes, ScatterOfFew] = {}
        self._distances: dict[SVMCandidate, Tensor] = {}

    def choose(self, candidates: Sequence[SVMCandidate], folds: Tensor) -> tuple[SVMCandidate, Tensor]:
        """Return the best candidate by cross-validation, and the scores of the held-out images."""
        pairs = ((rule, partial(self.kernel, rule)) for rule in candidates)
        return choose_candidate(pairs, self._labels, folds)

    def of(self, rule: SVMCandidate, part: Tensor | None = None) -> _Space:
        """Return the space of a rule. Whitening depends on labels, so it is another one for every `part`."""
        if rule.whiten:
            self._last = None  # an n x n matrix that is not needed any more
            return self._measured(part, rule.shrinkage)
        if self._plain is None:
            self._plain = self._measured(None, None)
        return self._plain

    def kernel(self, rule: SVMCandidate, part: Tensor) -> Tensor:
        """Return the kernel (n, n) of a rule; plain ones with the same gamma share theirs if they come in a row."""
        if rule.whiten:
            space = self.of(rule, part)
            self._measure_distances(rule, space, part)
            return rbf_kernel(space.squared, space.gamma * rule.gamma_factor)
        if self._last is None or self._last[0] != rule.gamma_factor:
            self._last, space = None, self.of(rule)
            self._last = rule.gamma_factor, rbf_kernel(space.squared, space.gamma * rule.gamma_factor)
        return self._last[1]

    def distances(self, rule: SVMCandidate, folds: Tensor) -> Tensor:
        """Return the squared distance (n,) of each image of a fold to the nearest class centre of the other folds.

        Those of whitened latents were measured when the kernel of each fold was asked for.
        """
        for fold in () if rule.whiten else folds[folds != NEVER_HELD_OUT].unique().tolist():
            self._measure_distances(rule, self.of(rule), (folds != fold).nonzero()[:, 0])
        return self._distances.get(rule, torch.zeros(len(folds), dtype=torch.float64))

    def _measure_distances(self, rule: SVMCandidate, space: _Space, part: Tensor) -> None:
        known = torch.zeros(len(self._labels), dtype=torch.bool)
        known[part.cpu()] = True
        features = to_cpu_double(space.latents)
        found = self._distances.setdefault(rule, torch.zeros(len(known), dtype=torch.float64))
        found[~known] = nearest_centre(features[~known], class_centres(features[known], self._labels.cpu()[known]))

    def _measured(self, part: Tensor | None, shrinkage: float | None) -> _Space:
        """Return the space measured on a part of the images; a `shrinkage` of None leaves latents as they are."""
        recipe, rows = self._recipe, slice(None) if part is None else part
        known = self._latents[rows]
        scale = latent_scale(known, standardize=recipe.standardize)
        if shrinkage is not None:
            differences = self._differences(scale, part)
            whitening = self._whitening(scale.apply(known), self._labels[rows], shrinkage, part, differences)
            scale = replace(scale, whitening=whitening)
        latents = scale.apply(self._latents)
        gamma = recipe.gamma
        if gamma == "scale":
            measured = scale.apply(known)
            # Images that all coincide have no scale; that of all images needs no labels.
            gamma = gamma_from_scale(measured if measured.var() > 0 else latents, recipe.gamma_factor)
        return _Space(scale, latents, squared_distances(latents), gamma)

    def _differences(self, scale: LatentScale, part: Tensor | None) -> Tensor | None:
        """Return what images of a part differ by from their mirror images, where these are known."""
        if self._mirrored is None:
            return None
        rows, turned = self._mirrored.rows, self._mirrored.latents
        chosen = slice(None) if part is None else torch.isin(rows, part)
        return scale.apply(turned[chosen]) - scale.apply(self._latents[rows[chosen]])

    def _whitening(
        self, latents: Tensor, labels: Tensor, shrinkage: float, part: Tensor | None, differences: Tensor | None
    ) -> Tensor:
        """Return the whitening of a part; candidates that differ in their shrinkage share what takes long."""
        if not _are_few(latents, labels, differences):
            return within_class_whitening(latents, labels, shrinkage, differences)
        name = b"all" if part is None else part.cpu().numpy().tobytes()
        if name not in self._scatters:
            self._scatters[name] = ScatterOfFew(to_cpu_double(latents), labels.cpu(), differences)
        return self._scatters[name].whitening(shrinkage, latents)


def fixed(kernel: Tensor) -> KernelOf:
    """Return the same kernel whatever may be learnt from."""
    return lambda _: kernel


def choose_candidate(
    candidates_with_kernels: Iterable[tuple[SVMCandidate, KernelOf]], labels: Tensor, folds: Tensor
) -> tuple[SVMCandidate, Tensor]:
    """Return the candidate with the most likely held-out scores (the first one on a tie), and unbiased scores.

    Scores of the chosen candidate would be too good, because it was chosen by them. So each fold is scored by the
    candidate that the other folds choose.

    Parameters
    ----------
    candidates_with_kernels : iterable of (SVMCandidate, KernelOf)
        Each candidate with its kernel (n, n), which may depend on the images that are learnt from.
    labels, folds : Tensor (n,)
        As for `fit_final_svm`. If no image is in a fold, the first candidate is returned, without scores.
    """
    held_out = folds != NEVER_HELD_OUT
    labels_out, folds_out = labels[held_out], folds[held_out]
    candidates, scores = [], []
    for candidate, kernel_of in candidates_with_kernels:
        if not len(folds_out):
            return candidate, torch.empty(0, 1)
        candidates.append(candidate)
        scores.append(_held_out_scores(candidate, kernel_of, labels, folds)[held_out])
    tried = torch.stack(scores)
    honest = tried[0].clone()
    for fold in folds_out.unique().tolist() if len(candidates) > 1 else []:
        in_fold = folds_out == fold
        others = ~in_fold if bool((~in_fold).any()) else in_fold
        honest[in_fold] = tried[select_most_likely(tried[:, others], labels_out[others]), in_fold]
    return candidates[select_most_likely(tried, labels_out)], honest


def _held_out_scores(rule: SVMCandidate, kernel_of: KernelOf, labels: Tensor, folds: Tensor) -> Tensor:
    """Return scores (n, n_scores), each from an SVM on the other folds; those of NEVER_HELD_OUT mean nothing."""
    parts = []
    for fold in folds[folds != NEVER_HELD_OUT].unique().tolist():
        in_fold, others = (folds == fold).nonzero()[:, 0], (folds != fold).nonzero()[:, 0]
        kernel = kernel_of(others)
        svm = rule.fit(kernel, labels, others)
        found = kernel[in_fold[:, None], others[svm.support]] @ svm.coefficients + svm.intercepts
        parts.append((in_fold, found))
        del kernel  # before the next one is built
    scores = parts[0][1].new_zeros(len(labels), parts[0][1].shape[1])
    for in_fold, found in parts:
        scores[in_fold] = found
    return scores
