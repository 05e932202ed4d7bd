"""The gallery of a model: thumbnails, names and latents of its training images in a file beside the model."""

import hashlib
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from lmfcn.compute.encode import encode
from lmfcn.data.arrays import as_entries
from lmfcn.data.collection import ImageCollection
from lmfcn.data.framing import THUMBNAIL_SIDE, make_thumbnail
from lmfcn.data.image_form import LoadedImages, as_collection
from lmfcn.model import TextureModel
from lmfcn.util.tensor_files import FileError, read_tensors, write_tensors

if TYPE_CHECKING:
    from lmfcn.classifier import LMFCNClassifier


@dataclass(frozen=True)
class Projection:
    """The plane of the first two principal components of latents.

    Attributes
    ----------
    mean : array (phi,)
    axes : array (2, phi)
        Orthonormal; the entry of each with the largest absolute value is positive.
    shares : tuple of two floats
        Fractions of the variance along the axes.

    Examples
    --------
    >>> latents = np.array([[0.0, 0.0, 1.0], [4.0, 0.0, 1.0], [0.0, 2.0, 1.0], [4.0, 2.0, 1.0]])
    >>> plane = Projection.of(latents)
    >>> plane.transform(latents).round(6).tolist()
    [[-2.0, -1.0], [2.0, -1.0], [-2.0, 1.0], [2.0, 1.0]]
    >>> plane.shares
    (0.8, 0.2)
    """

    mean: np.ndarray
    axes: np.ndarray
    shares: tuple[float, float]

    @classmethod
    def of(cls, latents: np.ndarray) -> "Projection":
        """Compute the plane of latents (n, phi)."""
        latents = np.asarray(latents, dtype=np.float64)
        mean = latents.mean(axis=0)
        variances, vectors = np.linalg.eigh((latents - mean).T @ (latents - mean))
        axes = np.zeros((2, latents.shape[1]))
        axes[: min(2, len(variances))] = vectors.T[::-1][:2]
        axes *= np.where(np.take_along_axis(axes, abs(axes).argmax(axis=1)[:, None], axis=1) < 0, -1.0, 1.0)
        largest = np.append(variances[::-1].clip(min=0.0), 0.0)[:2] / max(float(variances.sum()), 1e-300)
        return cls(mean, axes, (round(float(largest[0]), 6), round(float(largest[1]), 6)))

    def transform(self, latents: np.ndarray) -> np.ndarray:
        """Return the coordinates (n, 2) of latents (n, phi) on the plane."""
        return (np.asarray(latents, dtype=np.float64) - self.mean) @ self.axes.T


_LATENT_TOLERANCE = 1e-2
"""Latents of one image differ less than this, by rounding; those of two different images differ more."""

_TRUNK_LATENT_TOLERANCE = 0.1
"""The same behind a trunk, whose maps are kept in half precision for the training: ten times that rounding."""


@dataclass(frozen=True)
class Gallery:
    """Names, labels, latents and thumbnails of the training images of a model.

    Attributes
    ----------
    model : str
        Fingerprint of the model that the gallery belongs to.
    names : list of str
        Names of the images, usually their paths.
    classes : list of str
        The labels of the model as text.
    numbers : array of int (n,)
        The class of each image, as a position in `classes`.
    latents : array (n, phi) of float32
        Scaled as for the kernel.
    support : array of int (n_support,)
        The image of each support vector of the model.
    pictures : list of bytes
        JPEG thumbnails of at most 96 pixels.

    Examples
    --------
    >>> from lmfcn import LMFCNClassifier, make_gaussians
    >>> X, y = make_gaussians(n_per_class=10, size=16, random_state=0)
    >>> classifier = LMFCNClassifier(epochs=1, latent_dim=4, random_state=0).fit(X, y)
    >>> gallery = Gallery.of(classifier, X, y)
    >>> len(gallery), gallery.names[3], gallery.labels[3], gallery.coordinates.shape
    (20, 'image 3', '0', (20, 2))
    >>> gallery.nearest(classifier.transform(X[3:4])[0], 1).tolist()
    [3]
    """

    model: str
    names: list[str]
    classes: list[str]
    numbers: np.ndarray
    latents: np.ndarray
    support: np.ndarray
    pictures: list[bytes]

    def __repr__(self) -> str:
        return f"Gallery({len(self)} images, {len(self.support)} support vectors, {len(self.classes)} classes)"

    @classmethod
    def of(
        cls, classifier: "LMFCNClassifier", images: Any, labels: Any = None, names: Any = None, validation: Any = None
    ) -> "Gallery":
        """Create the gallery of a fitted classifier.

        Parameters
        ----------
        classifier : LMFCNClassifier
        images, labels
            The X and y of `fit`; labels may be omitted for a collection with labels.
        names : sequence of str, optional
            Names of the images, followed by those of the validation images; by default the paths of collections,
            otherwise "image 0" and so on.
        validation : tuple (X, y) or ImageCollection, optional
            The `validation` of `fit`.
        """
        pairs = [(images, labels)]
        if validation is not None:
            pairs.append(validation if isinstance(validation, tuple) else (validation, None))
        parts = [_Part.of(classifier, *pair) for pair in pairs]
        numbers = np.concatenate([part.numbers for part in parts])
        default = [name for part in parts for name in part.names]
        gallery = cls(
            model=fingerprint_of(classifier.model_),
            names=[name or f"image {i}" for i, name in enumerate(_check_names(names, default))],
            classes=[str(label) for label in classifier.classes_.tolist()],
            numbers=numbers,
            latents=np.concatenate([part.latents for part in parts]),
            support=np.asarray(classifier.support_, dtype=np.int64),
            pictures=[make_thumbnail(image) for part in parts for image in _each(part.images)],
        )
        _check_trained_on(classifier.model_, gallery)
        return gallery

    def __len__(self) -> int:
        return len(self.names)

    @property
    def labels(self) -> list[str]:
        """The label of each image."""
        return [self.classes[number] for number in self.numbers.tolist()]

    @cached_property
    def projection(self) -> Projection:
        """The plane of the first two principal components of the latents; its `transform` projects new images."""
        return Projection.of(self.latents)

    @cached_property
    def coordinates(self) -> np.ndarray:
        """The coordinates (n, 2) of the images on that plane."""
        return self.projection.transform(self.latents)

    def nearest(self, latent: np.ndarray, k: int = 1) -> np.ndarray:
        """Return the k images whose latents are nearest to a latent (phi,), the nearest first."""
        distances = np.square(self.latents - np.asarray(latent, dtype=np.float32)).sum(axis=1)
        return np.argsort(distances, kind="stable")[:k]

    def images_for(self, model: TextureModel) -> np.ndarray | None:
        """Return the thumbnails (n, height, width, channels) of the most frequent size in the form of a model.

        None if the model does not take such pixels: a JPEG has one or three channels of 8 bits.
        """
        form = model.form
        if form.pixels != "uint8" or form.channels not in (1, 3) or form.row_shape is not None:
            return None
        mode = "L" if form.channels == 1 else "RGB"
        images = [np.asarray(Image.open(io.BytesIO(picture)).convert(mode)) for picture in self.pictures]
        shape, _ = Counter(image.shape for image in images).most_common(1)[0]
        if min(shape[:2]) < form.smallest_side:
            return None
        found = np.stack([image for image in images if image.shape == shape])
        return found[..., None] if form.channels == 1 else found

    def check_belongs_to(self, model: TextureModel) -> None:
        """Refuse the gallery of another model."""
        if self.model != fingerprint_of(model) or len(self.support) != len(model.support_latents):
            raise ValueError(
                "The gallery belongs to another model; use the one that was written with this model, or none."
            )


def fingerprint_of(model: TextureModel) -> str:
    """Return 32 hexadecimal digits that depend on every weight and support vector of a model, and on its classes."""
    digest = hashlib.blake2b(repr((model.classes.tolist(), model.gamma)).encode(), digest_size=16)
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


@dataclass(frozen=True)
class _Part:
    """Training or validation images in their own shape, class numbers, latents and names; a missing name is empty."""

    images: LoadedImages
    numbers: np.ndarray
    latents: np.ndarray
    names: list[str]

    @classmethod
    def of(cls, classifier: "LMFCNClassifier", X: Any, y: Any) -> "_Part":
        model, X = classifier.model_, as_collection(X)
        images = model.form.load(X)
        names = X.paths if isinstance(X, ImageCollection) and X.file_of(0) is not None else [""] * len(images)
        numbers = _class_numbers(
            X.labels if y is None and isinstance(X, ImageCollection) else y, model.classes, len(images)
        )
        latents = model.decision.scale.apply(encode(model.networks, images, model.device))
        shown = X.unstretched() if isinstance(X, ImageCollection) else images
        return cls(shown, numbers, latents.cpu().numpy().astype(np.float32), names)


def _each(images: LoadedImages) -> Iterator[np.ndarray]:
    return (images[position] for position in range(len(images)))


def _class_numbers(labels: Any, classes: np.ndarray, n_images: int) -> np.ndarray:
    if labels is None:
        raise ValueError("labels are missing: a gallery needs those that the classifier was fitted with.")
    entries = as_entries("labels", labels).tolist()
    known = {label: number for number, label in enumerate(classes.tolist())}
    unknown = next((label for label in entries if label not in known), None)
    if unknown is not None:
        raise ValueError(
            f"labels hold {unknown!r}, which the classifier does not know; give the labels that it was fitted with."
        )
    if len(entries) != n_images:
        raise ValueError(f"There must be as many labels as images, got {len(entries)} for {n_images} images.")
    return np.array([known[label] for label in entries], dtype=np.int64)


def _check_names(names: Sequence[str] | None, default: list[str]) -> list[str]:
    if names is not None and len(names) != len(default):
        raise ValueError(f"There must be as many names as images, got {len(names)} for {len(default)} images.")
    return default if names is None else [str(name) for name in names]


def _check_trained_on(model: TextureModel, gallery: Gallery) -> None:
    """Refuse images that the classifier was not fitted on, or in another order: names would be wrong."""
    data = model.record.get("data", {})
    n_images = data.get("n_train", 0) + data.get("n_validation", 0)
    if n_images == len(gallery):
        difference = np.abs(gallery.latents[gallery.support] - model.support_latents.cpu().numpy()).max()
        if difference < (_LATENT_TOLERANCE if model.trunk is None else _TRUNK_LATENT_TOLERANCE):
            return
    raise ValueError(
        f"The classifier was fitted on {n_images} images, and the {len(gallery)} given here are not the same in the"
        " same order; give the images of fit, with its validation images if it had some."
    )


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
    """Return the path of the gallery of a model: beside it, with the suffix .gallery.

    Examples
    --------
    >>> gallery_path("steel/model.lmfcn").as_posix()
    'steel/model.gallery'
    """
    return Path(model_path).with_suffix(".gallery")


def save_gallery(gallery: Gallery, path: str | Path) -> None:
    """Write a gallery to a file atomically. The file holds thumbnails of all training images."""
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

    No code in the file is executed. A file that is truncated, changed, not a gallery, or the gallery of another model
    is refused with a reason.

    Raises
    ------
    FileNotFoundError
    lmfcn.util.tensor_files.FileError
    """
    values, tensors = read_tensors(path, KIND, VERSION)
    try:
        gallery = _read_gallery(values, tensors)
        if model is not None:
            gallery.check_belongs_to(model)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"It has no {error}." if isinstance(error, KeyError) else str(error)
        raise FileError(f"{path} cannot be used as a gallery: {reason}") from error
    return gallery


def _read_gallery(values: dict[str, Any], tensors: dict[str, Tensor]) -> Gallery:
    names, classes = _check_texts("names", values["names"]), _check_texts("classes", values["classes"])
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
    pictures = _split_pictures(parts["pictures"], parts["ends"])
    return Gallery(values["model"], names, classes, parts["numbers"], parts["latents"], parts["support"], pictures)


def _check_texts(name: str, texts: Any) -> list[str]:
    if not isinstance(texts, list) or not texts:
        raise ValueError(f"Its {name} are missing.")
    if not all(type(text) is str and len(text) <= _LONGEST_NAME for text in texts):
        raise ValueError(f"Its {name} are not texts of at most {_LONGEST_NAME} characters.")
    return texts


def _check_indices(name: str, indices: np.ndarray, size: int) -> None:
    if indices.ndim != 1 or len(indices) == 0 or indices.min() < 0 or indices.max() >= size:
        raise ValueError(f"Its {name} have indices out of range.")


def _split_pictures(content: np.ndarray, ends: np.ndarray) -> list[bytes]:
    """Return the JPEG files; each must be a small JPEG, since pages show it as one."""
    starts = np.concatenate([[0], ends[:-1]])
    if content.ndim != 1 or ends.ndim != 1 or ends[-1] != len(content) or (ends <= starts).any():
        raise ValueError("Its pictures have ends out of range.")
    pictures = [content[start:end].tobytes() for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    for picture in pictures:
        try:
            with Image.open(io.BytesIO(picture), formats=["JPEG"]) as opened:
                is_small = max(opened.size) <= THUMBNAIL_SIDE
        except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
            raise ValueError("One of its pictures is not a JPEG file.") from error
        if not is_small:
            raise ValueError(f"One of its pictures is larger than {THUMBNAIL_SIDE} pixels.")
    return pictures
