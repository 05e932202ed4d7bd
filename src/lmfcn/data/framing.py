"""Colour and size of images: what is done between the file and the network, and thumbnails."""

import base64
import io
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

import numpy as np
from PIL import Image

Color = Literal["keep", "grey", "rgb"]
Fit = Literal["keep", "resize", "crop"]
Size = int | tuple[int, int]

_GREY_WEIGHTS = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # ITU-R BT.601, as Pillow uses


@dataclass(frozen=True)
class Frame:
    """How images are brought to their form.

    Attributes
    ----------
    color : "keep", "grey" or "rgb"
    fit : "keep", "resize" or "crop"
        Leave sizes as they are, scale to `size`, or cut `size` out of the middle.
    size : (height, width) or None
    """

    color: Color = "keep"
    fit: Fit = "keep"
    size: tuple[int, int] | None = None


AS_IT_IS = Frame()
"""Leaves images alone."""


def complete_frame(own: Frame, trained: Frame) -> Frame:
    """Return the frame of a collection with what it leaves open taken from the frame that a model was trained with.

    Two frames that ask for different colours or sizes are refused.

    Examples
    --------
    >>> complete_frame(Frame(color="rgb"), Frame("rgb", "resize", (64, 64)))
    Frame(color='rgb', fit='resize', size=(64, 64))
    """
    color = trained.color if own.color == "keep" else own.color
    sized = trained if own.fit == "keep" else own
    same_size = trained.fit == "keep" or (trained.fit, trained.size) == (sized.fit, sized.size)
    if trained.color not in ("keep", color) or not same_size:
        raise ValueError(
            f"The collection has images {describe_frame(own)}, but the model was trained on images"
            f" {describe_frame(trained)}; open the collection without a color or size of its own, and those of the"
            " model are used."
        )
    return Frame(color, sized.fit, sized.size)


def describe_frame(frame: Frame) -> str:
    """Say what is done to images, to follow the word images."""
    done = [] if frame.color == "keep" else [f"converted to {frame.color}"]
    if frame.size is not None:
        done.append(f"{'resized' if frame.fit == 'resize' else 'cropped'} to {frame.size[0]}x{frame.size[1]} pixels")
    return " and ".join(done) or "as they are"


def frame_image(image: np.ndarray, frame: Frame) -> np.ndarray:
    """Return an image (height, width, channels) in the form that `frame` asks for."""
    image = to_color(image, frame.color)
    if frame.fit == "resize" and frame.size is not None:
        return resize_image(image, frame.size)
    if frame.fit == "crop" and frame.size is not None:
        return crop_middle(image, frame.size)
    return image


def to_color(image: np.ndarray, color: Color) -> np.ndarray:
    """Return a grey or RGB version of a grey or RGB image; other numbers of channels are refused."""
    channels = image.shape[2]
    if color == "keep" or (color, channels) in (("grey", 1), ("rgb", 3)):
        return image
    if color == "rgb" and channels == 1:
        return np.repeat(image, 3, axis=2)
    if color == "grey" and channels == 3:
        grey = image.astype(np.float32) @ _GREY_WEIGHTS
        return _to_depth(grey, image.dtype)[..., None]
    raise ValueError(f"an image with {channels} channels cannot become {color}; use color='keep'")


def resize_image(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Scale to (height, width) with a filter that averages when it shrinks, channel by channel, at full depth."""
    if image.shape[:2] == size:
        return image
    if image.dtype == np.uint8 and image.shape[2] in (1, 3):
        picture = Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)
        return np.array(picture.resize(size[::-1], Image.Resampling.BILINEAR)).reshape(*size, -1)
    planes = [
        np.asarray(Image.fromarray(plane).resize(size[::-1], Image.Resampling.BILINEAR))
        for plane in np.moveaxis(image.astype(np.float32), 2, 0)
    ]
    return _to_depth(np.stack(planes, axis=2), image.dtype)


def _to_depth(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return values of single precision as `dtype`, rounded if it holds whole numbers."""
    whole = np.issubdtype(dtype, np.integer)
    return (np.rint(values) if whole else values).astype(dtype, copy=False)


def crop_middle(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Cut (height, width) out of the middle."""
    height, width = image.shape[:2]
    if height < size[0] or width < size[1]:
        raise ValueError(f"is {height}x{width} pixels, too small to cut out {size[0]}x{size[1]}")
    top, left = (height - size[0]) // 2, (width - size[1]) // 2
    return image[top : top + size[0], left : left + size[1]]


def tile_boxes(
    height: int, width: int, size: tuple[int, int], stride: tuple[int, int]
) -> list[tuple[int, int, int, int]]:
    """Return the boxes (top, left, height, width) of all whole tiles of an image, row by row."""
    return [
        (top, left, *size)
        for top in range(0, height - size[0] + 1, stride[0])
        for left in range(0, width - size[1] + 1, stride[1])
    ]


def framed_size(size: tuple[int, int], frame: Frame) -> tuple[int, int]:
    """Return the (height, width) that an image of `size` has after framing."""
    return size if frame.fit == "keep" or frame.size is None else frame.size


def as_pair(size: Size) -> tuple[int, int]:
    """Return height and width from a side or a pair."""
    pair: tuple[Any, ...] = tuple(size) if isinstance(size, tuple | list) else (size, size)
    if len(pair) != 2 or not all(isinstance(side, Integral) and int(side) >= 1 for side in pair):
        raise ValueError(f"A size must be a positive number of pixels, or height and width, got {size!r}.")
    return int(pair[0]), int(pair[1])


def describe_form(image: np.ndarray) -> str:
    """Say what an image looks like from outside."""
    height, width, channels = image.shape
    return f"{height}x{width} with {describe_channels(channels, str(image.dtype))}"


def describe_channels(channels: int, pixels: str) -> str:
    """Say how many channels of which pixels there are."""
    return f"{channels} channel{'' if channels == 1 else 's'} of {pixels}"


THUMBNAIL = 96
"""Pixels of the longer side of a thumbnail, at most."""

_QUALITY = 90


def picture_of(image: np.ndarray) -> np.ndarray:
    """Return an image (height, width, channels) as uint8 pixels (height, width, 1 or 3).

    Floating point pixels count from 0 to 1, or from the smallest to the largest if they go beyond; of other numbers of
    channels than 1 and 3, the mean is shown.

    Examples
    --------
    >>> picture_of(np.full((1, 1, 5), 65535, dtype=np.uint16)).tolist()
    [[[255]]]
    """
    shown = image if image.shape[2] in (1, 3) else image.mean(axis=2, keepdims=True)
    if image.dtype == np.uint8:
        return np.rint(shown).astype(np.uint8)
    if image.dtype == np.uint16:
        return np.rint(shown / 257).astype(np.uint8)
    low, high = min(0.0, float(shown.min())), max(1.0, float(shown.max()))
    return np.rint((shown.astype(np.float64) - low) * (255 / (high - low))).astype(np.uint8)


def as_pillow(picture: np.ndarray) -> Image.Image:
    """Return uint8 pixels (height, width, 1 or 3) as a picture of Pillow."""
    return Image.fromarray(picture[..., 0] if picture.shape[2] == 1 else picture)


def small_picture(image: np.ndarray, side: int = THUMBNAIL) -> Image.Image:
    """Return an image (height, width, channels) as a picture whose longer side is at most `side` pixels."""
    small = as_pillow(picture_of(image))
    small.thumbnail((side, side))
    return small


def thumbnail(image: np.ndarray, side: int = THUMBNAIL) -> bytes:
    """Return a small JPEG file of an image (height, width, channels), its longer side at most `side` pixels."""
    return as_jpeg(small_picture(image, side))


def as_jpeg(picture: Image.Image) -> bytes:
    """Return a picture as a JPEG file."""
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=_QUALITY)
    return buffer.getvalue()


def as_address(file: bytes, kind: str = "jpeg") -> str:
    """Return a picture file as an address that holds it: data:image/jpeg;base64,..."""
    return f"data:image/{kind};base64,{base64.b64encode(file).decode()}"
