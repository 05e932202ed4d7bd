"""Handcrafted texture descriptors (GLCM, LBP, PFTAS), and an RBF SVM on them.

Each descriptor turns one 8-bit grey or RGB image of any size into a vector of fixed length.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lmfcn.baselines.feature_svm import FeatureCache, FeatureSVC, check_cache_folder
from lmfcn.compute.parallel import as_completed, workers_of
from lmfcn.compute.resources import WithThreads
from lmfcn.data.arrays import RandomState
from lmfcn.data.framing import to_color
from lmfcn.data.image_form import LoadedImages, pixel_format_of
from lmfcn.data.training_data import TrainingData
from lmfcn.util.checks import check_choice, check_jobs
from lmfcn.util.packages import needs
from lmfcn.util.progress import item_progress

GLCM_DISTANCES = (1, 2, 4)
GLCM_ANGLES = (0.0, np.pi / 4, np.pi / 2, 3 * np.pi / 4)
_N_LBP = 59
_GREY_LEVELS = 256


def glcm(image: np.ndarray, distances: Sequence[int] = GLCM_DISTANCES) -> np.ndarray:
    """Return 169 statistics of grey-level co-occurrence matrices (GLCM).

    There are 13 matrices of 256 grey levels, each symmetric and normalised: one for each of the distances 1, 2 and 4
    and the directions right, right and down, down, left and down, in this order with the direction running faster
    (diagonal steps rounded to pixels: 1, 1 and 3 each way), and the mean of these twelve. Each has the 13 statistics
    of Haralick, in mahotas' order: angular second moment, contrast, correlation, variance, inverse difference moment,
    sum average, sum variance, sum entropy, entropy, difference variance, difference entropy, and two measures of
    correlation by information. Values 13 m to 13 m + 12 are those of matrix m. Colour images are made grey.

    Parameters
    ----------
    image : array of uint8 (height, width, 1 or 3)
        Both sides must be longer than the largest distance.
    distances : sequence of int
        Other distances give vectors of another length, 13 (4 n + 1).
    """
    graycomatrix = needs("skimage.feature", "textures").graycomatrix
    haralick = needs("mahotas.features.texture", "textures").haralick_features
    counts = graycomatrix(_grey(image), distances, GLCM_ANGLES, _GREY_LEVELS, symmetric=True, normed=True)
    matrices = np.ascontiguousarray(counts.reshape(_GREY_LEVELS, _GREY_LEVELS, -1).transpose(2, 0, 1))
    return haralick([*matrices, matrices.mean(axis=0)]).ravel()


def lbp(image: np.ndarray) -> np.ndarray:
    """Return the shares of the 59 uniform local binary patterns (LBP) of 8 neighbours at distance 1.

    A neighbour counts as light if it is at least as light as the centre; outside the image all is dark. Value 0 is
    the share of pixels with dark neighbours only, value 1 + 8 (n - 1) + r of those with n light neighbours in a row,
    counter-clockwise from one that lies r eighths of a turn clockwise from the right, value 57 of those with light
    neighbours only, and value 58 of all others. Colour images are made grey.

    Parameters
    ----------
    image : array of uint8 (height, width, 1 or 3)
    """
    local_binary_pattern = needs("skimage.feature", "textures").local_binary_pattern
    patterns = local_binary_pattern(_grey(image), P=8, R=1, method="nri_uniform")
    return np.bincount(patterns.astype(int).ravel(), minlength=_N_LBP) / patterns.size


def pftas(image: np.ndarray) -> np.ndarray:
    """Return 162 parameter-free threshold adjacency statistics (PFTAS): 54 each of red, green and blue.

    Otsu's threshold, the mean of the pixels above it and their standard deviation make three binary images of a
    channel; each gives the shares of its dark pixels with 0 to 8 light neighbours, then the three negatives do. Grey
    images count as three equal channels.

    Parameters
    ----------
    image : array of uint8 (height, width, 1 or 3)
    """
    one_channel = needs("mahotas.features", "textures").pftas
    # mahotas needs contiguous, writable memory.
    values = [one_channel(np.array(channel, order="C")) for channel in np.moveaxis(image, 2, 0)]
    return np.concatenate(values * 3 if len(values) == 1 else values)


Descriptor = Callable[[np.ndarray], np.ndarray]
DESCRIPTORS: dict[str, Descriptor] = {"glcm": glcm, "lbp": lbp, "pftas": pftas}
LENGTHS = {"glcm": 169, "lbp": _N_LBP, "pftas": 162}
_SMALLEST_SIDE = {"glcm": max(GLCM_DISTANCES) + 1, "lbp": 3, "pftas": 3}


def check_descriptor_images(name: str, channels: int, pixels: str, smallest_side: int) -> None:
    """Raise ValueError for images for which a descriptor is not defined."""
    if pixels != "uint8" or channels not in (1, 3):
        raise ValueError(
            f"{name.upper()} is defined for 8-bit grey or RGB images, got {channels} channels of {pixels} pixels;"
            " convert the images, or compare with methods that take any pixels, such as CNNClassifier."
        )
    if smallest_side < _SMALLEST_SIDE[name]:
        raise ValueError(
            f"{name.upper()} needs images of at least {_SMALLEST_SIDE[name]} pixels a side, got {smallest_side}."
        )


def _grey(image: np.ndarray) -> np.ndarray:
    return np.array(to_color(image, "grey")[:, :, 0])  # a copy: scikit-image needs writable memory


_CHUNK_SIZE = 16
_CACHE_VERSION = 1
"""Increase it when a descriptor changes."""


class DescriptorSVC(FeatureSVC):
    """GLCM, LBP or PFTAS features with an RBF SVM, as in the paper's comparison with handcrafted features.

    Cross-validation chooses between standardised features, with C and gamma, and whitened ones; groups are never split.

    Parameters
    ----------
    descriptor : {"glcm", "lbp", "pftas"}, default="lbp"
        169, 59 or 162 values per image: see `lmfcn.baselines.descriptors`.
    cache_dir : path, optional
        Folder for feature vectors, which later fits reuse; a hash of the image finds them.
    n_jobs : int, optional
        Processes that compute features.
    validation_fraction : float, default=0
        Nothing needs to be held out; a given validation set joins the training images.
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
        """Store the descriptor, as the parameter may change later; there is nothing else to learn."""
        self._descriptor = self.descriptor

    def _describe(self, images: LoadedImages) -> Tensor:
        channels, pixels = pixel_format_of(images)
        sizes = [images.shape[1:3]] if isinstance(images, np.ndarray) else images.sizes()
        name = self._descriptor
        check_descriptor_images(name, channels, pixels, int(np.min(sizes)))
        cache = None if self.cache_dir is None else FeatureCache(self.cache_dir, _kind(name), LENGTHS[name])
        # One thread: 256 x 256 counts are too little work to share, and a waiting thread keeps a core busy.
        describe = WithThreads(_DescribeChunk(DESCRIPTORS[name]), 1)
        vectors = np.empty((len(images), LENGTHS[name]))
        with item_progress(name.upper(), len(images), visible=self.verbose) as advance:
            missing = _uncached(images, cache, vectors, advance)
            for chunk, found in as_completed(describe, missing, **workers_of(self.n_jobs)._asdict()):
                vectors[chunk.positions] = found
                if cache is not None:
                    cache.put(chunk.images, found)
                for _ in found:
                    advance()
        return torch.from_numpy(vectors)


def _kind(descriptor: str) -> str:
    """Return the name of a descriptor with the versions that its values depend on."""
    versions = "-".join(f"{package}-{version(package)}" for package in ("mahotas", "scikit-image"))
    return f"{descriptor}-{_CACHE_VERSION}-{versions}"


class _Chunk(NamedTuple):
    """A few images and their positions among all images."""

    positions: list[int]
    images: list[np.ndarray]


@dataclass(frozen=True)
class _DescribeChunk:
    describe: Descriptor

    def __call__(self, chunk: _Chunk) -> list[np.ndarray]:
        return [self.describe(image) for image in chunk.images]


def _uncached(
    images: LoadedImages, cache: FeatureCache | None, vectors: np.ndarray, advance: Callable[[], None]
) -> Iterator[_Chunk]:
    """Fill in the vectors that the cache holds; yield all other images in chunks."""
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
        if len(chunk.images) == _CHUNK_SIZE:
            yield chunk
            chunk = _Chunk([], [])
    if chunk.images:
        yield chunk
