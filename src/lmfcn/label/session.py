"""A labelling session: the images of a folder, their labels, and what is learnt from them on the way."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lmfcn.data.sources import compile_pattern, from_table, groups_from_names, image_files, table_in
from lmfcn.label.describe import Describer, Features
from lmfcn.label.learner import (
    Judgement,
    describe_progress,
    fit,
    judge,
    predict,
    what_is_missing,
)
from lmfcn.label.space import FEWEST_PER_CLASS, Arrangement, arrange, ask_for, coordinates_of, doubts
from lmfcn.label.table import LabelTable, Row, check_label, now
from lmfcn.method.kernel_svm import Decision

TABLE = "lmfcn-labels.csv"
"""Name of the table, in the folder with the images."""

N_ASKED = 40
_SECONDS_BETWEEN_SAVES = 30.0
_GROWTH = 1.5
_FEWEST_IN_SPACE = 8
_JUDGED_SHARE = 0.05


@dataclass(frozen=True)
class Space:
    """The described images, as positions in the session, with their coordinates (n, k) and their arrangement."""

    positions: np.ndarray
    coordinates: Tensor
    arrangement: Arrangement


@dataclass(frozen=True)
class Learned:
    """What the labels so far say about the images of a space.

    Attributes
    ----------
    space : Space
    classes : list of str
        Those of the SVM, in the order of the probabilities.
    labelled : array of int (m,)
        Rows of the space with a label, whose class numbers are `numbers`.
    numbers : array of int (m,)
    decision : Decision or None
        None with fewer than two classes.
    probabilities : array (n, n_classes) or None
    asked : list of int
        Positions in the session of the images to label next.
    """

    space: Space
    classes: list[str]
    labelled: np.ndarray
    numbers: np.ndarray
    decision: Decision | None
    probabilities: np.ndarray | None
    asked: list[int]


class LabellingSession:
    """Label the images of a folder while a model learns along.

    Everything that is decided is in the table before a method returns; features are kept beside it. `step` does the
    work that takes time, a part at each call; it may run in a thread of its own.

    Parameters
    ----------
    folder : path
        All image files in it are read, at any depth.
    table : path, optional
        By default `lmfcn-labels.csv` in the folder.
    network : {"auto", "efficientnet-lite0", "texture-fcn"}
        What describes the images; see `Describer`.
    groups_from : str, optional
        Regular expression for file names; what its brackets hold is the group. By default the column `group` of a
        `labels.csv` or `groups.csv` in the folder, if there is one.
    labelled : bool
        Whether the images have labels already, to be corrected: those of a `labels.csv` or `groups.csv` in the folder,
        or else the names of the class folders.
    device : str

    Attributes
    ----------
    names : list of str
        Paths relative to the folder. Positions in this list identify images; new files are appended.
    labels : dict of int to str
    skipped : set of int
    left_out : dict of int to str
        Images that cannot be used, with the reasons.
    classes : list of str
        In the order in which they were first used.
    curve : list of Judgement
    version : int
        Grows with everything that a page shows.
    notes : list of str
        Mistakes in the table, and rows about images that are not there.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> from lmfcn import make_gaussians
    >>> X, y = make_gaussians(n_per_class=8, size=16, random_state=0)
    >>> with TemporaryDirectory() as folder:
    ...     for number, image in enumerate(X):
    ...         Image.fromarray(image).save(Path(folder) / f"{number:02}.png")
    ...     with LabellingSession(folder, network="texture-fcn") as session:
    ...         session.put([0, 1, 2, 3], "fine")
    ...         session.put([12, 13, 14, 15], "coarse")
    ...         session.work()
    ...         print(sorted(session.learned.classes), len(session.learned.asked))
    ['coarse', 'fine'] 8
    """

    def __init__(
        self,
        folder: str | Path,
        table: str | Path | None = None,
        *,
        network: str = "auto",
        groups_from: str | None = None,
        labelled: bool = False,
        device: str = "auto",
    ) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise ValueError(f"{folder} is not a folder; give the one with the images to label.")
        self._network, self._device = network, device
        self._pattern = None if groups_from is None else compile_pattern(groups_from)
        self._labelled = labelled
        self.lock = threading.RLock()
        self.names: list[str] = []
        self.labels: dict[int, str] = {}
        self.skipped: set[int] = set()
        self.confirmed: set[int] = set()
        self.left_out: dict[int, str] = {}
        self.classes: list[str] = []
        self.curve: list[Judgement] = []
        self.notes: list[str] = []
        self.version = 0
        self.space: Space | None = None
        self.learned: Learned | None = None
        self._numbers: dict[str, int] = {}
        self._undo: list[list[tuple[int, str, bool]]] = []
        self._judged_classes: list[str] = []
        self._n_changes = self._n_learned = self._n_judged = 0
        self._saved = time.monotonic()
        self._unsaved = 0
        path = self.folder / TABLE if table is None else Path(table)
        self.table = LabelTable(path)
        try:
            self._given = self._read_given()
            self.features = Features.open(path.with_suffix(".features"), device)
            kept = self.features.describer
            if kept is not None and network not in ("auto", kept.network):
                self.features = Features(self.features.path)
            self._to_describe: list[str] = []
            self.rescan()
            if not self.names:
                raise ValueError(f"No image was found in {self.folder}.")
        except BaseException:
            self.table.close()
            raise

    def __enter__(self) -> "LabellingSession":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Keep the features that are not on the disk yet, and let other processes open the table."""
        self._save_features()
        self.table.close()

    def rescan(self) -> None:
        """Look for new files in the folder and for changes in the table, by other programs."""
        found = sorted(path.relative_to(self.folder).as_posix() for path in image_files(self.folder))
        with self.lock:
            new = [name for name in found if name not in self._numbers]
            for name in new:
                self._numbers[name] = len(self.names)
                self.names.append(name)
            changed = self.table.changed_outside()
            if new or changed or self.version == 0:
                self._take_labels()
                self._changed()
            missing = self.features.missing(self.folder, [name for name in self.names if name not in self._refused()])
            self._to_describe = np.random.default_rng(0).permutation(missing).tolist() if missing else []

    def _refused(self) -> set[str]:
        return {self.names[position] for position in self.left_out}

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
        unknown = []
        for position, name in enumerate(self.names):
            if label := self._given_label(name):
                self._set(position, label, skipped=False)
        for row in self.table.rows:
            number = self._numbers.get(row.path)
            if number is None:
                unknown.append(row.path)
                continue
            if row.label and self.labels.get(number) == row.label:
                self.confirmed.add(number)
            self._set(number, row.label, skipped=row.by == "skip")
        self.notes = self.table.notes
        if unknown:
            self.notes.append(
                f"{len(set(unknown))} images of {self.table.path.name} are not in the folder, such as {unknown[0]};"
                " their labels are kept in the table."
            )

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

    def _changed(self) -> None:
        self.version += 1
        self._n_changes += 1

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
        """Take the last action of this session back; return the images that it was about."""
        with self.lock:
            if not self._undo:
                return []
            before = self._undo[-1]
            rows = [Row(self.names[p], label, now(), "skip" if skipped else "undo") for p, label, skipped in before]
            self.table.append(rows)
            self._undo.pop()
            for position, label, skipped in before:
                self._set(position, label, skipped=skipped)
                self.confirmed.discard(position)
            self._changed()
            return [position for position, _, _ in before]

    def _act(self, positions: Sequence[int], labels: list[str], by: str) -> None:
        wrong = [position for position in positions if not 0 <= position < len(self.names)]
        if wrong:
            raise ValueError(f"There is no image {wrong[0]}; the numbers go from 0 to {len(self.names) - 1}.")
        with self.lock:
            moment = now()
            given = list(zip(positions, labels, strict=True))
            self.table.append([Row(self.names[position], label, moment, by) for position, label in given])
            self._undo.append([(p, self.labels.get(p, ""), p in self.skipped) for p in positions])
            for position, label in given:
                if label and self.labels.get(position) == label:
                    self.confirmed.add(position)
                else:
                    self.confirmed.discard(position)
                self._set(position, label, skipped=by == "skip")
            self._changed()

    def counts(self) -> list[int]:
        """Return the number of labels of each class."""
        found = list(self.labels.values())
        return [found.count(name) for name in self.classes]

    @property
    def n_described(self) -> int:
        """How many images have features."""
        return len(self.names) - len(self.left_out) - len(self._to_describe)

    def sentence(self) -> str:
        """Say how good the model is, and what to do next."""
        with self.lock:
            used = [(name, n) for name, n in zip(self.classes, self.counts(), strict=True) if n]
            names, counts = [name for name, _ in used], [n for _, n in used]
            if not self.curve or len(used) < 2 or min(counts) < FEWEST_PER_CLASS:
                return what_is_missing(names, counts)
            return describe_progress(self._judged_classes, self.curve)

    def doubtful(self) -> list[int]:
        """Return labelled images to look at again, the most doubtful first."""
        with self.lock:
            if not self.curve or self.learned is None:
                return []
            last, places = self.curve[-1], self.learned.space.positions
            judged = {
                int(places[row]): self._judged_classes[number]
                for row, number in zip(last.positions.tolist(), last.numbers.tolist(), strict=True)
            }
            found = places[last.doubtful()].tolist()
            return [p for p in found if self.labels.get(p) == judged[p] and p not in self.confirmed]

    def work(self) -> None:
        """Do everything that is to be done."""
        while self.step():
            pass

    def step(self) -> bool:
        """Do a part of the work, what a user waits for first; return False if nothing is to be done."""
        tasks: tuple[Callable[[], bool], ...] = (self._learn, self._judge, self._arrange, self._describe)
        return any(task() for task in tasks)

    def _describe(self) -> bool:
        if not self._to_describe:
            self._save_features()
            return False
        if self.features.describer is None:
            files = [self.folder / name for name in self.names]
            self.features.describer = Describer.for_files(files, self._network, self._device)
        n_images = self.features.describer.batch_size
        names = self._to_describe[:n_images]
        self.features.add(self.folder, names, self._refuse)
        with self.lock:
            del self._to_describe[: len(names)]
            self._unsaved += len(names)
            self.version += 1
        if time.monotonic() - self._saved > _SECONDS_BETWEEN_SAVES:
            self._save_features()
        return True

    def _refuse(self, name: str, reason: str) -> None:
        with self.lock:
            self.left_out[self._numbers[name]] = reason

    def _save_features(self) -> None:
        if not self._unsaved:
            return
        try:
            self.features.save()
        except OSError as error:  # a full disk must not stop the session: features can be made again
            self.notes.append(f"The features of the images could not be kept: {error.strerror}.")
        self._unsaved, self._saved = 0, time.monotonic()

    def _arrange(self) -> bool:
        """Make the space again, once there are many more images or all of them."""
        usable = [p for p, name in enumerate(self.names) if name in self.features.rows and p not in self.left_out]
        n_before = 0 if self.space is None else len(self.space.positions)
        enough = len(usable) >= max(_FEWEST_IN_SPACE, _GROWTH * n_before)
        if len(usable) == n_before or not (enough or not self._to_describe):
            return False
        coordinates = coordinates_of(self.features.matrix([self.names[p] for p in usable]))
        space = Space(np.array(usable), coordinates, arrange(coordinates))
        with self.lock:
            self.space, self.curve = space, []
            self.version += 1
            self._n_learned = self._n_judged = -1
        return True

    def _learn(self) -> bool:
        with self.lock:
            space, n_changes = self.space, self._n_changes
            if space is None or n_changes == self._n_learned:
                return False
            given = [self.labels.get(int(position)) for position in space.positions]
            blocked = np.isin(space.positions, list(self.skipped))
            judgement = self.curve[-1] if self.curve else None
        labelled = np.array([row for row, label in enumerate(given) if label is not None], dtype=int)
        names = [label for label in given if label is not None]
        classes = sorted(set(names))
        numbers = np.array([classes.index(name) for name in names], dtype=int)
        decision = fit(space.coordinates, labelled, numbers) if len(classes) > 1 else None
        predicted = None
        if decision is not None:
            fits = judgement is not None and judgement.probabilities.shape[1] == len(classes)
            predicted = predict(decision, space.coordinates, judgement if fits else None)
        free = np.setdiff1d(np.flatnonzero(~blocked), labelled)
        doubt = np.ones(len(given)) if predicted is None else doubts(predicted, np.bincount(numbers))
        asked = space.positions[ask_for(space.coordinates, free, labelled, doubt, N_ASKED)].tolist()
        with self.lock:
            self.learned = Learned(space, classes, labelled, numbers, decision, predicted, asked)
            self._n_learned = n_changes
            self.version += 1
        return True

    def _judge(self) -> bool:
        with self.lock:
            learned, n_changes = self.learned, self._n_learned
            if learned is None or learned.space is not self.space or n_changes == self._n_judged:
                return False
            few = n_changes - self._n_judged < _JUDGED_SHARE * len(learned.numbers)
            if learned.decision is None or (few and self._n_judged >= 0 and self.curve):
                return False
            groups = self.groups()
            own = None if groups is None else groups[learned.space.positions]
            earlier = [] if self.curve else self._earlier(learned)
        for positions, numbers in earlier:
            self._add_point(judge(learned.space.coordinates, positions, numbers, own))
        found = judge(learned.space.coordinates, learned.labelled, learned.numbers, own)
        self._add_point(None if found is None else replace(found, expected=_expected(learned, found)))
        with self.lock:
            self._n_judged, self._judged_classes = n_changes, learned.classes
            self.version += 1
        return True

    def _add_point(self, found: Judgement | None) -> None:
        with self.lock:
            if found is not None:
                self.curve = [point for point in self.curve if point.n_labels != found.n_labels] + [found]
                self.curve.sort(key=lambda point: point.n_labels)

    def _earlier(self, learned: Learned) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the labels as they were when there were 10, 15, 22, ... of them, for the curve of earlier sessions."""
        rows = {self.names[position]: row for row, position in enumerate(learned.space.positions.tolist())}
        states, labels, wanted = [], dict[int, str](), 10.0
        for decision in self.table.rows:
            row = rows.get(decision.path)
            if row is None:
                continue
            labels.pop(row, None)
            if decision.label in learned.classes:
                labels[row] = decision.label
            if len(labels) >= wanted:
                states.append(dict(labels))
                wanted *= _GROWTH
        return [_as_arrays(state, learned.classes) for state in states if len(state) < len(learned.numbers)]


def _expected(learned: Learned, judgement: Judgement) -> float | None:
    """Return the mean probability of the suggestions for images without a label."""
    n_images = len(learned.space.positions)
    if learned.decision is None or len(learned.labelled) == n_images:
        return None
    others = np.setdiff1d(np.arange(n_images), learned.labelled)
    predicted = predict(learned.decision, learned.space.coordinates[torch.from_numpy(others)], judgement)
    return float(predicted.max(axis=1).mean())


def _as_arrays(labels: dict[int, str], classes: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and class numbers of labels; classes are numbered from 0 without gaps."""
    present = [name for name in classes if name in set(labels.values())]
    rows = np.array(sorted(labels), dtype=int)
    return rows, np.array([present.index(labels[row]) for row in rows.tolist()], dtype=int)
