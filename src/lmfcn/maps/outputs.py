"""Write a finished map: label image, probabilities, areas, pictures and legend."""

import csv
import io
import json
import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from PIL import Image, ImageDraw, ImageFont

from lmfcn.maps.blocks import BlockStore, TissueMask
from lmfcn.maps.geojson import label_regions, write_geojson
from lmfcn.maps.large_image import LargeImage, resize_whole
from lmfcn.maps.texture_map import Box, MapGrid
from lmfcn.util.class_style import class_color
from lmfcn.util.files import atomic_path, remove_unfinished, write_text

_MOST_CLASSES = 250
_UNLABELLED = {
    "rejected": (150, 150, 150),
    "glass": (255, 255, 255),
    "unreadable": (0, 0, 0),
    "none of these": (90, 90, 90),
}
"""Entries of the legend that are not classes, and their colours; their numbers follow those of the classes."""


@dataclass(frozen=True)
class Legend:
    """The names and colours of the numbers in a label map.

    Attributes
    ----------
    names : list of str
        The classes in the model's order, then rejected, glass, unreadable and none of these; all different.
    colours : array of uint8 (n, 3)
    """

    names: list[str]
    colours: np.ndarray

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.names) - len(_UNLABELLED)

    @property
    def rejected(self) -> int:
        """Label number of windows whose most probable label is below the threshold."""
        return self.n_classes

    @property
    def glass(self) -> int:
        """Label number of windows without tissue."""
        return self.n_classes + 1

    @property
    def unreadable(self) -> int:
        """Label number of windows on damaged parts of the image."""
        return self.n_classes + 2

    @property
    def no_class(self) -> int:
        """Label number of windows that look like none of the classes."""
        return self.n_classes + 3

    def labels(
        self, channels: np.ndarray, wanted: np.ndarray | None, reject: float, none_of_these: float | None = None
    ) -> np.ndarray:
        """Return the label numbers (rows, columns) for channels (rows, columns, n_channels).

        These are the probabilities of all classes and, with `none_of_these`, the typicality.
        """
        unknown = np.isnan(channels[..., 0])
        known = np.nan_to_num(channels[..., : self.n_classes])
        labels = known.argmax(axis=2).astype(np.uint8)
        labels[known.max(axis=2) < reject] = self.rejected
        if none_of_these is not None:
            labels[channels[..., self.n_classes] <= none_of_these] = self.no_class
        labels[unknown] = self.unreadable
        if wanted is not None:
            labels[~wanted] = self.glass
        return labels


def make_legend(classes: np.ndarray) -> Legend:
    """Return the legend for the classes of a model."""
    if len(classes) > _MOST_CLASSES:
        raise ValueError(f"A map can show at most {_MOST_CLASSES} classes, but the model has {len(classes)}.")
    colours = [tuple(bytes.fromhex(class_color(number)[1:])) for number in range(len(classes))]
    names = [str(label) for label in classes.tolist()]
    for unlabelled in _UNLABELLED:
        names.append(_unused_name(names, unlabelled))
    return Legend(names, np.array([*colours, *_UNLABELLED.values()], dtype=np.uint8))


def _unused_name(names: list[str], name: str) -> str:
    """Return a name that no other entry has."""
    while name in names:
        name = f"{name} (no class)"
    return name


def write_palette_png(
    path: Path, bands: Iterable[np.ndarray], width_height: tuple[int, int], palette: np.ndarray, text: str
) -> None:
    """Write numbers below 256 as a PNG image with a palette, complete or not at all.

    Parameters
    ----------
    path : Path
    bands : iterable of array of uint8 (rows, width)
        From top to bottom.
    width_height : (int, int)
    palette : array of uint8 (n, 3)
    text : str
        Comment in the file.
    """
    compressor = zlib.compressobj(6)
    with atomic_path(path) as unfinished, unfinished.open("wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", struct.pack(">IIBBBBB", *width_height, 8, 3, 0, 0, 0)))
        file.write(_chunk(b"PLTE", palette.tobytes()))
        file.write(_chunk(b"iTXt", b"Comment\0\0\0\0\0" + text.encode()))
        for band in bands:
            rows = np.pad(band, ((0, 0), (1, 0)))  # every row starts with the number of its filter, 0 for none
            if compressed := compressor.compress(rows.tobytes()):
                file.write(_chunk(b"IDAT", compressed))
        file.write(_chunk(b"IDAT", compressor.flush()) + _chunk(b"IEND", b""))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


LARGEST_PICTURE = 2048
_SMALLEST_PICTURE = 512
_OPACITY = 0.45
_LINE, _SQUARE, _MARGIN, _FONT_SIZE = 26, 16, 16, 15


def picture_size(height: int, width: int) -> tuple[int, int]:
    """Return the size of the picture of an image: large images are reduced, small ones enlarged.

    Examples
    --------
    >>> picture_size(30000, 15000), picture_size(100, 200)
    ((2048, 1024), (256, 512))
    """
    longest = max(height, width)
    factor = min(1.0, LARGEST_PICTURE / longest) if longest >= _SMALLEST_PICTURE else _SMALLEST_PICTURE / longest
    return max(1, round(height * factor)), max(1, round(width * factor))


def write_label_picture(path: Path, labels: np.ndarray, legend: Legend, areas: np.ndarray) -> None:
    """Write labels (height, width) in their colours."""
    _write_png(path, _add_legend(legend.colours[labels], legend, areas))


def write_overlay(path: Path, labels: np.ndarray, image: np.ndarray, legend: Legend, areas: np.ndarray) -> None:
    """Write labels (height, width) over an image (height, width, 3); rejected windows and glass get no colour."""
    blended = blend_labels(labels, image, legend)
    _write_png(path, _add_legend(blended, legend, areas, hide_transparent=True))


def blend_labels(labels: np.ndarray, image: np.ndarray, legend: Legend) -> np.ndarray:
    """Return an image (height, width, 3) of uint8 with the colours of labels (height, width) over it."""
    background = image.astype(np.float32)
    colours = legend.colours.astype(np.float32)
    opacity = np.full(len(colours), _OPACITY, dtype=np.float32)
    opacity[[legend.rejected, legend.glass]] = 0
    opacity[legend.unreadable] = 1
    shares = opacity[labels][..., None]
    return np.rint(background * (1 - shares) + colours[labels] * shares).astype(np.uint8)


def to_rgb(pixels: np.ndarray, kind: str) -> np.ndarray:
    """Convert an image (height, width, channels) of any pixel type to uint8 RGB for display."""
    shown = pixels[..., :3] if pixels.shape[2] >= 3 else pixels[..., :1]
    shown = shown.astype(np.float32)
    if kind != "uint8":
        low, high = np.percentile(shown, (1, 99))
        shown = (shown - low) * (255 / max(high - low, 1e-9))
    rgb = np.rint(shown.clip(0, 255)).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(rgb, (*rgb.shape[:2], 3)))


def _add_legend(
    pixels: np.ndarray, legend: Legend, areas: np.ndarray, *, hide_transparent: bool = False
) -> Image.Image:
    """Return a picture with the legend to its right: colour, name and share of the area."""
    font = ImageFont.load_default(_FONT_SIZE)
    shown = [number for number in range(len(areas)) if number < legend.n_classes or areas[number]]
    texts = [f"{legend.names[number]}  {areas[number] / areas.sum():.1%}" for number in shown]
    text_width = max(round(font.getlength(text)) for text in texts)
    height, width = pixels.shape[:2]
    panel = _SQUARE + text_width + 3 * _MARGIN
    canvas = Image.new("RGB", (width + panel, max(height, _LINE * len(shown) + 2 * _MARGIN)), "white")
    canvas.paste(Image.fromarray(pixels), (0, 0))
    draw = ImageDraw.Draw(canvas)
    for line, (number, text) in enumerate(zip(shown, texts, strict=True)):
        left, top = width + _MARGIN, _MARGIN + line * _LINE
        colour = tuple(legend.colours[number].tolist())
        if hide_transparent and number in (legend.rejected, legend.glass):
            colour = (255, 255, 255)
        draw.rectangle((left, top, left + _SQUARE, top + _SQUARE), fill=colour, outline=(90, 90, 90))
        draw.text((left + _SQUARE + _MARGIN // 2, top - 1), text, fill=(30, 30, 30), font=font)
    return canvas


def _write_png(path: Path, picture: Image.Image) -> None:
    with atomic_path(path) as unfinished:
        picture.save(unfinished, format="PNG", optimize=False)


_BAND = 64


@dataclass(frozen=True)
class FinishedMap:
    """The finished blocks of a map, and how to show them.

    Attributes
    ----------
    store : BlockStore
    grid : MapGrid
    legend : Legend
    tissue : TissueMask or None
    reject : float
        Smallest probability of a label that is shown.
    none_of_these : float or None
        Typicality up to which a window gets no label.
    """

    store: BlockStore
    grid: MapGrid
    legend: Legend
    tissue: TissueMask | None
    reject: float
    none_of_these: float | None = None

    def label_bands(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the map from top to bottom: number of the first row, and labels (rows, columns)."""
        for top in range(0, self.grid.rows, _BAND):
            box = Box(top, 0, min(top + _BAND, self.grid.rows), self.grid.columns)
            wanted = None if self.tissue is None else self.tissue.select_windows(self.grid, box)
            yield top, self.legend.labels(self.store.read(box), wanted, self.reject, self.none_of_these)

    def areas(self) -> np.ndarray:
        """Return the area (n,) of each label: the pixels whose nearest window has it."""
        heights = self.grid.extents(self.grid.rows, self.grid.height).astype(float)
        widths = self.grid.extents(self.grid.columns, self.grid.width).astype(float)
        areas = np.zeros(len(self.legend.names))
        for top, labels in self.label_bands():
            weights = heights[top : top + len(labels), None] * widths
            areas += np.bincount(labels.ravel(), weights.ravel(), minlength=len(areas))
        return np.rint(areas).astype(np.int64)

    def picture(self, height: int, width: int) -> np.ndarray:
        """Return the labels as a picture (height, width) of the whole image."""
        rows = self._nearest_windows(height, self.grid.height, self.grid.rows)
        columns = self._nearest_windows(width, self.grid.width, self.grid.columns)
        picture = np.empty((height, width), dtype=np.uint8)
        for top, labels in self.label_bands():
            in_band = (rows >= top) & (rows < top + len(labels))
            picture[in_band] = labels[rows[in_band, None] - top, columns]
        return picture

    def _nearest_windows(self, n_shown: int, length: int, n_windows: int) -> np.ndarray:
        pixels = (np.arange(n_shown) + 0.5) * length / n_shown
        return self.grid.nearest(pixels.astype(int), n_windows)


N_STEPS = 4
_TILE = 256
_SMALL_TIFF = 2**31
_LAST = "map.json"
"""Written last and removed first: if it exists, all other files are complete."""
_OTHERS = (
    "labels.png",
    "probabilities.tif",
    "areas.csv",
    "map.png",
    "overlay.png",
    "regions.geojson",
    "labels.ome.tif",
)


def write_outputs(
    finished: FinishedMap,
    images: tuple[LargeImage, LargeImage],
    output: Path,
    about: dict[str, Any],
    advance: Callable[[], None],
    others: Collection[str] = (),
) -> np.ndarray:
    """Write all files of a map into a folder and return the area (n,) in pixels of every entry of the legend.

    Parameters
    ----------
    finished : FinishedMap
    images : pair of LargeImage
        The mapped image, and the same image at a resolution for pictures.
    output : Path
    about : dict
        Additional entries of map.json.
    advance : callable
        Called after each of the `N_STEPS` steps.
    others : collection of "geojson" and "ome-tiff"
        What to write beside the usual files.
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
    if "geojson" in others:
        _write_regions(output / "regions.geojson", finished, images[0])
    if "ome-tiff" in others:
        _write_ome(output / "labels.ome.tif", finished, images[0].size.micrometres)
    advance()
    known = {"labels": legend.names, "reject": finished.reject, "micrometres_per_pixel": images[0].size.micrometres}
    write_text(output / _LAST, json.dumps(_describe_grid(grid) | known | about, indent=1))
    return areas


def remove_outputs(output: Path) -> None:
    """Remove the files of an older map from a folder, so that they do not mix with those of a new one."""
    if (output / _LAST).is_file():
        for name in (_LAST, *_OTHERS):
            (output / name).unlink(missing_ok=True)


def remove_unfinished_outputs(output: Path) -> None:
    """Remove what a killed process left unfinished in the folder of a map."""
    remove_unfinished(output, (_LAST, *_OTHERS))
    remove_unfinished(output / "blocks", ("block-*", "settings.json"))


def _write_regions(path: Path, finished: FinishedMap, image: LargeImage) -> None:
    """Write a polygon for every connected part of a label, in pixels of the finest level of the file."""
    grid, legend, (height, width) = finished.grid, finished.legend, image.size.levels[0]
    down = grid.extents(grid.rows, grid.height).cumsum() * (height / grid.height)
    across = grid.extents(grid.columns, grid.width).cumsum() * (width / grid.width)
    edges = np.append(0, down), np.append(0, across)
    labels = np.concatenate([band for _, band in finished.label_bands()])
    shown = [*range(legend.n_classes), legend.no_class]
    regions = label_regions(labels, edges, shown)
    write_geojson(path, ((legend.names[number], legend.colours[number].tolist(), rings) for number, rings in regions))


def _write_ome(path: Path, finished: FinishedMap, micrometres: float | None) -> None:
    """Write one pixel for every stride, from the corner of the image on, so that other programs can lay it over."""
    grid = finished.grid
    height, width = (-(-length // grid.stride) for length in (grid.height, grid.width))
    numbered = "; ".join(f"{number} {name}" for number, name in enumerate(finished.legend.names))
    metadata: dict[str, Any] = {"axes": "YX", "Name": "labels", "Description": numbered}
    if micrometres is not None:
        sides = {"Y": grid.height / height, "X": grid.width / width}
        metadata |= {f"PhysicalSize{axis}": side * micrometres for axis, side in sides.items()}
        metadata |= {f"PhysicalSize{axis}Unit": "µm" for axis in sides}
    with atomic_path(path) as unfinished:
        tifffile.imwrite(
            unfinished,
            finished.picture(height, width),
            ome=True,
            tile=(_TILE, _TILE),
            compression="zlib",
            metadata=metadata,
        )


def _describe_grid(grid: MapGrid) -> dict[str, int]:
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
    shown = to_rgb(resize_whole(overview, height, width), overview.size.pixels)
    write_overlay(output / "overlay.png", labels, shown, finished.legend, areas)


def _write_probabilities(path: Path, finished: FinishedMap) -> None:
    """Write a tiled TIFF of float32, a channel per class; NaN where there is no label."""
    shape = (finished.grid.rows, finished.grid.columns, finished.legend.n_classes)
    classes = finished.legend.names[: finished.legend.n_classes]
    with atomic_path(path) as unfinished:
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
    everything = finished.grid.all_windows
    for top in range(0, everything.bottom, _TILE):
        for left in range(0, everything.right, _TILE):
            box = Box(top, left, top + _TILE, left + _TILE).overlap(everything)
            found = finished.store.read(box)[..., : finished.legend.n_classes]
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
