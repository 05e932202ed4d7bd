"""Predict any number of files in constant memory."""

import functools
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice

import numpy as np

from lmfcn.compute.parallel import as_completed
from lmfcn.compute.resources import CPU, check_device
from lmfcn.data.arrays import check_pixel_format, check_smallest_side, pixel_kind
from lmfcn.data.collection import ImageCollection
from lmfcn.data.image_files import ImageError
from lmfcn.data.image_form import ImageForm
from lmfcn.data.image_store import map_in_threads
from lmfcn.data.sources import IMAGE_SUFFIXES
from lmfcn.model import TextureModel

BATCH_SIZE = 64
"""Number of files that are predicted together."""

_MAX_AHEAD = 1024
"""Number of batches that may finish before an earlier, slower one; their results wait in memory."""

_READ_BATCH = 8
_MAX_WAITING_BYTES = 2**27


@dataclass(frozen=True)
class FilePrediction:
    """The probabilities (n_classes,) of one file and its typicality, or the reason why there are none.

    The typicality is None for a model that knows none.
    """

    path: str
    probabilities: np.ndarray | None
    error: str | None = None
    typicality: float | None = None


def find_images(paths: Iterable[str], unreadable: Callable[[str, str], None]) -> Iterator[str]:
    """Yield the given files, and the images in the given folders at any depth, in the order of the file system.

    Paths are not collected, so a folder may hold millions of files. Images in folders are recognised by their suffix.
    Names that start with a dot are ignored, and links to folders are not followed.

    Parameters
    ----------
    paths : iterable of str
    unreadable : callable
        Called with the path of a folder that cannot be read completely, and the reason; the search continues.
    """
    for path in paths:
        if os.path.isdir(path):
            yield from _images_within(path, unreadable)
        else:
            yield path


def _images_within(folder: str, unreadable: Callable[[str, str], None]) -> Iterator[str]:
    pending = [folder]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif os.path.splitext(entry.name)[1].lower() in IMAGE_SUFFIXES:
                        yield entry.path
        except OSError as error:
            unreadable(folder, f"cannot be read ({error.strerror})")


def stream_predictions(
    predict: Callable[[Sequence[str]], list[FilePrediction]],
    paths: Iterable[str],
    batch_size: int = BATCH_SIZE,
    *,
    jobs: int = 1,
    scheduler: str | None = None,
) -> Iterator[FilePrediction]:
    """Yield a prediction for every path, in the order of the paths; only a few batches are in memory at any time.

    The batch of a worker process that dies is run again. If a batch cannot be predicted at all, each of its files gets
    the reason.

    Parameters
    ----------
    predict : callable
        Returns the predictions for a batch of paths, such as a `FilePredictor`.
    paths : iterable of str
        May be infinite.
    batch_size : int
    jobs, scheduler : int, str
        Processes on this machine, or the address of a dask cluster, as for `lmfcn.compute.parallel.as_completed`.
    """
    finished: dict[int, list[FilePrediction]] = {}
    n_yielded = 0

    def next_batches() -> Iterator[_Batch | None]:
        for batch in _batches(paths, batch_size):
            while batch.number >= n_yielded + _MAX_AHEAD:
                yield None  # wait for a slower batch
            yield batch

    completed = as_completed(
        _BatchPredictor(predict), next_batches(), jobs=jobs, scheduler=scheduler, catch=RuntimeError
    )
    for batch, rows in completed:
        finished[batch.number] = _failed(batch, rows) if isinstance(rows, RuntimeError) else rows
        while n_yielded in finished:
            yield from finished.pop(n_yielded)
            n_yielded += 1


@dataclass(frozen=True)
class FilePredictor:
    """Predicts batches of files in this or another process.

    Parameters
    ----------
    model : TextureModel
    folder : str
        Folder that relative paths refer to; worker processes may have another working folder.
    device : str, optional
        Device to compute on, looked up in the process that computes; by default that of the model.
    """

    model: TextureModel
    folder: str = ""
    device: str | None = None

    def __call__(self, paths: Sequence[str]) -> list[FilePrediction]:
        """Return a prediction for every path, with the path as it was given."""
        rows = predict_paths(self._model_on_device, [os.path.join(self.folder, path) for path in paths])
        return [replace(row, path=path) for row, path in zip(rows, paths, strict=True)]

    def __reduce__(self) -> tuple[type, tuple[TextureModel, str, str]]:
        # Worker processes may have other devices, so the model is sent on the CPU.
        return type(self), (self.model.copied_to(CPU), self.folder, self.device or str(self.model.device))

    @functools.cached_property
    def _model_on_device(self) -> TextureModel:
        return self.model if self.device is None else self.model.copied_to(check_device(self.device))


def predict_paths(model: TextureModel, paths: Sequence[str]) -> list[FilePrediction]:
    """Return a prediction for every path of a batch, or the reason why a file cannot be used.

    Images are converted to the colour and size of the model's training images, if the model has these. Otherwise they
    may differ in size, and images of equal size are predicted together.
    """
    rows: list[FilePrediction | None] = [None] * len(paths)
    waiting: dict[tuple[int, ...], list[tuple[int, np.ndarray]]] = defaultdict(list)
    n_bytes = 0
    for position, image in enumerate(_read(model.form, paths)):
        if isinstance(image, ImageError):
            rows[position] = FilePrediction(paths[position], None, image.reason)
            continue
        waiting[image.shape].append((position, image))
        n_bytes += image.nbytes
        if n_bytes > _MAX_WAITING_BYTES:
            _predict_waiting(model, paths, waiting, rows)
            n_bytes = 0
    _predict_waiting(model, paths, waiting, rows)
    return [row for row in rows if row is not None]


def _predict_waiting(
    model: TextureModel,
    paths: Sequence[str],
    waiting: dict[tuple[int, ...], list[tuple[int, np.ndarray]]],
    rows: list[FilePrediction | None],
) -> None:
    """Predict the waiting images, one array for each size, and remove them."""
    for members in waiting.values():
        images = ImageCollection(np.stack([image for _, image in members]))
        predicted, typicality = model.predict_with_typicality(images)
        usual = [None] * len(members) if typicality is None else typicality.tolist()
        for (position, _), probabilities, share in zip(members, predicted, usual, strict=True):
            rows[position] = FilePrediction(paths[position], probabilities, typicality=share)
    waiting.clear()


def _read(form: ImageForm, paths: Sequence[str]) -> Iterator[np.ndarray | ImageError]:
    """Yield every image in the form of the model, or an `ImageError`; read a few at a time."""
    for start in range(0, len(paths), _READ_BATCH):
        images = ImageCollection(paths[start : start + _READ_BATCH], cache_bytes=0).preprocessed(form.preprocessing)

        def read(position: int, images: ImageCollection = images) -> np.ndarray:
            image: np.ndarray = images[position]
            _check(form, images.paths[position], image)
            return image

        yield from map_in_threads(read, range(len(images)))


def _check(form: ImageForm, path: str, image: np.ndarray) -> None:
    try:
        height, width, channels = image.shape
        check_smallest_side(height, width, smallest=form.smallest_side)
        check_pixel_format((channels, pixel_kind(image)), form.channels, form.pixels)
    except ValueError as error:
        raise ImageError(path, str(error)) from error


@dataclass(frozen=True)
class _Batch:
    number: int
    paths: list[str]

    def __str__(self) -> str:
        return f"{len(self.paths)} files from {self.paths[0]} on"


@dataclass(frozen=True)
class _BatchPredictor:
    predict: Callable[[Sequence[str]], list[FilePrediction]]

    def __call__(self, batch: _Batch) -> list[FilePrediction]:
        return self.predict(batch.paths)


def _batches(paths: Iterable[str], size: int) -> Iterator[_Batch]:
    paths = iter(paths)
    for number in count():
        batch = list(islice(paths, size))
        if not batch:
            return
        yield _Batch(number, batch)


def _failed(batch: _Batch, error: RuntimeError) -> list[FilePrediction]:
    """Return the reason for every file of a batch; only its first line, since torch appends a stack trace."""
    reason = f"could not be predicted: {(str(error) or type(error).__name__).splitlines()[0]}"
    return [FilePrediction(path, None, reason) for path in batch.paths]
