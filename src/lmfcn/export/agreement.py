"""Check that an exported file predicts the same as the model, on generated and user images."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lmfcn.compute.encode import equal_size_batches, evenly_spaced, fold_batch_norm, take
from lmfcn.export.graph import fixed_sides
from lmfcn.model import TextureModel
from lmfcn.networks.trunk import resize
from lmfcn.util.progress import item_progress

TOLERANCE = 1e-4

Predictions = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Labels (n,), scores (n, n_scores) and probabilities (n, n_classes)."""

SIZES = ((8, 8), (9, 31), (16, 16), (33, 50), (64, 64), (100, 81), (128, 192), (500, 333))
_FULL_SCALE = {"uint8": 255, "uint16": 65535}
_N_GENERATED = 8
_LARGEST_GENERATED = 64
_STEPS = 15
_STEP_SIZE = 0.08
_MOST_PIXELS = 2**15
_MOST_USER_IMAGES = 64
_BATCH_SIZE = 16


class DisagreementError(ValueError):
    """An exported file predicts something else than the model."""


@dataclass(frozen=True)
class Agreement:
    """Result of the comparison between a model and its exported file.

    Attributes
    ----------
    n_images, n_sizes : int
    n_labels : int
        How many of the classes were predicted.
    largest_difference : float
        Of scores and probabilities.
    """

    n_images: int
    n_sizes: int
    n_labels: int
    largest_difference: float


def compare(
    model: TextureModel,
    run: Callable[[np.ndarray], Predictions],
    batches: Sequence[np.ndarray],
    tolerance: float = TOLERANCE,
    *,
    verbose: bool = False,
) -> Agreement:
    """Compare the predictions of a file with those of the model; raise if they disagree.

    Parameters
    ----------
    model : TextureModel
    run : callable
        Returns the labels, scores and probabilities of the file for images (b, h, w, c).
    batches : sequence of arrays
    tolerance : float
        Largest accepted difference of scores and probabilities; all labels must be equal.
    verbose : bool
        Whether to show a progress bar.
    """
    labels: set[object] = set()
    largest = 0.0
    with item_progress("Comparing", len(batches), visible=verbose) as advance:
        for batch in batches:
            expected, found = _predict(model, batch), run(batch)
            largest = max(largest, _difference(expected, found, tolerance))
            labels.update(expected[0].tolist())
            advance()
    n_sizes = len({batch.shape[1:3] for batch in batches})
    return Agreement(sum(map(len, batches)), n_sizes, len(labels), largest)


def _predict(model: TextureModel, images: np.ndarray) -> Predictions:
    X = images.reshape(len(images), -1) if model.form.row_shape is not None else images
    return model.predict(X), model.decision_function(X).reshape(len(images), -1), model.predict_proba(X)


def _difference(expected: Predictions, found: Predictions, tolerance: float) -> float:
    """Return the largest difference between numbers; raise if it is too large or a label differs."""
    pairs = list(zip(expected[1:], found[1:], strict=True))
    if any(one.shape != other.shape for one, other in pairs):
        raise DisagreementError("The exported file does not return one row of numbers per image; nothing was written.")
    difference = max(float(np.abs(one - other).max()) for one, other in pairs)
    if not difference <= tolerance:  # also refuses NaN
        raise DisagreementError(
            f"The exported file disagrees with the model by {difference:.2g}, more than the tolerance {tolerance:g};"
            " nothing was written. If you need only labels, allow a larger tolerance."
        )
    n_wrong = sum(one != other for one, other in zip(expected[0].tolist(), found[0].tolist(), strict=True))
    if n_wrong:
        raise DisagreementError(
            f"The exported file predicts other labels than the model for {n_wrong} of {len(expected[0])} images;"
            " nothing was written."
        )
    return difference


def comparison_batches(model: TextureModel, X: Any = None) -> list[np.ndarray]:
    """Return the batches to compare on: generated ones and, if given, some of the user's images."""
    return [*sample_batches(model), *(() if X is None else user_batches(model, X))]


def sample_batches(model: TextureModel) -> list[np.ndarray]:
    """Return batches (b, h, w, c) of several sizes: textures like those of training, and noise.

    A model does not contain its training images. Noise alone is far from all support vectors, where all scores are
    equal, so that a comparison would show nothing. The same holds for textures generated for another size, because of
    the zero padding around an image; only large images repeat textures of a smaller size. A trunk brings every image
    to its input size, so that one size is enough for all.
    """
    generator = torch.Generator().manual_seed(0)
    (heights, widths), least = fixed_sides(model.form), model.form.smallest_side
    sizes = sorted({(heights or max(height, least), widths or max(width, least)) for height, width in SIZES})
    most = [sides or _LARGEST_GENERATED for sides in (heights, widths)]
    drawn = {
        size: (most[0], most[1]) if model.trunk is not None else (min(size[0], most[0]), min(size[1], most[1]))
        for size in sizes
    }
    textures = {size: generate_textures(model, size, generator) for size in sorted(set(drawn.values()))}
    return [_batch(model, textures[drawn[size]], size, generator) for size in sizes]


def generate_textures(model: TextureModel, size: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Return textures (n, c, h, w), pixels from 0 to 1, whose latents are close to those of some support vectors.

    Gradient descent on the pixels turns noise into such images. Where the trunk uses only a part of the range of
    pixels, 0 and 1 stand for the ends of that part.
    """
    networks = fold_batch_norm(model.networks)
    targets = model.support_latents[_some_of_each_class(model.coefficients)]
    pixels = torch.rand(len(targets), model.form.channels, *size, generator=generator).requires_grad_()
    optimizer = torch.optim.Adam([pixels], lr=_STEP_SIZE)
    for _ in range(_STEPS):
        latents = model.decision.scale.apply(networks(_to_range(model, pixels)))
        # The logarithm gives every image the same weight, whatever its distance.
        distance = (latents - targets.to(latents)).square().sum(dim=1).clamp(min=1e-12).log().sum()
        (pixels.grad,) = torch.autograd.grad(distance, [pixels])
        optimizer.step()
        with torch.no_grad():
            pixels.clamp_(0, 1)
    return pixels.detach()


def _some_of_each_class(coefficients: Tensor) -> list[int]:
    """Return the numbers of up to eight support vectors, as many of each class as possible.

    Examples
    --------
    >>> _some_of_each_class(torch.tensor([[0.5], [0.9], [0.1], [-0.2], [0.4]]))
    [0, 1, 2, 3, 4]
    >>> _some_of_each_class(torch.tensor([[0.5]] * 20 + [[-0.2]] * 4))
    [0, 5, 10, 15, 20, 21, 22, 23]
    """
    # The coefficient for its own class is the only positive one.
    owners = (coefficients[:, 0] > 0).long() if coefficients.shape[1] == 1 else coefficients.argmax(dim=1)
    by_class = [(owners == owner).nonzero()[:, 0].tolist() for owner in owners.unique()]
    share = max(1, _N_GENERATED // len(by_class))
    chosen = [numbers[place] for numbers in by_class for place in evenly_spaced(len(numbers), share)]
    others = [number for number in range(len(owners)) if number not in chosen]
    return sorted((chosen + others)[:_N_GENERATED])


def _to_range(model: TextureModel, pixels: Tensor) -> Tensor:
    """Spread pixels from 0 to 1 over the range that the trunk uses, if there is one."""
    return pixels if model.trunk is None else model.trunk.low + (model.trunk.high - model.trunk.low) * pixels


def _batch(model: TextureModel, textures: Tensor, size: tuple[int, int], generator: torch.Generator) -> np.ndarray:
    """Return a batch of textures and noise of one size, small enough to be fast, with at least one texture."""
    n_images = max(1, min(2 * len(textures), _MOST_PIXELS // (size[0] * size[1])))
    chosen = textures.roll(size[0], dims=0)[: -(-n_images // 2)]
    fitted = _repeat(chosen, size) if model.trunk is None else resize(chosen, size)
    contrast, noise = (
        torch.rand(n_images // 2, *shape, generator=generator) for shape in [(1, 1, 1), tuple(fitted.shape[1:])]
    )
    images = _to_range(model, torch.cat([fitted, contrast * noise])).permute(0, 2, 3, 1).numpy()
    kind = model.form.pixels
    if kind not in _FULL_SCALE:
        return np.ascontiguousarray(images)
    return np.rint(images * _FULL_SCALE[kind]).astype(kind)


def _repeat(textures: Tensor, size: tuple[int, int]) -> Tensor:
    repeats = [-(-side // drawn) for side, drawn in zip(size, textures.shape[2:], strict=True)]
    return textures.repeat(1, 1, *repeats)[:, :, : size[0], : size[1]]


def user_batches(model: TextureModel, X: Any) -> Iterator[np.ndarray]:
    """Read up to 64 of the user's images, evenly spaced, as batches (b, h, w, c) in the form of the model."""
    images = model.form.load(X)
    for positions in equal_size_batches(images, evenly_spaced(len(images), _MOST_USER_IMAGES), _BATCH_SIZE):
        yield take(images, positions)
