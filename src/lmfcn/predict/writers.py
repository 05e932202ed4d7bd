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
from lmfcn.predict.journal import Journal, journal_path
from lmfcn.util.files import whole_file
from lmfcn.util.packages import needs

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


_GROUP = 2**14
"""Rows that are held and written together."""


class ParquetWriter:
    """Turns probabilities into the rows of a table: path, label, probability, and what else was asked for.

    Parameters
    ----------
    judge : Judge
    proba : bool
        Whether there is a column p(class) for every class.
    """

    def __init__(self, judge: Judge, *, proba: bool = False) -> None:
        self._arrow = needs("pyarrow", "parquet")
        self._files = needs("pyarrow.parquet", "parquet")
        self._judge, self._proba = judge, proba

    def write(self, rows: Iterable[tuple[str, np.ndarray]], file: BinaryIO) -> None:
        """Write all rows, group after group."""
        schema = self._schema()
        with self._files.ParquetWriter(file, schema) as writer:
            values = (self._values(path, probabilities) for path, probabilities in rows)
            for group in _groups(values):
                writer.write_table(self._arrow.Table.from_pylist(group, schema))

    def _schema(self) -> Any:
        label, share = self._arrow.array(self._judge.classes).type, self._arrow.float64()
        columns = [("path", self._arrow.string()), ("label", label), ("probability", share)]
        columns += [] if self._judge.coverage is None else [("set", self._arrow.list_(label))]
        columns += [(f"p({name})", share) for name in self._judge.classes] if self._proba else []
        return self._arrow.schema(columns)

    def _values(self, path: str, probabilities: np.ndarray) -> dict[str, Any]:
        # Texts in Parquet are UTF-8; of a name that is not, the odd bytes are written as \udc80 and the like.
        values: dict[str, Any] = {"path": path.encode("utf-8", "backslashreplace").decode()}
        values |= {"label": self._judge.label(probabilities), "probability": float(probabilities.max())}
        if self._judge.coverage is not None:
            values["set"] = self._judge.members(probabilities)
        if self._proba:
            shares = zip(self._judge.classes, probabilities.tolist(), strict=True)
            values |= {f"p({name})": share for name, share in shares}
        return values


def _groups(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while group := list(islice(rows, _GROUP)):
        yield group


class Place(Protocol):
    """Takes rows one by one."""

    n_before: int
    """Images that an earlier run has predicted."""

    def __contains__(self, path: str) -> bool: ...

    def add(self, path: str, probabilities: np.ndarray) -> None:
        """Take the probabilities (n_classes,) of an image."""


class Printed:
    """Prints rows as they come.

    Parameters
    ----------
    writer : RowWriter
    """

    n_before = 0

    def __init__(self, writer: RowWriter) -> None:
        self._writer, self._begun = writer, False
        allow_any_file_names(sys.stdout)

    def __contains__(self, path: str) -> bool:
        return False

    def add(self, path: str, probabilities: np.ndarray) -> None:
        """Print a row."""
        sys.stdout.write("" if self._begun else self._writer.begin())
        sys.stdout.write(self._writer.line(path, probabilities))
        self._begun = True


class LineFile:
    """Turns probabilities into the lines of a file.

    Parameters
    ----------
    writer : RowWriter
    """

    def __init__(self, writer: RowWriter) -> None:
        self._writer = writer

    def write(self, rows: Iterable[tuple[str, np.ndarray]], file: BinaryIO) -> None:
        """Write all rows."""
        text = io.TextIOWrapper(file, "utf-8", "surrogateescape", newline="")
        text.write(self._writer.begin())
        text.writelines(self._writer.line(path, probabilities) for path, probabilities in rows)
        text.detach()  # which writes what is waiting, and leaves the file open


def file_writer(judge: Judge, form: str, *, proba: bool) -> LineFile | ParquetWriter:
    """Return what writes a file of this form; refuse, before any work is done, what cannot be written here."""
    if form == "parquet":
        return ParquetWriter(judge, proba=proba)
    return LineFile(RowWriter(judge, form, proba=proba))


def write_file(output: Path, journal: Journal, writer: LineFile | ParquetWriter) -> None:
    """Write what a journal holds."""
    with whole_file(output) as file:
        writer.write(journal.rows(), file)


def is_complete(output: Path) -> bool:
    """Tell whether a file is there, and no journal of a run that was stopped."""
    return output.exists() and not journal_path(output).exists()


def allow_any_file_names(stream: TextIO) -> None:
    """Let names of files that are not UTF-8 come in and go out as they are."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="surrogateescape")
