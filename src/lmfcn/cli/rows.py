"""Predictions as lines that people or programs can read."""

import csv
import io
import json
from typing import Any

import numpy as np

from lmfcn.inference.model import TextureModel

FORMATS = ("table", "csv", "jsonl", "parquet")
_SEPARATOR = "|"


class Judge:
    """Says what probabilities mean: a label, and the classes that cannot be ruled out.

    Parameters
    ----------
    model : TextureModel
    coverage : float, optional
        Of the sets of classes that cannot be ruled out.
    reject : float, optional
        Probability below which no class is told.
    """

    def __init__(self, model: TextureModel, coverage: float | None = None, reject: float | None = None) -> None:
        if reject is not None and not 0 <= reject <= 1:
            raise ValueError(f"--reject must be between 0 and 1, got {reject}.")
        if coverage is not None:
            model.sets_of(np.eye(1, len(model.classes)), coverage)  # refuses what the model has no images for
        self._model, self.coverage, self._reject = model, coverage, reject
        self.classes: list[Any] = model.classes.tolist()

    def label(self, probabilities: np.ndarray) -> Any:
        """Return the most probable class, or None."""
        best = int(probabilities.argmax())
        rejected = self._reject is not None and probabilities[best] < self._reject
        return None if rejected else self.classes[best]

    def members(self, probabilities: np.ndarray) -> list[Any] | None:
        """Return the classes that cannot be ruled out, if anybody has asked for them."""
        if self.coverage is None:
            return None
        (members,) = self._model.sets_of(probabilities[None], self.coverage)
        return [label for label, inside in zip(self.classes, members, strict=True) if inside]


class RowWriter:
    """Turns probabilities into lines.

    Parameters
    ----------
    judge : Judge
    form : "table", "csv" or "jsonl"
    proba : bool
        Whether the probability of every class is told.
    """

    def __init__(self, judge: Judge, form: str, *, proba: bool = False) -> None:
        self._judge, self._form, self._proba = judge, form, proba

    def begin(self) -> str:
        """Return what stands above the lines."""
        if self._form == "jsonl":
            return ""
        names = ["label", "probability"]
        names += [] if self._judge.coverage is None else ["set"]
        names += [f"p({label})" for label in self._judge.classes] if self._proba else []
        return self._csv(["path", *names]) if self._form == "csv" else self._columns([*names, "path"])

    def line(self, path: str, probabilities: np.ndarray) -> str:
        """Return the line of one image."""
        label, members = self._judge.label(probabilities), self._judge.members(probabilities)
        if self._form == "jsonl":
            return self._json(path, label, probabilities, members)
        words = ["" if label is None else str(label), _share(probabilities.max())]
        words += [] if members is None else [_SEPARATOR.join(map(str, members))]
        words += [_share(share) for share in probabilities] if self._proba else []
        return self._csv([path, *words]) if self._form == "csv" else self._columns([words[0] or "-", *words[1:], path])

    def _json(self, path: str, label: Any, probabilities: np.ndarray, members: list[Any] | None) -> str:
        values: dict[str, Any] = {"path": path, "label": label, "probability": _rounded(probabilities.max())}
        if members is not None:
            values["set"] = members
        if self._proba:
            shares = map(_rounded, probabilities)
            values["probabilities"] = dict(zip(map(str, self._judge.classes), shares, strict=True))
        return json.dumps(values) + "\n"

    def _csv(self, words: list[str]) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(words)
        return text.getvalue()

    def _columns(self, words: list[str]) -> str:
        """Return words in columns; the path, which may be long, comes last."""
        longest = max(len("label"), *(len(str(label)) for label in self._judge.classes))
        widths = [longest, len("probability")]
        widths += [] if self._judge.coverage is None else [min(40, 2 * longest + 1)]
        widths += [max(8, len(f"p({label})")) for label in self._judge.classes] if self._proba else []
        return (
            "  ".join([*(f"{word:<{width}}" for word, width in zip(words[:-1], widths, strict=True)), words[-1]]) + "\n"
        )


def _share(value: float) -> str:
    return f"{value:.6f}"


def _rounded(value: float) -> float:
    return round(float(value), 6)
