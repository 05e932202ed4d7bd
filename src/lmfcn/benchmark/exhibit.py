"""What a report shows of a fitted LMFCN: its latent space in the plane and its hardest test images."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.metrics import balanced_accuracy_score
from torch import Tensor

from lmfcn.benchmark.tasks import Part, Parts
from lmfcn.classifier import LMFCNClassifier
from lmfcn.data.collection import ImageCollection
from lmfcn.data.framing import thumbnail_image
from lmfcn.util.tensor_files import read_tensors, write_tensors

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


_KIND, _VERSION = "lmfcn exhibit", 1


class Points(NamedTuple):
    """Images as points of the plane: places (n, 2), numbers of their classes (n,), and which (n,) are marked."""

    places: np.ndarray
    classes: np.ndarray
    marked: np.ndarray


class Shown(NamedTuple):
    """A small picture, (h, w) or (h, w, 3) of uint8, with the name of its image and the number of its class."""

    pixels: np.ndarray
    name: str
    number: int


class HardImage(NamedTuple):
    """A test image, what it was taken for, and the support vectors next to it with their kernel values."""

    shown: Shown
    predicted: int
    confidence: float
    nearest: list[Shown]
    similarities: list[float]


@dataclass(frozen=True)
class Exhibit:
    """What there is to show of one fitted model.

    Attributes
    ----------
    classes : list of str
    learnt : Points
        Images that the model learnt from, its support vectors marked.
    test : Points
        Test images, the misclassified ones marked.
    explained : tuple of float
        Shares of the variance of the latents along both axes.
    hardest : list of HardImage
        Misclassified test images, the most confident mistakes first; if there are none, those that the model was
        least sure of.
    """

    classes: list[str]
    learnt: Points
    test: Points
    explained: tuple[float, float]
    hardest: list[HardImage]


def exhibit_path(runs: Path, method: str) -> Path:
    """Return the file for the exhibit of a method, beside the file of its runs.

    Examples
    --------
    >>> exhibit_path(Path("comparison/runs.jsonl"), "LMFCN, paper's preset").name
    'exhibit-lmfcn-paper-s-preset.safetensors'
    """
    return runs.with_name(f"exhibit-{re.sub('[^a-z0-9]+', '-', method.lower())}.safetensors")


def write_exhibit(path: Path, exhibit: Exhibit, origin: Mapping[str, Any]) -> None:
    """Write an exhibit and the values that tell which run it is of, whole or not at all."""
    tensors = {f"{part}.{name}": _tensor(values) for part, name, values in _arrays(exhibit)}
    hardest = []
    for number, hard in enumerate(exhibit.hardest):
        pictures = [hard.shown, *hard.nearest]
        tensors |= {f"hardest.{number}.{place}": _tensor(one.pixels) for place, one in enumerate(pictures)}
        labels = [[one.name, one.number] for one in pictures]
        hardest.append([labels, hard.predicted, hard.confidence, hard.similarities])
    values = {"classes": exhibit.classes, "explained": list(exhibit.explained), "hardest": hardest}
    write_tensors(path, _KIND, _VERSION, {**values, "origin": dict(origin)}, tensors)


def read_exhibit(path: Path, origin: Mapping[str, Any]) -> Exhibit | None:
    """Return the exhibit of a file; None if there is none, or if it is of another run than `origin` says."""
    if not path.exists():
        return None
    values, tensors = read_tensors(path, _KIND, _VERSION)
    if values["origin"] != dict(origin):
        return None
    first, second = values["explained"]
    hardest = [_read_hard_image(number, entry, tensors) for number, entry in enumerate(values["hardest"])]
    return Exhibit(values["classes"], _points("learnt", tensors), _points("test", tensors), (first, second), hardest)


def _arrays(exhibit: Exhibit) -> list[tuple[str, str, np.ndarray]]:
    parts = {"learnt": exhibit.learnt, "test": exhibit.test}
    return [(part, name, values) for part, points in parts.items() for name, values in points._asdict().items()]


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values.astype(np.uint8) if values.dtype == bool else values))


def _points(part: str, tensors: dict[str, Tensor]) -> Points:
    places, classes, marked = (tensors[f"{part}.{name}"].numpy() for name in Points._fields)
    return Points(places, classes, marked.astype(bool))


def _read_hard_image(number: int, entry: list[Any], tensors: dict[str, Tensor]) -> HardImage:
    labels, predicted, confidence, similarities = entry
    shown, *nearest = [
        Shown(tensors[f"hardest.{number}.{place}"].numpy(), name, label) for place, (name, label) in enumerate(labels)
    ]
    return HardImage(shown, predicted, confidence, nearest, similarities)


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
    return Shown(np.array(thumbnail_image(image if image.ndim == 3 else image[..., None])), name, number)


def _distances(point: np.ndarray, others: np.ndarray) -> np.ndarray:
    return np.square(others - point).sum(axis=1)


def _places(plane: PCA, latents: np.ndarray) -> np.ndarray:
    return plane.transform(_two_at_least(latents)).astype(np.float32)


def _two_at_least(latents: np.ndarray) -> np.ndarray:
    return latents if latents.shape[1] > 1 else np.pad(latents, ((0, 0), (0, 1)))
