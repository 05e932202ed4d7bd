"""Hold images, or maps of images, that are used many times: in memory, or in a temporary file."""

import shutil
import tempfile
import weakref
from pathlib import Path

import numpy as np

from lmfcn.compute.encode import Images

MEMORY_BYTES = 2**30
"""Most memory for one set of images; more of them go to a temporary file."""


class ImageBuffer:
    """Images, or maps of images, in memory, or in a temporary file where they take too much.

    It offers what `LazyImages` does, as they may differ in size.

    Parameters
    ----------
    input_sides : array of int (n, 2)
        Height and width of each image, or of what its maps are made from: those that agree in them have one size.
    dtype : numpy.dtype
    """

    def __init__(self, input_sides: np.ndarray, dtype: np.dtype) -> None:
        self._dtype = np.dtype(dtype)
        _, kinds, counts = np.unique(input_sides, axis=0, return_inverse=True, return_counts=True)
        self.size_numbers: np.ndarray = kinds.reshape(-1)
        self._counts = counts
        self._arrays: dict[int, np.ndarray] = {}
        self._rows = np.zeros(len(input_sides), dtype=np.int64)
        for kind in range(len(counts)):
            self._rows[self.size_numbers == kind] = np.arange(counts[kind])
        self._folder: Path | None = None

    def put(self, positions: np.ndarray, images: np.ndarray) -> None:
        """Add some images (b, h, w, c) that have one size."""
        kind = int(self.size_numbers[positions[0]])
        if kind not in self._arrays:
            self._arrays[kind] = self._new_array(kind, images.shape[1:])
        self._arrays[kind][self._rows[positions]] = images

    def _new_array(self, kind: int, shape: tuple[int, ...]) -> np.ndarray:
        shape = (int(self._counts[kind]), *shape)
        held = sum(array.nbytes for array in self._arrays.values())
        if held + self._dtype.itemsize * int(np.prod(shape)) <= MEMORY_BYTES:
            return np.empty(shape, dtype=self._dtype)
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="lmfcn-images-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return np.memmap(self._folder / f"{kind}.raw", dtype=self._dtype, mode="w+", shape=shape)

    def as_images(self) -> Images:
        """Return one array if all images have one size, else this buffer."""
        return self._arrays[0] if len(self._arrays) == 1 and self._folder is None else self

    def __len__(self) -> int:
        return len(self._rows)

    def sizes(self) -> np.ndarray:
        """Return height and width (n, 2) of every image."""
        return np.array([self._arrays[kind].shape[1:3] for kind in range(len(self._counts))])[self.size_numbers]

    def batch(self, positions: np.ndarray) -> np.ndarray:
        """Return some images (b, h, w, c) of one size."""
        return np.asarray(self._arrays[int(self.size_numbers[positions[0]])][self._rows[positions]])
