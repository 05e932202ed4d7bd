"""Where windows lie on a large image: under strokes, and at regular distances over what a viewer shows."""

from dataclasses import dataclass

import numpy as np

from lmfcn.maps.texture_map import Box

MOST_UNDER_STROKE = 40
"""More windows of one stroke teach little, and would let the user wait."""


def along(path: np.ndarray, spacing: float) -> np.ndarray:
    """Return points (m, 2) on a path (n, 2) at equal distances, from its first point on.

    Examples
    --------
    >>> along(np.array([[0.0, 0.0], [5.0, 0.0], [5.0, 4.0]]), 4.0).tolist()
    [[0.0, 0.0], [4.0, 0.0], [5.0, 3.0]]
    """
    lengths = np.hypot(*np.diff(path, axis=0).T) if len(path) > 1 else np.zeros(0)
    ends = np.append(0.0, lengths.cumsum())
    places = np.arange(0.0, ends[-1] + 1e-9, spacing)
    return np.stack([np.interp(places, ends, path[:, axis]) for axis in (0, 1)], axis=1)


def distances_to(path: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the distance of points (m, 2) to the nearest place on a path (n, 2).

    Examples
    --------
    >>> distances_to(np.array([[0.0, 0.0], [4.0, 0.0]]), np.array([[2.0, 3.0], [7.0, 4.0]])).tolist()
    [3.0, 5.0]
    """
    starts, steps = path[:, None], np.diff(path, axis=0, append=path[-1:])[:, None]
    squared = (steps**2).sum(axis=2)
    shares = ((points - starts) * steps).sum(axis=2) / np.where(squared == 0, 1, squared)
    nearest = starts + shares.clip(0, 1)[..., None] * steps
    found: np.ndarray = np.sqrt(((points - nearest) ** 2).sum(axis=2)).min(axis=0)
    return found


def centres_under(path: np.ndarray, size: float, window: int) -> np.ndarray:
    """Return the centres (m, 2) of the windows under a stroke: at half a window along it, and across a wide brush.

    Parameters
    ----------
    path : array (n, 2)
    size : float
        Diameter of the brush.
    window : int
        Side of a window.
    """
    spacing = window / 2
    line = along(path, spacing)
    n_beside = int(max(0.0, size - window) / 2 / spacing)
    if n_beside:
        steps = spacing * np.arange(-n_beside, n_beside + 1)
        offsets = np.stack(np.meshgrid(steps, steps), axis=2).reshape(-1, 2)
        offsets = offsets[np.hypot(*offsets.T) <= (size - window) / 2]
        line = _spread((line[:, None] + offsets[np.argsort(np.hypot(*offsets.T), kind="stable")]), 0.9 * spacing)
    chosen = np.linspace(0, len(line) - 1, min(len(line), MOST_UNDER_STROKE)).round().astype(int)
    return line[chosen]


def _spread(points: np.ndarray, least: float) -> np.ndarray:
    """Return points (m, 2) of those (n, k, 2) beside a line, none nearer than `least` to an earlier one."""
    flat = points.swapaxes(0, 1).reshape(-1, 2)  # the line itself first
    kept = flat[:1]
    for point in flat[1:]:
        if ((kept - point) ** 2).sum(axis=1).min() >= least**2:
            kept = np.append(kept, point[None], axis=0)
    return kept


@dataclass(frozen=True)
class Lattice:
    """Windows at equal distances over an image: a quarter window at level 0, twice as much at every further level.

    So the windows of a level are also windows of the finer ones.

    Attributes
    ----------
    height, width : int
        Of the image.
    window : int

    Examples
    --------
    >>> lattice = Lattice(height=100, width=200, window=20)
    >>> lattice.shape(1), lattice.shape(3)
    ((9, 19), (3, 5))
    >>> lattice.level_of(Box(0, 0, 100, 200), most=20)
    3
    """

    height: int
    width: int
    window: int

    def step(self, level: int) -> int:
        """Return the distance between windows in pixels."""
        return max(1, self.window // 4) << level

    def shape(self, level: int) -> tuple[int, int]:
        """Return how many rows and columns of windows there are."""
        step = self.step(level)
        return (self.height - self.window) // step + 1, (self.width - self.window) // step + 1

    def level_of(self, view: Box, most: int) -> int:
        """Return the finest level with at most so many windows in a view."""
        level = 0
        while np.prod(self.windows_in(view, level).shape) > most:
            level += 1
        return level

    def windows_in(self, view: Box, level: int) -> Box:
        """Return the windows whose cells touch a view."""
        ends = []
        for axis in (0, 1):
            edges = self.edges(level, axis)
            first = int(np.searchsorted(edges, view[axis], side="right")) - 1
            last = int(np.searchsorted(edges, view[axis + 2], side="left"))
            ends.append((min(max(0, first), len(edges) - 2), max(1, min(last, len(edges) - 1))))
        (top, bottom), (left, right) = ends
        return Box(top, left, bottom, right)

    def edges(self, level: int, axis: int) -> np.ndarray:
        """Return where the cells of windows start and end on an axis: the pixels whose nearest window they are."""
        step, n_windows = self.step(level), self.shape(level)[axis]
        inner = np.arange(1, n_windows) * step + (self.window - step) / 2
        return np.concatenate([[0.0], inner, [(self.height, self.width)[axis]]])

    def corners(self, view: Box, level: int) -> np.ndarray:
        """Return the upper left corners (n, 2) of the windows in a view as rows and columns, the central ones first."""
        windows = self.windows_in(view, level)
        rows, columns = np.meshgrid(np.arange(*windows.row_ends), np.arange(*windows.column_ends), indexing="ij")
        found = np.stack([rows.ravel(), columns.ravel()], axis=1) * self.step(level)
        centre = np.array([view.top + view.bottom - self.window, view.left + view.right - self.window]) / 2
        ordered: np.ndarray = found[np.argsort(((found - centre) ** 2).sum(axis=1), kind="stable")]
        return ordered

    def cell(self, corner: tuple[int, int], level: int) -> tuple[float, float, float, float]:
        """Return left, top, right and bottom of the cell of a window."""
        sides = []
        for axis in (0, 1):
            edges, number = self.edges(level, axis), corner[axis] // self.step(level)
            sides.append((float(edges[number]), float(edges[number + 1])))
        (top, bottom), (left, right) = sides
        return left, top, right, bottom

    def around(self, centres: np.ndarray) -> list[tuple[int, int]]:
        """Return the corners (row, column) of the windows with some centres (n, 2) in x and y, moved into the image."""
        columns, rows = np.rint(centres - self.window / 2).astype(int).T
        rows, columns = rows.clip(0, self.height - self.window), columns.clip(0, self.width - self.window)
        return list(zip(rows.tolist(), columns.tolist(), strict=True))
