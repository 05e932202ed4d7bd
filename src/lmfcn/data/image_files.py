"""Read one image file into one array: PNG, JPEG, TIFF and other formats.

Pixels keep their depth: 8 bits become uint8, 16 bits uint16, floating point float32. Palettes, CMYK and other
colour models become RGB, an alpha channel is dropped, and the EXIF orientation is applied.
"""

import io
import logging
import lzma
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import tifffile
from PIL import Image, ImageOps, UnidentifiedImageError

_STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_GREY_OR_COLOUR = {0, 1, 2}  # white is zero, black is zero, RGB; the rest is left to Pillow
_KINDS = {"u1": "uint8", "u2": "uint16", "f2": "float", "f4": "float", "f8": "float", "b1": "uint8"}
_UNPACKERS: dict[int, Any] = {  # by the number of the compression
    8: zlib.decompressobj,
    32946: zlib.decompressobj,
    50013: zlib.decompressobj,
    34925: lzma.LZMADecompressor,
}
_OTHER_STREAMS = {
    1,
    2,
    3,
    4,
    5,
    32773,
    34926,
    50000,
}  # none, CCITT, LZW, PackBits, Zstandard: bounded by their decoders
_PICTURES = {  # blocks that are images themselves, with a size of their own
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
_OLD_JPEG = 6  # left to Pillow
_PADDING = 2  # blocks may be this many times as large as their pixels
_ORIENTATION, _FIRST_TURNED = 274, 5


def is_tiff(start: bytes) -> bool:
    """Tell whether a file that begins so is a TIFF or BigTIFF."""
    return start[:4] in _STARTS


def tiff_shape(file: Any) -> tuple[int, int, int, str]:
    """Return height, width, channels and kind of pixels, from the header alone."""
    file.seek(0)
    with tifffile.TiffFile(file) as tiff:
        page, series = _first_page(tiff), tiff.series[0]
        sizes = dict(zip(series.axes, series.shape, strict=True))
        height, width = sizes.pop("Y"), sizes.pop("X")
        channels = int(np.prod(list(sizes.values()), dtype=int)) - n_alpha(page)
        if page.photometric not in _GREY_OR_COLOUR:
            channels = 3
        if orientation(page) >= _FIRST_TURNED:
            height, width = width, height
        return height, width, channels, _KINDS.get(series.dtype.str[1:], str(series.dtype))


def read_tiff(file: Any) -> np.ndarray | None:
    """Return the first image (height, width, channels) of an open file, or None if Pillow should read it."""
    file.seek(0)
    with tifffile.TiffFile(file) as tiff:
        page, series = _first_page(tiff), tiff.series[0]
        if page.photometric not in _GREY_OR_COLOUR or page.compression == _OLD_JPEG:
            return None
        _check_packed(file, series)
        image = series.asarray()
        image = _channels_last(image, series.axes)
        image = image[..., : image.shape[2] - n_alpha(page)]
        return np.ascontiguousarray(_turn(usual_pixels(image, inverted=page.photometric == 0), orientation(page)))


def _check_packed(file: Any, series: Any) -> None:
    """Refuse blocks that unpack to more than they should, and compressions for which that cannot be told."""
    for page in series.pages:
        if page is None or page.compression in _OTHER_STREAMS:
            continue
        _check_compression(page)
        n_values = _PADDING * int(np.prod(page.chunks, dtype=np.int64))
        for offset, count in zip(page.dataoffsets, page.databytecounts, strict=True):
            file.seek(offset)
            if count and not _is_bounded(page, file.read(count), n_values):
                raise ValueError("a block of pixel data is larger than it should be")


def _check_compression(page: Any) -> None:
    if page.compression not in _UNPACKERS and page.compression not in _PICTURES:
        name = getattr(page.compression, "name", page.compression)
        raise ValueError(f"{name} compression cannot be read; save it with deflate, LZW or JPEG")


def _is_bounded(page: Any, block: bytes, n_values: int) -> bool:
    """Tell whether a block unpacks to at most `n_values` values."""
    if page.compression in _PICTURES:
        with Image.open(io.BytesIO(block), formats=[_PICTURES[page.compression]]) as picture:
            return picture.width * picture.height <= n_values
    limit = n_values * int(page.dtype.itemsize)
    return len(_UNPACKERS[page.compression]().decompress(block, limit + 1)) <= limit


def _first_page(tiff: tifffile.TiffFile) -> Any:
    return tiff.pages[0]


def n_alpha(page: Any) -> int:
    """Return how many of the channels say how opaque the others are."""
    return 1 if page.extrasamples and int(page.extrasamples[-1]) in (1, 2) else 0


def orientation(page: Any) -> int:
    """Return how the camera or scanner noted that the image should be turned; 1 is not at all."""
    tag = page.tags.get(_ORIENTATION)
    return 1 if tag is None else int(tag.value)


def _channels_last(image: np.ndarray, axes: str) -> np.ndarray:
    keep = [size > 1 or axis in "YX" for size, axis in zip(image.shape, axes, strict=True)]
    image = image.reshape([size for size, kept in zip(image.shape, keep, strict=True) if kept])
    axes = "".join(axis for axis, kept in zip(axes, keep, strict=True) if kept)
    if axes == "YX":
        return image[..., None]
    if len(axes) == 3 and axes.startswith("YX"):
        return image
    if len(axes) == 3 and axes.endswith("YX"):
        return np.moveaxis(image, 0, -1)
    raise ValueError(f"holds a stack with the axes {axes}; one image per file is expected")


def usual_pixels(image: np.ndarray, *, inverted: bool) -> np.ndarray:
    """Return pixels as uint8, uint16 or float32; `inverted` ones have white as zero."""
    kind = image.dtype.str[1:]
    if kind not in _KINDS:
        raise ValueError(f"holds {image.dtype} values; uint8, uint16 and floating point pixels can be used")
    if kind == "b1":
        image = image.astype(np.uint8) * 255
    elif _KINDS[kind] == "float":
        return image.astype(np.float32)
    image = image.astype(image.dtype.newbyteorder("="), copy=False)
    return np.iinfo(image.dtype).max - image if inverted else image


def _turn(image: np.ndarray, direction: int) -> np.ndarray:
    """Turn an image as the camera or scanner noted that it should be seen."""
    if direction >= _FIRST_TURNED:
        image = image.swapaxes(0, 1)
    if direction in (2, 3, 6, 7):
        image = image[:, ::-1]
    if direction in (3, 4, 7, 8):
        image = image[::-1]
    return image


LARGEST_IMAGE = 175_000_000
"""Pixels; a file that claims more is refused before it is decoded, since it may be a decompression bomb."""

_FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "GIF", "WEBP", "PPM")
"""What Pillow may try; others of its formats call external programs, and strangers may send them."""

_KEPT_MODES = {"L": "uint8", "RGB": "uint8", "I;16": "uint16", "I;16L": "uint16", "I;16B": "uint16", "F": "float"}
_GREY_MODES = {"1", "LA", "La"}
_EMPTY = "is empty (0 bytes)"

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_DEEP_PNG_CHANNELS = {2: 3, 4: 1, 6: 3}  # without alpha, by colour type: RGB, grey with alpha, RGB with alpha

# libpng's warnings about odd but readable files would otherwise be printed; applications still can ask for them.
logging.getLogger("imagecodecs").addHandler(logging.NullHandler())


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
    """A file that is no image of a format that can be read."""


class TooManyPixelsError(ImageError):
    """An image with more pixels than are allowed."""


class CollectionError(ValueError):
    """Files that cannot be used, all of them at once.

    Attributes
    ----------
    errors : list of ImageError
    """

    def __init__(self, errors: Sequence[ImageError]) -> None:
        super().__init__(describe_errors(errors) + "\nRepair or remove them, or leave them out with on_error='skip'.")
        self.errors = list(errors)

    def __reduce__(self) -> tuple[type, tuple[list[ImageError]]]:
        return type(self), (self.errors,)


def describe_errors(errors: Sequence[ImageError], most: int = 20) -> str:
    """List what is wrong with which file."""
    lines = [f"{len(errors)} file{'s' if len(errors) > 1 else ''} cannot be used:"]
    lines += [f"  {error}" for error in errors[:most]]
    if len(errors) > most:
        lines.append(f"  ... and {len(errors) - most} more")
    return "\n".join(lines)


@dataclass(frozen=True)
class ImageInfo:
    """What the header of a file promises: size, channels and kind of pixels as `read_image` gives them."""

    height: int
    width: int
    channels: int
    pixels: str
    format: str


def read_image(path: str | Path, *, max_pixels: int = LARGEST_IMAGE) -> np.ndarray:
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
        Names the file and what is wrong with it.
    """
    return decode_image(_open_file(path, lambda file: file.read()), path, max_pixels=max_pixels)


def decode_image(data: bytes, name: str | Path, *, max_pixels: int = LARGEST_IMAGE) -> np.ndarray:
    """Do as `read_image` does with the content of a file; errors call it by `name`."""
    if not data:
        raise ImageError(name, _EMPTY)
    image = _explain(name, lambda: _decode(data, max_pixels))
    if image.dtype == np.float32 and not np.isfinite(image).all():
        raise ImageError(name, "has NaN or infinite pixels")
    return image


def probe_image(path: str | Path, *, max_pixels: int = LARGEST_IMAGE) -> ImageInfo:
    """Read only the header of an image file; damaged pixels behind a good header go unnoticed."""
    return _open_file(path, lambda file: _explain(path, lambda: _probe(file, max_pixels)))


def probe_content(data: bytes, name: str | Path, *, max_pixels: int = LARGEST_IMAGE) -> ImageInfo:
    """Do as `probe_image` does with the content of a file; errors call it by `name`."""
    if not data:
        raise ImageError(name, _EMPTY)
    with io.BytesIO(data) as file:
        return _explain(name, lambda: _probe(file, max_pixels))


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


def _explain(path: str | Path, use: Callable[[], Any]) -> Any:
    """Turn whatever a decoder raises into one sentence about the file."""
    try:
        return use()
    except _TooLargeError as error:
        raise TooManyPixelsError(path, str(error)) from error
    except _RefusedError as error:
        raise ImageError(path, str(error)) from error
    except UnidentifiedImageError as error:
        raise UnknownFormatError(path, "is not an image of a known format") from error
    except Image.DecompressionBombError as error:
        raise TooManyPixelsError(path, "claims more pixels than any image here may have") from error
    except MemoryError as error:
        raise ImageError(path, "does not fit into memory") from error
    # Decoders raise nearly anything on damaged data, and all of it means the same to the user.
    except Exception as error:
        detail = str(error).splitlines()[0][:80] if str(error) else type(error).__name__
        raise ImageError(path, f"is damaged or truncated ({detail})") from error


class _RefusedError(Exception):
    """The file may be sound, but it is not for us."""


class _TooLargeError(Exception):
    """The header claims too many pixels."""


def _decode(data: bytes, max_pixels: int) -> np.ndarray:
    if is_tiff(data):
        with io.BytesIO(data) as file:
            _check_size(*tiff_shape(file)[:2], max_pixels)
            image = read_tiff(file)
        if image is not None:
            return image
    elif (shape := _deep_png_shape(data)) is not None:
        _check_size(*shape[:2], max_pixels)
        return np.ascontiguousarray(imagecodecs.png_decode(data)[..., : shape[2]])
    with Image.open(io.BytesIO(data), formats=_FORMATS) as picture:
        _check_size(picture.height, picture.width, max_pixels)
        return _to_array(ImageOps.exif_transpose(picture))


def _probe(file: Any, max_pixels: int) -> ImageInfo:
    start = file.read(32)
    file.seek(0)
    if is_tiff(start):
        height, width, channels, pixels = tiff_shape(file)
        info = ImageInfo(height, width, channels, pixels, "TIFF")
    elif (shape := _deep_png_shape(start)) is not None:
        info = ImageInfo(*shape, "uint16", "PNG")
    else:
        with Image.open(file, formats=_FORMATS) as picture:
            turned = picture.getexif().get(0x0112, 1) >= 5
            height, width = picture.size if turned else picture.size[::-1]
            mode = picture.mode
            channels = 1 if mode in _GREY_MODES or (mode in _KEPT_MODES and mode != "RGB") or mode == "I" else 3
            pixels = _KEPT_MODES.get(mode, "uint16" if mode == "I" else "uint8")
            info = ImageInfo(height, width, channels, pixels, picture.format or "unknown")
    _check_size(info.height, info.width, max_pixels)
    return info


def _deep_png_shape(start: bytes) -> tuple[int, int, int] | None:
    """Return height, width and channels of a PNG with 16 bits in several channels, which Pillow cuts to 8; else None.

    Alpha is not counted.
    """
    if not start.startswith(_PNG_SIGNATURE) or len(start) < 29 or start[24] != 16:
        return None
    width, height = struct.unpack(">II", start[16:24])
    channels = _DEEP_PNG_CHANNELS.get(start[25])
    return None if channels is None else (height, width, channels)


def _check_size(height: int, width: int, max_pixels: int) -> None:
    if height * width > max_pixels:
        raise _TooLargeError(f"claims {height}x{width} pixels, more than the {max_pixels} allowed")


def _to_array(picture: Image.Image) -> np.ndarray:
    mode = picture.mode
    if mode == "I":  # some versions of Pillow read 16-bit grey as 32 bits
        values = np.asarray(picture)
        if values.min() < 0 or values.max() > 65535:
            raise _RefusedError("holds 32-bit integers; uint8, uint16 and floating point pixels can be used")
        return values.astype(np.uint16)[..., None]
    if mode == "P" and "transparency" in picture.info:
        picture = picture.convert("RGBA")
    if mode not in _KEPT_MODES:
        picture = picture.convert("L" if mode in _GREY_MODES else "RGB")
    image = np.array(picture)  # a copy: the view into Pillow's memory is read-only
    image = image.astype(image.dtype.newbyteorder("="), copy=False)
    return image[..., None] if image.ndim == 2 else image
