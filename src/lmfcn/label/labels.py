"""The labels of the images of a folder: given ones, those of the table, what is skipped, and undo."""

import threading
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Self

import numpy as np

from lmfcn.data.sources import compile_pattern, from_table, groups_from_names, image_files, table_in
from lmfcn.label.table import LabelTable, Row, check_label, now

TABLE = "lmfcn-labels.csv"
"""Name of the table, in the folder with the images."""


class FolderLabels:
    """The images of a folder with their labels; every change is in the table before a method returns.

    Parameters
    ----------
    folder : path
        All image files in it are read, at any depth.
    table : path, optional
        By default `lmfcn-labels.csv` in the folder.
    groups_from : str, optional
        Regular expression for file names; what its brackets hold is the group. By default the column `group` of a
        `labels.csv` or `groups.csv` in the folder, if there is one.
    labelled : bool
        Whether the images have labels already, to be corrected: those of a `labels.csv` or `groups.csv` in the folder,
        or else the names of the class folders.

    Attributes
    ----------
    names : list of str
        Paths relative to the folder. Positions in this list identify images; new files are appended.
    labels : dict of int to str
    skipped, confirmed : set of int
        Images without a label that are not asked for, and images whose label was given twice.
    classes : list of str
        In the order in which they were first used.
    version : int
        Grows with everything that a page shows.
    notes : list of str
        Mistakes in the table, and rows about images that are not there.
    """

    def __init__(
        self,
        folder: str | Path,
        table: str | Path | None = None,
        *,
        groups_from: str | None = None,
        labelled: bool = False,
    ) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise ValueError(f"{folder} is not a folder; give the one with the images to label.")
        self._pattern = None if groups_from is None else compile_pattern(groups_from)
        self._labelled = labelled
        self.lock = threading.RLock()
        self.names: list[str] = []
        self.labels: dict[int, str] = {}
        self.skipped: set[int] = set()
        self.confirmed: set[int] = set()
        self.classes: list[str] = []
        self.notes: list[str] = []
        self.version = self._n_changes = 0
        self._numbers: dict[str, int] = {}
        self._undo: list[list[tuple[int, str, bool]]] = []
        self._given = self._read_given()
        self.table = LabelTable(self.folder / TABLE if table is None else Path(table))
        try:
            FolderLabels.rescan(self)
            if not self.names:
                raise ValueError(f"No image was found in {self.folder}.")
        except BaseException:
            self.table.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let other processes open the table."""
        self.table.close()

    def rescan(self) -> None:
        """Look for new files in the folder and for changes in the table, by other programs."""
        found = sorted(path.relative_to(self.folder).as_posix() for path in image_files(self.folder))
        with self.lock:
            new = [name for name in found if name not in self._numbers]
            for name in new:
                self._numbers[name] = len(self.names)
                self.names.append(name)
            if self.table.changed_outside() or new or self.version == 0:
                self._take_labels()
                self._changed(len(self.names))

    def _read_given(self) -> dict[str, tuple[str, str | None]]:
        """Return label and group by name, from the table of the folder; both may be missing."""
        table = table_in(self.folder)
        if table is None:
            return {}
        images = from_table(table)
        labels = [""] * len(images) if images.labels is None else [str(label) for label in images.labels.tolist()]
        groups = [None] * len(images) if images.groups is None else [str(group) for group in images.groups.tolist()]
        root = self.folder.resolve()
        found = {}
        for path, label, group in zip(images.paths, labels, groups, strict=True):
            place = Path(path).resolve()
            if place.is_relative_to(root):
                found[place.relative_to(root).as_posix()] = (label, group)
        return found

    def _given_label(self, name: str) -> str:
        if not self._labelled:
            return ""
        label = self._given.get(name, ("", None))[0]
        return label or (name.split("/")[0] if "/" in name else "")

    def _take_labels(self) -> None:
        """Set all labels from those that were given and from the table."""
        self.labels, self.skipped, self.confirmed = {}, set(), set()
        self._undo = []
        for position, name in enumerate(self.names):
            if label := self._given_label(name):
                self._set(position, label, skipped=False)
        unknown = [row.path for row in self.table.rows if row.path not in self._numbers]
        known = (row for row in self.table.rows if row.path in self._numbers)
        for when, rows in groupby(known, key=attrgetter("when")):
            self._repeat(list(rows), undoable=bool(when))
        self.notes = self.table.notes
        if unknown:
            self.notes.append(
                f"{len(set(unknown))} images of {self.table.path.name} are not in the folder, such as {unknown[0]};"
                " their labels are kept in the table."
            )

    def _repeat(self, rows: Sequence[Row], *, undoable: bool) -> None:
        """Do again what rows of the same moment say: one action. Rows without a time were written by hand."""
        positions = [self._numbers[row.path] for row in rows]
        before = self._present(positions)
        for position, row in zip(positions, rows, strict=True):
            if row.label and self.labels.get(position) == row.label and row.by != "undo":
                self.confirmed.add(position)
            else:
                self.confirmed.discard(position)
            self._set(position, row.label, skipped=row.by == "skip")
        # Taking back the label of an image that had been skipped leaves nothing but a skip in the table.
        skips = all(row.by == "skip" for row in rows)
        if any(row.by == "undo" for row in rows) or (skips and self._undo[-1:] == [self._present(positions)]):
            self._undo = self._undo[:-1]
        elif undoable:
            self._undo.append(before)

    def _present(self, positions: Sequence[int]) -> list[tuple[int, str, bool]]:
        """Return the images with their labels, and whether they are skipped."""
        return [(position, self.labels.get(position, ""), position in self.skipped) for position in positions]

    def _set(self, position: int, label: str, *, skipped: bool) -> None:
        self.skipped.discard(position)
        if label:
            self.labels[position] = label
            if label not in self.classes:
                self.classes.append(label)
        else:
            self.labels.pop(position, None)
            if skipped:
                self.skipped.add(position)

    def _changed(self, n_images: int) -> None:
        self.version += 1
        self._n_changes += n_images

    def groups(self) -> np.ndarray | None:
        """Return the group of every image; an image without one is a group of its own. None without any."""
        if self._pattern is not None:
            return np.array(groups_from_names(self.names, self._pattern))
        given = [self._given.get(name, ("", None))[1] for name in self.names]
        if all(group is None for group in given):
            return None
        return np.array([f"image {i}" if group is None else f"group {group}" for i, group in enumerate(given)])

    def put(self, positions: Sequence[int], label: str | Sequence[str], by: str = "hand") -> None:
        """Give images a label, or one to each; the same label again confirms one that was doubted."""
        labels = [label] * len(positions) if isinstance(label, str) else list(label)
        if len(labels) != len(positions):
            raise ValueError(f"Give one label, or one for each of the {len(positions)} images, got {len(labels)}.")
        self._act(positions, [check_label(name) for name in labels], by)

    def skip(self, positions: Sequence[int]) -> None:
        """Leave images without a label, and ask for them no more."""
        self._act(positions, [""] * len(positions), "skip")

    def undo(self) -> list[int]:
        """Take the last action back, those of earlier sessions too; return the images that it was about."""
        with self.lock:
            if not self._undo:
                return []
            before, moment = self._undo[-1], now()
            rows = [Row(self.names[p], label, moment, "skip" if skipped else "undo") for p, label, skipped in before]
            self._write(rows)
            self._undo.pop()
            for position, label, skipped in before:
                self._set(position, label, skipped=skipped)
                self.confirmed.discard(position)
            self._changed(len(before))
            return [position for position, _, _ in before]

    def _act(self, positions: Sequence[int], labels: list[str], by: str) -> None:
        wrong = [position for position in positions if not 0 <= position < len(self.names)]
        if wrong:
            raise ValueError(f"There is no image {wrong[0]}; the numbers go from 0 to {len(self.names) - 1}.")
        with self.lock:
            moment = now()
            given = list(zip(positions, labels, strict=True))
            self._write([Row(self.names[position], label, moment, by) for position, label in given])
            self._undo.append(self._present(positions))
            for position, label in given:
                if label and self.labels.get(position) == label:
                    self.confirmed.add(position)
                else:
                    self.confirmed.discard(position)
                self._set(position, label, skipped=by == "skip")
            self._changed(len(given))

    def _write(self, rows: list[Row]) -> None:
        """Append rows to the table; if somebody has edited it, take that over first."""
        if self.table.changed_outside():
            self._take_labels()
        self.table.append(rows)

    def counts(self) -> list[int]:
        """Return the number of labels of each class."""
        found = list(self.labels.values())
        return [found.count(name) for name in self.classes]
