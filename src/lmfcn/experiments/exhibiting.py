"""From a fitted LMFCN and its images to what there is to show of it."""

from pathlib import PurePath
from typing import Any

import numpy as np
from PIL import Image
from sklearn.decomposition import PCA

from lmfcn.classifier import LMFCNClassifier
from lmfcn.data.collections import ImageCollection
from lmfcn.experiments.answers import answers_of, class_numbers
from lmfcn.experiments.exhibit import Exhibit, HardImage, Points, Shown
from lmfcn.experiments.tasks import Part, Parts

N_HARDEST, N_NEAREST, SIDE = 12, 3, 96
"""Hard images, support vectors beside each, and pixels of the longer side of their pictures."""

_N_LEAST_SURE = 6
_FULL_SCALE = {np.dtype(np.uint8): 1, np.dtype(np.uint16): 257}


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


def thumbnail(image: np.ndarray, side: int = SIDE) -> np.ndarray:
    """Return an image (h, w, c) of any kind of pixels as a picture of uint8, at most `side` pixels high and wide.

    Of more than three channels the first three are shown, of two the first. Floating point pixels are taken to be
    between 0 and 1 if they are, and else spread over the whole range.

    Examples
    --------
    >>> thumbnail(np.zeros((200, 100, 4), dtype=np.uint16)).shape
    (96, 48, 3)
    """
    image = image[..., :3] if image.shape[-1] >= 3 else image[..., 0]
    picture = Image.fromarray(_as_bytes(image))
    picture.thumbnail((side, side))
    return np.array(picture)


def _as_bytes(image: np.ndarray) -> np.ndarray:
    if image.dtype in _FULL_SCALE:
        return np.ascontiguousarray(image // _FULL_SCALE[image.dtype]).astype(np.uint8)
    low, high = min(0.0, float(image.min())), max(1.0, float(image.max()))
    return np.ascontiguousarray((image.astype(np.float64) - low) / (high - low) * 255).astype(np.uint8)


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
    return Shown(thumbnail(image if image.ndim == 3 else image[..., None]), name, number)


def _distances(point: np.ndarray, others: np.ndarray) -> np.ndarray:
    return np.square(others - point).sum(axis=1)


def _places(plane: PCA, latents: np.ndarray) -> np.ndarray:
    return plane.transform(_two_at_least(latents)).astype(np.float32)


def _two_at_least(latents: np.ndarray) -> np.ndarray:
    return latents if latents.shape[1] > 1 else np.pad(latents, ((0, 0), (0, 1)))
