"""Where in an image a decision comes from: the decision value of a class, spread over the pixels."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from lmfcn.algorithm.encode import encode, fold_batch_norm, to_batch
from lmfcn.algorithm.network import TextureFCN
from lmfcn.devices import to_cpu_double
from lmfcn.explain.class_score import ClassScore, class_number
from lmfcn.inference.model import TextureModel

BLUR = 1 / 16
"""Default blur as a share of the image's shorter side."""

_WIDTHS = 4  # of the blur, behind which nothing of it is left


@dataclass(frozen=True)
class ScoreMap:
    """The decision value of a class as a map over an image.

    Attributes
    ----------
    label
        The class.
    values : array (height, width)
        Positive where the image speaks for the class. Their mean is the decision value.
    value : float
        The decision value.
    base : float
        The decision value of the average training image, an equal share of which is in every pixel.
    """

    label: Any
    values: np.ndarray
    value: float
    base: float


def score_map(
    model: TextureModel, image: np.ndarray, label: Any, blur: float | None = None, latent: np.ndarray | None = None
) -> ScoreMap:
    """Spread the decision value of a class over the pixels of an image.

    Latents are means of maps over the image, and the decision value is a constant plus a mean slope times the latents
    (`ClassScore.mean_slope`), so every position adds a share; docs/explanations.md derives it. Nothing is approximated.

    Parameters
    ----------
    model : TextureModel
    image : array (height, width, channels)
        As `model.form.load` gives it.
    label
        One of `model.classes`.
    blur : float, optional
        Standard deviation in pixels of the neighbourhood that each value is averaged over, which leaves the mean as it
        is: a texture is nothing that one pixel has. A sixteenth of the shorter side by default, 0 for none.
    latent : array (phi,), optional
        Of the image, as `model.transform` gives it, if it is known already.

    Examples
    --------
    >>> from lmfcn import LMFCNClassifier, make_gaussians
    >>> X, y = make_gaussians(n_per_class=10, size=16, random_state=0)
    >>> model = LMFCNClassifier(epochs=1, latent_dim=4, random_state=0).fit(X, y).model_
    >>> found = score_map(model, X[0, :, :, None], label=1)
    >>> found.values.shape, bool(abs(found.values.mean() - model.decision_function(X[:1])[0]) < 1e-3)
    ((16, 16), True)
    """
    height, width = image.shape[:2]
    number = class_number(model.classes, label)
    score, scale = ClassScore.of(model.decision, number), model.decision.scale
    there = scale.apply(raw_latents(model, image))[0].cpu() if latent is None else torch.as_tensor(latent)
    slope = scale.pull_back(score.mean_slope(there))
    constant = score.value(torch.zeros_like(there))
    blur = BLUR * min(height, width) if blur is None else blur
    values = np.full((height, width), constant - float(slope @ to_cpu_double(scale.mean)))
    for part, slopes in _with_slopes(model, image, slope):
        rows, columns = spreading(part.shape[1], height, blur), spreading(part.shape[2], width, blur)
        values += rows @ torch.tensordot(slopes, part.double(), dims=1).numpy() @ columns.T
    return ScoreMap(model.classes[number], values, score.value(there), constant)


def raw_latents(model: TextureModel, image: np.ndarray) -> Tensor:
    """Return the networks' latents (1, phi) of one checked image (height, width, channels)."""
    form = replace(model.form, row_shape=None)  # a model of rows is explained by images all the same
    return encode(model.networks, form.load(image[None]), model.device)


def _with_slopes(model: TextureModel, image: np.ndarray, slope: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Go through the maps (c, h, w) whose means are the latents, each with its part (c,) of the slope."""
    batch, start = to_batch(image[None], model.device), 0
    with torch.no_grad():
        for network in model.members:
            folded = cast(TextureFCN, fold_batch_norm(network))
            for maps in folded.maps(batch):
                part = maps[0].cpu()
                yield part, slope[start : start + len(part)]
                start += len(part)


def spreading(n_cells: int, n_pixels: int, blur: float = 0.0) -> np.ndarray:
    """Return the matrix (n_pixels, n_cells) that spreads a row of cells over a row of pixels and keeps its mean.

    Each pixel averages the cells that it lies in. The blur mirrors what would leave the row at its ends, so that
    nothing is lost.

    Examples
    --------
    >>> spreading(2, 3).tolist()
    [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
    """
    borders = np.arange(n_cells + 1) * (n_pixels / n_cells)
    pixels = np.arange(n_pixels)[:, None]
    overlap = np.minimum(borders[1:], pixels + 1) - np.maximum(borders[:-1], pixels)
    return _blurring(n_pixels, blur) @ overlap.clip(min=0.0)


def _blurring(n_pixels: int, blur: float) -> np.ndarray:
    """Return the matrix (n_pixels, n_pixels) of a Gaussian blur with mirrored ends; rows and columns sum to 1."""
    reach = int(np.ceil(_WIDTHS * blur))
    offsets = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * np.square(offsets / max(blur, 1e-6)))
    places = (np.arange(n_pixels)[:, None] + offsets) % (2 * n_pixels)
    mirrored = np.minimum(places, 2 * n_pixels - 1 - places)
    matrix = np.zeros((n_pixels, n_pixels))
    np.add.at(matrix, (np.arange(n_pixels)[:, None], mirrored), weights / weights.sum())
    return matrix
