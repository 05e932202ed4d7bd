"""Synthetic striped images whose classes differ only in their noise: ours, and those of the LMFCN paper."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

import numpy as np
from PIL import Image

from lmfcn.data.arrays import RandomState, as_generator
from lmfcn.data.framing import as_pair
from lmfcn.util.checks import check_choice

_DEFAULTS: dict[str, dict[str, Any]] = {
    "default": {"n_per_class": 100, "size": 64, "channels": None, "max_angle": 30.0},
    "paper": {"n_per_class": 200, "size": 200, "channels": 3, "max_angle": 15.0},
}
_CLASS_ANGLE, _JITTER = 0.18, 15
"""Of the paper's images: degrees by which a class is turned, and the largest jitter in hundredths of a degree."""


def make_gaussians(
    n_per_class: int | None = None,
    size: int | tuple[int, int] | None = None,
    random_state: RandomState = None,
    *,
    kind: Literal["default", "paper"] = "default",
    channels: int | None = None,
    means: Sequence[float] = (128.0, 125.0),
    stds: Sequence[float] = (30.0, 35.0),
    pattern: Sequence[float] = (0.4, 0.7, 1.0, 0.7),
    max_angle: float | None = None,
    noise_weight: float = 0.25,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw striped images whose classes differ only in mean and standard deviation of their noise.

    Stripes of one-pixel bands, each image turned by a random angle, are mixed with Gaussian noise. There are two kinds:

    - "default": grey images. The stripes begin anywhere and are drawn at their angle over the whole image; the noise is
      not turned.
    - "paper": the images of the LMFCN paper, as the program that its authors published draws them. The paper only says
      "two Gaussian distributions with striped patterns". Three channels share the stripes and have independent noise.
      Stripes begin at the left edge, and the last row has none. Values above 255 start again at 0. The finished image
      is turned by Pillow's `rotate`, to the nearest pixel, which leaves black corners. The angle is a whole number of
      degrees, plus or minus up to 0.15 degrees, less 0.18 degrees in the first class and plus 0.18 in the last. The
      angle thus tells the classes apart, but hardly in pixels: by 0.6 pixels at the edge of an image of 200 pixels.

    Parameters
    ----------
    n_per_class : int, optional
        None is 100, or 200 for the paper's images.
    size : int or (height, width), optional
        None is 64, or 200 for the paper's images.
    random_state : None, int or NumPy generator, optional
        The same seed gives the same images.
    kind : {"default", "paper"}, default="default"
    channels : int, optional
        With None the images are grey, of shape (height, width), and the paper's have 3 channels; otherwise (height,
        width, channels), with independent noise in every channel.
    means, stds : sequences of float, default=(128, 125) and (30, 35)
        Mean and standard deviation of the noise in grey levels, one entry per class.
    pattern : sequence of float, default=(0.4, 0.7, 1.0, 0.7)
        Brightness of the bands of one stripe, each a pixel wide, from 0 (black) to 1 (white).
    max_angle : float, optional
        Maximum rotation in degrees, in both directions. None is 30, or 15 for the paper's images.
    noise_weight : float, default=0.25
        Weight of the noise in the image; that of the stripes is 1 minus it.

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
    >>> make_gaussians(n_per_class=2, random_state=0, kind="paper")[0].shape
    (4, 200, 200, 3)
    """
    check_choice("kind", kind, tuple(_DEFAULTS))
    given = {"n_per_class": n_per_class, "size": size, "channels": channels, "max_angle": max_angle}
    chosen = {**_DEFAULTS[kind], **{name: value for name, value in given.items() if value is not None}}
    height, width = as_pair(chosen["size"])
    _check_arguments(chosen, means, stds, pattern, noise_weight)
    random = as_generator(random_state)
    labels = random.permutation(np.repeat(np.arange(len(means)), chosen["n_per_class"]))
    drawing = _Drawing(np.asarray(pattern), chosen["max_angle"], noise_weight, random)
    images = np.empty((len(labels), height, width, chosen["channels"] or 1), dtype=np.uint8)
    class_angles = np.linspace(-_CLASS_ANGLE, _CLASS_ANGLE, len(means))
    for image, label in zip(images, labels, strict=True):
        if kind == "paper":
            image[...] = drawing.paper(image.shape, means[label], stds[label], class_angles[label])
        else:
            image[...] = drawing.default(image.shape, means[label], stds[label])
    return (images[..., 0] if chosen["channels"] is None else images), labels


@dataclass(frozen=True)
class _Drawing:
    """How images are drawn, one after the other, from a generator of random numbers."""

    pattern: np.ndarray
    max_angle: float
    noise_weight: float
    random: np.random.Generator

    def default(self, shape: tuple[int, ...], mean: float, std: float) -> np.ndarray:
        """Return an image (height, width, channels) with stripes at a random angle and offset."""
        angle = np.deg2rad(self.random.uniform(-self.max_angle, self.max_angle))
        offset = self.random.uniform(0, len(self.pattern))
        across = np.arange(shape[1]) * np.cos(angle) + offset
        down = np.arange(shape[0]) * np.sin(angle)
        bands = np.floor(down[:, None] + across[None, :]).astype(np.int64)
        levels: np.ndarray = self._with_noise(self.pattern[bands % len(self.pattern)], shape, mean, std)
        return levels.clip(0, 255)

    def paper(self, shape: tuple[int, ...], mean: float, std: float, class_angle: float) -> np.ndarray:
        """Return an image (height, width, channels) of the paper, turned by an angle that has a part of its class."""
        degrees = int(self.max_angle)
        angle = float(self.random.integers(-degrees, degrees, endpoint=True) + class_angle)
        angle += float(self.random.integers(-_JITTER, _JITTER, endpoint=True)) / 100
        stripes = np.tile(np.resize(self.pattern, shape[1]), (shape[0], 1))
        stripes[-1] = 0
        levels = self._with_noise(stripes, shape, mean, std).astype(np.int64)
        channels = np.moveaxis(levels.astype(np.uint8), -1, 0)  # uint8 starts again at 0 behind 255
        return np.stack([np.asarray(Image.fromarray(channel).rotate(angle)) for channel in channels], axis=-1)

    def _with_noise(self, stripes: np.ndarray, shape: tuple[int, ...], mean: float, std: float) -> np.ndarray:
        noise = self.random.standard_normal(shape, dtype=np.float32) * std + mean
        mixture: np.ndarray = (1.0 - self.noise_weight) * 256.0 * stripes[..., None] + self.noise_weight * noise
        return mixture


def _check_arguments(
    chosen: dict[str, Any],
    means: Sequence[float],
    stds: Sequence[float],
    pattern: Sequence[float],
    noise_weight: float,
) -> None:
    for name in ("n_per_class", "channels"):
        value = 1 if chosen[name] is None else chosen[name]
        if not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value}.")
    if len(means) != len(stds):
        raise ValueError(f"means and stds must have one entry per class each, got {len(means)} and {len(stds)}.")
    if len(means) == 0 or not np.isfinite([*means, *stds]).all() or min(stds) < 0:
        raise ValueError(f"means and stds must be finite, stds not negative, got {tuple(means)} and {tuple(stds)}.")
    if not 0.0 <= chosen["max_angle"] <= 180.0:
        raise ValueError(f"max_angle must be between 0 and 180 degrees, got {chosen['max_angle']}.")
    if len(pattern) == 0:
        raise ValueError("pattern must have at least one band, got none.")
    if not 0.0 <= noise_weight <= 1.0:
        raise ValueError(f"noise_weight must be between 0 and 1, got {noise_weight}.")
