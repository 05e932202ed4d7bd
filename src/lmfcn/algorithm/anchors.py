"""Step 4: which pairs of images matter. Index arrays only; nothing here carries a gradient.

The paper marks a forbidden pair by a large constant in place of its distance; here a boolean mask says
which pairs are allowed, and an image with fewer than k allowed anchors gets those it has.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


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


def with_stand_ins(labels: Tensor, settled: Tensor, misclassified: Tensor) -> Tensor:
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
