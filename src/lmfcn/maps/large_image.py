"""Read images of any size region by region: the common interface, resolution levels and pixel sizes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from PIL import Image

from lmfcn.data.arrays import pixel_kind
from lmfcn.data.framing import Color, to_color
from lmfcn.data.image_files import read_image
from lmfcn.data.tiff_pages import open_tiff
from lmfcn.maps.texture_map import Box, tile_box

_MICROMETRE = 5  # tifffile's code for this unit of resolution
_INCH = 25400.0
_MICROMETRES = {
    **dict.fromkeys(("\u00b5m", "\u03bcm", "um", "micron", "microns", "micrometer", "micrometre"), 1.0),
    "nm": 1e-3,
    "mm": 1e3,
    "cm": 1e4,
    "m": 1e6,
    "inch": _INCH,
    "in": _INCH,
}
_PLACEHOLDERS = (72, 96)  # dots per inch that programs write by default


def micrometres_per_pixel(path: Path) -> float | None:
    """Return the side of a pixel of the finest level of a TIFF; None if it is unknown, or if the file is no TIFF."""
    try:
        with open_tiff(path) as tiff:
            return read_micrometres(tiff)
    # Damaged metadata may raise anything; the pixels can still be read.
    except Exception:
        return None


def read_micrometres(tiff: tifffile.TiffFile) -> float | None:
    """Return the side of a pixel of the finest level, from OME or ImageJ metadata or else the resolution tag."""
    from_ome = _from_ome(tiff.ome_metadata) if tiff.is_ome else None
    page: Any = tiff.pages[0]
    if from_ome is not None or "XResolution" not in page.tags:
        return from_ome
    if tiff.is_imagej:
        unit = str((tiff.imagej_metadata or {}).get("unit", "")).replace("\\u00B5", "\u00b5")
        per_unit = float(page.get_resolution()[0])
        return _MICROMETRES[unit] / per_unit if unit in _MICROMETRES and per_unit > 0 else None
    return _from_resolution(page)


def _from_resolution(page: Any) -> float | None:
    if page.resolutionunit not in (2, 3):  # inch, centimetre
        return None
    per_micrometre = float(page.get_resolution(_MICROMETRE)[0])
    if per_micrometre <= 0 or any(abs(per_micrometre * _INCH - dots) < 0.5 for dots in _PLACEHOLDERS):
        return None
    return 1 / per_micrometre


def _from_ome(text: str | None) -> float | None:
    pixels = re.search(r"<(?:\w+:)?Pixels\b[^>]*>", text or "")
    attributes = dict(re.findall(r'\b(PhysicalSizeX(?:Unit)?)="([^"]*)"', pixels[0])) if pixels else {}
    unit = _MICROMETRES.get(attributes.get("PhysicalSizeXUnit", "um"))
    try:
        size = float(attributes["PhysicalSizeX"])
    except (KeyError, ValueError):
        return None
    return size * unit if unit is not None and 0 < size < float("inf") else None


def check_level(path: Path, level: int, n_levels: int) -> None:
    """Refuse a level that a file does not have."""
    if not 0 <= level < n_levels:
        levels = "one level, 0" if n_levels == 1 else f"{n_levels} levels, 0 (the finest) to {n_levels - 1}"
        raise ValueError(f"{path} has {levels}, got {level}.")


def choose_level(path: Path, widths: list[int], micrometres: float | None, wanted: float) -> tuple[int, float]:
    """Return the coarsest level with pixels no larger than `wanted` micrometres, and the scale to reach `wanted`.

    Parameters
    ----------
    path : Path
    widths : list of int
        Widths of all levels in pixels, the finest first.
    micrometres : float or None
        Side of a pixel of the finest level.
    wanted : float

    Examples
    --------
    >>> choose_level(Path("a.svs"), [4000, 1000, 250], 0.25, 0.5)
    (0, 0.5)
    >>> choose_level(Path("a.svs"), [4000, 1000, 250], 0.25, 1.0)
    (1, 1.0)
    """
    if wanted <= 0:
        raise ValueError(f"resolution must be a positive number of micrometres, got {wanted}.")
    if micrometres is None:
        raise ValueError(f"{path} does not contain its pixel size; choose a level or a scale instead.")
    sides = [micrometres * widths[0] / width for width in widths]
    fine_enough = [level for level, side in enumerate(sides) if side <= wanted * 1.001]
    level = max(fine_enough, default=0)
    scale = sides[level] / wanted
    return level, 1.0 if abs(scale - 1) < 1e-3 else scale


_SCALED_TILE = 512
_AT_ONCE = 1024
_FILTER_REACH = 3  # pixels that bilinear resizing depends on, and one more


@dataclass(frozen=True)
class Region:
    """Pixels of a part of an image.

    Attributes
    ----------
    pixels : array (height, width, channels)
        Zero where nothing could be read.
    missing : list of (Box, reason)
        Parts that could not be read.
    """

    pixels: np.ndarray
    missing: list[tuple[Box, str]] = field(default_factory=list)


@dataclass(frozen=True)
class ImageSize:
    """Size and kind of an image, known before its pixels are read.

    Attributes
    ----------
    height, width, channels : int
    pixels : "uint8", "uint16" or "float"
    levels : list of (height, width)
        All resolutions in the file, the finest first.
    micrometres : float, optional
        Side of a pixel of this level.
    """

    height: int
    width: int
    channels: int
    pixels: str
    levels: list[tuple[int, int]]
    micrometres: float | None = None


class LargeImage:
    """An image that is read in parts; subclasses implement `read_tile`.

    Attributes
    ----------
    path : Path
    size : ImageSize
    tile : (height, width)
        Size of the tiles in which the image is read.
    """

    path: Path
    size: ImageSize
    tile: tuple[int, int]

    def read(self, box: Box) -> Region:
        """Return the pixels of a box; tiles that cannot be read are zero, and listed as missing."""
        region = Region(np.zeros((*box.shape, self.size.channels), dtype=self.dtype))
        for tile in self._tiles(box):
            common = tile.overlap(box)
            try:
                region.pixels[common.within(box)] = self.read_tile(tile)[common.within(tile)]
            # Decoders raise almost any exception on damaged data, but too little memory is not the fault of the image.
            except MemoryError:
                raise
            except Exception as error:
                region.missing.append((tile, (str(error).splitlines() or [type(error).__name__])[0][:100]))
        return region

    def read_tile(self, tile: Box) -> np.ndarray:
        """Return the pixels (height, width, channels) of one whole tile."""
        raise NotImplementedError

    def _tiles(self, box: Box) -> list[Box]:
        height, width = self.tile
        whole = Box(0, 0, self.size.height, self.size.width)
        tops = range(box.top // height * height, box.bottom, height)
        lefts = range(box.left // width * width, box.right, width)
        return [Box(top, left, top + height, left + width).overlap(whole) for top in tops for left in lefts]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the pixels."""
        return np.dtype(np.float32 if self.size.pixels == "float" else self.size.pixels)


class WholeImage(LargeImage):
    """A plain image file, decoded as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pixels = read_image(path)
        height, width, channels = self._pixels.shape
        self.tile = (height, width)
        kind, micrometres = pixel_kind(self._pixels), micrometres_per_pixel(path)
        self.size = ImageSize(height, width, channels, kind, [(height, width)], micrometres)

    def read_tile(self, tile: Box) -> np.ndarray:
        """Return all pixels."""
        return self._pixels[tile.slices]


class ColoredImage(LargeImage):
    """An image converted to grey or RGB."""

    def __init__(self, image: LargeImage, color: Color) -> None:
        self.path, self.tile = image.path, image.tile
        self._image, self._color = image, color
        size = image.size
        channels = to_color(np.zeros((1, 1, size.channels), dtype=np.uint8), color).shape[
            2
        ]  # also refuses other conversions
        self.size = ImageSize(size.height, size.width, channels, size.pixels, size.levels, size.micrometres)

    def read_tile(self, tile: Box) -> np.ndarray:
        """Return the converted pixels of one tile."""
        return to_color(self._image.read_tile(tile), self._color)


class ScaledImage(LargeImage):
    """A scaled image; its tiles equal those of an image that was scaled as a whole."""

    def __init__(self, image: LargeImage, scale: float) -> None:
        self.path, self.tile = image.path, (_SCALED_TILE, _SCALED_TILE)
        self._image, size = image, image.size
        height, width = (max(1, round(side * scale)) for side in (size.height, size.width))
        micrometres = None if size.micrometres is None else size.micrometres / scale
        self.size = ImageSize(height, width, size.channels, size.pixels, size.levels, micrometres)

    def read_tile(self, tile: Box) -> np.ndarray:
        """Return the scaled pixels of one tile."""
        source = self._image.size
        ratios = source.height / self.size.height, source.width / self.size.width
        exact = [place * ratio for place, ratio in zip(tile, ratios * 2, strict=True)]
        ahead = [int(_FILTER_REACH * max(1.0, ratio)) for ratio in ratios]
        wide = Box(
            *(int(place) - more for place, more in zip(exact[:2], ahead, strict=True)),
            *(int(place) + 1 + more for place, more in zip(exact[2:], ahead, strict=True)),
        )
        wide = wide.overlap(Box(0, 0, source.height, source.width))
        region = self._image.read(wide)
        if region.missing:
            raise ValueError(region.missing[0][1])
        top, left, bottom, right = (
            place - start for place, start in zip(exact, (wide.top, wide.left) * 2, strict=True)
        )
        return _resize(region.pixels, tile.shape, (left, top, right, bottom))


def _resize(pixels: np.ndarray, size: tuple[int, int], box: tuple[float, float, float, float]) -> np.ndarray:
    """Scale the part of an image within `box` (left, top, right, bottom), channel by channel."""
    planes = [
        np.asarray(Image.fromarray(plane.astype(np.float32)).resize(size[::-1], Image.Resampling.BILINEAR, box=box))
        for plane in np.moveaxis(pixels, 2, 0)
    ]
    scaled = np.stack(planes, axis=2)
    return scaled if pixels.dtype == np.float32 else np.rint(scaled).astype(pixels.dtype)


def read_thumbnail(image: LargeImage, largest: int) -> np.ndarray:
    """Return an averaged image (height, width, channels) of at most `largest` pixels a side, in little memory."""
    return _shrink(image, -(-max(image.size.height, image.size.width) // largest), np.dtype(np.float32))


def resize_whole(image: LargeImage, height: int, width: int) -> np.ndarray:
    """Return the whole image in another size: averaged by a whole factor, then scaled."""
    factor = max(1, min(image.size.height // height, image.size.width // width))
    # In its own type, to save memory: it may be nearly twice as large as the picture in either direction.
    shrunk = _shrink(image, factor, image.dtype)
    return _resize(shrunk, (height, width), (0, 0, shrunk.shape[1], shrunk.shape[0]))


def _shrink(image: LargeImage, factor: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Return an image that is a whole number of times smaller, by averaging."""
    height, width = image.size.height, image.size.width
    small = Box(0, 0, max(1, height // factor), max(1, width // factor))
    shrunk = np.zeros((*small.shape, image.size.channels), dtype=dtype)
    for part in _parts(image, small, factor):
        whole = Box(*(side * factor for side in part)).overlap(Box(0, 0, height, width))
        pixels = image.read(whole).pixels.astype(np.float32)
        rows, columns = part.shape
        blocks = pixels[: rows * factor, : columns * factor]
        blocks = blocks.reshape(rows, blocks.shape[0] // rows, columns, blocks.shape[1] // columns, -1)
        means = blocks.mean(axis=(1, 3))
        shrunk[part.slices] = means if shrunk.dtype == np.float32 else np.rint(means)
    return shrunk


def _parts(image: LargeImage, small: Box, factor: int) -> Iterator[Box]:
    """Divide the shrunk image into squares, or into bands if tiles are as wide as the image."""
    if image.tile[1] < image.size.width:
        yield from tile_box(small, max(1, _AT_ONCE // factor))
        return
    rows = max(1, _AT_ONCE**2 // (image.size.width * factor))
    for top in range(0, small.bottom, rows):
        yield Box(top, 0, min(top + rows, small.bottom), small.right)
