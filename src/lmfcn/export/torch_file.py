"""One file of torch.export from a fitted model, written only if it gives the model's own answers."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lmfcn.export.agreement import TOLERANCE, Agreement, Answers, compare
from lmfcn.export.description import describe
from lmfcn.export.graph import silence, trace
from lmfcn.export.sample_images import all_batches
from lmfcn.export.target import check_place, check_tolerance, exportable
from lmfcn.files import write_bytes
from lmfcn.progress import item_progress

DESCRIPTION = "lmfcn.json"


def export_torch(
    model: Any, path: str | Path, *, images: Any = None, tolerance: float = TOLERANCE, verbose: bool = False
) -> Agreement:
    """Write a fitted model as a program of torch.export, and return how well the two agree.

    `torch.export.load(path).module()` takes images (batch, height, width, channels) and gives the numbers of the
    classes, scores and probabilities. The extra file "lmfcn.json" in it holds the classes and the rest: docs/export.md.

    Parameters
    ----------
    model : TextureModel or fitted LMFCNClassifier
    path : path that ends in .pt2
    images : images, a collection, a folder or paths, optional
        Some of them are compared too, besides textures drawn towards the support vectors and noise.
    tolerance : float, default=1e-4
        The largest difference of scores and probabilities that is accepted, noted in the file.
    verbose : bool, default=False
        Whether to show progress.

    Returns
    -------
    Agreement

    Raises
    ------
    DisagreementError
        If a label or a score differs; then nothing is written.
    """
    model, path, tolerance = exportable(model), check_place(path, ".pt2"), check_tolerance(tolerance)
    with item_progress("Translating", 2, visible=verbose) as advance:
        batches = all_batches(model, images)
        advance()
        program = trace(model)
        run = run_torch(_content(program), model.classes)
        advance()
    agreement = compare(model, run, batches, tolerance, verbose=verbose)
    write_bytes(path, _content(program, {DESCRIPTION: json.dumps(describe(model, agreement, tolerance))}))
    return agreement


def run_torch(content: bytes, classes: np.ndarray) -> Callable[[np.ndarray], Answers]:
    """Return a function from images (b, h, w, c) to the answers of a file of torch.export."""
    with silence():
        graph = torch.export.load(io.BytesIO(content)).module()

    def run(images: np.ndarray) -> Answers:
        with torch.no_grad():
            numbers, scores, probabilities = (found.numpy() for found in graph(torch.from_numpy(images)))
        return classes[numbers], scores, probabilities

    return run


def _content(program: torch.export.ExportedProgram, extra_files: dict[str, str] | None = None) -> bytes:
    file = io.BytesIO()
    with silence():
        torch.export.save(program, file, extra_files=extra_files)
    return file.getvalue()
