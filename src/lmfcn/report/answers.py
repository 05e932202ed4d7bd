"""What the methods said about the test images, pooled over the repeats: confusions and calibration."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from lmfcn.experiments.runs import Run
from lmfcn.report.confusion import confusion_counts, confusion_matrix, frequent_confusions
from lmfcn.report.reliability import reliability, reliability_diagram
from lmfcn.report.style import as_svg


class MethodPicture(NamedTuple):
    """A picture about one method: its address, what it shows in words, and what to write below it."""

    method: str
    address: str
    alt: str
    caption: str


class Pooled(NamedTuple):
    """Class numbers (n,) of all test images of all repeats, those they were taken for, and how surely."""

    classes: Sequence[str]
    true: np.ndarray
    predicted: np.ndarray
    confidences: np.ndarray


def pooled_answers(runs: Iterable[Run], methods: Sequence[str]) -> dict[str, Pooled]:
    """Return what each method said, repeat after repeat; a method with a run that does not tell is left out."""
    runs, found = list(runs), {}
    for method in methods:
        mine = [run for run in runs if run.method == method]
        if all(run.classes for run in mine):
            columns = ("test_classes", "predicted_classes", "confidences")
            pooled = (np.concatenate([getattr(run, name) for run in mine]) for name in columns)
            found[method] = Pooled(mine[0].classes or [], *pooled)
    return found


def confusion_pictures(answers: Mapping[str, Pooled]) -> Iterable[MethodPicture]:
    """Yield a confusion matrix for each method, with the most frequent confusions in words."""
    for method, (classes, true, predicted, _) in answers.items():
        counts = confusion_counts(true.tolist(), predicted.tolist(), len(classes))
        words = "; ".join(frequent_confusions(counts, classes)) or "no image was misclassified"
        caption = f"{int((true != predicted).sum())} of {len(true)} wrong: {words}."
        alt = f"Confusion matrix of {method}: {caption}"
        yield MethodPicture(method, as_svg(confusion_matrix(counts, classes)), alt, caption)


def calibration_pictures(answers: Mapping[str, Pooled]) -> Iterable[MethodPicture]:
    """Yield a reliability diagram for each method, with its expected calibration error in words."""
    for method, (_, true, predicted, confidences) in answers.items():
        right = true == predicted
        error = reliability(confidences.tolist(), right.tolist()).error
        sure, share = f"{confidences.mean():.0%}", f"{right.mean():.0%}"
        caption = f"ECE {error:.3f}: {sure} sure on average, {share} right.".replace("%", " %")
        alt = f"Reliability diagram of {method}: {caption}"
        yield MethodPicture(method, as_svg(reliability_diagram(confidences.tolist(), right.tolist())), alt, caption)


def within(pictures: Iterable[MethodPicture], n_bytes: int) -> list[MethodPicture]:
    """Return as many of the pictures, from the first on, as fit into a number of bytes; the rest is not even drawn."""
    total = 0

    def fits(picture: MethodPicture) -> bool:
        nonlocal total
        total += len(picture.address)
        return total <= n_bytes

    return list(takewhile(fits, pictures))
