"""Predictions for any number of files in constant memory."""

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

BATCH = 64
"""Files that are predicted together."""

_MOST_AHEAD = 1024
"""Batches that may be done before one that takes longer; what is held for them is small."""

_READ_AT_ONCE = 8
_HELD_BYTES = 2**27


@dataclass(frozen=True)
class FilePrediction:
    """What came of one file: probabilities (n_classes,), or the reason why there are none."""

    path: str
    probabilities: np.ndarray | None
    error: str | None = None


def find_images(paths: Iterable[str], unreadable: Callable[[str, str], None]) -> Iterator[str]:
    """Yield files as they are, and the images in folders at any depth, in the order of the file system.

    Nothing is collected, so a folder may hold millions of files. Images in folders are recognised by their ending;
    names that start with a dot are passed over, and links to folders are not followed.

    Parameters
    ----------
    paths : iterable of str
    unreadable : callable
        Told the name of a folder that cannot be read, or not to its end, and the reason; the walk goes on.
    """
    for path in paths:
        if os.path.isdir(path):
            yield from _images_within(path, unreadable)
        else:
            yield path


def _images_within(folder: str, unreadable: Callable[[str, str], None]) -> Iterator[str]:
    waiting = [folder]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif os.path.splitext(entry.name)[1].lower() in IMAGE_SUFFIXES:
                        yield entry.path
        except OSError as error:
            unreadable(folder, f"cannot be read ({error.strerror})")


def stream_predictions(
    predict: Callable[[Sequence[str]], list[FilePrediction]],
    paths: Iterable[str],
    batch: int = BATCH,
    *,
    jobs: int = 1,
    scheduler: str | None = None,
) -> Iterator[FilePrediction]:
    """Yield a prediction for every path, in their order; only a few batches of them are held at any time.

    A process that dies loses the batch that it was busy with, which is run again; the files of a batch that cannot be
    predicted, wherever it is tried, come with the reason.

    Parameters
    ----------
    predict : callable
        From a batch of paths to their predictions, such as a `FilePredictor`.
    paths : iterable of str
        May be endless.
    batch : int
    jobs, scheduler : int, str
        Processes on this machine, or the address of a dask cluster, as for `lmfcn.compute.parallel.as_completed`.
    """
    held: dict[int, list[FilePrediction]] = {}
    n_given = 0

    def asked() -> Iterator[_Batch | None]:
        for each in _batches(paths, batch):
            while each.number >= n_given + _MOST_AHEAD:
                yield None  # the others wait for a batch that takes long
            yield each

    for one, rows in as_completed(_OnBatches(predict), asked(), jobs=jobs, scheduler=scheduler, catch=RuntimeError):
        held[one.number] = _without(one, rows) if isinstance(rows, RuntimeError) else rows
        while n_given in held:
            yield from held.pop(n_given)
            n_given += 1


@dataclass(frozen=True)
class FilePredictor:
    """Predicts batches of files wherever it is sent, with the model that it carries.

    Parameters
    ----------
    model : TextureModel
    folder : str
        To which relative paths refer; workers may have been started elsewhere.
    device : str, optional
        Where to compute, by a name that is looked up in the process that does; by default where the model is.
    """

    model: TextureModel
    folder: str = ""
    device: str | None = None

    def __call__(self, paths: Sequence[str]) -> list[FilePrediction]:
        """Return a prediction for every path, under the name that it was given."""
        rows = predict_paths(self._placed, [os.path.join(self.folder, path) for path in paths])
        return [replace(row, path=path) for row, path in zip(rows, paths, strict=True)]

    def __reduce__(self) -> tuple[type, tuple[TextureModel, str, str]]:
        # Workers pass it on to each other, and may differ in their devices: the model travels on the CPU.
        return type(self), (self.model.copied_to(CPU), self.folder, self.device or str(self.model.device))

    @functools.cached_property
    def _placed(self) -> TextureModel:
        return self.model if self.device is None else self.model.copied_to(check_device(self.device))


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
        some = ImageCollection(paths[start : start + _READ_AT_ONCE], cache_bytes=0).framed(form.preprocessing)

        def read(position: int, some: ImageCollection = some) -> np.ndarray:
            image: np.ndarray = some[position]
            _check(form, some.paths[position], image)
            return image

        yield from map_in_threads(read, range(len(some)))


def _check(form: ImageForm, path: str, image: np.ndarray) -> None:
    try:
        check_smallest_side(*image.shape[:2])
        check_pixel_format((image.shape[2], pixel_kind(image)), form.channels, form.pixels)
    except ValueError as error:
        raise ImageError(path, str(error)) from error


@dataclass(frozen=True)
class _Batch:
    number: int
    paths: list[str]

    def __str__(self) -> str:
        return f"{len(self.paths)} files from {self.paths[0]} on"


@dataclass(frozen=True)
class _OnBatches:
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


def _without(batch: _Batch, error: RuntimeError) -> list[FilePrediction]:
    """Return the reason for every file; only its first line, as torch goes on with where in its source it happened."""
    reason = f"could not be predicted: {(str(error) or type(error).__name__).splitlines()[0]}"
    return [FilePrediction(path, None, reason) for path in batch.paths]
