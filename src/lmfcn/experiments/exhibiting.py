"""From a fitted LMFCN and its images to what there is to show of it."""

from pathlib import PurePath
from typing import Any

import numpy as np
from sklearn.decomposition import PCA

from lmfcn.classifier import LMFCNClassifier
from lmfcn.data.collections import ImageCollection
from lmfcn.data.pictures import small_picture
from lmfcn.experiments.answers import answers_of, class_numbers
from lmfcn.experiments.exhibit import Exhibit, HardImage, Points, Shown
from lmfcn.experiments.tasks import Part, Parts

N_HARDEST, N_NEAREST = 12, 3
"""Hard images, and support vectors beside each."""

_N_LEAST_SURE = 6


def exhibit_of(fitted: Any, parts: Parts) -> Exhibit | None:
    """Return the exhibit of a fitted LMFCN if the parts ask for one."""
    return make_exhibit(fitted, parts) if parts.exhibited and isinstance(fitted, LMFCNClassifier) else None


def make_exhibit(fitted: LMFCNClassifier, parts: Parts) -> Exhibit:
    """Return the latent space of a fitted LMFCN in the plane, and the test images that were hardest for it.

    Parameters
    ----------
    fitted : LMFCNClassifier
        Fitted with these training and validation images.
    parts : Parts
    """
    learnt = [parts.train, parts.validation]
    latents = np.concatenate([fitted.transform(part.images) for part in learnt])
    tested = fitted.transform(parts.test.images)
    answers = answers_of(fitted, parts.test)
    true, predicted = np.array(answers["test_classes"]), np.array(answers["predicted_classes"])
    plane = PCA(n_components=2, svd_solver="full").fit(_two_at_least(latents))
    support = np.zeros(len(latents), dtype=bool)
    support[fitted.support_] = True
    numbers = np.concatenate([class_numbers(fitted, part) for part in learnt])
    first, second = plane.explained_variance_ratio_.tolist()
    return Exhibit(
        answers["classes"],
        Points(_places(plane, latents), numbers, support),
        Points(_places(plane, tested), true, predicted != true),
        (first, second),
        [_hard_image(fitted, parts, answers, _distances(tested[one], latents), one) for one in _hardest(answers)],
    )


def _hardest(answers: dict[str, Any]) -> list[int]:
    confidences = np.array(answers["confidences"])
    wrong = np.flatnonzero(np.not_equal(answers["test_classes"], answers["predicted_classes"]))
    if len(wrong):
        return wrong[np.argsort(-confidences[wrong], kind="stable")][:N_HARDEST].tolist()
    return np.argsort(confidences, kind="stable")[:_N_LEAST_SURE].tolist()


def _hard_image(
    fitted: LMFCNClassifier, parts: Parts, answers: dict[str, Any], distances: np.ndarray, position: int
) -> HardImage:
    """Return a test image with the support vectors that are nearest by squared distances to all learnt images."""
    nearest = np.sort(fitted.support_)
    nearest = nearest[np.argsort(distances[nearest], kind="stable")][:N_NEAREST]
    n_train = len(parts.train.labels)
    return HardImage(
        _shown(fitted, parts.test, position),
        answers["predicted_classes"][position],
        answers["confidences"][position],
        [
            _shown(fitted, parts.train, one) if one < n_train else _shown(fitted, parts.validation, one - n_train)
            for one in nearest.tolist()
        ],
        np.exp(-fitted.model_.gamma * distances[nearest]).round(3).tolist(),
    )


def _shown(fitted: LMFCNClassifier, part: Part, position: int) -> Shown:
    images, name = part.images, f"image {position}"
    if isinstance(images, ImageCollection):
        # Folder and file are enough to find it, and the rest is nobody's business but the user's.
        *folders, file = PurePath(images.paths[position]).parts[-2:]
        name = "/".join([*(folder for folder in folders if folder != str(part.labels[position])), file])
    image = np.asarray(images[position])
    number = int(class_numbers(fitted, Part(images, part.labels[[position]]))[0])
    return Shown(np.array(small_picture(image if image.ndim == 3 else image[..., None])), name, number)


def _distances(point: np.ndarray, others: np.ndarray) -> np.ndarray:
    return np.square(others - point).sum(axis=1)


def _places(plane: PCA, latents: np.ndarray) -> np.ndarray:
    return plane.transform(_two_at_least(latents)).astype(np.float32)


def _two_at_least(latents: np.ndarray) -> np.ndarray:
    return latents if latents.shape[1] > 1 else np.pad(latents, ((0, 0), (0, 1)))
