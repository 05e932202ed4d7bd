"""An audit in words and as a table."""

import csv
import io
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lmfcn.explain.audit import Audit
from lmfcn.files import write_text

COLUMNS = (
    "rank",
    "path",
    "label",
    "suspect",
    "probability",
    "likeliest",
    "likeliest_probability",
    "misclassified",
    "bounded",
    "twin",
    "twin_label",
)


@dataclass(frozen=True)
class Audited:
    """An audit with the names of its images (n), and a sentence about the latents that it rests on."""

    found: Audit
    names: list[str]
    latents_from: str

    @cached_property
    def twin_of(self) -> dict[int, int]:
        """The near-identical image of each image that has one: of another class if there is one, else the nearest."""
        twins: dict[int, int] = {}
        for first, second in [*self.found.conflicts, *self.found.twins]:
            twins.setdefault(first, second)
            twins.setdefault(second, first)
        return twins


def doubts(audited: Audited, position: int) -> list[str]:
    """Say in words what is doubtful about an image.

    Examples
    --------
    >>> import numpy as np
    >>> from lmfcn.explain.audit import audit
    >>> found = audit(np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [5.3]]), list("aaabbba"))
    >>> doubts(Audited(found, list("tuvwxyz"), ""), 6)[0][:16]
    'looks like b (0.'
    """
    found, sentences = audited.found, []
    likeliest, number = found.likeliest[position], found.numbers[position]
    if likeliest != number:
        chance, given = found.probabilities[position, likeliest], found.given[position]
        sentences.append(f"looks like {found.classes[likeliest]} ({chance:.2f}, the given label {given:.2f})")
    twin = audited.twin_of.get(position)
    if twin is not None:
        same = found.numbers[twin] == number
        label = "of the same class" if same else f"which is labelled {found.classes[found.numbers[twin]]}"
        sentences.append(f"near-identical to {audited.names[twin]}, {label}")
    if found.bounded[position]:
        sentences.append("violates the margin")
    return sentences


def write_audit_table(audited: Audited, path: Path) -> None:
    """Write all images, the most doubtful first, as CSV; whole or not at all."""
    found, text = audited.found, io.StringIO()
    suspects = set(found.suspects.tolist())
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for rank, position in enumerate(found.order.tolist(), start=1):
        writer.writerow([rank, audited.names[position], *_row(audited, position, suspect=position in suspects)])
    write_text(path, text.getvalue())


def _row(audited: Audited, position: int, *, suspect: bool) -> list[str]:
    found = audited.found
    likeliest, twin = found.likeliest[position], audited.twin_of.get(position)
    return [
        str(found.classes[found.numbers[position]]),
        _yes(suspect),
        _share(found.given[position]),
        str(found.classes[likeliest]),
        _share(found.probabilities[position, likeliest]),
        _share(found.misclassified[position]),
        _yes(bool(found.bounded[position])),
        "" if twin is None else audited.names[twin],
        "" if twin is None else str(found.classes[found.numbers[twin]]),
    ]


def _share(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
