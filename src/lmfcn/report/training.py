"""The page of a training on the user's own images: one self-contained HTML file."""

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from lmfcn.data.collections import ImageCollection
from lmfcn.experiments.own_training import Judged, OwnModel
from lmfcn.report.confusion import confusion_matrix
from lmfcn.report.curves import training_curves
from lmfcn.report.doubtful import doubtful_labels
from lmfcn.report.fitted import image_figure, latent_figure
from lmfcn.report.page import write_page
from lmfcn.report.reliability import reliability_diagram
from lmfcn.report.style import as_png, as_svg

_SHOWN_CURVES, _SHOWN_POINTS, _SHOWN_IMAGES = 6, 2000, 18


def write_training_report(trained: OwnModel, path: Path, *, name: str) -> None:
    """Write the page; a file of that name is replaced whole or not at all.

    Parameters
    ----------
    trained : OwnModel
    path : Path
    name : str
        What the page is about, such as the path of the model.
    """
    write_page(path, "training.html", {**_content(trained), "name": name})


def _content(trained: OwnModel) -> dict[str, Any]:
    record, judged = trained.classifier.model_.record, trained.judged
    return {
        "record": record,
        "classes": [str(label) for label in trained.classifier.classes_],
        "n_support": len(trained.classifier.support_),
        "notes": trained.notes,
        "left_out": [str(error) for error in trained.parts.left_out],
        "curves": _curves(trained),
        "learnt_from_all": trained.classifier.closing_history_ is not None,
        "label_errors": doubtful_labels(trained),
        "space": as_png(_space(trained)),
        "judged": judged,
        "pictures": None if judged is None else _pictures(judged),
        "parameters": {name: value for name, value in record["parameters"].items() if value is not None},
        "made": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
    }


def _curves(trained: OwnModel) -> list[tuple[str, str]]:
    """Return titled curves: of the network, or of the first few networks of one class against all others."""
    classifier = trained.classifier
    closing = classifier.closing_history_
    if not isinstance(classifier.best_epoch_, list):
        curves = training_curves(classifier.history_, classifier.best_epoch_, closing=closing)
        return [("Training", as_svg(curves))]
    closings = [None] * len(classifier.classes_) if closing is None else closing
    networks = zip(classifier.classes_.tolist(), classifier.history_, classifier.best_epoch_, closings, strict=True)
    return [
        (f"Training: {label} against all others", as_svg(training_curves(history, kept, closing=closing)))
        for label, history, kept, closing in list(networks)[:_SHOWN_CURVES]
    ]


def _pictures(judged: Judged) -> dict[str, str]:
    evaluation = judged.evaluation
    order = np.argsort(judged.probabilities[np.arange(len(judged.numbers)), judged.numbers], kind="stable")
    hardest = order[:_SHOWN_IMAGES]
    images = [judged.images[int(judged.positions[place])] for place in hardest]
    captions = [_caption(judged, int(place)) for place in hardest]
    right = judged.probabilities.argmax(axis=1) == judged.numbers
    return {
        "confusion": as_svg(confusion_matrix(evaluation.confusion, evaluation.classes)),
        "reliability": as_svg(reliability_diagram(judged.probabilities.max(axis=1).tolist(), right.tolist())),
        "hardest": as_png(image_figure(images, captions)),
    }


def _caption(judged: Judged, place: int) -> str:
    classes, predicted = judged.evaluation.classes, judged.probabilities[place]
    true, guess = int(judged.numbers[place]), int(predicted.argmax())
    verdict = "right" if true == guess else f"taken for {classes[guess]}"
    name = Path(judged.images.paths[int(judged.positions[place])]).name
    return f"{name[-24:]}\n{classes[true]}, {verdict}\nprobability {predicted[true]:.2f}"


def _space(trained: OwnModel) -> Any:
    """Draw the training images, or as many of them as can be told apart, with all support vectors among them."""
    classifier, parts = trained.classifier, trained.parts
    latents, labels = [classifier.transform(parts.train)], [_labels(parts.train)]
    if parts.validation is not None:
        latents.append(classifier.transform(parts.validation))
        labels.append(_labels(parts.validation))
    points, names = np.concatenate(latents), np.concatenate(labels)
    support = np.zeros(len(points), dtype=bool)
    support[classifier.support_] = True
    shown = np.flatnonzero(support | (np.arange(len(points)) % -(-len(points) // _SHOWN_POINTS) == 0))
    numbers = np.searchsorted(classifier.classes_, names[shown])
    return latent_figure(points[shown], numbers, [str(label) for label in classifier.classes_], support[shown])


def _labels(images: ImageCollection) -> np.ndarray:
    return np.asarray(images.labels)
