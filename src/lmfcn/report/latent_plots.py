"""Figures of the latent space: decision regions, support vectors, anchors, sample images."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lmfcn.benchmark.model_summary import Points
from lmfcn.compute.resources import to_like
from lmfcn.method.anchors import Anchors, LatentSpace, correction_anchors, opposite_anchors, support_anchors
from lmfcn.method.kernel_svm import distances_in_place, squared_distances
from lmfcn.report.style import INK, REGION_COLORS, class_style, drawable, new_figure, tidy


def sample_images(images: np.ndarray, labels: np.ndarray, per_class: int = 8) -> Figure:
    """Draw the first images of every class, one row per class."""
    classes = np.unique(labels)
    figure = new_figure(1.15 * per_class, 1.3 * len(classes))
    grid = figure.subplots(len(classes), per_class, squeeze=False)
    for row, label in zip(grid, classes, strict=True):
        row[0].set_ylabel(f"class {label}", fontsize=9)
        for axes in row:
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
        for axes, image in zip(row, images[labels == label], strict=False):
            axes.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    return figure


_MOST_NAMED = 15
_LONGEST_NAME = 40


def latent_figure(latents: np.ndarray, numbers: np.ndarray, classes: Sequence[str], support: np.ndarray) -> Figure:
    """Draw latents (n, n_latents) in their two directions of largest variance, support vectors larger."""
    figure = new_figure(7.5, 5.2)
    draw_latents(figure.subplots(), first_directions(latents), numbers, classes, support)
    return figure


def first_directions(latents: np.ndarray) -> np.ndarray:
    """Return latents (n, n_latents) in their two directions of largest variance, (n, 2)."""
    centred = latents - latents.mean(axis=0)
    points = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
    return np.pad(points, ((0, 0), (0, 2 - points.shape[1])))


def draw_latents(
    axes: Axes, points: np.ndarray, numbers: np.ndarray, classes: Sequence[str], support: np.ndarray
) -> None:
    """Draw points (n, 2) in the colours of their classes, support vectors larger, and the legend below the axes."""
    sizes = np.full(len(points), 14.0)
    sizes[support] = 55.0
    for number, label in enumerate(drawable(classes, _LONGEST_NAME)):
        in_class, (color, marker) = numbers == number, class_style(number)
        x, y = points[in_class].T
        style: dict[str, Any] = {"color": color, "marker": marker, "edgecolors": INK, "linewidths": 0.4, "label": label}
        axes.scatter(x, y, s=sizes[in_class], **style)
    axes.set(xlabel="first direction", ylabel="second direction")
    if len(classes) <= _MOST_NAMED:
        # Below the plot, where long names cover no point.
        columns = 1 if max(map(len, classes)) > _LONGEST_NAME // 2 else 3
        axes.figure.legend(fontsize=8, frameon=False, ncols=columns, loc="outside lower center")
    tidy(axes)


_MOST_POINTS, _MOST_NAMES = 1000, 24
_SMALL, _LARGE = 18.0, 62.0


def latent_map(learnt: Points, test: Points, classes: Sequence[str], explained: tuple[float, float]) -> Figure:
    """Draw training and validation images with their support vectors, and test images with the misclassified ones.

    Parameters
    ----------
    learnt, test : Points
        At most a thousand points of each are drawn, taken evenly.
    classes : sequence of str
    explained : tuple of float
        Fractions of the variance along both axes.
    """
    figure = new_figure(10, 5.2)
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, points, title in ((left, learnt, "images learnt from"), (right, test, "test images")):
        _draw_points(axes, _sample(points), len(classes))
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(f"first principal component ({explained[0]:.0%} of the variance)")
        tidy(axes)
    left.set_ylabel(f"second ({explained[1]:.0%})")
    figure.legend(handles=_map_legend(classes), frameon=False, ncols=5, fontsize=9, loc="outside lower center")
    return figure


def _draw_points(axes: Axes, points: Points, n_classes: int) -> None:
    # Marked points last, so that no other point hides them.
    for marked, size, edge in ((False, _SMALL, "none"), (True, _LARGE, INK)):
        for number in range(n_classes):
            x, y = points.places[(points.classes == number) & (points.marked == marked)].T
            color, marker = class_style(number)
            axes.scatter(x, y, s=size, c=color, marker=marker, edgecolors=edge, linewidths=0.9, alpha=0.8)


def _sample(points: Points) -> Points:
    chosen = np.unique(np.linspace(0, len(points.places) - 1, _MOST_POINTS).astype(int))
    return Points(*(values[chosen] for values in points))


def _map_legend(classes: Sequence[str]) -> list[Line2D]:
    entries = []
    for number, name in enumerate(drawable(classes[:_MOST_NAMES])):
        color, marker = class_style(number)
        entries.append(_legend_entry(name, color=color, marker=marker))
    if len(classes) > _MOST_NAMES:
        entries.append(_legend_entry(f"and {len(classes) - _MOST_NAMES} more", marker=""))
    ringed = {"color": "#999999", "marker": "o", "markeredgecolor": INK, "markersize": 9}
    return [*entries, _legend_entry("support vector, or misclassified", **ringed)]


def _legend_entry(label: str, **style: Any) -> Line2D:
    return Line2D([], [], **{"linestyle": "none", "markersize": 6, **style}, label=label)


Limits = tuple[float, float, float, float]
_GRID = 160


def shared_limits(spaces: list[LatentSpace]) -> Limits:
    """Return limits of the axes that contain all but the most distant latents of all epochs."""
    points = np.concatenate([space.latents.cpu().numpy() for space in spaces])
    low, high = np.percentile(points, [0.5, 99.5], axis=0)
    margin = 0.15 * (high - low)
    (left, bottom), (right, top) = low - margin, high + margin
    return float(left), float(right), float(bottom), float(top)


def illustrative_epoch(spaces: list[LatentSpace]) -> int:
    """Return the epoch with most misclassified images of those where at least half of the images are settled.

    That epoch shows all three kinds of anchors well. Without such an epoch, the last one is returned.
    """
    enough = len(spaces[0].latents) // 2
    epochs = [epoch for epoch, space in enumerate(spaces) if len(space.svm.settled) >= enough]
    return max(epochs, key=lambda epoch: len(spaces[epoch].svm.misclassified), default=len(spaces) - 1)


def draw_space(axes: Axes, space: LatentSpace, labels: np.ndarray, limits: Limits) -> None:
    """Draw the regions of both classes, all images, and the support vectors larger."""
    left, right, bottom, top = limits
    first, second = np.meshgrid(np.linspace(left, right, _GRID), np.linspace(bottom, top, _GRID))
    points = to_like(torch.from_numpy(np.stack([first.ravel(), second.ravel()], axis=1)), space.latents)
    scale = space.decision.scale
    values = space.decision.scores(points * scale.std + scale.mean)[:, 0].cpu().numpy().reshape(first.shape)
    axes.contourf(first, second, values, levels=[-np.inf, 0, np.inf], colors=REGION_COLORS)
    axes.contour(
        first, second, values, levels=[-1, 0, 1], colors=INK, linewidths=[0.6, 1.2, 0.6], linestyles=["--", "-", "--"]
    )
    latents = space.latents.cpu().numpy()
    is_support = np.isin(np.arange(len(latents)), space.svm.support.cpu().numpy())
    # One size at a time: the SVG then holds every symbol once, not once per image.
    for large, size in ((False, 16.0), (True, 60.0)):
        for number in (0, 1):
            color, marker = class_style(number)
            x, y = latents[(labels == number) & (is_support == large)].T
            axes.scatter(x, y, s=size, c=color, marker=marker, edgecolors="white", linewidths=0.6, zorder=3)
    axes.set(xlim=(left, right), ylim=(bottom, top), xlabel="latent feature 1", ylabel="latent feature 2")
    tidy(axes)
    axes.grid(visible=False)


def epoch_frame(space: LatentSpace, labels: np.ndarray, limits: Limits, title: str) -> Figure:
    """Draw one frame of the animation."""
    figure = new_figure(6.4, 5.0)
    axes = figure.subplots()
    draw_space(axes, space, labels, limits)
    axes.set_title(title, fontsize=10)
    axes.legend(handles=_space_legend(), frameon=True, framealpha=0.85, fontsize=8, loc="upper right")
    return figure


@dataclass(frozen=True)
class AnchorKind:
    """One panel of the anchor figure."""

    title: str
    anchors: Anchors


def anchor_figure(
    space: LatentSpace, labels: np.ndarray, limits: Limits, k: int = 3, *, any_class: bool = False
) -> Figure:
    """Draw the three kinds of anchors, as in the paper's Figure 1, with up to `k` anchors per image.

    With `any_class`, misclassified images have the anchors of equation 6: support vectors of any class.
    """
    figure = new_figure(12.5, 4.7)
    kinds = _anchor_kinds(space, labels, k, any_class=any_class)
    for axes, kind in zip(figure.subplots(1, 3, sharey=True), kinds, strict=True):
        draw_space(axes, space, labels, limits)
        _draw_anchors(axes, space.latents.cpu().numpy(), kind.anchors)
        axes.set_title(kind.title, fontsize=10)
        axes.label_outer()
    return figure


def _anchor_kinds(space: LatentSpace, labels: np.ndarray, k: int, *, any_class: bool) -> list[AnchorKind]:
    classes, margin = torch.from_numpy(labels).to(space.latents.device), space.svm
    distances = distances_in_place(squared_distances(space.latents))
    return [
        AnchorKind(
            "Type 1\nsupport vectors, towards settled images of their class",
            support_anchors(distances, classes, margin.support, margin.settled, k),
        ),
        AnchorKind(
            f"Type 2\nmisclassified, towards support vectors of {'any' if any_class else 'their'} class",
            correction_anchors(distances, classes, margin.misclassified, margin.support, 1, any_class=any_class),
        ),
        AnchorKind(
            "Type 3\nsettled, away from settled ones of the other class",
            opposite_anchors(distances, classes, margin.settled, margin.settled, 1),
        ),
    ]


def _draw_anchors(axes: Axes, latents: np.ndarray, anchors: Anchors) -> None:
    rows, columns = (indices.cpu().numpy() for indices in anchors.valid.nonzero(as_tuple=True))
    starts, ends = anchors.moved.cpu().numpy()[rows], anchors.anchor.cpu().numpy()[rows, columns]
    lines = np.stack([latents[starts], latents[ends]], axis=1)
    axes.add_collection(LineCollection(list(lines), colors=INK, linewidths=0.7, linestyles="--", zorder=2))
    x, y = latents[np.unique(ends)].T
    axes.scatter(x, y, s=70, facecolors="none", edgecolors="#E00034", linewidths=1.3, zorder=4)


def _space_legend() -> list[Line2D]:
    entries = []
    for number in (0, 1):
        color, marker = class_style(number)
        for size, what in ((8, "support vector"), (4, "other image")):
            label = f"class {number}, {what}"
            entries.append(Line2D([], [], color=color, marker=marker, linestyle="none", markersize=size, label=label))
    return entries
