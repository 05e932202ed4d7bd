"""A handcrafted descriptor with an RBF SVM on top."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lmfcn.baselines.descriptors import DESCRIPTORS, LENGTHS, Descriptor, check_describable
from lmfcn.baselines.feature_cache import FeatureCache, check_cache_folder
from lmfcn.baselines.feature_svm import FeatureSVC
from lmfcn.data.loading import LoadedImages, form_of
from lmfcn.data.seeds import RandomState
from lmfcn.data.training_data import TrainingData
from lmfcn.distribution.parallel import as_completed, workers_of
from lmfcn.distribution.threads import WithThreads
from lmfcn.extras import needs
from lmfcn.parameters import check_choice, check_jobs
from lmfcn.progress import item_progress

_AT_ONCE = 16
_CACHE_VERSION = 1
"""To be raised when a descriptor changes."""


class DescriptorSVC(FeatureSVC):
    """GLCM, LBP or PFTAS features with an RBF SVM, as in the paper's comparison with handcrafted features.

    Features are standardised, with C and gamma by cross-validation, or whitened; groups are never divided.

    Parameters
    ----------
    descriptor : {"glcm", "lbp", "pftas"}, default="lbp"
        169, 59 or 162 values per image: see `lmfcn.baselines.descriptors`.
    cache_dir : path, optional
        Folder that keeps feature vectors for the next time; they are found by the content of their images.
    n_jobs : int, optional
        Processes that compute features.
    validation_fraction : float, default=0
        Nothing needs to be held out; a given validation set is learnt from too.
    image_shape : tuple of int, optional
    random_state : None, int or NumPy generator, default=None
        Decides the folds of the cross-validation.
    verbose : bool, default=False

    Examples
    --------
    >>> from lmfcn import make_gaussians
    >>> X, y = make_gaussians(n_per_class=20, size=16, random_state=0)
    >>> DescriptorSVC(descriptor="lbp", random_state=0).fit(X, y).transform(X).shape
    (40, 59)
    """

    def __init__(
        self,
        *,
        descriptor: str = "lbp",
        cache_dir: str | Path | None = None,
        n_jobs: int | None = None,
        validation_fraction: float = 0.0,
        image_shape: tuple[int, ...] | None = None,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.descriptor = descriptor
        self.cache_dir = cache_dir
        self.n_jobs = n_jobs
        self.validation_fraction = validation_fraction
        self.image_shape = image_shape
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        check_choice("descriptor", self.descriptor, DESCRIPTORS)
        check_jobs(self.n_jobs)
        for module in ("mahotas", "skimage"):
            needs(module, "textures")
        if self.cache_dir is not None:
            check_cache_folder(self.cache_dir)

    def _learn(self, data: TrainingData, random: np.random.Generator) -> None:  # noqa: ARG002
        """Remember the descriptor, in case the parameter is changed later; there is nothing else to learn."""
        self._descriptor = self.descriptor

    def _describe(self, images: LoadedImages) -> Tensor:
        channels, pixels = form_of(images)
        sizes = [images.shape[1:3]] if isinstance(images, np.ndarray) else images.sizes()
        name = self._descriptor
        check_describable(name, channels, pixels, int(np.min(sizes)))
        cache = None if self.cache_dir is None else FeatureCache(self.cache_dir, _kind(name), LENGTHS[name])
        # Vectors of 256 x 256 counts are too short to share: a second thread would only wait, at full load.
        describe = WithThreads(_DescribeChunk(DESCRIPTORS[name]), 1)
        vectors = np.empty((len(images), LENGTHS[name]))
        with item_progress(name.upper(), len(images), visible=self.verbose) as advance:
            missing = _missing(images, cache, vectors, advance)
            for chunk, found in as_completed(describe, missing, **workers_of(self.n_jobs)._asdict()):
                vectors[chunk.positions] = found
                if cache is not None:
                    cache.put(chunk.images, found)
                for _ in found:
                    advance()
        return torch.from_numpy(vectors)


def _kind(descriptor: str) -> str:
    """Name a descriptor with everything that its values depend on besides the image."""
    versions = "-".join(f"{package}-{version(package)}" for package in ("mahotas", "scikit-image"))
    return f"{descriptor}-{_CACHE_VERSION}-{versions}"


class _Chunk(NamedTuple):
    """A few images, and where their vectors go."""

    positions: list[int]
    images: list[np.ndarray]


@dataclass(frozen=True)
class _DescribeChunk:
    describe: Descriptor

    def __call__(self, chunk: _Chunk) -> list[np.ndarray]:
        return [self.describe(image) for image in chunk.images]


def _missing(
    images: LoadedImages, cache: FeatureCache | None, vectors: np.ndarray, advance: Callable[[], None]
) -> Iterator[_Chunk]:
    """Fill in the vectors that the cache holds, and yield all other images in chunks."""
    chunk = _Chunk([], [])
    for position in range(len(images)):
        image = np.asarray(images[position])
        found = None if cache is None else cache.get(image)
        if found is not None:
            vectors[position] = found
            advance()
            continue
        chunk.positions.append(position)
        chunk.images.append(image)
        if len(chunk.images) == _AT_ONCE:
            yield chunk
            chunk = _Chunk([], [])
    if chunk.images:
        yield chunk
