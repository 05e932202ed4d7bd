"""Simple pictures of what a fitted model does: confusions, calibration, latents, its hardest images."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from lmfcn.report.style import COLORS, INK, TRAIN, new_figure, tidy

_MOST_COUNTED = 15
_MARKERS = "oXs^Dv*P"


def confusion_figure(confusion: np.ndarray, classes: Sequence[str]) -> Figure:
    """Draw the images of each true class (row) by predicted class (column), as shares of the row."""
    side = max(3.2, min(10.0, 1.4 + 0.55 * len(classes)))
    figure = new_figure(side + 0.6, side)
    axes = figure.subplots()
    shares = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    places = range(len(classes))
    axes.set_xticks(places, classes, rotation=45, ha="right", fontsize=8)
    axes.set_yticks(places, classes, fontsize=8)
    axes.set(xlabel="predicted", ylabel="true")
    for (row, column), count in np.ndenumerate(confusion) if len(classes) <= _MOST_COUNTED else ():
        color = "white" if shares[row, column] > 0.5 else INK
        axes.text(column, row, str(count), ha="center", va="center", color=color, fontsize=9)
    return figure


def reliability_figure(numbers: np.ndarray, probabilities: np.ndarray, n_bins: int = 10) -> Figure:
    """Draw how often predictions of each confidence were right; the diagonal is perfect calibration."""
    figure = new_figure(4.6, 4.0)
    axes = figure.subplots()
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == numbers
    bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    axes.plot([0, 1], [0, 1], color="#999999", linewidth=0.8, linestyle=":")
    for number in np.unique(bins):
        mine = bins == number
        size = 20 + 180 * mine.mean()
        axes.scatter(confidence[mine].mean(), right[mine].mean(), s=size, color=TRAIN, zorder=3)
    axes.set(xlabel="mean probability of the predicted class", ylabel="share that was right")
    axes.set(xlim=(min(0.5, 1 / probabilities.shape[1]), 1.02), ylim=(-0.02, 1.04))
    tidy(axes)
    return figure


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
    if len(classes) <= _MOST_COUNTED:
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
