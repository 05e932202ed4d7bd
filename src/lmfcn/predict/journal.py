"""Store predictions immediately, so that an interrupted run can be resumed."""

import hashlib
import json
import os
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from lmfcn.util.files import LockFile, name_in_errors

KIND = "lmfcn predictions"
VERSION = 2
"""Format of the file. In version 1, lines had no checksum."""

_DAMAGED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""Errors of lines that were not written completely, or changed afterwards."""

Row = tuple[str, np.ndarray, float | None]
"""A path, its probabilities (n_classes,), and its typicality if the model knows it."""


class Journal:
    """A file of JSON lines beside the output file: a header with the arguments of the run, then a line per image.

    A line holds all probabilities, so the output can be written in any format. For images of an earlier run, the
    journal keeps eight bytes each in memory. Leaving the `with` block closes the file, and removes it if it is empty
    and there is no output file. Only one process at a time can open the journal.

    Parameters
    ----------
    output : path
        The output file; the journal has the same name with the suffix .part.
    model : path
        The model file; a journal of another model is refused.
    paths : sequence of str
        Images and folders to predict; a journal of other paths is refused. "-" stands for paths from standard input,
        which are not compared.
    resume : bool
        Whether to continue an existing journal; otherwise it is overwritten.
    """

    def __init__(self, output: str | Path, model: str | Path, paths: Sequence[str], *, resume: bool = False) -> None:
        self._output, self.path = Path(output), journal_path(output)
        self.n_before = self._n_added = 0
        self._digests: array[int] = array("Q")
        self._folder = os.getcwd()
        self._folder_entry: dict[str, str] = {}
        header = {"kind": KIND, "version": VERSION, "model": _file_digest(model)}
        header |= {"folder": self._folder, "paths": _absolute_paths(self._folder, paths)}
        message = f"Another lmfcn predict is writing {output}; wait until it has ended, or give another -o FILE."
        with ExitStack() as resources:
            resources.enter_context(LockFile(output, message))
            self._file = resources.enter_context(self.path.open("a+b"))
            self._open(header, resume=resume)
            self._resources = resources.pop_all()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        # Keep the journal beside an older output file, which would otherwise be taken for the output of this run.
        if len(self) == 0 and not self._output.exists():
            self.remove()
        self._resources.close()

    def __len__(self) -> int:
        return self.n_before + self._n_added

    def __contains__(self, path: str) -> bool:
        """Return whether the journal held an image when it was opened; paths are compared as absolute paths."""
        digest = _path_digest(self._folder, path)
        index = bisect_left(self._digests, digest)
        return index < len(self._digests) and self._digests[index] == digest

    def add(self, path: str, probabilities: np.ndarray, typicality: float | None = None) -> None:
        """Write the probabilities (n_classes,) and the typicality of an image to the file immediately."""
        usual = {} if typicality is None else {"typicality": typicality}
        self._write({"path": path, "probabilities": probabilities.tolist(), **usual, **self._folder_entry})
        self._n_added += 1

    def rows(self) -> Iterator[Row]:
        """Yield every path with its probabilities and typicality, in the order in which they were added."""
        with self.path.open("rb") as file:
            next(file)
            for line in file:
                row, _ = _parse_row(line)
                yield row

    def remove(self) -> None:
        """Close and remove the file after a complete run."""
        if not self._file.closed:
            self._file.close()
            self.path.unlink(missing_ok=True)
            self._resources.close()

    def _open(self, header: dict[str, Any], *, resume: bool) -> None:
        self._file.seek(0)
        first = self._file.readline() if resume else b""
        if first:
            self._resume(self._check_header(first, header))
        else:
            self._file.truncate(0)
            self._write(header)

    def _resume(self, found: dict[str, Any]) -> None:
        """Read the lines up to the first incomplete one, and remove the rest."""
        folder = found["folder"]
        self._folder_entry = {} if folder == self._folder else {"folder": self._folder}
        end = self._file.tell()
        for line in self._file:
            try:
                (path, *_), line_folder = _parse_row(line)
            except _DAMAGED:
                break
            self._digests.append(_path_digest(line_folder or folder, path))
            end += len(line)
        self._file.seek(end)
        self._file.truncate()
        self.n_before = len(self._digests)
        np.frombuffer(self._digests, dtype=np.uint64).sort()

    def _check_header(self, line: bytes, header: dict[str, Any]) -> dict[str, Any]:
        """Return the header in the first line if it agrees with that of this run."""
        try:
            found = _parse_line(line)
        except _DAMAGED:
            found = None
        if (
            found is None
            or found.keys() != header.keys()
            or any(found[name] != header[name] for name in ("kind", "version"))
        ):
            raise ValueError(f"{self.path} was not left by this version of lmfcn predict; remove it, or begin anew.")
        if found["model"] != header["model"]:
            raise ValueError(
                f"{self.path} holds predictions of another model; resume with that one, or leave --resume out to begin"
                " anew."
            )
        if found["paths"] != header["paths"]:
            raise ValueError(
                f"{self.path} holds predictions for other PATHS ({_shorten(found['paths'])}); resume with these, or"
                " leave --resume out to begin anew."
            )
        return found

    def _write(self, values: dict[str, object]) -> None:
        line = json.dumps(values | {"check": _checksum(values)}).encode() + b"\n"
        with name_in_errors(self._output):
            while line:  # without a buffer, which would fail again when the file is closed
                line = line[os.write(self._file.fileno(), line) :]


def journal_path(output: str | Path) -> Path:
    """Return the path of the journal of an output file: beside the file, or beside the target of a link.

    Examples
    --------
    >>> journal_path("rows.csv").name
    'rows.csv.part'
    """
    path = Path(os.path.realpath(output))
    return path.with_name(f"{path.name}.part")


def _parse_row(line: bytes) -> tuple[Row, str | None]:
    """Return what was added, and the folder of relative paths if it differs from that of the header."""
    values = _parse_line(line)
    probabilities = np.array(values["probabilities"], dtype=np.float64)
    return (values["path"], probabilities, values.get("typicality")), values.get("folder")


def _parse_line(line: bytes) -> dict[str, Any]:
    """Return the values of a complete line that nobody has changed."""
    values: dict[str, Any] = json.loads(line)
    if values.pop("check") != _checksum(values) or not line.endswith(b"\n"):
        raise ValueError("The line is incomplete or was changed.")
    return values


def _checksum(values: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(values).encode())


def _absolute(folder: str, path: str) -> str:
    return os.path.normpath(os.path.join(folder, path))


def _absolute_paths(folder: str, paths: Sequence[str]) -> list[str]:
    """Return sorted, distinct absolute paths; "-" stays."""
    return sorted({path if path == "-" else _absolute(folder, path) for path in paths})


def _shorten(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 3:,} more" if len(paths) > 3 else ""
    return ", ".join(paths[:3]) + more


def _path_digest(folder: str, path: str) -> int:
    """Return a digest of eight bytes of a path; two of a million paths agree with probability 3e-8."""
    name = os.fsencode(_absolute(folder, path))
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest())


def _file_digest(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
