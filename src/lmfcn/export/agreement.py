"""Whether an exported file answers as the model does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lmfcn.inference.model import TextureModel
from lmfcn.progress import item_progress

TOLERANCE = 1e-4

Answers = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Labels (n,), scores (n, n_scores) and probabilities (n, n_classes)."""


class DisagreementError(ValueError):
    """An exported file does not answer as the model does."""


@dataclass(frozen=True)
class Agreement:
    """What a comparison between a model and its exported file found.

    Attributes
    ----------
    n_images, n_sizes : int
    n_labels : int
        How many of the classes were among the answers.
    largest_difference : float
        Between two scores, or two probabilities.
    """

    n_images: int
    n_sizes: int
    n_labels: int
    largest_difference: float


def compare(
    model: TextureModel,
    run: Callable[[np.ndarray], Answers],
    batches: Sequence[np.ndarray],
    tolerance: float = TOLERANCE,
    *,
    verbose: bool = False,
) -> Agreement:
    """Return how well a file's answers agree with the model's, or raise if they do not.

    Parameters
    ----------
    model : TextureModel
    run : callable
        Gives the file's labels, scores and probabilities of images (b, h, w, c).
    batches : sequence of arrays
    tolerance : float
        The largest difference of scores and probabilities that is accepted; labels must all be equal.
    verbose : bool
        Whether to show a progress bar.
    """
    labels: set[object] = set()
    largest = 0.0
    with item_progress("Comparing", len(batches), visible=verbose) as advance:
        for batch in batches:
            expected, found = _answers(model, batch), run(batch)
            largest = max(largest, _difference(expected, found, tolerance))
            labels.update(expected[0].tolist())
            advance()
    n_sizes = len({batch.shape[1:3] for batch in batches})
    return Agreement(sum(map(len, batches)), n_sizes, len(labels), largest)


def _answers(model: TextureModel, images: np.ndarray) -> Answers:
    X = images.reshape(len(images), -1) if model.form.row_shape is not None else images
    return model.predict(X), model.decision_function(X).reshape(len(images), -1), model.predict_proba(X)


def _difference(expected: Answers, found: Answers, tolerance: float) -> float:
    """Return the largest difference between numbers; raise if it is too large or a label differs."""
    pairs = list(zip(expected[1:], found[1:], strict=True))
    if any(one.shape != other.shape for one, other in pairs):
        raise DisagreementError("The exported file does not give one row of numbers per image; nothing was written.")
    difference = max(float(np.abs(one - other).max()) for one, other in pairs)
    if not difference <= tolerance:  # which NaN is not either
        raise DisagreementError(
            f"The exported file disagrees with the model by {difference:.2g}, more than the tolerance {tolerance:g};"
            " nothing was written. Allow more with a larger tolerance, if labels matter to you and scores do not."
        )
    n_others = sum(one != other for one, other in zip(expected[0].tolist(), found[0].tolist(), strict=True))
    if n_others:
        raise DisagreementError(
            f"The exported file gives other labels than the model to {n_others} of {len(expected[0])} images;"
            " nothing was written."
        )
    return difference
