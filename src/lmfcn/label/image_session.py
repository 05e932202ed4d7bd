"""A labelling session on one large image: strokes, the windows under them, and a map of what is in view."""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from lmfcn.compute.encode import evenly_spaced
from lmfcn.label.describe import Describer
from lmfcn.label.lattice import Lattice, centres_under, distances_to
from lmfcn.label.learner import Judgement, fit, judge, predict
from lmfcn.label.space import Directions
from lmfcn.label.strokes import ENDING, Stroke, StrokeFile, make_stroke
from lmfcn.maps.regions import open_image, read_box
from lmfcn.maps.texture_map import USUAL_WINDOW, Box
from lmfcn.method.kernel_svm import Decision
from lmfcn.model import TypicalDistances, class_centres
from lmfcn.networks.trunk import SMALLEST_SIDE

N_FIRST = 64
"""Windows that give the first, coarse map of a view: described in about a second."""

N_MOST = 1024
"""Windows of the finest map of a view."""

_N_AT_ONCE = 16
_N_MEASURED = 32
_N_REFERENCE = 300
_MOST_KEPT = 30_000

Corner = tuple[int, int]
"""Upper row and left column of a window."""


class Window(NamedTuple):
    """A training window: where it is, its class, and the number of its stroke, which is its group."""

    corner: Corner
    label: str
    stroke: int


@dataclass(frozen=True)
class ImageLearned:
    """What the strokes so far say.

    Attributes
    ----------
    classes : list of str
        In the order of the probabilities.
    directions : Directions
    decision : Decision
    rows : array (m, d)
        Features of the training windows, whose classes and strokes are `numbers` and `strokes`.
    judgement : Judgement or None
        By cross-validation on whole strokes; None before, and with too few strokes.
    typical : TypicalDistances or None
    """

    classes: list[str]
    directions: Directions
    decision: Decision
    rows: np.ndarray
    numbers: np.ndarray
    strokes: np.ndarray
    judgement: Judgement | None = None
    typical: TypicalDistances | None = None

    def predict(self, rows: np.ndarray) -> Iterable[tuple[int, float, float | None]]:
        """Return class, probability and typicality of windows with features (n, d)."""
        coordinates = self.directions.coordinates(rows)
        found = predict(self.decision, coordinates, self.judgement)
        usual: list[float | None] = [None] * len(rows)
        if self.typical is not None:
            usual = self.typical.typicality(self.decision.scale.apply(coordinates)).tolist()
        return zip(found.argmax(axis=1).tolist(), found.max(axis=1).tolist(), usual, strict=True)

    def judged(self) -> "ImageLearned":
        """Return the same with an accuracy and what is typical, if there are enough strokes."""
        coordinates, every = self.directions.coordinates(self.rows), np.arange(len(self.rows))
        found = judge(coordinates, every, self.numbers, self.strokes)
        typical = None
        if found is not None and found.distances is not None:
            centres = class_centres(self.decision.scale.apply(coordinates), torch.from_numpy(self.numbers))
            typical = TypicalDistances.of(centres, found.distances)
        learned = self.classes, self.directions, self.decision, self.rows, self.numbers, self.strokes
        return ImageLearned(*learned, found, typical)


class ImageSession:
    """Draw strokes on a large image while a model learns along and maps what is in view.

    Every stroke is in the file before a method returns. `step` does the work that takes time, a part at each call; it
    may run in a thread of its own. Places are in pixels of the finest level of the image.

    Parameters
    ----------
    path : path
        Anything that `lmfcn map` reads.
    table : path, optional
        File of the strokes; by default beside the image.
    window : int
        Side of the windows in pixels at the chosen resolution.
    resolution : float, optional
        Micrometres per pixel to work at; by default the finest level.
    network : {"auto", "efficientnet-lite0", "texture-fcn"}
        What describes the windows; see `Describer`.
    device : str

    Attributes
    ----------
    file : StrokeFile
    learned : ImageLearned or None
    version : int
        Grows with everything that a page shows.
    notes : list of str
    """

    def __init__(
        self,
        path: str | Path,
        table: str | Path | None = None,
        *,
        window: int = USUAL_WINDOW,
        resolution: float | None = None,
        network: str = "auto",
        device: str = "auto",
    ) -> None:
        self.path, self.window, self.resolution, self.device = Path(path), window, resolution, device
        self.image = open_image(self.path, resolution)
        size = self.image.size
        self._check_window()
        self.size = size.levels[0]
        self.factor = size.height / self.size[0], size.width / self.size[1]
        self.lattice = Lattice(size.height, size.width, window)
        self.lock, self._reading = threading.RLock(), threading.Lock()
        self._network = network
        self._describer: Describer | None = None
        self._rows: OrderedDict[Corner, np.ndarray] = OrderedDict()
        self._unreadable: set[Corner] = set()
        self._predicted: dict[Corner, tuple[int, float, float | None]] = {}
        self._view = Box(0, 0, size.height, size.width)
        self.learned: ImageLearned | None = None
        self.version = self.n_changes = 0
        self._n_learned = self._n_judged = 0
        given = self.path.with_name(self.path.name + ENDING) if table is None else Path(table)
        self.file = StrokeFile(given, self.path.name, self.size)
        self.notes = self.file.notes
        self.windows: list[Window] = []
        self._changed()

    def __enter__(self) -> "ImageSession":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def _check_window(self) -> None:
        size = self.image.size
        if self.window < SMALLEST_SIDE:
            raise ValueError(f"--window must be at least {SMALLEST_SIDE} pixels, got {self.window}.")
        if min(size.height, size.width) < self.window:
            raise ValueError(
                f"{self.path} has {size.width}x{size.height} pixels (width x height), too few for a window of"
                f" {self.window}; give a smaller --window, or label its folder instead."
            )

    @property
    def classes(self) -> list[str]:
        """All classes in the order in which they were first used; their colours do not change."""
        return self.file.classes

    @property
    def about(self) -> str:
        """Which network describes the windows, in words."""
        return "" if self._describer is None else self._describer.about

    @property
    def network(self) -> str:
        """Name of the network that describes the windows."""
        return self.describer.network

    @property
    def describer(self) -> Describer:
        """The describer, made for this image when it is first needed."""
        if self._describer is None:
            size, side = self.image.size, self.window
            level = self.lattice.level_of(Box(0, 0, size.height, size.width), _N_MEASURED)
            corners = self.lattice.corners(Box(0, 0, size.height, size.width), level)
            with self._reading:
                pixels = [
                    self.image.read(Box(row, column, row + side, column + side)).pixels for row, column in corners
                ]
            self._describer = Describer.for_windows(np.stack(pixels), self._network, self.device)
        return self._describer

    def draw(self, label: str, size: float, points: Sequence[Sequence[float]]) -> None:
        """Draw a stroke; an empty label erases. It replaces what was drawn below."""
        stroke = make_stroke(label, size, points, self.size)
        with self.lock:
            self.file.add(stroke)
            self._changed()

    def undo(self) -> bool:
        """Take the last stroke back, one after the other, those of earlier sessions too."""
        with self.lock:
            done = self.file.undo()
            if done:
                self._changed()
            return done

    def look(self, top: float, left: float, bottom: float, right: float) -> None:
        """Say which part of the image is shown: it is mapped first."""
        scale = self.factor * 2
        ends = [value * factor for value, factor in zip((top, left, bottom, right), scale, strict=True)]
        size = self.image.size
        box = Box(*(int(end) for end in ends[:2]), *(int(-(-end // 1)) for end in ends[2:]))
        box = box.overlap(Box(0, 0, size.height, size.width))
        if 0 in box.shape:
            raise ValueError("The view must show a part of the image.")
        with self.lock:
            self._view = box
            self.version += 1

    def _changed(self) -> None:
        self.windows = self._windows_under(self.file.actions)
        self.n_changes += 1
        self.version += 1

    def _windows_under(self, strokes: Sequence[Stroke]) -> list[Window]:
        """Return the windows under the strokes; a stroke takes the place of earlier ones below it."""
        found: dict[Corner, Window] = {}
        for number, stroke in enumerate(strokes):
            path = stroke.path * self.factor[::-1]
            size = stroke.size * self.factor[0]
            if found:
                centres = np.array(list(found))[:, ::-1] + self.window / 2
                below = distances_to(path, centres) <= max(size, self.window / 2) / 2
                found = {
                    corner: window for (corner, window), gone in zip(found.items(), below, strict=True) if not gone
                }
            if stroke.label:
                for corner in self.lattice.around(centres_under(path, size, self.window)):
                    found[corner] = Window(corner, stroke.label, number)
        return list(found.values())

    def training_windows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the pixels (n, window, window, channels) of the windows under the strokes, labels and groups."""
        with self.lock:
            windows = [window for window in self.windows if window.corner not in self._unreadable]
        _check_strokes(windows)
        with self._reading:
            pixels = [read_box(self.image, self._box(window.corner)) for window in windows]
        labels, strokes = [window.label for window in windows], [window.stroke for window in windows]
        return np.stack(pixels), np.array(labels), np.array(strokes)

    def _box(self, corner: Corner) -> Box:
        return Box(*corner, corner[0] + self.window, corner[1] + self.window)

    def counts(self) -> list[tuple[int, int]]:
        """Return the number of strokes and of windows of each class."""
        windows = Counter(window.label for window in self.windows)
        strokes = Counter(label for label, _ in {(window.label, window.stroke) for window in self.windows})
        return [(strokes[name], windows[name]) for name in self.classes]

    def sentence(self) -> str:
        """Say how good the model is, or what is missing to know it."""
        with self.lock:
            used = [(name, n) for name, (n, _) in zip(self.classes, self.counts(), strict=True) if n]
            learned = self.learned
            if len(used) < 2:
                return "Draw strokes of at least two classes."
            if learned is None or learned.judgement is None:
                few = [name for name, n in used if n < 2]
                of = f" of {', '.join(few[:3])}" if few else " of every class"
                return f"Draw two or more strokes{of}, at different places: the accuracy is measured on whole strokes."
            return _describe(learned.classes, learned.judgement, len(np.unique(learned.strokes)))

    def cells(self) -> list[tuple[float, float, float, float, int, float, float | None]]:
        """Return the map of the view: left, top, right, bottom, number of the class, probability, typicality.

        Coarse cells come first, finer ones cover them.
        """
        with self.lock:
            if self.learned is None:
                return []
            numbers = [self.classes.index(name) for name in self.learned.classes]
            first, last = self._levels()
            found: list[list[tuple[Any, ...]]] = []
            for level in range(first, last - 1, -1):
                corners = self._corners(level)
                known = [(corner, self._predicted[corner]) for corner in corners if corner in self._predicted]
                if len(known) == len(corners):
                    found.clear()
                found.append([(*self._cell(corner, level), numbers[best], p, t) for corner, (best, p, t) in known])
            return [cell for cells in found for cell in cells]

    def _cell(self, corner: Corner, level: int) -> tuple[float, ...]:
        cell = self.lattice.cell(corner, level)
        return tuple(end / factor for end, factor in zip(cell, self.factor[::-1] * 2, strict=True))

    def _levels(self) -> tuple[int, int]:
        """Return the levels of the first and of the finest map of the view."""
        return self.lattice.level_of(self._view, N_FIRST), self.lattice.level_of(self._view, N_MOST)

    def _corners(self, level: int) -> list[Corner]:
        return [(row, column) for row, column in self.lattice.corners(self._view, level).tolist()]

    def progress(self) -> tuple[int, int]:
        """Return how many windows of the finest map of the view are described, and how many there are."""
        with self.lock:
            corners = self._corners(self._levels()[1])
            return sum(corner in self._rows or corner in self._unreadable for corner in corners), len(corners)

    def work(self) -> None:
        """Do everything that is to be done."""
        while self.step():
            pass

    def step(self) -> bool:
        """Do a part of the work, what a user waits for first; return False if nothing is to be done."""
        tasks: tuple[Callable[[], bool], ...] = (
            *(self._prepare, self._describe_strokes, self._learn, self._predict_view),
            *(self._describe_first, self._judge, self._refine),
        )
        return any(task() for task in tasks)

    def _prepare(self) -> bool:
        """Load the network, and what the first SVM loads, while the user is still looking at the image."""
        if self._describer is not None:
            return False
        _ = self.describer
        fit(torch.eye(2, dtype=torch.float64), np.arange(2), np.arange(2))
        return True

    def _describe_strokes(self) -> bool:
        return self._describe([window.corner for window in self.windows])

    def _describe_first(self) -> bool:
        with self.lock:
            corners = self._corners(self._levels()[0])
        return self._describe(corners)

    def _refine(self) -> bool:
        with self.lock:
            first, last = self._levels()
        return any(self._describe(self._corners(level)) for level in range(first - 1, last - 1, -1))

    def _describe(self, wanted: Sequence[Corner]) -> bool:
        """Describe some of the windows that are not described yet; return False if all are."""
        missing = [corner for corner in wanted if corner not in self._rows and corner not in self._unreadable]
        if not missing:
            return False
        chosen, describer, pixels, read = missing[:_N_AT_ONCE], self.describer, [], []
        for corner in chosen:
            with self._reading:
                region = self.image.read(self._box(corner))
            if region.missing:
                self._refuse(corner, region.missing[0][1])
                continue
            read.append(corner)
            pixels.append(region.pixels)
        rows = describer.describe(pixels) if pixels else np.empty((0, 0))
        with self.lock:
            for corner, row in zip(read, rows, strict=True):
                self._rows[corner] = row
            self._forget()
            self.version += 1
        return True

    def _refuse(self, corner: Corner, reason: str) -> None:
        with self.lock:
            self._unreadable.add(corner)
            if len(self._unreadable) == 1:
                self.notes = [*self.notes, f"A part of the image cannot be read ({reason}); it has no map."]

    def _forget(self) -> None:
        """Drop the windows that were described first, but those under strokes and in the view, beyond a limit."""
        if len(self._rows) <= _MOST_KEPT:
            return
        kept = {window.corner for window in self.windows}
        first, last = self._levels()
        for level in range(last, first + 1):
            kept.update(self._corners(level))
        for corner in [corner for corner in self._rows if corner not in kept][: _MOST_KEPT // 10]:
            del self._rows[corner]
            self._predicted.pop(corner, None)

    def _learn(self) -> bool:
        with self.lock:
            n_changes = self.n_changes
            if n_changes == self._n_learned:
                return False
            windows = [window for window in self.windows if window.corner not in self._unreadable]
            if any(window.corner not in self._rows for window in windows):
                return True  # a stroke came in between; its windows are described first
            rows = [self._rows[window.corner] for window in windows]
            others = list(self._rows.values())
            others = [others[i] for i in evenly_spaced(len(others), _N_REFERENCE)]
        self._use(self._fit(windows, rows, others), n_changes)
        return True

    def _fit(
        self, windows: Sequence[Window], rows: Sequence[np.ndarray], others: Sequence[np.ndarray]
    ) -> ImageLearned | None:
        """Return what the windows say; None with one class, and where all windows are the same."""
        used = {window.label for window in windows}
        classes = [name for name in self.classes if name in used]
        if len(classes) < 2:
            return None
        # With other windows: few strokes alone would not show in which directions the image varies.
        directions = Directions.of(np.stack([*rows, *others]))
        if directions.basis.shape[1] == 0:
            return None
        matrix, every = np.stack(rows), np.arange(len(rows))
        numbers = np.array([classes.index(window.label) for window in windows])
        strokes = np.array([window.stroke for window in windows])
        decision = fit(directions.coordinates(matrix), every, numbers)
        return ImageLearned(classes, directions, decision, matrix, numbers, strokes)

    def _judge(self) -> bool:
        with self.lock:
            learned, n_changes = self.learned, self._n_learned
            if n_changes == self._n_judged:
                return False
            self._n_judged = n_changes
        if learned is not None:
            self._use(learned.judged(), n_changes)
        return learned is not None

    def _use(self, learned: ImageLearned | None, n_changes: int) -> None:
        with self.lock:
            self.learned, self._n_learned, self._predicted = learned, n_changes, {}
            self._predict_view()
            self.version += 1

    def _predict_view(self) -> bool:
        """Predict the windows in view that are described but not predicted yet."""
        with self.lock:
            learned = self.learned
            if learned is None:
                return False
            first, last = self._levels()
            corners = [corner for level in range(last, first + 1) for corner in self._corners(level)]
            new = [
                corner for corner in dict.fromkeys(corners) if corner in self._rows and corner not in self._predicted
            ]
            if not new:
                return False
            found = learned.predict(np.stack([self._rows[corner] for corner in new]))
            self._predicted.update(zip(new, found, strict=True))
            self.version += 1
            return True


def _check_strokes(windows: Sequence[Window]) -> None:
    """Refuse windows that no model can be trained on and measured with."""
    strokes: dict[str, set[int]] = {}
    for window in windows:
        strokes.setdefault(window.label, set()).add(window.stroke)
    if len(strokes) < 2:
        raise ValueError("Draw strokes of at least two classes first.")
    few = [name for name, found in strokes.items() if len(found) < 2]
    if few:
        raise ValueError(
            f"Draw at least two strokes of every class, at different places: {few[0]} has 1, and the model is measured"
            " on whole strokes."
        )


def _describe(classes: Sequence[str], judgement: Judgement, n_strokes: int) -> str:
    accuracy = judgement.accuracy
    told = (
        f"Balanced accuracy by cross-validation, whole strokes held out: {accuracy.value:.2f} ({accuracy.low:.2f} to"
        f" {accuracy.high:.2f}) on {judgement.n_labels} windows of {n_strokes} strokes."
    )
    pairs = judgement.confusions()
    if not pairs:
        return f"{told} No classes are mixed up."
    one, other, count = pairs[0]
    return f"{told} Most mixed up: {classes[one]} and {classes[other]} ({count} window{'' if count == 1 else 's'})."
