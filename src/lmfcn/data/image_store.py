"""Read the source images of a collection, with a bounded cache of decoded images."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from lmfcn.data.arrays import pixel_kind
from lmfcn.data.framing import Preprocessing, preprocess_image, size_after
from lmfcn.data.image_files import ImageError, ImageInfo, probe_image, read_image
from lmfcn.util.memory import release_freed_memory

CACHE_BYTES = 2**30
_RELEASE_BYTES = 2**25
"""So many bytes leave the cache before the gaps that they leave in the heap are returned to the system."""

_VALUE_BYTES = {"uint8": 1, "uint16": 2, "float": 4}  # by kind of pixels, as files are read
Result = TypeVar("Result")


class ImageStore:
    """Decode and preprocess source images by their number, and cache them up to `cache_bytes`.

    Parameters
    ----------
    source : sequence of paths, array of images, or list of arrays that may differ in size
    preprocessing : Preprocessing
    cache_bytes : int
    """

    def __init__(
        self,
        source: Sequence[str] | Sequence[np.ndarray] | np.ndarray,
        preprocessing: Preprocessing,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self.source = source
        self.preprocessing = preprocessing
        self.cache_bytes = cache_bytes
        self._clear()

    def __len__(self) -> int:
        return len(self.source)

    def __getstate__(self) -> dict[str, object]:
        # Other processes get the arguments, not the cache (nor the lock, which cannot be pickled), and absolute paths,
        # since their working folder may differ.
        source = self.source if self.holds_arrays else [os.path.abspath(str(path)) for path in self.source]
        return {"source": source, "preprocessing": self.preprocessing, "cache_bytes": self.cache_bytes}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._clear()

    def _clear(self) -> None:
        self._cache: OrderedDict[int, np.ndarray] = OrderedDict()
        self._cached_bytes = self._evicted_bytes = 0
        self._infos: dict[int, ImageInfo] = {}
        self._lock = threading.Lock()

    @property
    def holds_arrays(self) -> bool:
        """Whether the images are arrays and not files."""
        return not isinstance(self.source[0], str)

    def name(self, number: int) -> str:
        """Return the path of an image, or its number in an array."""
        return f"image {number}" if self.holds_arrays else str(self.source[number])

    def read(self, number: int) -> np.ndarray:
        """Return one preprocessed image (height, width, channels)."""
        source = self.source[number]
        if isinstance(source, np.ndarray):
            return self._preprocess(number, source)
        with self._lock:
            if number in self._cache:
                self._cache.move_to_end(number)
                return self._cache[number]
        image = self._preprocess(number, read_image(source))
        self._cache_image(number, image)
        return image

    def info(self, number: int) -> ImageInfo:
        """Return size, channels and pixels of an image before preprocessing, from the header of its file."""
        source = self.source[number]
        if isinstance(source, np.ndarray):
            height, width, channels = source.shape
            return ImageInfo(height, width, channels, pixel_kind(source), "array")
        if number not in self._infos:
            self._infos[number] = probe_image(source)
        return self._infos[number]

    def size(self, number: int) -> tuple[int, int]:
        """Return height and width after preprocessing."""
        info = self.info(number)
        return size_after((info.height, info.width), self.preprocessing)

    def pixel_format(self, number: int) -> tuple[int, str]:
        """Return channels and kind of pixels after preprocessing."""
        info = self.info(number)
        channels = {"grey": 1, "rgb": 3}.get(self.preprocessing.color, info.channels)
        return channels, info.pixels

    def value_bytes(self, number: int) -> int:
        """Return how many bytes one channel of one pixel takes."""
        source = self.source[number]
        if isinstance(source, np.ndarray):
            return source.dtype.itemsize
        return _VALUE_BYTES.get(self.info(number).pixels, 8)

    def _preprocess(self, number: int, image: np.ndarray) -> np.ndarray:
        try:
            result = preprocess_image(image, self.preprocessing)
        except ValueError as error:
            raise ImageError(self.name(number), str(error)) from error
        # A view would keep the whole image in memory, which the cache does not count.
        return result.copy() if result.nbytes < image.nbytes and result.base is not None else result

    def _cache_image(self, number: int, image: np.ndarray) -> None:
        with self._lock:
            if number in self._cache or image.nbytes > self.cache_bytes:
                return
            self._cache[number] = image
            self._cached_bytes += image.nbytes
            while self._cached_bytes > self.cache_bytes:
                _, oldest = self._cache.popitem(last=False)
                self._cached_bytes -= oldest.nbytes
                self._evicted_bytes += oldest.nbytes
                del oldest
            if self._evicted_bytes > _RELEASE_BYTES:
                release_freed_memory()
                self._evicted_bytes = 0


def map_in_threads(function: Callable[[int], Result], numbers: Iterable[int]) -> Iterator[Result | ImageError]:
    """Apply a function that reads files to many numbers in threads; yield results or `ImageError`s in order."""

    def attempt(number: int) -> Result | ImageError:
        try:
            return function(number)
        except ImageError as error:
            return error

    numbers = list(numbers)
    with ThreadPoolExecutor(max_workers=min(8, (os.cpu_count() or 1) + 2)) as pool:
        # In batches: submitting a million tasks at once would hold all their results.
        for start in range(0, len(numbers), 256):
            yield from pool.map(attempt, numbers[start : start + 256])
