"""Predictions that are kept as they come, so that a run that was stopped can go on."""

import hashlib
import json
import os
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

KIND = "lmfcn predictions"
VERSION = 1


class Journal:
    """A file of JSON lines beside the one that shall be written: first which model, then a line for every image.

    It holds all probabilities, so that the rows that are made of it may take any form. Of the images that it holds
    already, eight bytes each are in memory. Leaving the `with` block closes it, and removes it if there is nothing that
    it could be needed for.

    Parameters
    ----------
    output : path
        Of the file that shall be written; the journal has the same name and the ending .part.
    model : path
        Of the model's file; a journal of another model is refused.
    resume : bool
        Whether to go on with a journal that is there; otherwise it is begun anew.
    """

    def __init__(self, output: str | Path, model: str | Path, *, resume: bool = False) -> None:
        self._output, self.path = Path(output), journal_path(output)
        self.n_before = self._n_added = 0
        self._digests: array[int] = array("Q")
        beginning = {"kind": KIND, "version": VERSION, "model": _file_digest(model)}
        if resume and self.path.exists():
            self._file: BinaryIO = self.path.open("r+b")
            self._go_on(beginning)
        else:
            self._file = self.path.open("w+b")
            self._write(beginning)

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        # Beside a file that is there it stays: without it, that file would be taken for what this run was to write.
        if len(self) == 0 and not self._output.exists():
            self.remove()

    def __len__(self) -> int:
        return self.n_before + self._n_added

    def __contains__(self, path: str) -> bool:
        """Tell whether an image was there when the journal was opened."""
        digest = _path_digest(path)
        place = bisect_left(self._digests, digest)
        return place < len(self._digests) and self._digests[place] == digest

    def add(self, path: str, probabilities: np.ndarray) -> None:
        """Write the probabilities (n_classes,) of an image; they survive the end of this process."""
        self._write({"path": path, "probabilities": probabilities.tolist()})
        self._n_added += 1

    def rows(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield every path with its probabilities, in the order in which they came."""
        with self.path.open("rb") as file:
            next(file)
            for line in file:
                yield _row(line)

    def remove(self) -> None:
        """Close the file and remove it; what was asked for is done."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def _go_on(self, beginning: dict[str, object]) -> None:
        """Take up what is there up to the first line that is not whole, and drop the rest."""
        try:
            self._check(self._file.readline(), beginning)
            end = self._file.tell()
            for line in self._file:
                try:
                    self._digests.append(_path_digest(_row(line)[0]))
                except (ValueError, KeyError, TypeError):
                    break
                end += len(line)
            self._file.seek(end)
            self._file.truncate()
        except BaseException:
            self._file.close()
            raise
        self.n_before = len(self._digests)
        np.frombuffer(self._digests, dtype=np.uint64).sort()

    def _check(self, line: bytes, beginning: dict[str, object]) -> None:
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict) or any(found.get(name) != beginning[name] for name in ("kind", "version")):
            raise ValueError(f"{self.path} was not left by this version of lmfcn predict; remove it, or begin anew.")
        if found.get("model") != beginning["model"]:
            raise ValueError(
                f"{self.path} holds predictions of another model; resume with that one, or leave --resume out to begin"
                " anew."
            )

    def _write(self, values: dict[str, object]) -> None:
        self._file.write(json.dumps(values).encode() + b"\n")
        self._file.flush()


def journal_path(output: str | Path) -> Path:
    """Return where the journal of an output is: beside what a link leads to.

    Examples
    --------
    >>> journal_path("rows.csv").name
    'rows.csv.part'
    """
    path = Path(os.path.realpath(output))
    return path.with_name(f"{path.name}.part")


def _row(line: bytes) -> tuple[str, np.ndarray]:
    if not line.endswith(b"\n"):
        raise ValueError("This line is not whole.")
    values = json.loads(line)
    return values["path"], np.array(values["probabilities"], dtype=np.float64)


def _path_digest(path: str) -> int:
    """Return eight bytes of a path; among a million there are equal ones once in thirty million times."""
    return int.from_bytes(hashlib.blake2b(os.fsencode(path), digest_size=8).digest())


def _file_digest(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
