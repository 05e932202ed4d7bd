"""TIFF files: 8 and 16 bits, floating point, many channels, strips and tiles."""

import io
import lzma
import zlib
from typing import Any

import numpy as np
import tifffile
from PIL import Image

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
