"""Readers of large images: tiled TIFF files, whole slides, and plain image files."""

import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import tifffile

from lmfcn.data.arrays import pixel_kind
from lmfcn.data.framing import describe_channels
from lmfcn.data.image_files import ImageError, TooManyPixelsError, is_tiff, n_alpha, orientation, to_supported_pixels
from lmfcn.data.image_form import ImageForm
from lmfcn.data.tiff_pages import open_tiff
from lmfcn.maps.large_image import (
    ColoredImage,
    ImageSize,
    LargeImage,
    ScaledImage,
    WholeImage,
    check_level,
    choose_level,
    micrometres_per_pixel,
    read_micrometres,
)
from lmfcn.maps.texture_map import Box


class TileCache:
    """A cache of decoded tiles up to a number of bytes, and of at least one; the least recently used go first.

    Parameters
    ----------
    max_bytes : int
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._tiles: OrderedDict[Box, np.ndarray] = OrderedDict()
        self._n_bytes = 0

    def get(self, tile: Box, decode: Callable[[Box], np.ndarray]) -> np.ndarray:
        """Return the pixels of a tile, decoded now or earlier; do not change them."""
        if tile in self._tiles:
            self._tiles.move_to_end(tile)
        else:
            pixels = decode(tile)
            while self._tiles and self._n_bytes + pixels.nbytes > self._max_bytes:
                self._n_bytes -= self._tiles.popitem(last=False)[1].nbytes
            self._tiles[tile] = pixels
            self._n_bytes += pixels.nbytes
        return self._tiles[tile]


_GREY_OR_COLOUR = {0, 1, 2, 6}  # TIFF codes: white is zero, black is zero, RGB, YCbCr (decoded to RGB)
_SQUARE = 512
_LARGEST_PIECE = 2**30
_CACHED_BYTES = 2**28


class TiledTiff(LargeImage):
    """One level of a TIFF file, in tiles or strips, with channels in tiles, planes or pages.

    Uncompressed strips are read in squares, as if they were tiles. Compressed strips are decoded as a whole and cached,
    as all blocks of a row need the same strips.

    Parameters
    ----------
    path : Path
    level : int
        0 is the finest.
    """

    def __init__(self, path: Path, level: int = 0) -> None:
        self.path = path
        tiff = _open_tiff(path)
        weakref.finalize(self, tiff.close)
        levels = tiff.series[0].levels
        sizes = [_height_width(found) for found in levels]
        check_level(path, level, len(sizes))
        self._file = tiff.filehandle
        self._pages: list[Any] = list(levels[level].pages)
        page: Any = self._pages[0].keyframe
        self._inverted = page.photometric == 0
        self._planes = int(page.samplesperpixel) if page.planarconfig == 2 else 1
        self._alpha = n_alpha(page)
        self._piece = _piece(page)
        self._in_rows = _has_plain_rows(page)
        self.tile = (_SQUARE, _SQUARE) if self._in_rows else self._piece
        self._cache = TileCache(0 if page.is_tiled or self._in_rows else _CACHED_BYTES)
        self._check(page, levels[level].axes)
        channels = len(self._pages) * int(page.samplesperpixel) - self._alpha
        kind = pixel_kind(to_supported_pixels(np.zeros((1, 1, 1), dtype=page.dtype), inverted=False))
        finest = read_micrometres(tiff)
        micrometres = None if finest is None else finest * sizes[0][1] / sizes[level][1]
        self.size = ImageSize(*sizes[level], channels, kind, sizes, micrometres)

    def read_tile(self, tile: Box) -> np.ndarray:
        """Return the pixels of one tile, decoded or from the cache."""
        return self._cache.get(tile, self._read_tile)

    def _read_tile(self, tile: Box) -> np.ndarray:
        read = self._read_rows if self._in_rows else self._decode
        planes = [read(page, plane, tile) for page in self._pages for plane in range(self._planes)]
        pixels = np.concatenate(planes, axis=2)[: tile.shape[0], : tile.shape[1]]
        if pixels.shape[:2] != tile.shape:
            raise ValueError("the tile is smaller than the file says")
        pixels = pixels[..., : pixels.shape[2] - self._alpha]
        pixels = to_supported_pixels(pixels, inverted=self._inverted)
        if pixels.dtype == np.float32 and not np.isfinite(pixels).all():
            raise ValueError("the tile has NaN or infinite pixels")
        return np.ascontiguousarray(pixels)

    def _segment_number(self, plane: int, row: int, column: int) -> int:
        """Return the number of the tile or strip that holds a pixel."""
        down, across = (
            -(-side // piece) for side, piece in zip((self.size.height, self.size.width), self._piece, strict=True)
        )
        return (plane * down + row // self._piece[0]) * across + column // self._piece[1]

    def _decode(self, page: Any, plane: int, tile: Box) -> np.ndarray:
        number = self._segment_number(plane, tile.top, tile.left)
        data = self._read(page.dataoffsets[number], page.databytecounts[number])
        segment = page.keyframe.decode(data, number, jpegtables=page.jpegtables)[0]
        if segment is None:
            raise ValueError("the tile is empty")
        decoded: np.ndarray = segment[0]
        return decoded

    def _read_rows(self, page: Any, plane: int, tile: Box) -> np.ndarray:
        """Read only the bytes of one square of an uncompressed strip, row by row."""
        keyframe = page.keyframe
        kind = np.dtype(keyframe.dtype).newbyteorder(keyframe.parent.byteorder)
        samples = int(keyframe.samplesperpixel) // self._planes
        rows = []
        for row in range(tile.top, tile.bottom):
            start = page.dataoffsets[self._segment_number(plane, row, 0)]
            first = row % self._piece[0] * self.size.width + tile.left
            rows.append(self._read(start + first * samples * kind.itemsize, tile.shape[1] * samples * kind.itemsize))
        return np.frombuffer(b"".join(rows), dtype=kind).reshape(*tile.shape, samples)

    def _read(self, offset: int, count: int) -> bytes:
        if not offset or not count:
            raise ValueError("the tile is empty")
        self._file.seek(offset)
        data: bytes = self._file.read(count)
        if len(data) < count:
            raise ValueError("the file ends before the tile does")
        return data

    def _check(self, page: Any, axes: str) -> None:
        if page.photometric not in _GREY_OR_COLOUR:
            raise ValueError(f"{self.path} has colours of the kind {page.photometric.name}; save it as grey or RGB.")
        if orientation(page) != 1:
            raise ValueError(f"{self.path} is stored with a rotation; rotate it and save it again.")
        if len(self._pages) > 1 and axes[:-2] not in ("C", "S", "Q", "I"):
            raise ValueError(f"{self.path} holds a stack with the axes {axes}; one image per file is expected.")
        self._check_codec(page)
        samples = len(self._pages) * int(page.samplesperpixel)
        n_bytes = self.tile[0] * self.tile[1] * samples * np.dtype(page.dtype).itemsize
        if n_bytes > _LARGEST_PIECE:
            raise ValueError(
                f"{self.path} is compressed in pieces of {self.tile[0]}x{self.tile[1]} pixels, {n_bytes / 1e9:.1f} GB"
                " each, which must be decoded as a whole; save it as a tiled TIFF."
            )

    def _check_codec(self, page: Any) -> None:
        try:
            page.decode(b"", 0, jpegtables=page.jpegtables)
        except ValueError as error:
            if "imagecodecs" in str(error):
                raise ImportError(
                    f"{self.path} is compressed by {page.compression.name}, which needs: pip install imagecodecs."
                ) from error
        except Exception:
            return  # expected: there was nothing to decode


def _open_tiff(path: Path) -> tifffile.TiffFile:
    try:
        return open_tiff(path)
    except tifffile.TiffFileError as error:
        raise ValueError(f"{path} cannot be read as a TIFF ({error}); choose another reader.") from error


def _piece(page: Any) -> tuple[int, int]:
    """Return the height and width of a tile or strip."""
    if page.is_tiled:
        return page.tilelength, page.tilewidth
    return min(page.rowsperstrip, page.imagelength), page.imagewidth


def _has_plain_rows(page: Any) -> bool:
    """Return whether strips are uncompressed, so that a part of a strip can be read."""
    uncompressed = page.compression == 1 and page.predictor == 1 and page.fillorder == 1 and not page.is_subsampled
    return not page.is_tiled and uncompressed and page.bitspersample == 8 * np.dtype(page.dtype).itemsize


def _height_width(level: Any) -> tuple[int, int]:
    sizes = dict(zip(level.axes, level.shape, strict=True))
    return sizes["Y"], sizes["X"]


_TILE = 512


class Slide(LargeImage):
    """One level of a whole slide.

    It is read in squares at fixed positions. So the pixels do not depend on the part that is read, even if the
    downsampling of a level is not a whole number.
    """

    def __init__(self, path: Path, level: int = 0) -> None:
        self.path, self.tile = path, (_TILE, _TILE)
        self._level = level
        self._slide = _open_slide(path)
        sizes = [(height, width) for width, height in self._slide.level_dimensions]
        check_level(path, level, len(sizes))
        self._downsample = self._slide.level_downsamples[level]
        properties = self._slide.properties
        finest = properties.get("openslide.mpp-x")
        micrometres = None if finest is None else float(finest) * self._downsample
        self.size = ImageSize(*sizes[level], 3, "uint8", sizes, micrometres)
        colour = properties.get("openslide.background-color", "FFFFFF")
        self._background = np.array([int(colour[start : start + 2], 16) for start in (0, 2, 4)], dtype=np.float32)

    def read_tile(self, tile: Box) -> np.ndarray:
        """Return the RGB pixels of one square; parts that were not scanned get the background colour."""
        corner = round(tile.left * self._downsample), round(tile.top * self._downsample)
        try:
            picture = self._slide.read_region(corner, self._level, tile.shape[::-1])
        except Exception:
            self._slide = _open_slide(self.path)  # an OpenSlide handle fails for ever after its first error
            raise
        pixels = np.asarray(picture)
        opaque = pixels[..., 3:].astype(np.float32) / 255
        if opaque.min() == 1:
            return np.ascontiguousarray(pixels[..., :3])
        return np.rint(pixels[..., :3] * opaque + self._background * (1 - opaque)).astype(np.uint8)


def slide_vendor(path: Path) -> str | None:
    """Return the vendor of a slide, "generic-tiff" for other tiled TIFFs; None if OpenSlide does not know the file."""
    try:
        import openslide
    except ImportError:
        return None
    vendor: str | None = openslide.OpenSlide.detect_format(str(path))
    return vendor


def _open_slide(path: Path) -> Any:
    try:
        import openslide
    except ImportError as error:
        raise ImportError(f"Whole slides need OpenSlide: pip install 'lmfcn[wsi]' ({error}).") from error
    try:
        return openslide.OpenSlide(str(path))
    except openslide.OpenSlideError as error:
        raise ValueError(f"{path} cannot be read by OpenSlide ({error}).") from error


READERS = ("auto", "plain", "tiff", "openslide")
_SMALL = 2**24
_OPEN: WeakValueDictionary[tuple[Path, int, int], WholeImage] = WeakValueDictionary()
_ONLY_SLIDES = {".czi", ".dcm", ".mrxs", ".vms", ".vmu"}  # only OpenSlide reads these


@dataclass(frozen=True)
class View:
    """How to open an image file.

    Attributes
    ----------
    reader : one of READERS
    level : int
        Resolution in the file; 0 is the finest.
    scale : float
        Factor by which the level is enlarged or reduced.
    """

    reader: str = "auto"
    level: int = 0
    scale: float = 1.0


def resolve_view(path: Path, view: View, resolution: float | None = None) -> View:
    """Return the view with the reader for the file; with a resolution in micrometres, also with its level and scale."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist or is not a file.")
    view = View(_choose_reader(path) if view.reader == "auto" else view.reader, view.level, view.scale)
    if resolution is None:
        return view
    if view.reader == "plain":  # it has one level, and opening it would decode it
        widths, micrometres = [1], micrometres_per_pixel(path)
    else:
        size = open_level(path, View(view.reader)).size
        widths, micrometres = [width for _, width in size.levels], size.micrometres
    level, scale = choose_level(path, widths, micrometres, resolution)
    return View(view.reader, level, scale)


def open_level(path: Path, view: View) -> LargeImage:
    """Open one level of an image as it is stored in the file."""
    if view.reader == "openslide":
        return Slide(path, view.level)
    if view.reader == "tiff":
        return TiledTiff(path, view.level)
    if view.level != 0:
        raise ValueError(f"{path} has one level, 0, got {view.level}.")
    return _open_whole(path)


def _open_whole(path: Path) -> WholeImage:
    """Open a plain image, or return it if it is open in this process: it is decoded and held only once."""
    status = path.stat()
    key = path.resolve(), status.st_size, status.st_mtime_ns
    image = _OPEN.get(key)
    if image is None:
        image = _OPEN[key] = _decode_whole(path)
    return image


def _decode_whole(path: Path) -> WholeImage:
    try:
        return WholeImage(path)
    except TooManyPixelsError as error:
        raise TooManyPixelsError(path, f"{error.reason}; save it as a tiled TIFF") from error


def open_view(path: Path, view: View, form: ImageForm) -> LargeImage:
    """Open an image in the form that a model needs."""
    image = open_level(path, view)
    try:
        image = image if form.preprocessing.color == "keep" else ColoredImage(image, form.preprocessing.color)
    except ValueError as error:
        raise ValueError(f"{path}: {error}.") from error
    size = image.size
    if (size.channels, size.pixels) != (form.channels, form.pixels):
        raise ValueError(
            f"{path} has {describe_channels(size.channels, size.pixels)}, but the model was trained on images with"
            f" {describe_channels(form.channels, form.pixels)}; convert the image, or use another model."
        )
    return image if view.scale == 1 else ScaledImage(image, view.scale)


def _choose_reader(path: Path) -> str:
    """Choose the reader of a file: OpenSlide for slides, tifffile for tiled TIFFs, and the plain one for the rest."""
    with path.open("rb") as file:
        tiff = is_tiff(file.read(4))
    vendor = slide_vendor(path)
    if vendor not in (None, "generic-tiff") or path.suffix.lower() in _ONLY_SLIDES:
        return "openslide"
    if not tiff:
        return "plain"
    return "tiff" if vendor == "generic-tiff" or _needs_tiles(path) else "plain"


def _needs_tiles(path: Path) -> bool:
    try:
        with open_tiff(path) as tiff:
            page: Any = tiff.pages[0]
            large = page.imagewidth * page.imagelength > _SMALL
            return large or bool(page.is_tiled) or len(tiff.series[0].levels) > 1
    except Exception as error:
        raise ImageError(path, f"is damaged or truncated ({error})") from error
