"""Summary of a fitted LMFCN for a report: its latent space in two dimensions and its hardest test images."""

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

from lmfcn.benchmark.tasks import SplitData, Subset
from lmfcn.classifier import LMFCNClassifier
from lmfcn.data.collection import ImageCollection
from lmfcn.data.framing import thumbnail_image
from lmfcn.util.tensor_files import read_tensors, write_tensors

N_HARDEST, N_NEAREST = 12, 3
"""Hard images in a summary, and nearest support vectors of each."""

_N_LEAST_CONFIDENT = 6

_DIGITS = 4
"""Decimal places of confidences in the file of runs."""

_KIND, _VERSION = "lmfcn exhibit", 1


class Points(NamedTuple):
    """Images as points in two dimensions: places (n, 2), class numbers (n,), and a mask (n,) of marked ones."""

    places: np.ndarray
    classes: np.ndarray
    marked: np.ndarray


class LabelledPicture(NamedTuple):
    """A small picture, (h, w) or (h, w, 3) of uint8, with the name and the class number of its image."""

    pixels: np.ndarray
    name: str
    number: int


class HardImage(NamedTuple):
    """A test image, its prediction, and the nearest support vectors with their kernel values."""

    picture: LabelledPicture
    predicted: int
    confidence: float
    nearest: list[LabelledPicture]
    similarities: list[float]


@dataclass(frozen=True)
class ModelSummary:
    """Latent space and hardest test images of one fitted model.

    Attributes
    ----------
    classes : list of str
    learnt : Points
        Training and validation images; support vectors are marked.
    test : Points
        Test images; misclassified ones are marked.
    explained : tuple of float
        Fractions of the variance of the latents along both axes.
    hardest : list of HardImage
        Misclassified test images, the most confident first; if there are none, the least confident test images.
    """

    classes: list[str]
    learnt: Points
    test: Points
    explained: tuple[float, float]
    hardest: list[HardImage]


def requested_summary(fitted: Any, data: SplitData) -> ModelSummary | None:
    """Return the summary of a fitted LMFCN if the data ask for one, else None."""
    return summarize_model(fitted, data) if data.with_summary and isinstance(fitted, LMFCNClassifier) else None


def summarize_model(fitted: LMFCNClassifier, data: SplitData) -> ModelSummary:
    """Return the latent space of a fitted LMFCN in two dimensions, and its hardest test images.

    Parameters
    ----------
    fitted : LMFCNClassifier
        Fitted with these training and validation images.
    data : SplitData
    """
    learnt = [data.train, data.validation]
    latents = np.concatenate([fitted.transform(subset.images) for subset in learnt])
    test_latents = fitted.transform(data.test.images)
    predictions = prediction_fields(fitted, data.test)
    true, predicted = np.array(predictions["test_classes"]), np.array(predictions["predicted_classes"])
    plane = PCA(n_components=2, svd_solver="full").fit(_pad_to_two(latents))
    support = np.zeros(len(latents), dtype=bool)
    support[fitted.support_] = True
    numbers = np.concatenate([class_numbers(fitted, subset) for subset in learnt])
    first, second = plane.explained_variance_ratio_.tolist()
    return ModelSummary(
        predictions["classes"],
        Points(_places(plane, latents), numbers, support),
        Points(_places(plane, test_latents), true, predicted != true),
        (first, second),
        [
            _hard_image(fitted, data, predictions, _squared_distances(test_latents[index], latents), index)
            for index in _hardest(predictions)
        ],
    )


def _hardest(predictions: dict[str, Any]) -> list[int]:
    """Return the indices of the hardest test images."""
    confidences = np.array(predictions["confidences"])
    wrong = np.flatnonzero(np.not_equal(predictions["test_classes"], predictions["predicted_classes"]))
    if len(wrong):
        return wrong[np.argsort(-confidences[wrong], kind="stable")][:N_HARDEST].tolist()
    return np.argsort(confidences, kind="stable")[:_N_LEAST_CONFIDENT].tolist()


def _hard_image(
    fitted: LMFCNClassifier, data: SplitData, predictions: dict[str, Any], distances: np.ndarray, index: int
) -> HardImage:
    """Return a test image with its nearest support vectors, by squared distances (n,) to all learnt images."""
    nearest = np.sort(fitted.support_)
    nearest = nearest[np.argsort(distances[nearest], kind="stable")][:N_NEAREST]
    n_train = len(data.train.labels)
    return HardImage(
        _picture(fitted, data.test, index),
        predictions["predicted_classes"][index],
        predictions["confidences"][index],
        [
            _picture(fitted, data.train, one) if one < n_train else _picture(fitted, data.validation, one - n_train)
            for one in nearest.tolist()
        ],
        np.exp(-fitted.model_.gamma * distances[nearest]).round(3).tolist(),
    )


def _picture(fitted: LMFCNClassifier, subset: Subset, index: int) -> LabelledPicture:
    images, name = subset.images, f"image {index}"
    if isinstance(images, ImageCollection):
        # Folder and file are enough to find the image; the rest of the path stays private.
        *folders, file = PurePath(images.paths[index]).parts[-2:]
        name = "/".join([*(folder for folder in folders if folder != str(subset.labels[index])), file])
    image = np.asarray(images[index])
    number = int(class_numbers(fitted, Subset(images, subset.labels[[index]]))[0])
    return LabelledPicture(np.array(thumbnail_image(image if image.ndim == 3 else image[..., None])), name, number)


def _squared_distances(point: np.ndarray, others: np.ndarray) -> np.ndarray:
    return np.square(others - point).sum(axis=1)


def _places(plane: PCA, latents: np.ndarray) -> np.ndarray:
    return plane.transform(_pad_to_two(latents)).astype(np.float32)


def _pad_to_two(latents: np.ndarray) -> np.ndarray:
    return latents if latents.shape[1] > 1 else np.pad(latents, ((0, 0), (0, 1)))


def prediction_fields(fitted: Any, subset: Subset) -> dict[str, Any]:
    """Predict the test images once; return the fields of a `Run` about them.

    Examples
    --------
    >>> from lmfcn import LMFCNClassifier, make_gaussians
    >>> images, labels = make_gaussians(8, 16, random_state=0)
    >>> fitted = LMFCNClassifier(epochs=1, latent_dim=4, widths=(4,), random_state=0).fit(images, labels)
    >>> fields = prediction_fields(fitted, Subset(images, labels))
    >>> fields["classes"], len(fields["predicted_classes"]), fields["test_classes"][:2]
    (['0', '1'], 16, [0, 1])
    """
    probabilities = fitted.predict_proba(subset.images)
    predicted, true = probabilities.argmax(axis=1), class_numbers(fitted, subset)
    return {
        "test_balanced_accuracy": float(balanced_accuracy_score(true, predicted)),
        "classes": [str(label) for label in fitted.classes_.tolist()],
        "test_classes": true.tolist(),
        "predicted_classes": predicted.tolist(),
        "confidences": probabilities.max(axis=1).astype(np.float64).round(_DIGITS).tolist(),
    }


def class_numbers(fitted: Any, subset: Subset) -> np.ndarray:
    """Return the class number (n,) of every image, as the fitted method counts its classes."""
    return np.searchsorted(fitted.classes_, subset.labels)


def summary_path(runs: Path, method: str) -> Path:
    """Return the file for the model summary of a method, in the folder of its runs.

    Examples
    --------
    >>> summary_path(Path("comparison/runs.jsonl"), "LMFCN, untrained").name
    'exhibit-lmfcn-untrained.safetensors'
    """
    return runs.with_name(f"exhibit-{re.sub('[^a-z0-9]+', '-', method.lower())}.safetensors")


def write_summary(path: Path, summary: ModelSummary, origin: Mapping[str, Any]) -> None:
    """Write a model summary with the values that identify its run, whole or not at all."""
    tensors = {name: _tensor(values) for name, values in _arrays(summary)}
    hardest = []
    for number, hard in enumerate(summary.hardest):
        pictures = [hard.picture, *hard.nearest]
        tensors |= {f"hardest.{number}.{place}": _tensor(one.pixels) for place, one in enumerate(pictures)}
        labels = [[one.name, one.number] for one in pictures]
        hardest.append([labels, hard.predicted, hard.confidence, hard.similarities])
    values = {"classes": summary.classes, "explained": list(summary.explained), "hardest": hardest}
    write_tensors(path, _KIND, _VERSION, {**values, "origin": dict(origin)}, tensors)


def read_summary(path: Path, origin: Mapping[str, Any]) -> ModelSummary | None:
    """Return the model summary of a file; None if there is none, or if `origin` is another run."""
    if not path.exists():
        return None
    values, tensors = read_tensors(path, _KIND, _VERSION)
    if values["origin"] != dict(origin):
        return None
    first, second = values["explained"]
    hardest = [_read_hard_image(number, entry, tensors) for number, entry in enumerate(values["hardest"])]
    return ModelSummary(
        values["classes"], _points("learnt", tensors), _points("test", tensors), (first, second), hardest
    )


def _arrays(summary: ModelSummary) -> list[tuple[str, np.ndarray]]:
    plots = {"learnt": summary.learnt, "test": summary.test}
    return [(f"{plot}.{name}", values) for plot, points in plots.items() for name, values in points._asdict().items()]


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values.astype(np.uint8) if values.dtype == bool else values))


def _points(plot: str, tensors: dict[str, Tensor]) -> Points:
    places, classes, marked = (tensors[f"{plot}.{name}"].numpy() for name in Points._fields)
    return Points(places, classes, marked.astype(bool))


def _read_hard_image(number: int, entry: list[Any], tensors: dict[str, Tensor]) -> HardImage:
    labels, predicted, confidence, similarities = entry
    picture, *nearest = [
        LabelledPicture(tensors[f"hardest.{number}.{place}"].numpy(), name, label)
        for place, (name, label) in enumerate(labels)
    ]
    return HardImage(picture, predicted, confidence, nearest, similarities)
