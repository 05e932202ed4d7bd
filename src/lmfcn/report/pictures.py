"""Images of the user as small pictures inside of a page."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from lmfcn.data.pictures import THUMBNAIL, as_address, as_jpeg, thumbnail
from lmfcn.experiments.exhibit import HardImage, Shown


class Tile(NamedTuple):
    """A picture's address, what it shows in words, and the lines below it."""

    address: str
    alt: str
    lines: list[str]


def hard_images(hardest: Sequence[HardImage], classes: Sequence[str]) -> list[tuple[Tile, list[Tile]]]:
    """Return for each image its own tile and those of the support vectors next to it, for the macro `hard_images`."""
    return [(_hard_tile(hard, classes), _nearest_tiles(hard, classes)) for hard in hardest]


def _hard_tile(hard: HardImage, classes: Sequence[str]) -> Tile:
    true, taken = classes[hard.shown.number], classes[hard.predicted]
    said = f"taken for {taken}" if true != taken else "recognised"
    lines = [hard.shown.name, f"is {true}", f"{said}, {_percent(hard.confidence)} sure"]
    return _tile(hard.shown, f"Test image {hard.shown.name}: {true}, {said}", lines)


def _nearest_tiles(hard: HardImage, classes: Sequence[str]) -> list[Tile]:
    tiles = []
    for shown, similarity in zip(hard.nearest, hard.similarities, strict=True):
        label = classes[shown.number]
        lines = [shown.name, f"is {label}", f"similarity {similarity:.2f}"]
        tiles.append(_tile(shown, f"Support vector {shown.name}: {label}", lines))
    return tiles


def _tile(shown: Shown, alt: str, lines: list[str]) -> Tile:
    return Tile(as_address(as_jpeg(Image.fromarray(shown.pixels))), alt, lines)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def examples(images: Any, labels: np.ndarray, per_class: int, most_classes: int) -> dict[str, list[str]]:
    """Return the addresses of the first pictures of every class, by the class; none if there are too many classes."""
    classes = np.unique(labels)
    if len(classes) > most_classes:
        return {}
    return {
        str(label): [
            as_address(thumbnail(images[int(position)], THUMBNAIL // 2))
            for position in np.flatnonzero(labels == label)[:per_class]
        ]
        for label in classes
    }
