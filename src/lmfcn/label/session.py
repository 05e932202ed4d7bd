"""A labelling session: the images of a folder, their labels, and what is learnt from them on the way."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lmfcn.label.describe import Describer, Features
from lmfcn.label.labels import FolderLabels
from lmfcn.label.learner import (
    Judgement,
    describe_progress,
    fit,
    judge,
    predict,
    what_is_missing,
)
from lmfcn.label.space import FEWEST_PER_CLASS, Arrangement, arrange, ask_for, coordinates_of, doubts
from lmfcn.method.kernel_svm import Decision

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


class LabellingSession(FolderLabels):
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
    names, labels, skipped, classes, notes, version
        As in `FolderLabels`.
    left_out : dict of int to str
        Images that cannot be used, with the reasons.
    curve : list of Judgement
        How good the model was with more and more labels.

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
        super().__init__(folder, table, groups_from=groups_from, labelled=labelled)
        self._network, self._device = network, device
        self.left_out: dict[int, str] = {}
        self.curve: list[Judgement] = []
        self.space: Space | None = None
        self.learned: Learned | None = None
        self._judged_classes: list[str] = []
        self._n_learned = self._n_judged = 0
        self._saved, self._unsaved = time.monotonic(), 0
        self._to_describe: list[str] = []
        self.features = Features.open(self.table.path.with_suffix(".features"), device)
        kept = self.features.describer
        if kept is not None and network not in ("auto", kept.network):
            self.features = Features(self.features.path)
        self.rescan()

    def close(self) -> None:
        """Keep the features that are not on the disk yet, and let other processes open the table."""
        self._save_features()
        super().close()

    def rescan(self) -> None:
        """Look for new files in the folder, and for changes of files and of the table by other programs."""
        super().rescan()
        with self.lock:
            refused = {self.names[position] for position in self.left_out}
            missing = self.features.missing(self.folder, [name for name in self.names if name not in refused])
            self._to_describe = np.random.default_rng(0).permutation(missing).tolist() if missing else []

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
