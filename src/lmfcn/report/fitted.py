"""Pictures of a fitted model: its latents and its hardest images."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from lmfcn.report.style import COLORS, INK, new_figure, tidy

_MOST_NAMED = 15
_MARKERS = "oXs^Dv*P"


def latent_figure(latents: np.ndarray, numbers: np.ndarray, classes: Sequence[str], support: np.ndarray) -> Figure:
    """Draw latents (n, n_latents) in their two directions of largest variance, support vectors larger."""
    centred = latents - latents.mean(axis=0)
    points = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
    figure = new_figure(7.5, 5.2)
    axes = figure.subplots()
    sizes = np.full(len(points), 14.0)
    sizes[support] = 55.0
    for number, label in enumerate(classes):
        mine = numbers == number
        x, y = points[mine].T
        axes.scatter(
            x,
            y,
            s=sizes[mine],
            color=COLORS[number % len(COLORS)],
            marker=_MARKERS[number % len(_MARKERS)],
            edgecolors="white",
            linewidths=0.5,
            label=label,
        )
    axes.set(xlabel="first direction", ylabel="second direction")
    if len(classes) <= _MOST_NAMED:
        axes.legend(fontsize=8, framealpha=0.85)
    tidy(axes)
    return figure


def image_figure(images: Sequence[np.ndarray], captions: Sequence[str], per_row: int = 6) -> Figure:
    """Draw images (height, width, channels) with a caption below each."""
    n_rows = -(-len(images) // per_row)
    figure = new_figure(1.75 * per_row, 2.2 * n_rows)
    places = figure.subplots(n_rows, per_row, squeeze=False).ravel()
    for axes in places:
        axes.set_axis_off()
    for axes, image, caption in zip(places, images, captions, strict=False):
        axes.imshow(as_shown(image), cmap="gray", interpolation="nearest")
        axes.set_title(caption, fontsize=7.5, color=INK)
    return figure


def as_shown(image: np.ndarray) -> np.ndarray:
    """Return a grey (h, w) or RGB (h, w, 3) picture in 0 to 1 of any image; many channels show their mean."""
    shown = image.astype(np.float64)
    shown = shown if image.shape[2] == 3 else shown.mean(axis=2)
    low, high = (0.0, 255.0) if image.dtype == np.uint8 else (shown.min(), shown.max())
    return np.clip((shown - low) / max(high - low, 1e-12), 0, 1)
