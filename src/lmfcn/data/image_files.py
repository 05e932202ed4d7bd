"""Read an image file into an array: PNG, JPEG, TIFF and other formats.

Pixels keep their depth: 8 bits become uint8, 16 bits uint16, floating point float32. Palettes, CMYK and other
colour models become RGB, an alpha channel is dropped, and the EXIF orientation is applied.
"""

import io
import logging
import lzma
import struct
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import tifffile
from PIL import Image, ImageOps, UnidentifiedImageError

from lmfcn.data.tiff_pages import open_tiff

MAX_PIXELS = 175_000_000
"""Images with more pixels are refused before they are decoded: they may be decompression bombs."""

_SMALL_IMAGE = 2**24
_MOST_PIXELS_PER_BYTE = 5000
"""Of larger images. Blank pages reach some thousands; a damaged header, or a bomb, claims far more."""

_FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "GIF", "WEBP", "PPM")
"""Formats that Pillow may read; others call external programs, which is unsafe for files from the internet."""

_NATIVE_MODES = {"L": "uint8", "RGB": "uint8", "I;16": "uint16", "I;16L": "uint16", "I;16B": "uint16", "F": "float"}
_GREY_MODES = {"1", "LA", "La"}
_EMPTY = "is empty (0 bytes)"
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_DEEP_PNG_CHANNELS = {2: 3, 4: 1, 6: 3}  # without alpha, by colour type: RGB, grey with alpha, RGB with alpha
_TIFF_SIGNATURES = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_GREY_OR_COLOUR = {0, 1, 2}  # white is zero, black is zero, RGB; Pillow reads the rest
_PIXEL_KINDS = {"u1": "uint8", "u2": "uint16", "f2": "float", "f4": "float", "f8": "float", "b1": "uint8"}
_DECOMPRESSORS: dict[int, Any] = {  # by compression tag
    8: zlib.decompressobj,
    32946: zlib.decompressobj,
    50013: zlib.decompressobj,
    34925: lzma.LZMADecompressor,
}

_BOUNDED_COMPRESSIONS = {1, 2, 3, 4, 5, 32773, 34926, 50000}
"""None, CCITT, LZW, PackBits and Zstandard, whose decoders limit the size of their output."""

_IMAGE_COMPRESSIONS = {  # Pillow formats of compressions whose blocks are complete image files
    7: "JPEG",
    33007: "JPEG",
    34892: "JPEG",
    33003: "JPEG2000",
    33004: "JPEG2000",
    33005: "JPEG2000",
    34712: "JPEG2000",
    34933: "PNG",
    34927: "WEBP",
    50001: "WEBP",
}
_OLD_JPEG = 6  # Pillow reads it
_MAX_PADDING = 2  # a block may decode to this many times its number of pixels
_ORIENTATION_TAG, _FIRST_TRANSPOSED = 274, 5

# What is wrong with a file is in our errors. Applications can add handlers of their own.
for _library in ("imagecodecs", "PIL"):
    logging.getLogger(_library).addHandler(logging.NullHandler())
# Not around each call: these filters belong to the process, and files are read in several threads.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning, module="PIL")
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.TiffImagePlugin")


class ImageError(ValueError):
    """A file that cannot be used as an image.

    Attributes
    ----------
    path : str
    reason : str
    """

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = str(path)
        self.reason = reason

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.path, self.reason)


class UnknownFormatError(ImageError):
    """A file that is not an image in a supported format."""


class TooManyPixelsError(ImageError):
    """An image with too many pixels."""


class CollectionError(ValueError):
    """All files of a collection that cannot be used.

    Attributes
    ----------
    errors : list of ImageError
    """

    def __init__(self, errors: Sequence[ImageError]) -> None:
        super().__init__(describe_errors(errors) + "\nRepair or remove them, or leave them out with on_error='skip'.")
        self.errors = list(errors)

    def __reduce__(self) -> tuple[type, tuple[list[ImageError]]]:
        return type(self), (self.errors,)


def describe_errors(errors: Sequence[ImageError], max_listed: int = 20) -> str:
    """List the files that cannot be used, with the reasons."""
    lines = [f"{len(errors)} file{'s' if len(errors) > 1 else ''} cannot be used:"]
    lines += [f"  {error}" for error in errors[:max_listed]]
    if len(errors) > max_listed:
        lines.append(f"  ... and {len(errors) - max_listed} more")
    return "\n".join(lines)


@dataclass(frozen=True)
class ImageInfo:
    """Size, channels and kind of pixels that `read_image` will return, according to the file header."""

    height: int
    width: int
    channels: int
    pixels: str
    format: str


def read_image(path: str | Path, *, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """Read an image file as an array (height, width, channels) of uint8, uint16 or float32.

    Parameters
    ----------
    path : str or Path
        PNG, JPEG, TIFF, BMP, GIF (its first frame) or WebP, recognised by content, not by name.
    max_pixels : int
        Larger images are refused.

    Raises
    ------
    ImageError
        With the file and the reason.
    """
    return decode_image(_open_file(path, lambda file: file.read()), path, max_pixels=max_pixels)


def decode_image(data: bytes, name: str | Path, *, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """Decode the content of a file as `read_image` does; error messages use `name`."""
    if not data:
        raise ImageError(name, _EMPTY)
    image = _convert_errors(name, lambda: _decode(data, max_pixels))
    if image.dtype == np.float32 and not np.isfinite(image).all():
        raise ImageError(name, "has NaN or infinite pixels")
    return image


def probe_image(path: str | Path, *, max_pixels: int = MAX_PIXELS) -> ImageInfo:
    """Read only the header of an image file, which does not find damaged pixels."""
    return _open_file(path, lambda file: _convert_errors(path, lambda: _probe(file, max_pixels)))


def probe_content(data: bytes, name: str | Path, *, max_pixels: int = MAX_PIXELS) -> ImageInfo:
    """Read the header in the content of a file as `probe_image` does; error messages use `name`."""
    if not data:
        raise ImageError(name, _EMPTY)
    with io.BytesIO(data) as file:
        return _convert_errors(name, lambda: _probe(file, max_pixels))


def _open_file(path: str | Path, use: Callable[[Any], Any]) -> Any:
    try:
        with open(path, "rb") as file:
            if not file.read(1):
                raise ImageError(path, _EMPTY)
            file.seek(0)
            return use(file)
    except FileNotFoundError as error:
        raise ImageError(path, "does not exist") from error
    except IsADirectoryError as error:
        raise ImageError(path, "is a folder, not a file") from error
    except PermissionError as error:
        raise ImageError(path, "may not be read (no permission)") from error


def _convert_errors(path: str | Path, use: Callable[[], Any]) -> Any:
    """Convert any exception of a decoder into an `ImageError` with a reason."""
    try:
        return use()
    except _TooLargeError as error:
        raise TooManyPixelsError(path, str(error)) from error
    except _UnsupportedError as error:
        raise ImageError(path, str(error)) from error
    except UnidentifiedImageError as error:
        raise UnknownFormatError(path, "is not an image of a known format") from error
    except Image.DecompressionBombError as error:
        raise TooManyPixelsError(path, "claims more pixels than are allowed") from error
    except MemoryError as error:
        raise ImageError(path, "does not fit into memory") from error
    # Decoders raise many kinds of exceptions on damaged data.
    except Exception as error:
        detail = str(error).splitlines()[0][:80] if str(error) else type(error).__name__
        raise ImageError(path, f"is damaged or truncated ({detail})") from error


class _UnsupportedError(Exception):
    """The file is a valid image, but its pixels are not supported."""


class _TooLargeError(Exception):
    """The file header claims too many pixels."""


def _decode(data: bytes, max_pixels: int) -> np.ndarray:
    if is_tiff(data):
        with io.BytesIO(data) as file:
            _check_size(*tiff_shape(file)[:2], max_pixels, len(data))
            image = read_tiff(file)
        if image is not None:
            return image
    elif (shape := _deep_png_shape(data)) is not None:
        _check_size(*shape[:2], max_pixels, len(data))
        return np.ascontiguousarray(imagecodecs.png_decode(data)[..., : shape[2]])
    with Image.open(io.BytesIO(data), formats=_FORMATS) as picture:
        _check_size(picture.height, picture.width, max_pixels, len(data))
        return _to_array(ImageOps.exif_transpose(picture))


def _probe(file: Any, max_pixels: int) -> ImageInfo:
    n_bytes = file.seek(0, 2)
    file.seek(0)
    start = file.read(32)
    file.seek(0)
    if is_tiff(start):
        height, width, channels, pixels = tiff_shape(file)
        info = ImageInfo(height, width, channels, pixels, "TIFF")
    elif (shape := _deep_png_shape(start)) is not None:
        info = ImageInfo(*shape, "uint16", "PNG")
    else:
        with Image.open(file, formats=_FORMATS) as picture:
            transposed = picture.getexif().get(_ORIENTATION_TAG, 1) >= _FIRST_TRANSPOSED
            height, width = picture.size if transposed else picture.size[::-1]
            mode = picture.mode
            channels = 1 if mode in _GREY_MODES or (mode in _NATIVE_MODES and mode != "RGB") or mode == "I" else 3
            pixels = _NATIVE_MODES.get(mode, "uint16" if mode == "I" else "uint8")
            info = ImageInfo(height, width, channels, pixels, picture.format or "unknown")
    _check_size(info.height, info.width, max_pixels, n_bytes)
    return info


def _deep_png_shape(start: bytes) -> tuple[int, int, int] | None:
    """Return height, width and channels without alpha of a PNG with 16 bits in several channels, else None.

    Pillow would reduce such files to 8 bits.
    """
    if not start.startswith(_PNG_SIGNATURE) or len(start) < 29 or start[24] != 16:
        return None
    width, height = struct.unpack(">II", start[16:24])
    channels = _DEEP_PNG_CHANNELS.get(start[25])
    return None if channels is None else (height, width, channels)


def _check_size(height: int, width: int, max_pixels: int, n_bytes: int) -> None:
    if height * width > max_pixels:
        raise _TooLargeError(f"claims {height}x{width} pixels, more than the {max_pixels} allowed")
    if height * width > max(_SMALL_IMAGE, _MOST_PIXELS_PER_BYTE * n_bytes):
        raise _TooLargeError(f"claims {height}x{width} pixels in {n_bytes} bytes, which cannot hold an image")


def _to_array(picture: Image.Image) -> np.ndarray:
    mode = picture.mode
    if mode == "I":  # some versions of Pillow read 16-bit grey as 32 bits
        values = np.asarray(picture)
        if values.min() < 0 or values.max() > 65535:
            raise _UnsupportedError("holds 32-bit integers; uint8, uint16 and floating point pixels can be used")
        return values.astype(np.uint16)[..., None]
    if mode == "P" and "transparency" in picture.info:
        picture = picture.convert("RGBA")
    if mode not in _NATIVE_MODES:
        picture = picture.convert("L" if mode in _GREY_MODES else "RGB")
    image = np.array(picture)  # a copy: the view into Pillow's memory is read-only
    image = image.astype(image.dtype.newbyteorder("="), copy=False)
    return image[..., None] if image.ndim == 2 else image


def is_tiff(start: bytes) -> bool:
    """Return whether a file that starts with these bytes is a TIFF or BigTIFF."""
    return start[:4] in _TIFF_SIGNATURES


def tiff_shape(file: Any) -> tuple[int, int, int, str]:
    """Return height, width, channels and kind of pixels of a TIFF file, from its header."""
    with open_tiff(file) as tiff:
        page, series = _first_page(tiff), tiff.series[0]
        sizes = dict(zip(series.axes, series.shape, strict=True))
        height, width = sizes.pop("Y"), sizes.pop("X")
        channels = int(np.prod(list(sizes.values()), dtype=int)) - n_alpha(page)
        if page.photometric not in _GREY_OR_COLOUR:
            channels = 3
        if orientation(page) >= _FIRST_TRANSPOSED:
            height, width = width, height
        return height, width, channels, _PIXEL_KINDS.get(series.dtype.str[1:], str(series.dtype))


def read_tiff(file: Any) -> np.ndarray | None:
    """Return the first image (height, width, channels) of an open TIFF file, or None if Pillow should read it."""
    with open_tiff(file) as tiff:
        page, series = _first_page(tiff), tiff.series[0]
        if page.is_tiled and page.tilewidth * page.tilelength > max(_SMALL_IMAGE, page.imagewidth * page.imagelength):
            raise ValueError("a tile is larger than the image")
        if page.photometric not in _GREY_OR_COLOUR or page.compression == _OLD_JPEG:
            return None
        _check_blocks(file, series)
        image = series.asarray()
        image = _channels_last(image, series.axes)
        image = image[..., : image.shape[2] - n_alpha(page)]
        return np.ascontiguousarray(
            _apply_orientation(to_supported_pixels(image, inverted=page.photometric == 0), orientation(page))
        )


def _first_page(tiff: tifffile.TiffFile) -> Any:
    return tiff.pages[0]


def n_alpha(page: Any) -> int:
    """Return the number of alpha channels of a TIFF page: 0 or 1."""
    return 1 if page.extrasamples and int(page.extrasamples[-1]) in (1, 2) else 0


def orientation(page: Any) -> int:
    """Return the orientation tag of a TIFF page, from 1 (upright) to 8."""
    tag = page.tags.get(_ORIENTATION_TAG)
    return 1 if tag is None else int(tag.value)


def _channels_last(image: np.ndarray, axes: str) -> np.ndarray:
    used = [(axis, size) for axis, size in zip(axes, image.shape, strict=True) if size > 1 or axis in "YX"]
    image, axes = image.reshape([size for _, size in used]), "".join(axis for axis, _ in used)
    if axes == "YX":
        return image[..., None]
    if len(axes) == 3 and axes.startswith("YX"):
        return image
    if len(axes) == 3 and axes.endswith("YX"):
        return np.moveaxis(image, 0, -1)
    raise ValueError(f"holds a stack with the axes {axes}; one image per file is expected")


def to_supported_pixels(image: np.ndarray, *, inverted: bool) -> np.ndarray:
    """Convert pixels to uint8, uint16 or float32; in `inverted` images white is zero."""
    kind = image.dtype.str[1:]
    if kind not in _PIXEL_KINDS:
        raise ValueError(f"holds {image.dtype} values; uint8, uint16 and floating point pixels can be used")
    if kind == "b1":
        image = image.astype(np.uint8) * 255
    elif _PIXEL_KINDS[kind] == "float":
        return image.astype(np.float32)
    image = image.astype(image.dtype.newbyteorder("="), copy=False)
    return np.iinfo(image.dtype).max - image if inverted else image


def _apply_orientation(image: np.ndarray, orientation: int) -> np.ndarray:
    """Transpose and flip an image as its orientation tag says."""
    if orientation >= _FIRST_TRANSPOSED:
        image = image.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    return image


def _check_blocks(file: Any, series: Any) -> None:
    """Refuse blocks that decompress to too many values, and compressions for which this cannot be checked."""
    for page in series.pages:
        if page is None or page.compression in _BOUNDED_COMPRESSIONS:
            continue
        _check_compression(page)
        n_values = _MAX_PADDING * int(np.prod(page.chunks, dtype=np.int64))
        for offset, count in zip(page.dataoffsets, page.databytecounts, strict=True):
            file.seek(offset)
            if count and not _is_bounded(page, file.read(count), n_values):
                raise ValueError("a block of pixel data is larger than it should be")


def _check_compression(page: Any) -> None:
    if page.compression not in _DECOMPRESSORS and page.compression not in _IMAGE_COMPRESSIONS:
        name = getattr(page.compression, "name", page.compression)
        raise ValueError(f"{name} compression cannot be read; save it with deflate, LZW or JPEG")


def _is_bounded(page: Any, block: bytes, n_values: int) -> bool:
    """Return whether a block decompresses to at most `n_values` values."""
    if page.compression in _IMAGE_COMPRESSIONS:
        with Image.open(io.BytesIO(block), formats=[_IMAGE_COMPRESSIONS[page.compression]]) as picture:
            return picture.width * picture.height <= n_values
    limit = n_values * int(page.dtype.itemsize)
    return len(_DECOMPRESSORS[page.compression]().decompress(block, limit + 1)) <= limit
