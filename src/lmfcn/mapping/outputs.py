"""The files of a map: labels, probabilities, areas, pictures."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from lmfcn.files import unfinished_file, write_text
from lmfcn.inference.map_grid import Box, MapGrid
from lmfcn.mapping.finished import FinishedMap
from lmfcn.mapping.images import LargeImage, picture_of
from lmfcn.mapping.pictures import as_rgb, picture_size, write_label_picture, write_overlay
from lmfcn.mapping.png import write_palette_png

N_STEPS = 4
_TILE = 256
_SMALL_TIFF = 2**31
_LAST = "map.json"
"""Written last and removed first, so that where it is, everything is."""
_OTHERS = ("labels.png", "probabilities.tif", "areas.csv", "map.png", "overlay.png")


def write_outputs(
    finished: FinishedMap,
    images: tuple[LargeImage, LargeImage],
    output: Path,
    about: dict[str, Any],
    advance: Callable[[], None],
) -> np.ndarray:
    """Write all files of a map into a folder and return the area (n,) in pixels of every entry of the legend.

    Parameters
    ----------
    finished : FinishedMap
    images : pair of LargeImage
        The one that was mapped, and the same at a resolution that is good enough to look at.
    output : Path
    about : dict
        Goes into map.json, beside what is known here.
    advance : callable
        Called after each of the `N_STEPS` steps.
    """
    (output / _LAST).unlink(missing_ok=True)
    grid, legend = finished.grid, finished.legend
    numbered = "; ".join(f"{number} {name}" for number, name in enumerate(legend.names))
    bands = (labels for _, labels in finished.label_bands())
    write_palette_png(output / "labels.png", bands, (grid.columns, grid.rows), legend.colours, numbered)
    advance()
    _write_probabilities(output / "probabilities.tif", finished)
    advance()
    areas = finished.areas()
    _write_areas(output / "areas.csv", legend.names, areas, images[0].size.micrometres)
    advance()
    _write_pictures(finished, images[1], output, areas)
    advance()
    known = {"labels": legend.names, "reject": finished.reject, "micrometres_per_pixel": images[0].size.micrometres}
    write_text(output / _LAST, json.dumps(_described(grid) | known | about, indent=1))
    return areas


def remove_outputs(output: Path) -> None:
    """Remove the files of an older map from a folder, so that they do not stand beside parts of a new one."""
    if (output / _LAST).is_file():
        for name in (_LAST, *_OTHERS):
            (output / name).unlink(missing_ok=True)


def _described(grid: MapGrid) -> dict[str, int]:
    return {
        "window": grid.window,
        "stride": grid.stride,
        "rows": grid.rows,
        "columns": grid.columns,
        "image_height": grid.height,
        "image_width": grid.width,
    }


def _write_pictures(finished: FinishedMap, overview: LargeImage, output: Path, areas: np.ndarray) -> None:
    height, width = picture_size(finished.grid.height, finished.grid.width)
    labels = finished.picture(height, width)
    write_label_picture(output / "map.png", labels, finished.legend, areas)
    shown = as_rgb(picture_of(overview, height, width), overview.size.pixels)
    write_overlay(output / "overlay.png", labels, shown, finished.legend, areas)


def _write_probabilities(path: Path, finished: FinishedMap) -> None:
    """Write a tiled TIFF of float32, a channel per class; NaN where there is no label."""
    shape = (finished.grid.rows, finished.grid.columns, finished.legend.n_classes)
    classes = finished.legend.names[: finished.legend.n_classes]
    with unfinished_file(path) as unfinished:
        tifffile.imwrite(
            unfinished,
            _tiles(finished),
            shape=shape,
            dtype=np.float32,
            tile=(_TILE, _TILE),
            photometric="minisblack",
            planarconfig="contig",
            compression="zlib",
            bigtiff=4 * int(np.prod(shape)) > _SMALL_TIFF,
            metadata={"axes": "YXS", "classes": classes},
        )


def _tiles(finished: FinishedMap) -> Iterator[np.ndarray]:
    everything = finished.grid.everything
    for top in range(0, everything.bottom, _TILE):
        for left in range(0, everything.right, _TILE):
            box = Box(top, left, top + _TILE, left + _TILE).overlap(everything)
            found = finished.store.read(box)
            tile = np.full((_TILE, _TILE, found.shape[2]), np.nan, dtype=np.float32)
            tile[: found.shape[0], : found.shape[1]] = found
            yield tile


def _write_areas(path: Path, names: list[str], areas: np.ndarray, micrometres: float | None) -> None:
    rows = io.StringIO()
    table = csv.writer(rows, lineterminator="\n")
    table.writerow(["label", "pixels", "share", *(["square_millimetres"] if micrometres else [])])
    for name, area in zip(names, areas.tolist(), strict=True):
        size = [f"{area * micrometres**2 / 1e6:.6g}"] if micrometres else []
        table.writerow([name, area, f"{area / areas.sum():.6f}", *size])
    write_text(path, rows.getvalue())
