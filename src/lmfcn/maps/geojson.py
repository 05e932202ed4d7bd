"""Regions of a label map as GeoJSON, as QuPath writes and reads it, and annotations from such a file.

QuPath's files are a FeatureCollection. Every feature has a polygon in pixels of the finest level, and the properties
`objectType` ("annotation") and `classification` with a name and a colour. https://qupath.readthedocs.io, "Exporting
annotations".
"""

import json
import math
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage

from lmfcn.util.files import write_text

Ring = list[tuple[float, float]]
"""Corners (x, y) of a closed line; the first is repeated at the end."""
Polygon = list[Ring]
"""The outer ring, then those of the holes."""


def label_regions(
    labels: np.ndarray, edges: tuple[np.ndarray, np.ndarray], shown: Collection[int]
) -> Iterator[tuple[int, Polygon]]:
    """Yield the number and the outline of every connected region of a label map.

    Cells that only share a corner are not connected.

    Parameters
    ----------
    labels : array of int (rows, columns)
    edges : pair of arrays (rows + 1,) and (columns + 1,)
        Where the rows and columns of cells start and end, in pixels.
    shown : collection of int
        Labels whose regions are wanted.

    Examples
    --------
    >>> labels = np.array([[1, 1], [0, 1]])
    >>> for number, (outer,) in label_regions(labels, (np.arange(3) * 10, np.arange(3) * 10), [1]):
    ...     print(number, outer)
    1 [(0.0, 0.0), (20.0, 0.0), (20.0, 20.0), (10.0, 20.0), (10.0, 10.0), (0.0, 10.0), (0.0, 0.0)]
    """
    for number in shown:
        parts, _ = ndimage.label(labels == number)
        for part, box in enumerate(ndimage.find_objects(parts), start=1):
            inside = parts[box] == part
            top, left = box[0].start, box[1].start
            rings = [
                [(float(edges[1][column + left]), float(edges[0][row + top])) for row, column in ring]
                for ring in _outlines(inside)
            ]
            # Outer rings run clockwise on the screen, holes the other way round: only the outer area is positive.
            yield number, sorted(rings, key=lambda ring: -signed_area(ring))


def _outlines(inside: np.ndarray) -> list[list[tuple[int, int]]]:
    """Return the closed outlines of a connected mask as corners (row, column), with the mask on their right."""
    follows = _edges(inside)
    outlines = []
    while follows:
        start = min(follows)
        place, direction = start, min(follows[start])
        ring = [place]
        while True:
            follows[place].remove(direction)
            if not follows[place]:
                del follows[place]
            place = (place[0] + direction[0], place[1] + direction[1])
            if place == start:
                break
            turn = _next_direction(follows[place], direction)
            if turn != direction:
                ring.append(place)
            direction = turn
        outlines.append([*ring, start])
    return outlines


Step = tuple[int, int]


def _edges(inside: np.ndarray) -> dict[tuple[int, int], list[Step]]:
    """Return the directions of the sides of cells that start at each corner (row, column), the mask on their right."""
    padded = np.pad(inside, 1)
    follows: dict[tuple[int, int], list[Step]] = {}
    # Where a cell is inside and its neighbour is not, there is a side: start of the side, and its direction.
    sides: list[tuple[Step, tuple[int, int], Step]] = [
        ((-1, 0), (0, 0), (0, 1)),  # nothing above: from the upper left corner to the right
        ((0, 1), (0, 1), (1, 0)),
        ((1, 0), (1, 1), (0, -1)),
        ((0, -1), (1, 0), (-1, 0)),
    ]
    for (down, across), (corner_row, corner_column), step in sides:
        neighbour = padded[1 + down : 1 + down + inside.shape[0], 1 + across : 1 + across + inside.shape[1]]
        for row, column in np.argwhere(inside & ~neighbour).tolist():
            follows.setdefault((row + corner_row, column + corner_column), []).append(step)
    return follows


def _next_direction(steps: list[Step], came: Step) -> Step:
    """Return where an outline goes on. Where two cells touch at a corner it turns left, away from its own cell.

    Then no outline touches itself: what lies on either side of such a corner gets a ring of its own.
    """
    if len(steps) == 1:
        return steps[0]
    left = (-came[1], came[0])
    return left if left in steps else steps[0]


def signed_area(ring: Ring) -> float:
    """Return the area of a ring: positive if it runs clockwise on a screen, where y points down.

    Examples
    --------
    >>> signed_area([(0.0, 0.0), (2.0, 0.0), (2.0, 3.0), (0.0, 3.0), (0.0, 0.0)])
    6.0
    """
    x, y = np.array(ring).T
    return float((x[:-1] * y[1:] - x[1:] * y[:-1]).sum() / 2)


def write_geojson(path: Path, regions: Iterable[tuple[str, Sequence[int], Polygon]]) -> None:
    """Write names, colours (red, green, blue) and polygons as annotations that QuPath imports."""
    features = [
        {
            "type": "Feature",
            "id": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{number} {name}")),  # the same map makes the same file
            "geometry": {"type": "Polygon", "coordinates": polygon},
            "properties": {"objectType": "annotation", "classification": {"name": name, "color": list(color)}},
        }
        for number, (name, color, polygon) in enumerate(regions)
    ]
    write_text(path, json.dumps({"type": "FeatureCollection", "features": features}))


@dataclass(frozen=True)
class Annotation:
    """An annotated region: its class, and its polygons in pixels of the finest level."""

    label: str
    polygons: list[Polygon]


def read_annotations(path: Path) -> list[Annotation]:
    """Return the annotations with a class that a GeoJSON file holds; points, lines and the like are left out.

    Raises
    ------
    ValueError
        If the file is no GeoJSON, or has no polygon with a class.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        features = content.get("features", [content]) if isinstance(content, dict) else content
        found = [annotation for feature in features if (annotation := _annotation(feature)) is not None]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a GeoJSON file with polygons ({error}); export it from QuPath.") from error
    if not found:
        raise ValueError(
            f"{path} has no polygon with a class; give every annotation a class in QuPath and export again."
        )
    return found


def _annotation(feature: dict[str, Any]) -> Annotation | None:
    label = _label(feature.get("properties") or {})
    geometry = feature["geometry"]
    coordinates = {"Polygon": lambda: [geometry["coordinates"]], "MultiPolygon": lambda: geometry["coordinates"]}
    if label is None or geometry["type"] not in coordinates:
        return None
    polygons = [[_ring(ring) for ring in polygon] for polygon in coordinates[geometry["type"]]()]
    return Annotation(label, polygons)


def _label(properties: dict[str, Any]) -> str | None:
    """Return the class of an annotation; QuPath writes parts of a class as a list of names."""
    classification = properties.get("classification")
    if isinstance(classification, dict):
        names = classification.get("names") or [classification.get("name")]
        return ": ".join(map(str, names)) if names[0] else None
    return str(classification) if classification else None


def _ring(points: list[list[float]]) -> Ring:
    ring = [(float(x), float(y)) for x, y, *_ in points]
    if len(ring) < 4 or not all(math.isfinite(value) for point in ring for value in point):
        raise ValueError(f"a ring of {len(ring)} points")
    return ring
