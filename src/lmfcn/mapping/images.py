"""Images of any size, read in parts: what all sources of pixels have in common."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from lmfcn.data.arrays import pixel_kind
from lmfcn.data.framing import Color, to_color
from lmfcn.data.images import read_image
from lmfcn.inference.map_grid import Box, pieces
from lmfcn.mapping.pixel_size import micrometres_per_pixel

_SCALED_TILE = 512
_AT_ONCE = 1024
_AHEAD = 3  # places that the filter of the resizing sees, and a little more


@dataclass(frozen=True)
class Region:
    """Some pixels of an image.

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
    """What is known of an image before its pixels are read.

    Attributes
    ----------
    height, width, channels : int
    pixels : "uint8", "uint16" or "float"
    levels : list of (height, width)
        Of all resolutions in the file, the finest first.
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
    """An image of which parts can be read; subclasses know how to get single tiles.

    Attributes
    ----------
    path : Path
    size : ImageSize
    tile : (height, width)
        Of the tiles in which the image is read.
    """

    path: Path
    size: ImageSize
    tile: tuple[int, int]

    def read(self, box: Box) -> Region:
        """Return the pixels of a box; tiles that cannot be read are zero, and listed."""
        region = Region(np.zeros((*box.shape, self.size.channels), dtype=self.dtype))
        for tile in self._tiles(box):
            common = tile.overlap(box)
            try:
                region.pixels[common.within(box)] = self.read_tile(tile)[common.within(tile)]
            # Decoders raise nearly anything on damaged data; a full disk or memory is no fault of the image.
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
        """Of the pixels."""
        return np.dtype(np.float32 if self.size.pixels == "float" else self.size.pixels)


class WholeImage(LargeImage):
    """A plain image file, which is decoded as a whole."""

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
    """An image as a grey or RGB one."""

    def __init__(self, image: LargeImage, color: Color) -> None:
        self.path, self.tile = image.path, image.tile
        self._image, self._color = image, color
        size = image.size
        channels = to_color(np.zeros((1, 1, size.channels), dtype=np.uint8), color).shape[2]  # or a refusal
        self.size = ImageSize(size.height, size.width, channels, size.pixels, size.levels, size.micrometres)

    def read_tile(self, tile: Box) -> np.ndarray:
        """Return the pixels of one tile in the other colour."""
        return to_color(self._image.read_tile(tile), self._color)


class ScaledImage(LargeImage):
    """An image in another size, tile by tile as if it had been scaled as a whole."""

    def __init__(self, image: LargeImage, scale: float) -> None:
        self.path, self.tile = image.path, (_SCALED_TILE, _SCALED_TILE)
        self._image, size = image, image.size
        height, width = (max(1, round(side * scale)) for side in (size.height, size.width))
        micrometres = None if size.micrometres is None else size.micrometres / scale
        self.size = ImageSize(height, width, size.channels, size.pixels, size.levels, micrometres)

    def read_tile(self, tile: Box) -> np.ndarray:
        """Return the scaled pixels of one tile."""
        of = self._image.size
        ratios = of.height / self.size.height, of.width / self.size.width
        exact = [place * ratio for place, ratio in zip(tile, ratios * 2, strict=True)]
        ahead = [int(_AHEAD * max(1.0, ratio)) for ratio in ratios]
        wide = Box(
            *(int(place) - more for place, more in zip(exact[:2], ahead, strict=True)),
            *(int(place) + 1 + more for place, more in zip(exact[2:], ahead, strict=True)),
        )
        wide = wide.overlap(Box(0, 0, of.height, of.width))
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


def thumbnail(image: LargeImage, largest: int) -> np.ndarray:
    """Return an image (height, width, channels) of at most `largest` pixels a side, by averaging, in little memory."""
    return _shrunk(image, -(-max(image.size.height, image.size.width) // largest), np.dtype(np.float32))


def picture_of(image: LargeImage, height: int, width: int) -> np.ndarray:
    """Return the whole image in another size, sharp: averaged to no less than that, and then scaled."""
    factor = max(1, min(image.size.height // height, image.size.width // width))
    # In its own kind of pixels, because it may be nearly twice as large as the picture in either direction.
    shrunk = _shrunk(image, factor, image.dtype)
    return _resize(shrunk, (height, width), (0, 0, shrunk.shape[1], shrunk.shape[0]))


def _shrunk(image: LargeImage, factor: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Return an image a whole number of times smaller, by averaging."""
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
    """Divide what is shrunk by a factor into squares, or into bands where tiles are as wide as the image."""
    if image.tile[1] < image.size.width:
        yield from pieces(small, max(1, _AT_ONCE // factor))
        return
    rows = max(1, _AT_ONCE**2 // (image.size.width * factor))
    for top in range(0, small.bottom, rows):
        yield Box(top, 0, min(top + rows, small.bottom), small.right)
