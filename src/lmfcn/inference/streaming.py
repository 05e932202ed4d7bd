"""Predictions for any number of files in constant memory."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from lmfcn.data.arrays import check_like_training, check_smallest_side, pixel_kind
from lmfcn.data.collections import ImageCollection
from lmfcn.data.form import ImageForm
from lmfcn.data.images import ImageError
from lmfcn.data.sources import IMAGE_ENDINGS
from lmfcn.data.store import in_parallel
from lmfcn.distribution import as_completed
from lmfcn.inference.model import TextureModel

BATCH = 64
"""Files that are predicted together."""

_READ_AT_ONCE = 8
_HELD_BYTES = 2**27


@dataclass(frozen=True)
class FilePrediction:
    """What came of one file: probabilities (n_classes,), or the reason why there are none."""

    path: str
    probabilities: np.ndarray | None
    error: str | None = None


def find_images(paths: Iterable[str]) -> Iterator[str]:
    """Yield files as they are, and the images in folders at any depth, in the order of the file system.

    Nothing is collected, so a folder may hold millions of files. Images in folders are recognised by their ending;
    names that start with a dot are passed over, and links to folders are not followed.
    """
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        waiting = [path]
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif os.path.splitext(entry.name)[1].lower() in IMAGE_ENDINGS:
                        yield entry.path


def stream_predictions(
    predict: Callable[[Sequence[str]], list[FilePrediction]], paths: Iterable[str], batch: int = BATCH
) -> Iterator[FilePrediction]:
    """Yield a prediction for every path; only one batch of them is held at any time.

    Parameters
    ----------
    predict : callable
        From a batch of paths to their predictions, such as `functools.partial(predict_paths, model)`.
    paths : iterable of str
        May be endless.
    batch : int
    """
    for _, rows in as_completed(predict, _batches(paths, batch)):
        yield from rows


def predict_paths(model: TextureModel, paths: Sequence[str]) -> list[FilePrediction]:
    """Return a prediction for every path of a batch; files that cannot be used come with the reason.

    Images are brought to the form of the model: its colour and size, if it has been trained with any. Otherwise they
    may differ in size, and images of equal size are predicted together.
    """
    rows: list[FilePrediction | None] = [None] * len(paths)
    held: dict[tuple[int, ...], list[tuple[int, np.ndarray]]] = defaultdict(list)
    n_bytes = 0
    for position, image in enumerate(_read(model.form, paths)):
        if isinstance(image, ImageError):
            rows[position] = FilePrediction(paths[position], None, image.reason)
            continue
        held[image.shape].append((position, image))
        n_bytes += image.nbytes
        if n_bytes > _HELD_BYTES:
            _predict_held(model, paths, held, rows)
            n_bytes = 0
    _predict_held(model, paths, held, rows)
    return [row for row in rows if row is not None]


def _predict_held(
    model: TextureModel,
    paths: Sequence[str],
    held: dict[tuple[int, ...], list[tuple[int, np.ndarray]]],
    rows: list[FilePrediction | None],
) -> None:
    """Predict the images that wait, one array for each size, and let go of them."""
    for members in held.values():
        predicted = model.predict_proba(ImageCollection(np.stack([image for _, image in members])))
        for (position, _), probabilities in zip(members, predicted, strict=True):
            rows[position] = FilePrediction(paths[position], probabilities)
    held.clear()


def _read(form: ImageForm, paths: Sequence[str]) -> Iterator[np.ndarray | ImageError]:
    """Yield every image in the form of the model, or what is wrong with it, a few at a time."""
    for start in range(0, len(paths), _READ_AT_ONCE):
        some = ImageCollection(paths[start : start + _READ_AT_ONCE], cache_bytes=0).framed(form.frame)

        def read(position: int, some: ImageCollection = some) -> np.ndarray:
            image: np.ndarray = some[position]
            _check(form, some.paths[position], image)
            return image

        yield from in_parallel(read, range(len(some)))


def _check(form: ImageForm, path: str, image: np.ndarray) -> None:
    try:
        check_smallest_side(*image.shape[:2])
        check_like_training((image.shape[2], pixel_kind(image)), form.channels, form.pixels)
    except ValueError as error:
        raise ImageError(path, str(error)) from error


def _batches(paths: Iterable[str], size: int) -> Iterator[list[str]]:
    paths = iter(paths)
    while batch := list(islice(paths, size)):
        yield batch
