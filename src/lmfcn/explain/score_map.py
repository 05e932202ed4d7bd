"""Decompose the decision value of a class by support vectors, latent features and pixels."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from lmfcn.compute.encode import encode, fold_batch_norm, to_batch
from lmfcn.compute.resources import to_cpu_double, to_like
from lmfcn.compute.strips import whole_block_maps
from lmfcn.method.kernel_svm import Decision, rbf_kernel, squared_distances
from lmfcn.method.network import TextureFCN
from lmfcn.model import Networks, TextureModel

_MIN_SQUARED_LENGTH = 1e-12
"""Squared length of a latent below which the gradient at the origin is used instead of the mean along the line."""


@dataclass(frozen=True)
class ClassScore:
    """The decision value of one class, *f(z)* = sum of c_i exp(-gamma |z - s_i|^2), plus b.

    Latents are scaled as for the kernel.

    Attributes
    ----------
    gamma : float
    support_latents : Tensor (n_support, phi)
        The *s_i*, in double precision.
    coefficients : Tensor (n_support,)
        The *c_i*.
    intercept : float
        The *b*.

    Examples
    --------
    Two support vectors at a distance of 2, and an image at the first one:

    >>> import torch
    >>> support = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    >>> score = ClassScore(0.25, support, torch.tensor([1.0, -1.0], dtype=torch.float64), intercept=0.5)
    >>> [round(weight, 3) for weight in score.weights(torch.tensor([0.0])).tolist()]
    [1.0, -0.368]
    >>> round(score.value(torch.tensor([0.0])), 3)
    1.132
    """

    gamma: float
    support_latents: Tensor
    coefficients: Tensor
    intercept: float

    @classmethod
    def of(cls, decision: Decision, number: int) -> "ClassScore":
        """Return the score of a class; two classes share one score, that of class 1, which is negated for class 0."""
        single = decision.coefficients.shape[1] == 1
        column, sign = (0, 1.0 if number == 1 else -1.0) if single else (number, 1.0)
        support, coefficients = map(to_cpu_double, (decision.support_latents, decision.coefficients[:, column]))
        return cls(decision.gamma, support, sign * coefficients, sign * float(decision.intercepts[column]))

    def weights(self, latent: Tensor) -> Tensor:
        """Return the contribution (n_support,) of each support vector to the score of a latent (phi,)."""
        return self._kernel(latent) * self.coefficients

    def value(self, latent: Tensor) -> float:
        """Return the score of a latent (phi,)."""
        return float(self.weights(latent).sum()) + self.intercept

    def mean_gradient(self, latent: Tensor) -> Tensor:
        """Return the mean gradient (phi,) of the score along the straight line from the origin to a latent (phi,).

        Its product with the latent is the score of the latent minus that of the origin. This is exact: the integral of
        a Gaussian along a line has a closed form. At the origin itself it is the gradient there.
        """
        latent = latent.double()
        squared_length = float(latent @ latent)
        if squared_length < _MIN_SQUARED_LENGTH:
            share, moment = self._kernel(latent), 0.5 * self._kernel(latent)
        else:
            share, moment = self._integrals(latent, squared_length)
        factors = 2 * self.gamma * self.coefficients
        return (factors * share) @ self.support_latents - (factors @ moment) * latent

    def _integrals(self, latent: Tensor, squared_length: float) -> tuple[Tensor, Tensor]:
        """Return the integrals (n_support,) of K(t latent, s) and of t K(t latent, s) over t from 0 to 1."""
        along = -(self.support_latents @ latent)
        aside = (self.support_latents.square().sum(dim=1) - along.square() / squared_length).clamp(min=0.0)
        steepness = math.sqrt(self.gamma * squared_length)
        start, end = steepness * along / squared_length, steepness * (1 + along / squared_length)
        covered = _gaussian_area(start, end) / steepness
        share = (-self.gamma * aside).exp() * covered
        # Integrated by parts; in this form rounding of `share` does not affect the product of mean gradient and latent.
        rise = self._kernel(latent) - self._kernel(torch.zeros_like(latent))
        return share, -(rise / (2 * self.gamma) + along * share) / squared_length

    def _kernel(self, latent: Tensor) -> Tensor:
        return rbf_kernel(squared_distances(latent[None], self.support_latents), self.gamma)[0]


def _gaussian_area(start: Tensor, end: Tensor) -> Tensor:
    """Return the integral of exp(-u^2) from start to end, start below end, without cancellation far from 0."""
    flip = start + end > 0
    low, high = torch.where(flip, -end, start), torch.where(flip, -start, end)
    # Now most of the range is below 0, where the complementary function of the negated ends is small and precise.
    return 0.5 * math.sqrt(math.pi) * (torch.erfc(-high) - torch.erfc(-low))


def class_number(classes: np.ndarray, label: object) -> int:
    """Return the position of a label in the classes; the label may be given as text.

    Examples
    --------
    >>> class_number(np.array([3, 5]), "5")
    1
    """
    names = [str(name) for name in classes.tolist()]
    if str(label) not in names:
        raise ValueError(f"There is no class {str(label)!r}; the model knows {', '.join(names)}.")
    return names.index(str(label))


def support_classes(decision: Decision) -> np.ndarray:
    """Return the class number (n_support,) of each support vector if its coefficients determine it, else -1.

    A support vector has a positive coefficient for its own class, negative ones for others, and zero in some scores.
    """
    signs = decision.coefficients.sign().cpu().numpy()
    if signs.shape[1] == 1:
        return (signs[:, 0] > 0).astype(int)
    known = np.where((signs > 0).any(axis=1), signs.argmax(axis=1), -1)
    left = signs == 0
    return np.where((known < 0) & (left.sum(axis=1) == 1), left.argmax(axis=1), known)


BLUR = 1 / 16
"""Default blur as a fraction of the shorter side of the image."""

_BLUR_REACH = 4  # standard deviations at which the blur is cut off

_MARGIN = 4  # strides of the last layer, which sees less than 3 of them beyond the border

_FEWEST_CELLS = 8  # on the shorter side of a stage of a trunk that has an inside


@dataclass(frozen=True)
class ScoreMap:
    """The decision value of a class as a map over an image.

    Attributes
    ----------
    label
        The class.
    values : array (height, width)
        Positive where the image is evidence for the class. Their mean is the decision value.
    value : float
        The decision value.
    base : float
        The decision value of the average training image, which is part of every pixel value.
    border : float
        What the zeros that the networks see beyond the border of the image add. They belong to no place in it, so this
        is part of every pixel value too.
    """

    label: Any
    values: np.ndarray
    value: float
    base: float
    border: float

    def __repr__(self) -> str:
        height, width = self.values.shape
        return f"ScoreMap({height}x{width} pixels, decision value {self.value:+.3f} for {self.label!s})"


def score_map(
    model: TextureModel, image: np.ndarray, label: Any, blur: float | None = None, latent: np.ndarray | None = None
) -> ScoreMap:
    """Compute a map of the decision value of a class over the pixels of an image.

    Latents are means of feature maps over the image, and the decision value is a constant plus the mean gradient times
    the latents (`ClassScore.mean_gradient`), so every position contributes a part of it. The parts are computed as if
    the image went on mirrored beyond its border. What the border itself adds is spread evenly. The sum is exact;
    docs/explanations.md derives it.

    Parameters
    ----------
    model : TextureModel
    image : array (height, width, channels)
        In the form of the model, see `model.form.load`.
    label
        One of `model.classes`.
    blur : float, optional
        Standard deviation in pixels of a Gaussian blur, which does not change the mean: a texture is a property of a
        neighbourhood, not of a pixel. A sixteenth of the shorter side by default, 0 for none.
    latent : array (phi,), optional
        Latent of the image from `model.transform`, if already computed.

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
    point = scale.apply(raw_latents(model, image))[0].cpu() if latent is None else torch.as_tensor(latent)
    gradient = scale.pull_back(score.mean_gradient(point))
    constant = score.value(torch.zeros_like(point))
    values = np.full((height, width), constant - float(gradient @ to_cpu_double(scale.mean)))
    values += _mirrored_contributions(model, image, gradient, BLUR * min(height, width) if blur is None else blur)
    value = score.value(point)
    border = value - float(values.mean())
    return ScoreMap(model.classes[number], values + border, value, constant, border)


def raw_latents(model: TextureModel, image: np.ndarray) -> Tensor:
    """Return the unscaled latents (1, phi) of one checked image (height, width, channels)."""
    form = replace(model.form, row_shape=None)  # here images are given as images, even to a model of rows
    return encode(model.networks, form.load(image[None]), model.device)


def _mirrored_contributions(model: TextureModel, image: np.ndarray, gradient: Tensor, blur: float) -> np.ndarray:
    """Return the gradient times the feature maps at every pixel (h, w), as if the image went on mirrored.

    Networks pad with zeros. Beside a bright image these are an edge, stronger than most textures, so that maps of the
    image alone would mostly show its border.
    """
    height, width = image.shape[:2]
    by_scale: dict[tuple[int, ...], np.ndarray] = {}  # upsampling takes longer than the maps of a large image
    start = 0
    for maps, margins in _mirrored_maps(model, image):
        found = torch.einsum("c,chw->hw", to_like(gradient[start : start + len(maps)], maps), maps)
        scale = (*found.shape, *margins)
        by_scale[scale] = by_scale.get(scale, np.zeros(1)) + to_cpu_double(found).numpy()
        start += len(maps)
    values = np.zeros((height, width))
    for (*_, rows, columns), cells in by_scale.items():
        down = upsampling_matrix(len(cells), height, blur, margin=rows)
        values += down @ cells @ upsampling_matrix(cells.shape[1], width, blur, margin=columns).T
    return values


def _mirrored_maps(model: TextureModel, image: np.ndarray) -> Iterator[tuple[Tensor, tuple[int, int]]]:
    """Yield the feature maps (c, h, w) of the mirrored image, and how many rows and columns they cover around it.

    The coarsest stages of a trunk are those of the image alone: the trunk learnt them in maps of a few cells, which all
    see the border, and mirrored images change them everywhere.
    """
    (rows, columns), sides = _margins(model, *image.shape[:2])
    mirrored = np.pad(image, ((rows, rows), (columns, columns), (0, 0)), mode="reflect")
    networks = cast(Networks, fold_batch_norm(model.networks))
    with torch.no_grad():
        batch = to_batch(mirrored[None], model.device)
        around = networks.maps(batch, sides) if networks.trunk is not None else _maps_of_members(networks, batch)
        if networks.trunk is not None and networks.keep_trunk:
            stages = networks.trunk(to_batch(image[None], model.device))
            for alone in networks.trunk.feature_maps(stages, networks.average):
                maps = next(around)
                is_coarse = min(alone.shape[2:]) < _FEWEST_CELLS
                yield (alone[0], (0, 0)) if is_coarse else (maps[0], (rows, columns))
        for maps in around:
            yield maps[0], (rows, columns)


def _maps_of_members(networks: Networks, batch: Tensor) -> Iterator[Tensor]:
    """Go through the same maps as `networks.maps`, within less memory if images are very large."""
    for member in networks.members:
        network = cast("TextureFCN", member)
        for maps in whole_block_maps(network, batch):
            yield from network.pooled_maps(maps, networks.average)


def _margins(model: TextureModel, height: int, width: int) -> tuple[tuple[int, int], tuple[int, int] | None]:
    """Return how many rows and columns to mirror, and height and width to which a trunk then brings the image.

    Without a trunk the margin is more than the networks see beyond the border, and a multiple of their strides, so that
    cells stay where they are. A trunk sees the whole image; its margin is one of its steps.
    """
    if model.trunk is None:
        margin = max(_MARGIN * 2 ** len(network.widths) * network.reduction for network in model.members)
        return (margin, margin), None
    trunk = model.trunk
    sides = trunk.input_sides(height, width)
    # At the same scale as the image alone, up to the rounding to whole pixels.
    margins = (round(trunk.step * height / sides[0]), round(trunk.step * width / sides[1]))
    return margins, (sides[0] + 2 * trunk.step, sides[1] + 2 * trunk.step)


def upsampling_matrix(n_cells: int, n_pixels: int, blur: float = 0.0, margin: int = 0) -> np.ndarray:
    """Return the matrix (n_pixels, n_cells) that upsamples a row of cells to a row of pixels.

    Each pixel averages the cells that it overlaps. The cells also cover `margin` pixels before and behind the row;
    without a margin the mean of the cells is kept. The blur is mirrored at the ends of the row.

    Examples
    --------
    >>> upsampling_matrix(2, 3).tolist()
    [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
    >>> upsampling_matrix(4, 2, margin=1).tolist()
    [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]
    """
    borders = np.arange(n_cells + 1) * ((n_pixels + 2 * margin) / n_cells) - margin
    pixels = np.arange(n_pixels)[:, None]
    overlap = np.minimum(borders[1:], pixels + 1) - np.maximum(borders[:-1], pixels)
    return _blur_matrix(n_pixels, blur) @ overlap.clip(min=0.0)


def _blur_matrix(n_pixels: int, blur: float) -> np.ndarray:
    """Return the matrix (n_pixels, n_pixels) of a Gaussian blur with mirrored ends; rows and columns sum to 1."""
    reach = int(np.ceil(_BLUR_REACH * blur))
    offsets = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * np.square(offsets / max(blur, 1e-6)))
    positions = (np.arange(n_pixels)[:, None] + offsets) % (2 * n_pixels)
    mirrored = np.minimum(positions, 2 * n_pixels - 1 - positions)
    matrix = np.zeros((n_pixels, n_pixels))
    np.add.at(matrix, (np.arange(n_pixels)[:, None], mirrored), weights / weights.sum())
    return matrix
