"""The page of `lmfcn train`: a self-contained HTML file."""

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from lmfcn.data.collection import ImageCollection
from lmfcn.data.framing import make_thumbnail, to_data_url
from lmfcn.data.near_duplicates import group_near, perceptual_hashes
from lmfcn.explain.audit import NamedAudit, audit, describe_accuracy, describe_issues
from lmfcn.report.curves import training_curves
from lmfcn.report.latent_plots import latent_figure
from lmfcn.report.overlay import Tile
from lmfcn.report.prediction_plots import confusion_matrix, reliability_diagram
from lmfcn.report.style import as_png, as_svg, write_page
from lmfcn.user_training import EvaluatedPart, TrainedModel

_MOST_DOUBTFUL = 20
_MOST_CURVES, _MOST_POINTS, _MOST_IMAGES = 6, 2000, 18
_ENLARGED_SIDE = 384


def write_training_report(trained: TrainedModel, path: Path, *, name: str) -> None:
    """Write the page of a training; an existing file is replaced whole or not at all.

    Parameters
    ----------
    trained : TrainedModel
    path : Path
    name : str
        Title of the page, such as the path of the model.
    """
    write_page(path, "training.html", {**_training_content(trained), "name": name})


def _training_content(trained: TrainedModel) -> dict[str, Any]:
    record, judged = trained.classifier.model_.record, trained.best_evaluated
    audited = audit_training_images(trained)
    return {
        "record": record,
        "classes": [str(label) for label in trained.classifier.classes_],
        "n_support": len(trained.classifier.support_),
        "notes": trained.notes + _duplicate_notes(trained),
        "left_out": [str(error) for error in trained.parts.left_out],
        "curves": _curves(trained),
        "learnt_from_all": trained.classifier.refit_history_ is not None,
        "audit_accuracy": describe_accuracy(audited.found),
        "label_errors": doubtful_labels(audited),
        "space": as_png(_space(trained)),
        "judged": judged,
        "epoch_score": trained.epoch_score,
        "pictures": None if judged is None else _pictures(judged),
        "parameters": {name: value for name, value in record["parameters"].items() if value is not None},
        "made": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
    }


def _duplicate_notes(trained: TrainedModel) -> list[str]:
    """Return what the command says about near-identical images."""
    judged = trained.best_evaluated
    notes = [trained.parts.duplicates.sentence]
    if judged is not None and judged.copies is not None and judged.copies.near.any():
        notes.append(judged.copies.sentence(judged.accuracy_without_copies, f"{judged.part} image"))
    return [note for note in notes if note]


def _curves(trained: TrainedModel) -> list[tuple[str, str]]:
    """Return titles and curves of the network, or of the first few networks of one-vs-all."""
    classifier = trained.classifier
    refit = classifier.refit_history_
    if not isinstance(classifier.best_epoch_, list):
        curves = training_curves(classifier.history_, classifier.best_epoch_, refit=refit)
        return [("Training", as_svg(curves))]
    refits = [None] * len(classifier.classes_) if refit is None else refit
    networks = zip(classifier.classes_.tolist(), classifier.history_, classifier.best_epoch_, refits, strict=True)
    return [
        (f"Training: {label} against all others", as_svg(training_curves(history, selected, refit=refit)))
        for label, history, selected, refit in list(networks)[:_MOST_CURVES]
    ]


def _pictures(judged: EvaluatedPart) -> dict[str, Any]:
    evaluation = judged.evaluation
    order = np.argsort(judged.probabilities[np.arange(len(judged.numbers)), judged.numbers], kind="stable")
    images = judged.images.unstretched()
    hardest = [_hard_tile(judged, images, int(index)) for index in order[:_MOST_IMAGES]]
    right = judged.probabilities.argmax(axis=1) == judged.numbers
    return {
        "confusion": as_svg(confusion_matrix(evaluation.confusion, evaluation.classes)),
        "reliability": as_svg(reliability_diagram(judged.probabilities.max(axis=1).tolist(), right.tolist())),
        "hardest": hardest,
    }


def _hard_tile(judged: EvaluatedPart, images: ImageCollection, index: int) -> Tile:
    """Return the picture of an image in its own shape, with what it is and what was predicted."""
    classes, predicted = judged.evaluation.classes, judged.probabilities[index]
    true, guess = int(judged.numbers[index]), int(predicted.argmax())
    result = "correct" if true == guess else f"predicted {classes[guess]}"
    position = int(judged.positions[index])
    name = Path(images.paths[position]).name
    lines = [name, f"is {classes[true]}", f"{result}, probability of its class {predicted[true]:.2f}"]
    return Tile(to_data_url(make_thumbnail(images[position], _ENLARGED_SIDE)), f"{name}: {classes[true]}", lines)


def _space(trained: TrainedModel) -> Any:
    """Draw the latents of all support vectors and of a sample of the other images."""
    classifier, parts = trained.classifier, trained.parts
    latents, labels = [classifier.transform(parts.train)], [_labels(parts.train)]
    if parts.validation is not None:
        latents.append(classifier.transform(parts.validation))
        labels.append(_labels(parts.validation))
    points, names = np.concatenate(latents), np.concatenate(labels)
    support = np.zeros(len(points), dtype=bool)
    support[classifier.support_] = True
    shown = np.flatnonzero(support | (np.arange(len(points)) % -(-len(points) // _MOST_POINTS) == 0))
    numbers = np.searchsorted(classifier.classes_, names[shown])
    return latent_figure(points[shown], numbers, [str(label) for label in classifier.classes_], support[shown])


def _labels(images: ImageCollection) -> np.ndarray:
    return np.asarray(images.labels)


def audit_training_images(trained: TrainedModel) -> NamedAudit:
    """Rank training and validation images by how doubtful their labels are."""
    parts = [part for part in (trained.parts.train, trained.parts.validation) if part is not None]
    # Not `transform`, whose latents may be whitened with the doubtful labels.
    latents = np.concatenate([trained.classifier.model_.latents(part).cpu().numpy() for part in parts])
    labels = np.concatenate([np.asarray(part.labels) for part in parts])
    near_identical = group_near(np.concatenate([perceptual_hashes(part) for part in parts]))
    found = audit(latents, labels, _groups(parts), near_identical=near_identical)
    return NamedAudit(found, [path for part in parts for path in part.paths], "")


def doubtful_labels(audited: NamedAudit) -> list[tuple[str, str, str, str]]:
    """Return file, label, likeliest class and reasons for each doubtful label, the likeliest error first."""
    found = audited.found
    return [
        (
            audited.names[position],
            str(found.classes[found.numbers[position]]),
            str(found.classes[found.likeliest[position]]),
            "; ".join(describe_issues(audited, position)),
        )
        for position in found.disagreeing.tolist()[:_MOST_DOUBTFUL]
    ]


def _groups(parts: list[ImageCollection]) -> np.ndarray | None:
    groups = [part.groups for part in parts if part.groups is not None]
    return np.concatenate(groups) if len(groups) == len(parts) else None
