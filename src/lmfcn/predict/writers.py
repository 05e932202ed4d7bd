"""Write predictions as text, CSV, JSON lines or Parquet, to standard output or to a file."""

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TextIO

import numpy as np

from lmfcn.model import TextureModel
from lmfcn.predict.journal import Journal, Row, journal_path
from lmfcn.util.files import open_atomic
from lmfcn.util.packages import needs

FORMATS = ("table", "csv", "jsonl", "parquet")
_SEPARATOR = "|"

_ROW_GROUP = 2**14
"""Rows of a Parquet file that are held in memory and written together."""


class PredictionRule:
    """Derives the label and the prediction set of an image from its probabilities.

    Parameters
    ----------
    model : TextureModel
    coverage : float, optional
        Coverage of the prediction sets; None for no sets.
    reject : float, optional
        Probability below which an image gets no label.
    false_alarms : float, optional
        Typicality up to which an image gets no label, as it looks like none of the classes.
    """

    def __init__(
        self,
        model: TextureModel,
        coverage: float | None = None,
        reject: float | None = None,
        false_alarms: float | None = None,
    ) -> None:
        if reject is not None and not 0 <= reject <= 1:
            raise ValueError(f"--reject must be between 0 and 1, got {reject}.")
        if coverage is not None:
            model.sets_of(
                np.eye(1, len(model.classes)), coverage
            )  # raises an error if the model has no prediction sets
        if false_alarms is not None:
            model.known_distances().check_rate(false_alarms)
        self._model, self.coverage, self._reject = model, coverage, reject
        self.false_alarms = false_alarms
        self.classes: list[Any] = model.classes.tolist()

    def label(self, probabilities: np.ndarray, typicality: float | None = None) -> Any:
        """Return the most probable class, or None if it is too improbable or the image looks like no class."""
        best = int(probabilities.argmax())
        rejected = self._reject is not None and probabilities[best] < self._reject
        if self.false_alarms is not None and typicality is not None:
            rejected = rejected or typicality <= self.false_alarms
        return None if rejected else self.classes[best]

    def prediction_set(self, probabilities: np.ndarray) -> list[Any] | None:
        """Return the classes of the prediction set, or None without `coverage`."""
        if self.coverage is None:
            return None
        (in_set,) = self._model.sets_of(probabilities[None], self.coverage)
        return [label for label, inside in zip(self.classes, in_set, strict=True) if inside]


class RowFormatter:
    """Formats predictions as lines of text.

    Parameters
    ----------
    rule : PredictionRule
    form : "table", "csv" or "jsonl"
    proba : bool
        Whether to include the probability of every class.
    """

    def __init__(self, rule: PredictionRule, form: str, *, proba: bool = False) -> None:
        self._rule, self._form, self._proba = rule, form, proba

    def header(self) -> str:
        """Return the header line; empty for JSON lines."""
        if self._form == "jsonl":
            return ""
        names = ["label", "probability"]
        names += [] if self._rule.coverage is None else ["set"]
        names += [] if self._rule.false_alarms is None else ["typicality"]
        names += [f"p({label})" for label in self._rule.classes] if self._proba else []
        return self._csv(["path", *names]) if self._form == "csv" else self._columns([*names, "path"])

    def line(self, path: str, probabilities: np.ndarray, typicality: float | None = None) -> str:
        """Return the line of one image."""
        label, prediction_set = self._rule.label(probabilities, typicality), self._rule.prediction_set(probabilities)
        usual = [] if self._rule.false_alarms is None else [typicality]
        if self._form == "jsonl":
            return self._json(path, label, probabilities, prediction_set, usual)
        cells = ["" if label is None else str(label), _format(probabilities.max())]
        cells += [] if prediction_set is None else [_SEPARATOR.join(map(str, prediction_set))]
        cells += ["" if share is None else f"{share:.4f}" for share in usual]
        cells += [_format(probability) for probability in probabilities] if self._proba else []
        return self._csv([path, *cells]) if self._form == "csv" else self._columns([cells[0] or "-", *cells[1:], path])

    def _json(
        self,
        path: str,
        label: Any,
        probabilities: np.ndarray,
        prediction_set: list[Any] | None,
        usual: list[float | None],
    ) -> str:
        values: dict[str, Any] = {"path": path, "label": label, "probability": _round(probabilities.max())}
        if prediction_set is not None:
            values["set"] = prediction_set
        for share in usual:
            values["typicality"] = None if share is None else _round(share)
        if self._proba:
            rounded = map(_round, probabilities)
            values["probabilities"] = dict(zip(map(str, self._rule.classes), rounded, strict=True))
        return json.dumps(values) + "\n"

    def _csv(self, cells: list[str]) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(cells)
        return text.getvalue()

    def _columns(self, cells: list[str]) -> str:
        """Return cells in aligned columns; the path, which may be long, comes last."""
        longest = max(len("label"), *(len(str(label)) for label in self._rule.classes))
        widths = [longest, len("probability")]
        widths += [] if self._rule.coverage is None else [min(40, 2 * longest + 1)]
        widths += [] if self._rule.false_alarms is None else [len("typicality")]
        widths += [max(8, len(f"p({label})")) for label in self._rule.classes] if self._proba else []
        return (
            "  ".join([*(f"{cell:<{width}}" for cell, width in zip(cells[:-1], widths, strict=True)), cells[-1]]) + "\n"
        )


def _format(value: float) -> str:
    return f"{value:.6f}"


def _round(value: float) -> float:
    return round(float(value), 6)


class PredictionWriter(Protocol):
    """Receives predictions one by one."""

    n_before: int
    """Number of images that an earlier run has predicted."""

    def __contains__(self, path: str) -> bool: ...

    def add(self, path: str, probabilities: np.ndarray, typicality: float | None = None) -> None:
        """Write the probabilities (n_classes,) of an image, and its typicality if the model knows it."""


class ConsoleWriter:
    """Prints predictions immediately.

    Parameters
    ----------
    formatter : RowFormatter
    """

    n_before = 0

    def __init__(self, formatter: RowFormatter) -> None:
        self._formatter, self._has_header = formatter, False
        allow_any_file_names(sys.stdout)

    def __contains__(self, path: str) -> bool:
        return False

    def add(self, path: str, probabilities: np.ndarray, typicality: float | None = None) -> None:
        """Print the line of an image."""
        sys.stdout.write("" if self._has_header else self._formatter.header())
        sys.stdout.write(self._formatter.line(path, probabilities, typicality))
        self._has_header = True


class TextWriter:
    """Writes predictions as lines of a text file.

    Parameters
    ----------
    formatter : RowFormatter
    """

    def __init__(self, formatter: RowFormatter) -> None:
        self._formatter = formatter

    def write(self, rows: Iterable[Row], file: BinaryIO) -> None:
        """Write all rows to an open file."""
        text = io.TextIOWrapper(file, "utf-8", "surrogateescape", newline="")
        text.write(self._formatter.header())
        text.writelines(self._formatter.line(*row) for row in rows)
        text.detach()  # writes the buffer and leaves the file open


class ParquetWriter:
    """Writes predictions as a Parquet file with the columns path, label, probability, and optional ones.

    Parameters
    ----------
    rule : PredictionRule
    proba : bool
        Whether to write a column p(class) for every class.
    """

    def __init__(self, rule: PredictionRule, *, proba: bool = False) -> None:
        self._arrow = needs("pyarrow", "parquet")
        self._files = needs("pyarrow.parquet", "parquet")
        self._rule, self._proba = rule, proba

    def write(self, rows: Iterable[Row], file: BinaryIO) -> None:
        """Write all rows to an open file, one row group at a time."""
        schema = self._schema()
        with self._files.ParquetWriter(file, schema) as writer:
            values = (self._values(*row) for row in rows)
            for group in _groups(values):
                writer.write_table(self._arrow.Table.from_pylist(group, schema))

    def _schema(self) -> Any:
        label, number = self._arrow.array(self._rule.classes).type, self._arrow.float64()
        columns = [("path", self._arrow.string()), ("label", label), ("probability", number)]
        columns += [] if self._rule.coverage is None else [("set", self._arrow.list_(label))]
        columns += [] if self._rule.false_alarms is None else [("typicality", number)]
        columns += [(f"p({name})", number) for name in self._rule.classes] if self._proba else []
        return self._arrow.schema(columns)

    def _values(self, path: str, probabilities: np.ndarray, typicality: float | None = None) -> dict[str, Any]:
        # Text in Parquet is UTF-8; other bytes of a file name are written as \udc80 and the like.
        values: dict[str, Any] = {"path": path.encode("utf-8", "backslashreplace").decode()}
        values |= {"label": self._rule.label(probabilities, typicality), "probability": float(probabilities.max())}
        if self._rule.coverage is not None:
            values["set"] = self._rule.prediction_set(probabilities)
        if self._rule.false_alarms is not None:
            values["typicality"] = typicality
        if self._proba:
            pairs = zip(self._rule.classes, probabilities.tolist(), strict=True)
            values |= {f"p({name})": probability for name, probability in pairs}
        return values


def _groups(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while group := list(islice(rows, _ROW_GROUP)):
        yield group


def make_file_writer(rule: PredictionRule, form: str, *, proba: bool) -> TextWriter | ParquetWriter:
    """Return the writer for a file format; raise an error now if a needed package is missing."""
    if form == "parquet":
        return ParquetWriter(rule, proba=proba)
    return TextWriter(RowFormatter(rule, form, proba=proba))


def write_file(output: Path, journal: Journal, writer: TextWriter | ParquetWriter) -> None:
    """Write what a journal holds."""
    with open_atomic(output) as file:
        writer.write(journal.rows(), file)


def is_complete(output: Path) -> bool:
    """Return whether the output exists and no journal of an interrupted run is beside it."""
    return output.exists() and not journal_path(output).exists()


def allow_any_file_names(stream: TextIO) -> None:
    """Let a stream read and write file names that are not UTF-8 unchanged."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="surrogateescape")
