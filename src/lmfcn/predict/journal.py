"""Predictions that are kept as they come, so that a run that was stopped can go on."""

import hashlib
import json
import os
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from lmfcn.util.files import LockFile

KIND = "lmfcn predictions"
VERSION = 1


class Journal:
    """A file of JSON lines beside the one that shall be written: first what was asked for, then a line for every image.

    It holds all probabilities, so that the rows that are made of it may take any form. Of the images that it holds
    already, eight bytes each are in memory. Leaving the `with` block closes it, and removes it if there is nothing that
    it could be needed for. While one process has it open, others are refused.

    Parameters
    ----------
    output : path
        Of the file that shall be written; the journal has the same name and the ending .part.
    model : path
        Of the model's file; a journal of another model is refused.
    paths : sequence of str
        Images and folders that shall be predicted; a journal of others is refused. Of "-", which stands for names that
        come from elsewhere, nothing more is known.
    resume : bool
        Whether to go on with a journal that is there; otherwise it is begun anew.
    """

    def __init__(self, output: str | Path, model: str | Path, paths: Sequence[str], *, resume: bool = False) -> None:
        self._output, self.path = Path(output), journal_path(output)
        self.n_before = self._n_added = 0
        self._digests: array[int] = array("Q")
        self._folder = os.getcwd()
        self._elsewhere: dict[str, str] = {}
        beginning = {"kind": KIND, "version": VERSION, "model": _file_digest(model)}
        beginning |= {"folder": self._folder, "paths": _all_absolute(self._folder, paths)}
        busy = f"Another lmfcn predict is writing {output}; wait until it has ended, or give another -o FILE."
        with ExitStack() as resources:
            resources.enter_context(LockFile(output, busy))
            self._file = resources.enter_context(self.path.open("a+b"))
            self._begin(beginning, resume=resume)
            self._resources = resources.pop_all()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        # Beside a file that is there it stays: without it, that file would be taken for what this run was to write.
        if len(self) == 0 and not self._output.exists():
            self.remove()
        self._resources.close()

    def __len__(self) -> int:
        return self.n_before + self._n_added

    def __contains__(self, path: str) -> bool:
        """Tell whether an image was there when the journal was opened, under whatever name."""
        digest = _path_digest(self._folder, path)
        place = bisect_left(self._digests, digest)
        return place < len(self._digests) and self._digests[place] == digest

    def add(self, path: str, probabilities: np.ndarray) -> None:
        """Write the probabilities (n_classes,) of an image; they survive the end of this process."""
        self._write({"path": path, "probabilities": probabilities.tolist(), **self._elsewhere})
        self._n_added += 1

    def rows(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield every path with its probabilities, in the order in which they came."""
        with self.path.open("rb") as file:
            next(file)
            for line in file:
                path, probabilities, _ = _row(line)
                yield path, probabilities

    def remove(self) -> None:
        """Close the file and remove it; what was asked for is done."""
        if not self._file.closed:
            self._file.close()
            self.path.unlink(missing_ok=True)
            self._resources.close()

    def _begin(self, beginning: dict[str, Any], *, resume: bool) -> None:
        self._file.seek(0)
        first = self._file.readline() if resume else b""
        if first:
            self._go_on(self._checked(first, beginning))
        else:
            self._file.truncate(0)
            self._write(beginning)

    def _go_on(self, found: dict[str, Any]) -> None:
        """Take up what is there up to the first line that is not whole, and drop the rest."""
        folder = found["folder"]
        self._elsewhere = {} if folder == self._folder else {"folder": self._folder}
        end = self._file.tell()
        for line in self._file:
            try:
                path, _, elsewhere = _row(line)
            except (ValueError, KeyError, TypeError):
                break
            self._digests.append(_path_digest(elsewhere or folder, path))
            end += len(line)
        self._file.seek(end)
        self._file.truncate()
        self.n_before = len(self._digests)
        np.frombuffer(self._digests, dtype=np.uint64).sort()

    def _checked(self, line: bytes, beginning: dict[str, Any]) -> dict[str, Any]:
        """Return what the first line says if it asks for the same as this run."""
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        sound = isinstance(found, dict) and found.keys() == beginning.keys()
        if not sound or any(found[name] != beginning[name] for name in ("kind", "version")):
            raise ValueError(f"{self.path} was not left by this version of lmfcn predict; remove it, or begin anew.")
        if found["model"] != beginning["model"]:
            raise ValueError(
                f"{self.path} holds predictions of another model; resume with that one, or leave --resume out to begin"
                " anew."
            )
        if found["paths"] != beginning["paths"]:
            raise ValueError(
                f"{self.path} holds predictions for other PATHS ({_some(found['paths'])}); resume with these, or leave"
                " --resume out to begin anew."
            )
        return found

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


def _row(line: bytes) -> tuple[str, np.ndarray, str | None]:
    """Return a path, its probabilities, and to which folder it is relative if this is not the one of the first line."""
    if not line.endswith(b"\n"):
        raise ValueError("This line is not whole.")
    values = json.loads(line)
    return values["path"], np.array(values["probabilities"], dtype=np.float64), values.get("folder")


def _absolute(folder: str, path: str) -> str:
    return os.path.normpath(os.path.join(folder, path))


def _all_absolute(folder: str, paths: Sequence[str]) -> list[str]:
    """Return paths that mean the same everywhere, in an order of their own."""
    return sorted({path if path == "-" else _absolute(folder, path) for path in paths})


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 3:,} more" if len(paths) > 3 else ""
    return ", ".join(paths[:3]) + more


def _path_digest(folder: str, path: str) -> int:
    """Return eight bytes of a path; among a million there are equal ones once in thirty million times."""
    name = os.fsencode(_absolute(folder, path))
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest())


def _file_digest(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
