"""Tiles of a large image that lie inside annotated regions: training images for maps of such images."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from lmfcn.data.collection import ImageCollection
from lmfcn.data.framing import Color
from lmfcn.maps.geojson import Annotation, Polygon, read_annotations
from lmfcn.maps.large_image import ColoredImage, LargeImage, ScaledImage
from lmfcn.maps.readers import View, open_level, resolve_view
from lmfcn.maps.texture_map import Box

_CELLS = 8
"""Cells on the side of a tile, each of which must lie inside: a corner of a polygon is cut off by less than that."""

_LARGEST_MASK = 2**26
_MOST_BYTES = 2**33


def open_regions(
    image: Path, regions: Path, tile: int, *, resolution: float | None = None, color: Color = "keep"
) -> ImageCollection:
    """Cut tiles out of the annotated regions of an image; tiles of one annotation are a group.

    Parameters
    ----------
    image : Path
        Anything that `lmfcn map` reads.
    regions : Path
        GeoJSON as QuPath exports it, in pixels of the finest level of the image.
    tile : int
        Side in pixels; tiles lie side by side, wholly inside their annotation.
    resolution : float, optional
        Micrometres per pixel to cut at; by default the finest level of the file.
    color : "keep", "grey" or "rgb"

    Returns
    -------
    ImageCollection
        With the classes of the annotations as labels.
    """
    opened = open_image(image, resolution, color)
    annotations = read_annotations(regions)
    height, width = opened.size.levels[0]
    factor = opened.size.width / width, opened.size.height / height
    boxes = [list(tiles_inside(annotation, factor, tile, opened)) for annotation in annotations]
    numbers = np.repeat(np.arange(len(boxes)), [len(found) for found in boxes])
    labels = np.array([annotation.label for annotation in annotations])[numbers]
    _check(boxes, annotations, (regions, tile))
    flat = [box for found in boxes for box in found]
    _check_memory(len(flat), tile, opened)
    return ImageCollection(np.stack([read_box(opened, box) for box in flat]), labels, groups=numbers)


def tiles_inside(annotation: Annotation, factor: tuple[float, float], tile: int, image: LargeImage) -> Iterator[Box]:
    """Yield the boxes of all tiles inside an annotation, from its upper left corner on.

    Parameters
    ----------
    annotation : Annotation
    factor : (x, y)
        From pixels of the annotation to those of the image.
    tile : int
    image : LargeImage
    """
    for polygon in annotation.polygons:
        points = np.array(polygon[0]) * factor
        left, top = np.floor(points.min(axis=0)).clip(0).astype(int).tolist()
        right, bottom = np.ceil(points.max(axis=0)).astype(int).tolist()
        right, bottom = min(right, image.size.width), min(bottom, image.size.height)
        rows, columns = (bottom - top) // tile, (right - left) // tile
        if rows < 1 or columns < 1:
            continue
        inside = _mask(polygon, factor, (left, top), (rows, columns), tile)
        for row, column in np.argwhere(inside).tolist():
            corner = top + row * tile, left + column * tile
            yield Box(*corner, corner[0] + tile, corner[1] + tile)


def _mask(
    polygon: Polygon, factor: tuple[float, float], origin: tuple[int, int], shape: tuple[int, int], tile: int
) -> np.ndarray:
    """Return which tiles (rows, columns) lie inside a polygon, and not in its holes."""
    rows, columns = shape
    if rows * columns * _CELLS**2 > _LARGEST_MASK:
        raise ValueError(
            f"An annotation has room for {rows}x{columns} tiles of {tile} pixels; choose larger tiles, a coarser"
            " resolution, or draw smaller regions."
        )
    canvas = Image.new("1", (columns * _CELLS, rows * _CELLS))
    draw = ImageDraw.Draw(canvas)
    for number, ring in enumerate(polygon):
        cells = (np.array(ring) * factor - origin) * (_CELLS / tile) - 0.5  # Pillow draws from centre to centre
        draw.polygon([tuple(point) for point in cells.tolist()], fill=0 if number else 1)
    cells_of_tiles = np.asarray(canvas).reshape(rows, _CELLS, columns, _CELLS)
    return np.asarray(cells_of_tiles.all(axis=(1, 3)))


def open_image(path: Path, resolution: float | None = None, color: Color = "keep") -> LargeImage:
    """Open an image of any size at a resolution in micrometres per pixel, by default at its finest level."""
    view = resolve_view(path, View(), resolution)
    image = open_level(path, view)
    image = image if color == "keep" else ColoredImage(image, color)
    return image if view.scale == 1 else ScaledImage(image, view.scale)


def read_box(image: LargeImage, box: Box) -> np.ndarray:
    """Return the pixels of a box; raise ValueError if a part of it cannot be read."""
    region = image.read(box)
    if region.missing:
        raise ValueError(f"{image.path} cannot be read at {tuple(box)}: {region.missing[0][1]}.")
    return region.pixels


def _check(boxes: Sequence[Sequence[Box]], annotations: Sequence[Annotation], about: tuple[Path, int]) -> None:
    """Refuse annotations without room for a tile in a whole class."""
    regions, tile = about
    labels = {annotation.label for annotation in annotations}
    filled = {annotation.label for annotation, found in zip(annotations, boxes, strict=True) if found}
    if empty := sorted(labels - filled):
        raise ValueError(
            f"{regions}: no tile of {tile}x{tile} pixels fits into the annotations of {', '.join(map(repr, empty))};"
            " draw larger ones, or choose smaller tiles."
        )
    if len(filled) < 2:
        raise ValueError(f"{regions} has annotations of one class, {min(filled)!r}; at least two are needed.")


def _check_memory(n_tiles: int, tile: int, image: LargeImage) -> None:
    n_bytes = n_tiles * tile**2 * image.size.channels * image.dtype.itemsize
    if n_bytes > _MOST_BYTES:
        raise ValueError(
            f"{n_tiles:,} tiles would take {n_bytes / 1e9:.0f} GB; draw smaller regions, or choose a coarser"
            " resolution."
        )
