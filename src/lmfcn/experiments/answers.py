"""What a fitted method says about the test images, put down so that pictures can be drawn of it later."""

from typing import Any

import numpy as np
from sklearn.metrics import balanced_accuracy_score

from lmfcn.experiments.tasks import Part

_DIGITS = 4
"""Of the confidences: more would only make the file larger."""


def answers_of(fitted: Any, part: Part) -> dict[str, Any]:
    """Return the fields of a `Run` about its test images, from one look at them.

    Examples
    --------
    >>> from lmfcn import LMFCNClassifier, make_gaussians
    >>> images, labels = make_gaussians(8, 16, random_state=0)
    >>> fitted = LMFCNClassifier(epochs=1, latent_dim=4, widths=(4,), random_state=0).fit(images, labels)
    >>> answers = answers_of(fitted, Part(images, labels))
    >>> answers["classes"], len(answers["predicted_classes"]), answers["test_classes"][:2]
    (['0', '1'], 16, [0, 1])
    """
    probabilities = fitted.predict_proba(part.images)
    predicted, true = probabilities.argmax(axis=1), class_numbers(fitted, part)
    return {
        "test_balanced_accuracy": float(balanced_accuracy_score(true, predicted)),
        "classes": [str(label) for label in fitted.classes_.tolist()],
        "test_classes": true.tolist(),
        "predicted_classes": predicted.tolist(),
        "confidences": probabilities.max(axis=1).astype(np.float64).round(_DIGITS).tolist(),
    }


def class_numbers(fitted: Any, part: Part) -> np.ndarray:
    """Return the number (n,) of every image's class among those of the fitted method."""
    return np.searchsorted(fitted.classes_, part.labels)
