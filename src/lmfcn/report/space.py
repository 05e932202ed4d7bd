"""The two-dimensional latent space: decision regions, support vectors and anchors."""

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lmfcn.algorithm.anchors import Anchors, correction_anchors, opposite_anchors, support_anchors
from lmfcn.algorithm.geometry import distances_in_place, squared_distances
from lmfcn.algorithm.latent_space import LatentSpace
from lmfcn.devices import to_like
from lmfcn.report.style import CLASS_COLORS, CLASS_MARKERS, INK, REGION_COLORS, new_figure, tidy

Limits = tuple[float, float, float, float]
_GRID = 160


def shared_limits(spaces: list[LatentSpace]) -> Limits:
    """Return the axes' limits that hold all but the most remote latents of all epochs."""
    points = np.concatenate([space.latents.cpu().numpy() for space in spaces])
    low, high = np.percentile(points, [0.5, 99.5], axis=0)
    margin = 0.15 * (high - low)
    (left, bottom), (right, top) = low - margin, high + margin
    return float(left), float(right), float(bottom), float(top)


def telling_epoch(spaces: list[LatentSpace]) -> int:
    """Choose the epoch that shows all three kinds of anchors: most misclassified while many are settled."""
    enough = len(spaces[0].latents) // 2
    epochs = [epoch for epoch, space in enumerate(spaces) if len(space.margin.settled) >= enough]
    return max(epochs, key=lambda epoch: len(spaces[epoch].margin.misclassified), default=len(spaces) - 1)


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
    is_support = np.isin(np.arange(len(latents)), space.margin.support.cpu().numpy())
    # One size at a time, as an SVG then holds every symbol once and not once per image.
    for large, size in ((False, 16.0), (True, 60.0)):
        for number, (color, marker) in enumerate(zip(CLASS_COLORS, CLASS_MARKERS, strict=True)):
            x, y = latents[(labels == number) & (is_support == large)].T
            axes.scatter(x, y, s=size, c=color, marker=marker, edgecolors="white", linewidths=0.6, zorder=3)
    axes.set(xlim=(left, right), ylim=(bottom, top), xlabel="latent feature 1", ylabel="latent feature 2")
    tidy(axes)
    axes.grid(visible=False)


def epoch_frame(space: LatentSpace, labels: np.ndarray, limits: Limits, title: str) -> Figure:
    """Draw one picture of the animation."""
    figure = new_figure(6.4, 5.0)
    axes = figure.subplots()
    draw_space(axes, space, labels, limits)
    axes.set_title(title, fontsize=10)
    axes.legend(handles=_legend(), frameon=True, framealpha=0.85, fontsize=8, loc="upper right")
    return figure


@dataclass(frozen=True)
class AnchorKind:
    """One panel of the anchor figure."""

    title: str
    anchors: Anchors


def anchor_figure(space: LatentSpace, labels: np.ndarray, limits: Limits, k: int = 3) -> Figure:
    """Draw the three kinds of anchors, as in the paper's Figure 1, with up to `k` anchors per image."""
    figure = new_figure(12.5, 4.7)
    for axes, kind in zip(figure.subplots(1, 3, sharey=True), _anchor_kinds(space, labels, k), strict=True):
        draw_space(axes, space, labels, limits)
        _draw_anchors(axes, space.latents.cpu().numpy(), kind.anchors)
        axes.set_title(kind.title, fontsize=10)
        axes.label_outer()
    return figure


def _anchor_kinds(space: LatentSpace, labels: np.ndarray, k: int) -> list[AnchorKind]:
    classes, margin = torch.from_numpy(labels).to(space.latents.device), space.margin
    distances = distances_in_place(squared_distances(space.latents))
    return [
        AnchorKind(
            "Type 1\nsupport vectors, towards settled images of their class",
            support_anchors(distances, classes, margin.support, margin.settled, k),
        ),
        AnchorKind(
            "Type 2\nmisclassified, towards support vectors of their class",
            correction_anchors(distances, classes, margin.misclassified, margin.support, 1),
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


def _legend() -> list[Line2D]:
    entries = []
    for number, (color, marker) in enumerate(zip(CLASS_COLORS, CLASS_MARKERS, strict=True)):
        for size, what in ((8, "support vector"), (4, "other image")):
            label = f"class {number}, {what}"
            entries.append(Line2D([], [], color=color, marker=marker, linestyle="none", markersize=size, label=label))
    return entries
