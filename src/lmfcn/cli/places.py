"""Where the rows of predictions go: straight to standard output, or to a file that is whole or not there."""

import io
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Protocol, TextIO

import numpy as np

from lmfcn.cli.parquet import ParquetWriter
from lmfcn.cli.rows import Judge, RowWriter
from lmfcn.files import whole_file
from lmfcn.inference.journal import Journal, journal_path


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
        keep_odd_names(sys.stdout)

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


def keep_odd_names(stream: TextIO) -> None:
    """Let names of files that are not UTF-8 come in and go out as they are."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="surrogateescape")
