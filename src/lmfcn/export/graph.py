"""Trace a fitted model as one graph: pixels in; class indices, scores and probabilities out."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from lmfcn.compute.encode import fold_batch_norm, scale_pixels
from lmfcn.compute.resources import CPU
from lmfcn.data.image_form import ImageForm
from lmfcn.method.network import TextureFCN
from lmfcn.model import Networks, TextureModel, probabilities

OUTPUTS = ("number", "scores", "probabilities")
PIXEL_TYPES = {"uint8": torch.uint8, "uint16": torch.uint16, "float": torch.float32}
_BESIDE_SMALLEST = (16, 32)  # any two different sides will do; torch.export takes a side of 1 as a constant


def to_exportable(model: Any) -> TextureModel:
    """Return a copy on the CPU of a model, or of the model in a fitted classifier."""
    found = getattr(model, "model_", model)
    if not isinstance(found, TextureModel):
        raise ValueError(
            f"Expected a TextureModel or a fitted LMFCNClassifier, got {type(model).__name__};"
            " fit it first, or read a model with lmfcn.load."
        )
    return found.copied_to(CPU).eval().requires_grad_(False)


def check_output_path(path: str | Path, ending: str) -> Path:
    """Return the path if a file can be written there; check it before the long export."""
    path = Path(path)
    if path.suffix.lower() != ending:
        raise ValueError(f"The file must end in {ending}, got {path.name!r}.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The folder {path.parent} does not exist; create it first.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file.")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"The folder {path.parent} may not be written to; choose another one.")
    return path


def check_tolerance(tolerance: Any) -> float:
    """Return the tolerance if it is a positive number."""
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 < tolerance < float("inf"):
        raise ValueError(f"tolerance must be a positive number, got {tolerance!r}.")
    return float(tolerance)


class Graph(nn.Module):
    """The prediction of a `TextureModel` for an array of images, as one module that can be traced."""

    def __init__(self, model: TextureModel) -> None:
        super().__init__()
        self.networks = cast(Networks, fold_batch_norm(model.networks))
        self.decision = model.decision
        self.inverse_temperature = model.calibration.inverse_temperature

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return class numbers (b,), scores (b, n_scores) and probabilities (b, n_classes) of images (b, h, w, c)."""
        scores = self.decision.scores(self._latents(scale_pixels(images)))
        predicted = probabilities(scores, self.inverse_temperature)
        return predicted.argmax(dim=1), scores, predicted

    def _latents(self, pixels: Tensor) -> Tensor:
        """Return the latents (b, n_latents) of pixels (b, c, h, w), with means as `mean_of_means` computes them."""
        parts, trunk = [], self.networks.trunk
        if trunk is not None:
            stages = trunk(pixels)
            if self.networks.keep_trunk:
                parts.append(trunk.features(stages, mean_of_means))
            pixels = trunk.trained_maps(stages)
        for network in self.networks.members:
            parts += [mean_of_means(maps) for maps in cast("TextureFCN", network).maps(pixels, mean_of_means)]
        return torch.cat(parts, dim=1)


def mean_of_means(maps: Tensor) -> Tensor:
    """Return the mean (b, c) of every map (b, c, h, w), row by row.

    Other runtimes add all pixels one after the other in single precision, which is inaccurate for large images.
    """
    return maps.mean(dim=3).mean(dim=2)


def trace(model: TextureModel) -> torch.export.ExportedProgram:
    """Return the graph for any number of images, of any size unless the model takes rows of a fixed shape."""
    sides = fixed_sides(model.form)
    example = [side or model.form.smallest_side + more for side, more in zip(sides, _BESIDE_SMALLEST, strict=True)]
    images = torch.zeros(2, *example, model.form.channels, dtype=PIXEL_TYPES[model.form.pixels])
    dynamic = [0, *(axis for axis, side in enumerate(sides, start=1) if side is None)]
    shapes = (dict.fromkeys(dynamic, torch.export.Dim.DYNAMIC),)
    with torch.no_grad(), silence_translator():
        return torch.export.export(Graph(model).eval(), (images,), dynamic_shapes=shapes)


def fixed_sides(form: ImageForm) -> tuple[int | None, int | None]:
    """Return height and width if the model takes rows of a fixed shape; None for a side of any length."""
    if form.row_shape is None:
        return None, None
    height, width = (None if side == -1 else side for side in form.row_shape[:2])
    return height, width


@contextmanager
def silence_translator() -> Iterator[None]:
    """Hide warnings and log messages of torch's exporters; users cannot do anything about them."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
