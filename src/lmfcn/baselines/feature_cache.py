"""Feature vectors on disk, each found by what its image shows."""

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lmfcn.files import write_bytes


class FeatureCache:
    """A folder of feature vectors, one small file each, named after the pixels they were computed from.

    A changed image has another name, so nothing outdated can be found; files that cannot be read count as missing.

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
            vector = np.load(self._path(image), allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        return vector if vector.shape == (self.length,) and np.isfinite(vector).all() else None

    def put(self, images: Sequence[np.ndarray], vectors: Sequence[np.ndarray]) -> None:
        """Keep the vectors of some images."""
        for image, vector in zip(images, vectors, strict=True):
            path, content = self._path(image), io.BytesIO()
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(content, vector, allow_pickle=False)
            write_bytes(path, content.getvalue())

    def _path(self, image: np.ndarray) -> Path:
        digest = hashlib.blake2b(repr((image.shape, image.dtype.str)).encode(), digest_size=16)
        digest.update(np.ascontiguousarray(image).data)
        name = digest.hexdigest()
        return self.folder / name[:2] / f"{name}.npy"
