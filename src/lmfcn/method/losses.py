"""Step 5: what the chosen pairs cost (equations 10-13, and the contrast loss).

Every function takes the latents of the moving images (m, phi), which carry the gradient, and those of
their anchors (m, k, phi), which are fixed points of the epoch, with a mask (m, k) of the allowed ones.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from lmfcn.method.anchors import Anchors, LatentSpace
from lmfcn.recipe import Recipe

Pairs = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class LossTerms:
    """The three terms of the loss; their sum is equation 10."""

    support: Tensor
    correction: Tensor
    separation: Tensor

    @property
    def total(self) -> Tensor:
        """The sum of the terms, *L*."""
        return self.support + self.correction + self.separation


def loss_terms(moved: Tensor, images: Tensor, space: LatentSpace, recipe: Recipe) -> LossTerms:
    """Return the three terms for some of the moving images.

    Parameters
    ----------
    moved : Tensor (b, phi)
        Latents of those images under the present weights, in the space of the kernel; they carry the gradient.
    images : Tensor (b,)
        Their indices in the training set.
    space : LatentSpace
        The start of the epoch; anchors are rows of its latents.
    """
    moved, latents = moved * space.loss_unit, space.latents * space.loss_unit
    squared = recipe.distance == "squared"
    own = _pairs(space.anchors.support, moved, images, latents)
    if recipe.support_loss == "pull":
        support = support_loss(*own, squared=squared)
    else:
        support = contrast_loss(own, _pairs(space.anchors.contrast, moved, images, latents), recipe.contrast_scale)
    correction = correction_loss(*_pairs(space.anchors.correction, moved, images, latents), squared=squared)
    separation = separation_loss(*_pairs(space.anchors.opposite, moved, images, latents))
    return LossTerms(support, correction, separation)


def _pairs(anchors: Anchors, moved: Tensor, images: Tensor, latents: Tensor) -> Pairs:
    """Return moving latents (m, phi), anchor latents (m, k, phi) and validity (m, k) of one term."""
    places, rows = anchors.match(images)
    return moved[places], latents[anchors.anchor[rows]], anchors.valid[rows]


def support_loss(moved: Tensor, anchors: Tensor, valid: Tensor, *, squared: bool = True) -> Tensor:
    """Pull support vectors to their anchors, *L_sv*, equation 11: sum of squared distances over |S|."""
    return _pull(moved, anchors, valid, squared=squared)


def correction_loss(moved: Tensor, anchors: Tensor, valid: Tensor, *, squared: bool = True) -> Tensor:
    """Pull misclassified images to support vectors, *L_mc*, equation 12: sum of squared distances over |Q|."""
    return _pull(moved, anchors, valid, squared=squared)


def separation_loss(moved: Tensor, anchors: Tensor, valid: Tensor) -> Tensor:
    """Push settled images from the other class, *L_cc*, equation 13: |R| over the sum of squared distances."""
    if not bool(valid.any()):
        return moved.sum() * 0.0
    return len(moved) / (_squared_distance(moved, anchors) * valid).sum()


def contrast_loss(own: Pairs, other: Pairs, scale: float) -> Tensor:
    """Ask support vectors to be nearer to their own class than to the other one.

    *L* = mean softplus(scale (d_own - d_other) + 1), with the mean squared distances of a support vector
    to its anchors of either class. In units of the kernel, gamma d^2 is the negative logarithm of the kernel:
    the loss then compares similarities as the SVM sees them. A support vector without anchors on one of
    the sides cannot be compared and costs nothing.

    Parameters
    ----------
    own, other : tuples of the moving latents, the anchors' latents and the mask
    scale : float
        How steeply the cost grows with the difference.
    """
    comparable = own[2].any(dim=1) & other[2].any(dim=1)
    if not bool(comparable.any()):
        return own[0].sum() * 0.0
    difference = _mean_squared_distance(*own) - _mean_squared_distance(*other)
    return softplus(scale * difference[comparable] + 1.0).mean()


def _mean_squared_distance(moved: Tensor, anchors: Tensor, valid: Tensor) -> Tensor:
    return (_squared_distance(moved, anchors) * valid).sum(dim=1) / valid.sum(dim=1).clamp(min=1)


def _pull(moved: Tensor, anchors: Tensor, valid: Tensor, *, squared: bool) -> Tensor:
    if len(moved) == 0:
        return moved.sum()
    # vector_norm has gradient 0 at distance 0, where a plain square root has NaN.
    distance = (
        _squared_distance(moved, anchors) if squared else torch.linalg.vector_norm(moved[:, None] - anchors, dim=2)
    )
    return (distance * valid).sum() / len(moved)


def _squared_distance(moved: Tensor, anchors: Tensor) -> Tensor:
    return (moved[:, None] - anchors).square().sum(dim=2)
