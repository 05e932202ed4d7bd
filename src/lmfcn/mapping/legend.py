"""Names and colours of what a map shows."""

import colorsys
from dataclasses import dataclass

import numpy as np

_MOST_CLASSES = 250
# Okabe and Ito's colours, which most people can tell apart.
_FIRST = ["0072b2", "e69f00", "009e73", "cc79a7", "f0e442", "d55e00", "56b4e9", "5d3a9b"]
_GOLDEN = 0.618034
_UNLABELLED = {"rejected": (150, 150, 150), "glass": (255, 255, 255), "unreadable": (0, 0, 0)}
"""What a window may be instead of a class, and its colour; their numbers follow those of the classes."""


@dataclass(frozen=True)
class Legend:
    """What the numbers in a label map stand for.

    Attributes
    ----------
    names : list of str
        The classes in the model's order, then rejected, glass, unreadable; no two are alike.
    colours : array of uint8 (n, 3)
    """

    names: list[str]
    colours: np.ndarray

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.names) - len(_UNLABELLED)

    @property
    def rejected(self) -> int:
        """Number of windows whose label is too doubtful."""
        return self.n_classes

    @property
    def glass(self) -> int:
        """Number of windows without tissue."""
        return self.n_classes + 1

    @property
    def unreadable(self) -> int:
        """Number of windows on damaged parts of the image."""
        return self.n_classes + 2

    def labels(self, probabilities: np.ndarray, wanted: np.ndarray | None, reject: float) -> np.ndarray:
        """Return the number (rows, columns) of what is shown for probabilities (rows, columns, n_classes)."""
        unknown = np.isnan(probabilities[..., 0])
        known = np.nan_to_num(probabilities)
        labels = known.argmax(axis=2).astype(np.uint8)
        labels[known.max(axis=2) < reject] = self.rejected
        labels[unknown] = self.unreadable
        if wanted is not None:
            labels[~wanted] = self.glass
        return labels


def legend_of(classes: np.ndarray) -> Legend:
    """Return the legend for a model's classes."""
    if len(classes) > _MOST_CLASSES:
        raise ValueError(f"A map can show at most {_MOST_CLASSES} classes, but the model has {len(classes)}.")
    colours = [tuple(bytes.fromhex(colour)) for colour in _FIRST][: len(classes)]
    for number in range(len(colours), len(classes)):
        brightness = (0.95, 0.7, 0.5)[number % 3]
        rgb = colorsys.hsv_to_rgb(number * _GOLDEN % 1, 0.65, brightness)
        colours.append(tuple(round(255 * part) for part in rgb))
    names = [str(label) for label in classes.tolist()]
    for unlabelled in _UNLABELLED:
        names.append(_unlike(names, unlabelled))
    return Legend(names, np.array([*colours, *_UNLABELLED.values()], dtype=np.uint8))


def _unlike(names: list[str], name: str) -> str:
    """Return a name that no class has."""
    while name in names:
        name = f"{name} (no class)"
    return name
