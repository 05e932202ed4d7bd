"""Striped Gaussian textures: classes that share their stripes and differ only in their noise."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from lmfcn.data.framing import as_pair
from lmfcn.data.seeds import RandomState, as_generator


def make_gaussians(
    n_per_class: int = 100,
    size: int | tuple[int, int] = 64,
    random_state: RandomState = None,
    *,
    channels: int | None = None,
    means: Sequence[float] = (128.0, 125.0),
    stds: Sequence[float] = (30.0, 35.0),
    pattern: Sequence[float] = (0.4, 0.7, 1.0, 0.7),
    max_angle: float = 30.0,
    noise_weight: float = 0.25,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw striped images whose classes differ only in mean and standard deviation of their noise.

    The defaults are those of the synthetic set of the LMFCN paper: stripes of one-pixel bands, each image
    turned by an angle of its own, under Gaussian noise. The stripes are drawn at their angle over the
    whole image, so there are no empty corners that would tell the angle.

    Parameters
    ----------
    n_per_class : int, default=100
    size : int or (height, width), default=64
    random_state : None, int or NumPy generator, optional
        The same seed gives the same images.
    channels : int, optional
        With None the images are grey, of shape (height, width); else (height, width, channels), every
        channel with noise of its own.
    means, stds : sequences of float, default=(128, 125) and (30, 35)
        Mean and standard deviation of the noise in grey levels, one entry per class.
    pattern : sequence of float, default=(0.4, 0.7, 1.0, 0.7)
        Brightness of the bands of one stripe, each a pixel wide, from 0 (black) to 1 (white).
    max_angle : float, default=30
        Largest turn of the stripes in degrees, either way.
    noise_weight : float, default=0.25
        Share of the noise in the image; the stripes have the rest.

    Returns
    -------
    images : array of uint8, (n, height, width) or (n, height, width, channels)
    labels : array of int, (n,)
        0, 1, ... in random order.

    Examples
    --------
    >>> images, labels = make_gaussians(n_per_class=3, size=32, random_state=0)
    >>> images.shape, images.dtype, sorted(labels.tolist())
    ((6, 32, 32), dtype('uint8'), [0, 0, 0, 1, 1, 1])
    """
    height, width = as_pair(size)
    _check(n_per_class, channels, means, stds, pattern, max_angle, noise_weight)
    random = as_generator(random_state)
    labels = random.permutation(np.repeat(np.arange(len(means)), n_per_class))
    images = np.empty((len(labels), height, width, channels or 1), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        stripes = _stripes(height, width, np.asarray(pattern), max_angle, random)
        noise = random.standard_normal(image.shape, dtype=np.float32) * stds[label] + means[label]
        mixture = (1.0 - noise_weight) * 256.0 * stripes[..., None] + noise_weight * noise
        image[...] = np.clip(mixture, 0, 255)
    return (images[..., 0] if channels is None else images), labels


def _stripes(height: int, width: int, pattern: np.ndarray, max_angle: float, random: np.random.Generator) -> np.ndarray:
    """Brightness (height, width) of stripes at a random angle and offset."""
    angle = np.deg2rad(random.uniform(-max_angle, max_angle))
    offset = random.uniform(0, len(pattern))
    across = np.arange(width) * np.cos(angle) + offset
    down = np.arange(height) * np.sin(angle)
    bands = np.floor(down[:, None] + across[None, :]).astype(np.int64)
    return pattern[bands % len(pattern)]


def _check(
    n_per_class: Any,
    channels: Any,
    means: Sequence[float],
    stds: Sequence[float],
    pattern: Sequence[float],
    max_angle: float,
    noise_weight: float,
) -> None:
    for name, value in (("n_per_class", n_per_class), ("channels", 1 if channels is None else channels)):
        if not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value}.")
    if len(means) != len(stds):
        raise ValueError(f"means and stds must have one entry per class each, got {len(means)} and {len(stds)}.")
    if len(means) == 0 or not np.isfinite([*means, *stds]).all() or min(stds) < 0:
        raise ValueError(f"means and stds must be finite, stds not negative, got {tuple(means)} and {tuple(stds)}.")
    if not 0.0 <= max_angle <= 180.0:
        raise ValueError(f"max_angle must be between 0 and 180 degrees, got {max_angle}.")
    if len(pattern) == 0:
        raise ValueError("pattern must have at least one band, got none.")
    if not 0.0 <= noise_weight <= 1.0:
        raise ValueError(f"noise_weight must be between 0 and 1, got {noise_weight}.")
