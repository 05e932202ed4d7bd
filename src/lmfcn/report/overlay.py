"""Score maps drawn over images, and small pictures of images for a page. Needs only Pillow."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from lmfcn.benchmark.model_summary import HardImage, LabelledPicture
from lmfcn.data.framing import (
    THUMBNAIL_SIDE,
    encode_jpeg,
    make_thumbnail,
    resize_image,
    to_data_url,
    to_pillow,
    to_uint8,
)
from lmfcn.explain.explanation import Explanation

FOR, AGAINST = "#D55E00", "#0072B2"
"""Orange and blue of Okabe and Ito, which colour-blind readers can distinguish."""

_SMALLEST_SIDE, _LARGEST_SIDE = 256, 1024  # pixels, of enlarged images
_OPACITY = 0.7
_QUANTILE = 0.99


@dataclass(frozen=True)
class Explained:
    """An image with its name, its explanation, and its overlay as a PNG file."""

    name: str
    image: np.ndarray
    found: Explanation
    overlay: bytes

    @classmethod
    def of(cls, name: str, image: np.ndarray, found: Explanation, shape: tuple[int, int] | None = None) -> "Explained":
        """Draw the overlay of an explanation; `shape` is the height and width before the image was resized."""
        image, values = in_shape(image, found.map.values, shape)
        return cls(name, image, found, overlay(image, values))


def in_shape(image: np.ndarray, values: np.ndarray, shape: tuple[int, int] | None) -> tuple[np.ndarray, np.ndarray]:
    """Return an image and its map as high as they are, and as wide as height and width in `shape` ask for.

    Examples
    --------
    >>> image, values = in_shape(np.zeros((8, 8, 1), dtype=np.uint8), np.ones((8, 8)), (10, 30))
    >>> image.shape, values.shape
    ((8, 24, 1), (8, 24))
    """
    height, width = image.shape[:2]
    if shape is None or shape[0] * width == shape[1] * height:
        return image, values
    # The shorter side keeps its pixels, so that nothing of the image is lost.
    scale = max(height / shape[0], width / shape[1]) if min(shape) > 0 else 1.0
    size = (max(1, round(scale * shape[0])), max(1, round(scale * shape[1])))
    stretched = resize_image(values.astype(np.float32)[..., None], size)[..., 0]
    return resize_image(to_uint8(image), size), stretched


def overlay(image: np.ndarray, values: np.ndarray) -> bytes:
    """Return a PNG file of an image in grey with a map over it: orange for the class, blue against it.

    The strongest colour is that of the largest values of either sign; where the map is near 0 the image shows through.
    Small images are enlarged by a whole factor.

    Parameters
    ----------
    image : array (height, width, channels)
    values : array (height, width)
    """
    height, width = values.shape
    factor = max(1, min(-(-_SMALLEST_SIDE // min(height, width)), _LARGEST_SIDE // max(height, width)))
    size = (width * factor, height * factor)
    grey = to_pillow(to_uint8(image)).convert("L").resize(size, Image.Resampling.NEAREST)
    smooth = Image.fromarray(values.astype(np.float32)).resize(size, Image.Resampling.BILINEAR)
    blended = _blend(np.asarray(grey, dtype=np.float64), np.asarray(smooth) / color_limit(values))
    buffer = io.BytesIO()
    Image.fromarray(blended).save(buffer, format="PNG")  # optimize=True takes 25 times as long for 1 % less
    return buffer.getvalue()


def color_limit(values: np.ndarray) -> float:
    """Return the size of a value from which on the colour of the overlay gets no stronger."""
    return float(max(np.quantile(np.abs(values), _QUANTILE), 1e-12))


def _blend(grey: np.ndarray, strength: np.ndarray) -> np.ndarray:
    """Mix grey pixels (h, w) with the colours of strengths (h, w) from -1 to 1; return uint8 (h, w, 3)."""
    share = _OPACITY * np.abs(strength).clip(max=1.0)[..., None]
    colors = np.where(strength[..., None] > 0, _rgb(FOR), _rgb(AGAINST))
    return np.rint((1 - share) * grey[..., None] + share * colors).astype(np.uint8)


def _rgb(color: str) -> np.ndarray:
    return np.array([int(color[start : start + 2], 16) for start in (1, 3, 5)], dtype=np.float64)


class Tile(NamedTuple):
    """A picture as a data URL, its text alternative, and the lines below it."""

    address: str
    alt: str
    lines: list[str]


def hard_images(hardest: Sequence[HardImage], classes: Sequence[str]) -> list[tuple[Tile, list[Tile]]]:
    """Return for each image its tile and those of its nearest support vectors, for the macro `hard_images`."""
    return [(_hard_tile(hard, classes), _nearest_tiles(hard, classes)) for hard in hardest]


def _hard_tile(hard: HardImage, classes: Sequence[str]) -> Tile:
    true, predicted = classes[hard.picture.number], classes[hard.predicted]
    result = f"predicted {predicted}" if true != predicted else "correct"
    lines = [hard.picture.name, f"is {true}", f"{result}, {_percent(hard.confidence)} confident"]
    return _tile(hard.picture, f"Test image {hard.picture.name}: {true}, {result}", lines)


def _nearest_tiles(hard: HardImage, classes: Sequence[str]) -> list[Tile]:
    tiles = []
    for picture, similarity in zip(hard.nearest, hard.similarities, strict=True):
        label = classes[picture.number]
        lines = [picture.name, f"is {label}", f"similarity {similarity:.2f}"]
        tiles.append(_tile(picture, f"Support vector {picture.name}: {label}", lines))
    return tiles


def _tile(picture: LabelledPicture, alt: str, lines: list[str]) -> Tile:
    return Tile(to_data_url(encode_jpeg(Image.fromarray(picture.pixels))), alt, lines)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def examples(images: Any, labels: np.ndarray, per_class: int, most_classes: int) -> dict[str, list[str]]:
    """Return data URLs of the first pictures of every class, by class; none if there are too many classes."""
    classes = np.unique(labels)
    if len(classes) > most_classes:
        return {}
    return {
        str(label): [
            to_data_url(make_thumbnail(images[int(position)], THUMBNAIL_SIDE // 2))
            for position in np.flatnonzero(labels == label)[:per_class]
        ]
        for label in classes
    }
