"""Feature vectors on disk, each found by what its image shows."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np


def check_cache_folder(folder: str | Path) -> None:
    """Make the folder of a cache, or say why it cannot be one."""
    if not isinstance(folder, str | Path):
        raise ValueError(f"cache_dir must be the path of a folder, got {folder!r}.")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cache_dir must be a folder, but {folder} cannot be made one ({error}).") from error


class FeatureCache:
    """A folder of feature vectors, one small file each, named after the pixels they were computed from.

    A changed image has another name. A file holds the numbers and nothing else; one of another length, or with
    numbers that are not finite, counts as missing.

    Parameters
    ----------
    folder : path
    kind : str
        What the vectors are, with a version: another kind has another folder.
    length : int
        Values of every vector.
    """

    def __init__(self, folder: str | Path, kind: str, length: int) -> None:
        self.folder = Path(folder) / kind
        self.length = length

    def get(self, image: np.ndarray) -> np.ndarray | None:
        """Return the vector of an image, or None if it is not there."""
        try:
            content = self._path(image).read_bytes()
        except OSError:
            return None
        if len(content) != 8 * self.length:
            return None
        vector = np.frombuffer(content, dtype="<f8").astype(np.float64)
        return vector if np.isfinite(vector).all() else None

    def put(self, images: Sequence[np.ndarray], vectors: Sequence[np.ndarray]) -> None:
        """Keep the vectors of some images."""
        for image, vector in zip(images, vectors, strict=True):
            path = self._path(image)
            path.parent.mkdir(parents=True, exist_ok=True)
            # Renamed when complete, but not forced to the disk: a lost file is only computed again.
            unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
            unfinished.write_bytes(np.ascontiguousarray(vector, dtype="<f8").tobytes())
            unfinished.replace(path)

    def _path(self, image: np.ndarray) -> Path:
        digest = hashlib.blake2b(repr((image.shape, image.dtype.str)).encode(), digest_size=16)
        digest.update(np.ascontiguousarray(image).data)
        name = digest.hexdigest()
        return self.folder / name[:2] / f"{name}.f8"
