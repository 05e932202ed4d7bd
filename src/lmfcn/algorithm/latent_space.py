"""Steps 2 to 4 together: what the latents of an epoch say about its images."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lmfcn.algorithm.anchors import Anchors, correction_anchors, opposite_anchors, support_anchors, with_stand_ins
from lmfcn.algorithm.decision import Decision
from lmfcn.algorithm.geometry import (
    distances_in_place,
    gamma_from_scale,
    latent_scale,
    rbf_kernel,
    squared_distances,
)
from lmfcn.algorithm.history import Stopwatch
from lmfcn.algorithm.margin import Margin, fit_margin
from lmfcn.algorithm.settings import Settings


@dataclass(frozen=True)
class EpochAnchors:
    """The anchors of an epoch, one set per term of the loss, and those of other classes for the contrast loss."""

    support: Anchors
    correction: Anchors
    opposite: Anchors
    contrast: Anchors

    @property
    def moved(self) -> Tensor:
        """Indices (m,) of the images to back-propagate, those of all terms; none if nobody has an anchor.

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

    @property
    def _terms(self) -> tuple[Anchors, Anchors, Anchors]:
        return self.support, self.correction, self.opposite


@dataclass(frozen=True)
class LatentSpace:
    """The latents (n, phi) of an epoch in the space of the kernel, its SVM and its anchors.

    The losses measure distances in multiples of `loss_unit`.
    """

    latents: Tensor
    margin: Margin
    anchors: EpochAnchors
    decision: Decision
    loss_unit: float


def survey(
    latents: Tensor, labels: Tensor, settings: Settings, clock: Stopwatch, weights: Tensor | None = None
) -> LatentSpace:
    """Take steps 2 to 4 on the latents *T* (n, phi) as the network gives them.

    Equation by equation: P (1), K (2), D (3); the SVM with S, Q and R; A (4, 5), M (6, 7) and G (8, 9).
    `weights` (n,) are factors on the price of a margin violation.
    """
    with clock("svm"):
        scale = latent_scale(latents, standardize=settings.standardize)
        latents = scale.apply(latents)
        squared = squared_distances(latents)
        gamma = gamma_from_scale(latents, settings.gamma_factor) if settings.gamma == "scale" else settings.gamma
        kernel = rbf_kernel(squared, gamma)
        margin = fit_margin(kernel, labels, settings.C, balanced=settings.balanced, weights=weights)
        del kernel  # as large as the distances, which the anchors still need
    with clock("anchors"):
        anchors = choose_anchors(distances_in_place(squared), labels, margin, settings)
    loss_unit = math.sqrt(gamma) if settings.units == "kernel" else 1.0
    decision = Decision(scale, gamma, latents[margin.support], margin.coefficients, margin.intercepts)
    return LatentSpace(latents, margin, anchors, decision, loss_unit)


def choose_anchors(distances: Tensor, labels: Tensor, margin: Margin, settings: Settings) -> EpochAnchors:
    """Give every member of S, Q and R its anchors; a term with 0 anchors moves nobody."""
    nobody = margin.settled[:0]
    support = margin.support if settings.sv_close else nobody
    misclassified = margin.misclassified if settings.wr_close else nobody
    settled = margin.settled if settings.sh_close else nobody
    any_class = settings.correction_class == "any"
    pool = margin.settled
    if settings.stand_ins:
        pool = with_stand_ins(labels, margin.settled, margin.misclassified)
    own = support_anchors(distances, labels, support, pool, settings.sv_close)
    other = opposite_anchors(distances, labels, support, pool, settings.sv_close)
    if settings.support_loss == "contrast":
        own = own.only_where(other.valid.any(dim=1))  # nothing to compare with is as bad as no anchor
    return EpochAnchors(
        own,
        correction_anchors(distances, labels, misclassified, margin.support, settings.wr_close, any_class=any_class),
        opposite_anchors(distances, labels, settled, margin.settled, settings.sh_close),
        other,
    )
