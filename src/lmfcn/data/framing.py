"""Convert the colour and size of images, cut tiles, and make thumbnails."""

import base64
import io
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

import numpy as np
from PIL import Image

Color = Literal["keep", "grey", "rgb"]
Fit = Literal["keep", "resize", "crop", "scale-crop", "scale-pad"]
SizeFit = Literal["crop", "pad", "stretch"]
"""How images of another shape get a given size, in the words of the command line."""

SIZE_FITS: dict[SizeFit, Fit] = {"crop": "scale-crop", "pad": "scale-pad", "stretch": "resize"}
"""The same in the words of model files, in which "crop" cuts without scaling."""

_DONE: dict[Fit, str] = {
    "keep": "left",
    "resize": "resized",
    "crop": "cropped",
    "scale-crop": "scaled and cut",
    "scale-pad": "scaled and padded",
}
Size = int | tuple[int, int]

THUMBNAIL_SIDE = 96
"""Maximum length in pixels of the longer side of a thumbnail."""

_JPEG_QUALITY = 90
_GREY_WEIGHTS = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # ITU-R BT.601, as Pillow uses


@dataclass(frozen=True)
class Preprocessing:
    """Colour and size that images are converted to before they reach the network.

    Attributes
    ----------
    color : "keep", "grey" or "rgb"
    fit : "keep", "resize", "crop", "scale-crop" or "scale-pad"
        Keep the size; scale to `size`, which stretches images of another shape; cut `size` out of the middle; scale so
        that `size` is covered, and cut the middle; or scale so that all fits in, and mirror the rest at the borders.
    size : (height, width) or None
    """

    color: Color = "keep"
    fit: Fit = "keep"
    size: tuple[int, int] | None = None

    @property
    def scales(self) -> bool:
        """Whether images are scaled, so that a pixel no longer shows what it showed."""
        return self.fit in SIZE_FITS.values()


NO_PREPROCESSING = Preprocessing()
"""Leaves images unchanged."""


def preprocess_image(image: np.ndarray, preprocessing: Preprocessing) -> np.ndarray:
    """Convert an image (height, width, channels) to the colour and size of `preprocessing`."""
    image = to_color(image, preprocessing.color)
    if preprocessing.size is None or preprocessing.fit == "keep":
        return image
    ways = {"resize": resize_image, "crop": crop_middle, "scale-crop": scale_and_crop, "scale-pad": scale_and_pad}
    return ways[preprocessing.fit](image, preprocessing.size)


def size_after(size: tuple[int, int], preprocessing: Preprocessing) -> tuple[int, int]:
    """Return the (height, width) that an image of `size` has after preprocessing."""
    return size if preprocessing.fit == "keep" or preprocessing.size is None else preprocessing.size


def complete_preprocessing(own: Preprocessing, trained: Preprocessing) -> Preprocessing:
    """Complete the preprocessing of a collection by that of the model's training images.

    Different colours or sizes are refused.

    Examples
    --------
    >>> complete_preprocessing(Preprocessing(color="rgb"), Preprocessing("rgb", "resize", (64, 64)))
    Preprocessing(color='rgb', fit='resize', size=(64, 64))
    """
    color = trained.color if own.color == "keep" else own.color
    sized = trained if own.fit == "keep" else own
    same_size = trained.fit == "keep" or (trained.fit, trained.size) == (sized.fit, sized.size)
    if trained.color not in ("keep", color) or not same_size:
        raise ValueError(
            f"The collection has images {describe_preprocessing(own)}, but the model was trained on images"
            f" {describe_preprocessing(trained)}; open the collection without a color or size of its own, and those of"
            " the model are used."
        )
    return Preprocessing(color, sized.fit, sized.size)


def describe_preprocessing(preprocessing: Preprocessing) -> str:
    """Describe the preprocessing in words that follow the word "images", such as "converted to grey"."""
    steps = [] if preprocessing.color == "keep" else [f"converted to {preprocessing.color}"]
    if preprocessing.size is not None:
        height, width = preprocessing.size
        steps.append(f"{describe_fit(preprocessing)} to {height}x{width} pixels")
    return " and ".join(steps) or "as they are"


def describe_fit(preprocessing: Preprocessing) -> str:
    """Return how images get their size, as a participle such as "resized"."""
    return _DONE[preprocessing.fit]


def to_color(image: np.ndarray, color: Color) -> np.ndarray:
    """Convert an image to grey or RGB; images that are neither grey nor RGB are refused."""
    channels = image.shape[2]
    if color == "keep" or (color, channels) in (("grey", 1), ("rgb", 3)):
        return image
    if color == "rgb" and channels == 1:
        return np.repeat(image, 3, axis=2)
    if color == "grey" and channels == 3:
        grey = image.astype(np.float32) @ _GREY_WEIGHTS
        return _convert(grey, image.dtype)[..., None]
    raise ValueError(f"an image with {channels} channels cannot become {color}; use color='keep'")


def resize_image(
    image: np.ndarray, size: tuple[int, int], box: tuple[float, float, float, float] | None = None
) -> np.ndarray:
    """Scale an image to (height, width) by antialiased bilinear interpolation; the pixel type stays.

    With a `box` (left, top, right, bottom), only this part of the image is scaled.
    """
    if image.shape[:2] == size:
        return image
    if image.dtype == np.uint8 and image.shape[2] in (1, 3):
        return np.array(to_pillow(image).resize(size[::-1], Image.Resampling.BILINEAR, box)).reshape(*size, -1)
    planes = [
        np.asarray(Image.fromarray(plane).resize(size[::-1], Image.Resampling.BILINEAR, box))
        for plane in np.moveaxis(image.astype(np.float32), 2, 0)
    ]
    return _convert(np.stack(planes, axis=2), image.dtype)


def _convert(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Convert single precision values to `dtype`, rounded if it is an integer type."""
    return (np.rint(values) if np.issubdtype(dtype, np.integer) else values).astype(dtype, copy=False)


def crop_middle(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Cut (height, width) out of the middle of an image."""
    height, width = image.shape[:2]
    if height < size[0] or width < size[1]:
        raise ValueError(f"is {height}x{width} pixels, too small to cut out {size[0]}x{size[1]}")
    top, left = (height - size[0]) // 2, (width - size[1]) // 2
    return image[top : top + size[0], left : left + size[1]]


def scale_and_crop(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Scale an image so that it covers (height, width), and cut the middle; its proportions stay.

    Examples
    --------
    >>> scale_and_crop(np.array([[[0], [2], [4], [6]], [[0], [2], [4], [6]]], dtype=np.uint8), (2, 2))[..., 0].tolist()
    [[2, 4], [2, 4]]
    """
    height, width = image.shape[:2]
    factor = min(height / size[0], width / size[1])
    rows, columns = size[0] * factor, size[1] * factor
    top, left = (height - rows) / 2, (width - columns) / 2
    # Rounding must not take the box out of the image, which Pillow refuses.
    return resize_image(image, size, (left, top, min(width, left + columns), min(height, top + rows)))


def scale_and_pad(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Scale an image so that it fits into (height, width), and mirror it at the borders; its proportions stay.

    Examples
    --------
    >>> scale_and_pad(np.array([[[1], [2]]], dtype=np.uint8), (4, 2))[..., 0].tolist()
    [[1, 2], [1, 2], [1, 2], [1, 2]]
    """
    height, width = image.shape[:2]
    factor = min(size[0] / height, size[1] / width)
    small = resize_image(image, (max(1, round(height * factor)), max(1, round(width * factor))))
    missing = [full - side for full, side in zip(size, small.shape[:2], strict=True)]
    sides = [(number // 2, number - number // 2) for number in missing]
    return np.pad(small, (*sides, (0, 0)), mode="symmetric")


def tile_boxes(
    height: int, width: int, size: tuple[int, int], stride: tuple[int, int]
) -> list[tuple[int, int, int, int]]:
    """Return the boxes (top, left, height, width) of all complete tiles of an image, row by row."""
    return [
        (top, left, *size)
        for top in range(0, height - size[0] + 1, stride[0])
        for left in range(0, width - size[1] + 1, stride[1])
    ]


def as_pair(size: Size) -> tuple[int, int]:
    """Return (height, width) from one side length or a pair."""
    pair: tuple[Any, ...] = tuple(size) if isinstance(size, tuple | list) else (size, size)
    if len(pair) != 2 or not all(isinstance(side, Integral) and int(side) >= 1 for side in pair):
        raise ValueError(f"A size must be a positive number of pixels, or height and width, got {size!r}.")
    return int(pair[0]), int(pair[1])


def describe_image(image: np.ndarray) -> str:
    """Describe size, channels and pixel type of an image, such as "20x24 with 3 channels of uint8"."""
    height, width, channels = image.shape
    return f"{height}x{width} with {describe_channels(channels, str(image.dtype))}"


def describe_channels(channels: int, pixels: str) -> str:
    """Describe channels and pixel type, such as "3 channels of uint8"."""
    return f"{channels} channel{'' if channels == 1 else 's'} of {pixels}"


def to_uint8(image: np.ndarray) -> np.ndarray:
    """Convert an image (height, width, channels) to uint8 pixels (height, width, 1 or 3) for display.

    Floating point pixels are scaled from the range 0 to 1, or from their own range if it is larger. Images with another
    number of channels than 1 or 3 are averaged over their channels.

    Examples
    --------
    >>> to_uint8(np.full((1, 1, 5), 65535, dtype=np.uint16)).tolist()
    [[[255]]]
    """
    shown = image if image.shape[2] in (1, 3) else image.mean(axis=2, keepdims=True)
    if image.dtype == np.uint8:
        return np.rint(shown).astype(np.uint8)
    if image.dtype == np.uint16:
        return np.rint(shown / 257).astype(np.uint8)
    low, high = min(0.0, float(shown.min())), max(1.0, float(shown.max()))
    return np.rint((shown.astype(np.float64) - low) * (255 / (high - low))).astype(np.uint8)


def to_pillow(pixels: np.ndarray) -> Image.Image:
    """Convert uint8 pixels (height, width, 1 or 3) to a Pillow image."""
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def thumbnail_image(image: np.ndarray, side: int = THUMBNAIL_SIDE) -> Image.Image:
    """Return a Pillow image of an array (height, width, channels), its longer side at most `side` pixels."""
    small = to_pillow(to_uint8(image))
    small.thumbnail((side, side))
    return small


def make_thumbnail(image: np.ndarray, side: int = THUMBNAIL_SIDE) -> bytes:
    """Return the JPEG file of a thumbnail of an image (height, width, channels)."""
    return encode_jpeg(thumbnail_image(image, side))


def encode_jpeg(picture: Image.Image) -> bytes:
    """Return the JPEG file of a Pillow image."""
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=_JPEG_QUALITY)
    return buffer.getvalue()


def to_data_url(file: bytes, kind: str = "jpeg") -> str:
    """Return an image file as a data URL: data:image/jpeg;base64,..."""
    return f"data:image/{kind};base64,{base64.b64encode(file).decode()}"
