"""A gallery as one file beside its model, and back: safetensors with JSON, never pickle."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from lmfcn.data.pictures import THUMBNAIL
from lmfcn.explain.gallery import Gallery
from lmfcn.inference.model import TextureModel
from lmfcn.tensor_files import FileError, read_tensors, write_tensors

KIND = "lmfcn gallery"
VERSION = 1
_LONGEST_NAME = 4096
_TENSORS = {
    "numbers": torch.int64,
    "latents": torch.float32,
    "support": torch.int64,
    "pictures": torch.uint8,
    "ends": torch.int64,
}


def gallery_path(model_path: str | Path) -> Path:
    """Return where the gallery of a model lies: beside it, under the same name.

    Examples
    --------
    >>> gallery_path("steel/model.lmfcn").as_posix()
    'steel/model.gallery'
    """
    return Path(model_path).with_suffix(".gallery")


def save_gallery(gallery: Gallery, path: str | Path) -> None:
    """Write a gallery to a file, whole or not at all. It holds small pictures of all training images."""
    values = {"model": gallery.model, "names": gallery.names, "classes": gallery.classes}
    tensors = {
        "numbers": torch.from_numpy(gallery.numbers),
        "latents": torch.from_numpy(gallery.latents),
        "support": torch.from_numpy(gallery.support),
        "pictures": torch.frombuffer(bytearray(b"".join(gallery.pictures)), dtype=torch.uint8),
        "ends": torch.from_numpy(np.cumsum([len(picture) for picture in gallery.pictures], dtype=np.int64)),
    }
    write_tensors(path, KIND, VERSION, values, tensors)


def load_gallery(path: str | Path, model: TextureModel | None = None) -> Gallery:
    """Read a gallery from a file that `save_gallery` wrote.

    Nothing in the file is executed. It is refused, with a reason, if it is truncated, changed, not a gallery, or that
    of another model than the given one.

    Raises
    ------
    FileNotFoundError
    lmfcn.tensor_files.FileError
    """
    values, tensors = read_tensors(path, KIND, VERSION)
    try:
        gallery = _build(values, tensors)
        if model is not None:
            gallery.check_belongs_to(model)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"It has no {error}." if isinstance(error, KeyError) else str(error)
        raise FileError(f"{path} cannot be used as a gallery: {reason}") from error
    return gallery


def _build(values: dict[str, Any], tensors: dict[str, Tensor]) -> Gallery:
    names, classes = _texts("names", values["names"]), _texts("classes", values["classes"])
    if {name: tensor.dtype for name, tensor in tensors.items()} != _TENSORS:
        raise ValueError("Its parts are not those of a gallery.")
    parts = {name: tensor.numpy() for name, tensor in tensors.items()}
    n_images = len(names)
    if len(classes) < 2 or type(values["model"]) is not str:
        raise ValueError("It does not say which model it belongs to.")
    if parts["latents"].ndim != 2 or {len(parts[name]) for name in ("latents", "numbers", "ends")} != {n_images}:
        raise ValueError("Its parts do not have the same number of images.")
    _check_indices("classes", parts["numbers"], len(classes))
    _check_indices("support vectors", parts["support"], n_images)
    pictures = _cut(parts["pictures"], parts["ends"])
    return Gallery(values["model"], names, classes, parts["numbers"], parts["latents"], parts["support"], pictures)


def _texts(name: str, texts: Any) -> list[str]:
    if not isinstance(texts, list) or not texts:
        raise ValueError(f"Its {name} are missing.")
    if not all(type(text) is str and len(text) <= _LONGEST_NAME for text in texts):
        raise ValueError(f"Its {name} are not texts of a sound length.")
    return texts


def _check_indices(name: str, indices: np.ndarray, n_there: int) -> None:
    if indices.ndim != 1 or len(indices) == 0 or indices.min() < 0 or indices.max() >= n_there:
        raise ValueError(f"Its {name} point at what is not there.")


def _cut(pixels: np.ndarray, ends: np.ndarray) -> list[bytes]:
    """Return the single files; each must be a small JPEG, since browsers will be given it as one."""
    starts = np.concatenate([[0], ends[:-1]])
    if pixels.ndim != 1 or ends.ndim != 1 or ends[-1] != len(pixels) or (ends <= starts).any():
        raise ValueError("Its pictures do not end where they should.")
    pictures = [pixels[start:end].tobytes() for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    for picture in pictures:
        try:
            with Image.open(io.BytesIO(picture), formats=["JPEG"]) as opened:
                sound = max(opened.size) <= THUMBNAIL
        except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
            raise ValueError("One of its pictures is not a JPEG file.") from error
        if not sound:
            raise ValueError(f"One of its pictures is larger than {THUMBNAIL} pixels.")
    return pictures
