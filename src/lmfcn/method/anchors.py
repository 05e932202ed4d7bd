"""Step 4: which pairs of images matter (equations 4-9), and steps 2 to 4 together.

The paper marks a forbidden pair by a large constant in place of its distance; here a boolean mask says
which pairs are allowed, and an image with fewer than k allowed anchors gets those it has. Nothing here carries a
gradient.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lmfcn.method.history import Stopwatch
from lmfcn.method.kernel_svm import (
    Decision,
    FittedSVM,
    distances_in_place,
    fit_svm,
    gamma_from_scale,
    latent_scale,
    rbf_kernel,
    squared_distances,
)
from lmfcn.recipe import Recipe


@dataclass(frozen=True)
class Anchors:
    """For each image that moves, its anchors: nearest first.

    Attributes
    ----------
    moved : Tensor (m,)
        Indices of the images that move, ascending.
    anchor : Tensor (m, k)
        Indices of their anchors; meaningless where `valid` is false.
    valid : Tensor (m, k) of bool
        Which entries of `anchor` are allowed ones.
    """

    moved: Tensor
    anchor: Tensor
    valid: Tensor

    def with_forbidden(self) -> "Anchors":
        """Return the same with arbitrary forbidden anchors where there are too few allowed ones."""
        return replace(self, valid=torch.ones_like(self.valid))

    def of_none(self) -> "Anchors":
        """Return the anchors of no image."""
        return Anchors(self.moved[:0], self.anchor[:0], self.valid[:0])

    @property
    def n_without(self) -> int:
        """Number of moving images for which no anchor is allowed."""
        return int((~self.valid.any(dim=1)).sum())

    def only_where(self, usable: Tensor) -> "Anchors":
        """Return the same with no anchors for the rows (m,) that are not usable."""
        return replace(self, valid=self.valid & usable[:, None])

    def match(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Find the moving ones among `images` (b,): their places there, and their rows here."""
        places = torch.isin(images, self.moved).nonzero()[:, 0]
        return places, torch.searchsorted(self.moved, images[places])


def support_anchors(distances: Tensor, labels: Tensor, support: Tensor, settled: Tensor, k: int) -> Anchors:
    """Type 1, matrix *A*, equations 4 and 5: settled images of the same class.

    An allowed anchor is neither the image itself nor a support vector, has the image's class and is
    classified correctly: that is, another settled image of the same class.
    """
    allowed = _members(labels, settled) & _same_class(labels, support)
    return _nearest_allowed(distances, support, _without_self(allowed, support), k)


def correction_anchors(
    distances: Tensor, labels: Tensor, misclassified: Tensor, support: Tensor, k: int, *, any_class: bool = False
) -> Anchors:
    """Type 2, matrix *M*, equations 6 and 7: support vectors that a misclassified image is moved to.

    The text wants it moved to the right side of the boundary, so the support vectors of its own class
    are used; with `any_class` all of them, as the equation has it.
    """
    right_class = _same_class(labels, misclassified) | any_class
    allowed = _members(labels, support) & right_class
    return _nearest_allowed(distances, misclassified, _without_self(allowed, misclassified), k)


def opposite_anchors(distances: Tensor, labels: Tensor, moved: Tensor, settled: Tensor, k: int) -> Anchors:
    """Type 3, matrix *G*, equations 8 and 9: settled images of the other class.

    The paper gives these anchors to the settled images (`moved` = `settled`); the contrast loss gives
    them to the support vectors as well.
    """
    allowed = _members(labels, settled) & ~_same_class(labels, moved)
    return _nearest_allowed(distances, moved, allowed, k)


def with_fallback_anchors(labels: Tensor, settled: Tensor, misclassified: Tensor) -> Tensor:
    """Return `settled`, plus all correctly classified images of a class that has no settled one.

    On a small or hard set every image may be a support vector. Equation 4 then allows no anchor, and the
    method cannot start; the text of the paper asks of type 1 anchors only that they be classified correctly.
    """
    correct = ~_members(labels, misclassified)
    pool = _members(labels, settled)
    for label in labels.unique():
        members = labels == label
        if not bool((pool & members).any()):
            pool |= correct & members
    return pool.nonzero()[:, 0]


def _members(labels: Tensor, indices: Tensor) -> Tensor:
    """Mask (n,) that is true at `indices`."""
    mask = torch.zeros_like(labels, dtype=torch.bool)
    mask[indices] = True
    return mask


def _same_class(labels: Tensor, moved: Tensor) -> Tensor:
    """Mask (m, n) of the images that have the class of each moving one."""
    return labels[moved][:, None] == labels[None, :]


def _without_self(allowed: Tensor, moved: Tensor) -> Tensor:
    return allowed.scatter(1, moved[:, None], value=False)


def _nearest_allowed(distances: Tensor, moved: Tensor, allowed: Tensor, k: int) -> Anchors:
    candidates = distances[moved].masked_fill_(~allowed, torch.inf)
    nearest = candidates.topk(min(k, candidates.shape[1]), dim=1, largest=False, sorted=True)
    return Anchors(moved, nearest.indices, torch.isfinite(nearest.values))


@dataclass(frozen=True)
class EpochAnchors:
    """The anchors of an epoch, one set per term of the loss, and those of other classes for the contrast loss."""

    support: Anchors
    correction: Anchors
    opposite: Anchors
    contrast: Anchors

    @property
    def moved(self) -> Tensor:
        """Indices (m,) of the images to back-propagate, those of all terms; none if no image has an anchor.

        An image without anchors goes along: the terms divide by the number of all their members.
        """
        moved = torch.cat([term.moved for term in self._terms]).unique()
        return moved if any(bool(term.valid.any()) for term in self._terms) else moved[:0]

    @property
    def anchored(self) -> Tensor:
        """Indices (m,) of the images that have an anchor in at least one term."""
        return torch.cat([term.moved[term.valid.any(dim=1)] for term in self._terms]).unique()

    @property
    def n_without(self) -> int:
        """Number of images that a term should move but has no anchor for."""
        return sum(term.n_without for term in self._terms)

    def single_terms(self) -> "list[EpochAnchors]":
        """Return the anchors of each of the three terms alone."""
        none = EpochAnchors(*(term.of_none() for term in (*self._terms, self.contrast)))
        return [
            replace(none, support=self.support, contrast=self.contrast),
            replace(none, correction=self.correction),
            replace(none, opposite=self.opposite),
        ]

    def with_forbidden(self) -> "EpochAnchors":
        """Return the same with arbitrary forbidden anchors where there are too few allowed ones."""
        return EpochAnchors(*(term.with_forbidden() for term in (*self._terms, self.contrast)))

    @property
    def _terms(self) -> tuple[Anchors, Anchors, Anchors]:
        return self.support, self.correction, self.opposite


@dataclass(frozen=True)
class LatentSpace:
    """The latents (n, phi) of an epoch in the space of the kernel, its SVM and its anchors.

    The losses measure distances in multiples of `loss_unit`.
    """

    latents: Tensor
    svm: FittedSVM
    anchors: EpochAnchors
    decision: Decision
    loss_unit: float


def analyse_latents(
    latents: Tensor, labels: Tensor, recipe: Recipe, clock: Stopwatch, weights: Tensor | None = None
) -> LatentSpace:
    """Take steps 2 to 4 on the latents *T* (n, phi) as the network gives them.

    Equation by equation: P (1), K (2), D (3); the SVM with S, Q and R; A (4, 5), M (6, 7) and G (8, 9).
    `weights` (n,) are factors on the penalty of a margin violation.
    """
    with clock("svm"):
        scale = latent_scale(latents, standardize=recipe.standardize)
        latents = scale.apply(latents)
        squared = squared_distances(latents)
        gamma = gamma_from_scale(latents, recipe.gamma_factor) if recipe.gamma == "scale" else recipe.gamma
        kernel = rbf_kernel(squared, gamma)
        svm = fit_svm(kernel, labels, recipe.C, balanced=recipe.balanced, weights=weights)
        del kernel  # as large as the distances, which the anchors still need
    with clock("anchors"):
        anchors = choose_anchors(distances_in_place(squared), labels, svm, recipe)
    loss_unit = math.sqrt(gamma) if recipe.distance_units == "kernel" else 1.0
    decision = Decision(scale, gamma, latents[svm.support], svm.coefficients, svm.intercepts)
    return LatentSpace(latents, svm, anchors, decision, loss_unit)


def choose_anchors(distances: Tensor, labels: Tensor, svm: FittedSVM, recipe: Recipe) -> EpochAnchors:
    """Give every member of S, Q and R its anchors; a term with 0 anchors moves no image."""
    no_indices = svm.settled[:0]
    support = svm.support if recipe.sv_close else no_indices
    misclassified = svm.misclassified if recipe.wr_close else no_indices
    settled = svm.settled if recipe.sh_close else no_indices
    any_class = recipe.correction_class == "any"
    targets = svm.settled if recipe.correction_class == "settled" else svm.support
    pool = svm.settled
    if recipe.fallback_anchors:
        pool = with_fallback_anchors(labels, svm.settled, svm.misclassified)
    own = support_anchors(distances, labels, support, pool, recipe.sv_close)
    other = opposite_anchors(distances, labels, support, pool, recipe.sv_close)
    if recipe.support_loss == "contrast":
        own = own.only_where(other.valid.any(dim=1))  # nothing to compare with is as bad as no anchor
    anchors = EpochAnchors(
        own,
        correction_anchors(distances, labels, misclassified, targets, recipe.wr_close, any_class=any_class),
        opposite_anchors(distances, labels, settled, svm.settled, recipe.sh_close),
        other,
    )
    return anchors.with_forbidden() if recipe.fill_anchors else anchors
