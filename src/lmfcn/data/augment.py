"""Changed copies of training images: exact flips and turns, colour and stain jitter.

Everything random comes from an explicit generator. Copies are made once, before training: within an epoch an image must
keep its identity, because support vectors and anchors are particular images.
"""

from collections.abc import Callable, Sequence

import numpy as np

from lmfcn.data.seeds import RandomState, as_generator

Change = Callable[[np.ndarray, np.random.Generator], np.ndarray]

# Optical density of haematoxylin, eosin and DAB in red, green and blue (Ruifrok and Johnston 2001).
_STAINS = np.array([[0.65, 0.70, 0.29], [0.07, 0.99, 0.11], [0.27, 0.57, 0.78]])
_STAINS /= np.linalg.norm(_STAINS, axis=1, keepdims=True)
_GREY = np.array([0.299, 0.587, 0.114])


def augmented_copies(
    images: np.ndarray, changes: Sequence[Change], copies: int = 1, random_state: RandomState = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the images followed by `copies` changed copies of each.

    Parameters
    ----------
    images : array (n, height, width, channels)
    changes : sequence of functions
        Applied one after the other, such as `flip_and_turn`, `color_jitter` and `stain_jitter`.
    copies : int, default=1
    random_state : None, int or NumPy generator, optional

    Returns
    -------
    images : array (n * (1 + copies), height, width, channels)
    origins : array of int
        Number of the original of each image, for its label and its group.

    Examples
    --------
    >>> images = np.arange(2 * 8 * 8, dtype=np.uint8).reshape(2, 8, 8, 1)
    >>> more, origins = augmented_copies(images, [flip_and_turn], copies=2, random_state=0)
    >>> more.shape, origins.tolist()
    ((6, 8, 8, 1), [0, 1, 0, 1, 0, 1])
    """
    if copies < 0:
        raise ValueError(f"copies must be at least 0, got {copies}.")
    random = as_generator(random_state)
    changed = [images]
    for _ in range(copies):
        copy = np.empty_like(images)
        for image, target in zip(images, copy, strict=True):
            for change in changes:
                image = change(image, random)
            target[...] = image
        changed.append(copy)
    return np.concatenate(changed), np.tile(np.arange(len(images)), copies + 1)


def flip_and_turn(image: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return one of the eight flips and quarter turns, of the four that keep the shape if it is not square."""
    turns = int(random.integers(4) if image.shape[0] == image.shape[1] else 2 * random.integers(2))
    turned = np.rot90(image, turns)
    return turned[:, ::-1] if random.integers(2) else turned


def color_jitter(
    image: np.ndarray,
    random: np.random.Generator,
    *,
    brightness: float = 0.25,
    contrast: float = 0.25,
    saturation: float = 0.25,
    hue: float = 0.04,
) -> np.ndarray:
    """Change brightness, contrast and, in RGB images, saturation and hue by random amounts.

    The defaults are the ranges of the paper's authors: factors within 1 ± 0.25, and a turn of the colour
    circle by up to two hundredths either way.
    """
    factors = 1.0 + random.uniform(-1.0, 1.0, 3) * (brightness, contrast, saturation)
    turn = (random.random() - 0.5) * hue
    values = _to_unit(image) * factors[0]
    is_rgb = image.shape[2] == 3
    grey = (values @ _GREY)[..., None] if is_rgb else values
    values = grey.mean() + (values - grey.mean()) * factors[1]
    if is_rgb:
        grey = (values @ _GREY)[..., None]
        values = _turn_hue(grey + (values - grey) * factors[2], turn)
    return _from_unit(values, image.dtype)


def stain_jitter(image: np.ndarray, random: np.random.Generator, *, strength: float = 0.05) -> np.ndarray:
    """Change the amounts of haematoxylin and eosin in an RGB image by random factors and shifts."""
    if image.shape[2] != 3:
        raise ValueError(f"stain_jitter needs RGB images, got {image.shape[2]} channels.")
    density = -np.log(np.maximum(_to_unit(image), 1e-6))
    stains = density @ np.linalg.inv(_STAINS)
    factors = 1.0 + random.uniform(-strength, strength, 3) * (1, 1, 0)
    shifts = random.uniform(-strength, strength, 3) * (1, 1, 0)
    return _from_unit(np.exp(-(stains * factors + shifts) @ _STAINS), image.dtype)


def _turn_hue(values: np.ndarray, turn: float) -> np.ndarray:
    """Turn colours about the grey axis by a share of the full circle."""
    angle, axis = 2 * np.pi * turn, np.full(3, 1 / np.sqrt(3))
    cross = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    rotation = np.eye(3) * np.cos(angle) + np.sin(angle) * cross + (1 - np.cos(angle)) * np.outer(axis, axis)
    return values @ rotation.T


def _to_unit(image: np.ndarray) -> np.ndarray:
    scale = 1.0 if np.issubdtype(image.dtype, np.floating) else np.iinfo(image.dtype).max
    return image.astype(np.float64) / scale


def _from_unit(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if np.issubdtype(dtype, np.floating):
        return values.astype(dtype)
    return np.rint(np.clip(values, 0, 1) * np.iinfo(dtype).max).astype(dtype)
