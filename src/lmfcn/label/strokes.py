"""The strokes of a labelling session on a large image: a file of JSON lines that is appended to as they are drawn."""

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lmfcn.label.table import check_label, now
from lmfcn.util.files import LockFile, append_bytes

ENDING = ".strokes.jsonl"
MOST_POINTS = 20_000
_LARGEST_BRUSH = 1e5
_SHOWN = 3

Point = tuple[float, float]


@dataclass(frozen=True)
class Stroke:
    """A stroke of the brush, in pixels of the finest level of the image.

    Attributes
    ----------
    label : str
        Its class; an empty one erases what is below.
    size : float
        Diameter of the brush.
    points : tuple of (x, y)
    """

    label: str
    size: float
    points: tuple[Point, ...]

    @property
    def path(self) -> np.ndarray:
        """The points (n, 2)."""
        return np.array(self.points, dtype=float)


def make_stroke(label: Any, size: Any, points: Any, image: tuple[int, int]) -> Stroke:
    """Return a stroke; refuse values that are none, and strokes outside an image of some height and width.

    Examples
    --------
    >>> make_stroke("wood", 8, [[-5, 1], [3, 1]], (10, 10)).points
    ((3.0, 1.0),)
    >>> make_stroke("wood", 8, [[12, 1]], (10, 10))
    Traceback (most recent call last):
        ...
    ValueError: A stroke must touch the image of 10x10 pixels (width x height); draw inside it.
    """
    height, width = image
    name = check_label(label) if isinstance(label, str) and label else label
    if not isinstance(name, str):
        raise ValueError(f"The label of a stroke must be a text, got {label!r:.40}.")
    if not _is_number(size) or not 0 < size <= _LARGEST_BRUSH:
        raise ValueError(
            f"The size of a brush must be a number of pixels up to {_LARGEST_BRUSH:.0f}, got {size!r:.40}."
        )
    if not isinstance(points, Sequence) or not 1 <= len(points) <= MOST_POINTS or not all(map(_is_point, points)):
        raise ValueError(f"A stroke must have 1 to {MOST_POINTS} points, each a pair of numbers [x, y].")
    inside = [(float(x), float(y)) for x, y in points if 0 <= x < width and 0 <= y < height]
    if not inside:
        raise ValueError(f"A stroke must touch the image of {width}x{height} pixels (width x height); draw inside it.")
    return Stroke(name, float(size), tuple(inside))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_point(value: Any) -> bool:
    return isinstance(value, Sequence) and len(value) == 2 and all(map(_is_number, value))


class StrokeFile:
    """The strokes on an image, one in a line; every action is on the disk before a method returns.

    The first line says to which image they belong. A file that ends in the middle of a line, after a kill, loses that
    line. Lines with mistakes, after an edit by hand, are left out and named in `problems`. Only one process may have a
    file open.

    Parameters
    ----------
    path : path
        It need not exist.
    image : str
        Name of the image file.
    size : (height, width)
        Of its finest level.

    Attributes
    ----------
    actions : list of Stroke
        All strokes, but those that were taken back.
    classes : list of str
        In the order in which they were first used.
    problems : list of str

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, StrokeFile(Path(folder) / "a.jsonl", "a.png", (10, 10)) as file:
    ...     file.add(make_stroke("wood", 4, [[1, 1], [5, 5]], file.size))
    ...     file.add(make_stroke("stone", 4, [[8, 8]], file.size))
    ...     taken_back = file.undo()
    ...     [stroke.label for stroke in file.actions], file.classes
    (['wood'], ['wood', 'stone'])
    """

    def __init__(self, path: str | Path, image: str, size: tuple[int, int]) -> None:
        self.path, self.image, self.size = Path(path), image, size
        self._lock = LockFile(
            self.path, f"{self.path} is open in another lmfcn label; use that one, or end it, or give another --table."
        )
        self.actions: list[Stroke] = []
        self.classes: list[str] = []
        self.problems: list[str] = []
        self._is_new = True
        try:
            self._read()
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> "StrokeFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let other processes open the file."""
        self._lock.release()

    def add(self, stroke: Stroke) -> None:
        """Append a stroke."""
        points = [[round(x, 1), round(y, 1)] for x, y in stroke.points]
        self._append({"label": stroke.label, "size": round(stroke.size, 1), "points": points, "when": now()})
        self._take(stroke)

    def undo(self) -> bool:
        """Take the last stroke back that is still there; return whether there was one."""
        if not self.actions:
            return False
        self._append({"undo": True, "when": now()})
        self.actions.pop()
        return True

    @property
    def notes(self) -> list[str]:
        """A few of the problems, and how many more there are."""
        more = len(self.problems) - _SHOWN
        return [
            *self.problems[:_SHOWN],
            *([f"{more} more lines of {self.path.name} are left out."] if more > 0 else []),
        ]

    def _take(self, stroke: Stroke) -> None:
        self.actions.append(stroke)
        if stroke.label and stroke.label not in self.classes:
            self.classes.append(stroke.label)

    def _append(self, record: dict[str, Any]) -> None:
        records = [self._header(), record] if self._is_new else [record]
        lines = [json.dumps(entry, ensure_ascii=False) + "\n" for entry in records]
        append_bytes(self.path, "".join(lines).encode())
        self._is_new = False

    def _header(self) -> dict[str, Any]:
        return {"strokes_on": self.image, "width": self.size[1], "height": self.size[0]}

    def _read(self) -> None:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return
        self._is_new = not content.strip()
        if self._is_new:
            return
        try:
            lines = content.decode("utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{self.path} must be a text in UTF-8, but byte {error.start} is not; repair it, or give another"
                " --table."
            ) from error
        self._check_header(lines[0])
        for number, line in enumerate(lines[1:-1], start=2):
            self._read_line(number, line)
        self._read_last(len(lines), lines[-1], content)

    def _check_header(self, line: str) -> None:
        found = _parse(line)
        if not isinstance(found, dict) or "strokes_on" not in found:
            raise ValueError(
                f"{self.path} must start with a line such as {json.dumps(self._header())}; repair that line, or give"
                " another --table."
            )
        if (found.get("height"), found.get("width")) != self.size:
            raise ValueError(
                f"{self.path} holds strokes on an image of {found.get('width')}x{found.get('height')} pixels, but"
                f" {self.image} has {self.size[1]}x{self.size[0]}; give another --table."
            )

    def _read_line(self, number: int, line: str) -> None:
        if not line.strip():
            return
        try:
            self._read_record(_parse(line))
        except ValueError as error:
            self.problems.append(f"{self.path.name}, line {number}: {error} The line is left out.")

    def _read_record(self, record: Any) -> None:
        if not isinstance(record, dict):
            raise ValueError("It is not an object in JSON.")
        if record.get("undo") is True:
            if self.actions:
                self.actions.pop()
            return
        self._take(make_stroke(record.get("label"), record.get("size"), record.get("points"), self.size))

    def _read_last(self, number: int, line: str, content: bytes) -> None:
        """Read the last line, which has no end: it may have been cut off by a kill, and then it is removed."""
        if not line.strip():
            return
        if number > 1 and _parse(line) is None:
            self.problems.append(f"{self.path.name}, line {number}: It ends in the middle. The line is left out.")
            os.truncate(self.path, content.rfind(b"\n") + 1)
            return
        if number > 1:
            self._read_line(number, line)
        append_bytes(self.path, b"\n")


def _parse(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
