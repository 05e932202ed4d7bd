"""A fitted LMFCN at work, to be shown: its latent space in the plane, and the test images that were hardest for it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lmfcn.tensor_files import read_tensors, write_tensors

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
    hardest = [_hard_image(number, entry, tensors) for number, entry in enumerate(values["hardest"])]
    return Exhibit(values["classes"], _points("learnt", tensors), _points("test", tensors), (first, second), hardest)


def _arrays(exhibit: Exhibit) -> list[tuple[str, str, np.ndarray]]:
    parts = {"learnt": exhibit.learnt, "test": exhibit.test}
    return [(part, name, values) for part, points in parts.items() for name, values in points._asdict().items()]


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values.astype(np.uint8) if values.dtype == bool else values))


def _points(part: str, tensors: dict[str, Tensor]) -> Points:
    places, classes, marked = (tensors[f"{part}.{name}"].numpy() for name in Points._fields)
    return Points(places, classes, marked.astype(bool))


def _hard_image(number: int, entry: list[Any], tensors: dict[str, Tensor]) -> HardImage:
    labels, predicted, confidence, similarities = entry
    shown, *nearest = [
        Shown(tensors[f"hardest.{number}.{place}"].numpy(), name, label) for place, (name, label) in enumerate(labels)
    ]
    return HardImage(shown, predicted, confidence, nearest, similarities)
