"""What every export begins with: a model that can be exported, and a place where a file can be written."""

import os
from pathlib import Path
from typing import Any

from lmfcn.devices import CPU
from lmfcn.inference.model import TextureModel


def exportable(model: Any) -> TextureModel:
    """Return a copy on the CPU of a model, or of the one in a fitted classifier."""
    found = getattr(model, "model_", model)
    if not isinstance(found, TextureModel):
        raise ValueError(
            f"A TextureModel or a fitted LMFCNClassifier can be exported, got {type(model).__name__};"
            " fit it first, or read a model with lmfcn.load."
        )
    return found.copied_to(CPU).eval().requires_grad_(False)


def check_place(path: str | Path, ending: str) -> Path:
    """Return the path if a file can be written there, so that nobody waits for an export that is lost."""
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
