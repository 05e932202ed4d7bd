"""Data sets: the published sets of the LMFCN paper, photographed textures, and synthetic striped Gaussians.

Nothing is downloaded: the user gives the path of a published set. Each set has its classes, binary task and groups, and
reports what is missing from an incomplete folder.
"""

import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from lmfcn.data.arrays import RandomState, as_generator
from lmfcn.data.collection import ImageCollection
from lmfcn.data.framing import as_pair
from lmfcn.data.sources import IMAGE_SUFFIXES


@dataclass(frozen=True)
class PublishedSet:
    """A published data set: how to recognise its files, classes and groups.

    Attributes
    ----------
    title : str
    pattern : str
        Regular expression for paths below the root, with the named groups `label` and optionally `group`.
    classes : mapping
        Label of the full task for each label in a path, in lower case.
    binary : mapping
        Label of the paper's binary task for each label of the full task that takes part in it.
    n_images : mapping
        Published number of images of each class, if known.
    origin : str
        Source and licence of the images.
    """

    title: str
    pattern: str
    classes: Mapping[str, str]
    binary: Mapping[str, str]
    n_images: Mapping[str, int]
    origin: str

    def load(self, root: str | Path, *, binary: bool = False, only: str | None = None) -> ImageCollection:
        """Read the data set from the folder `root`.

        Parameters
        ----------
        root : str or Path
        binary : bool, default=False
            Use the labels of the binary task and leave out images of other classes.
        only : str, optional
            Read only paths with this folder name, such as the magnification "200X" of BreaKHis.
        """
        root = Path(root)
        if not root.is_dir():
            raise ValueError(f"{root} is not a folder. {self.title}: {self.origin}")
        rows = [row for row in self._rows(root) if only is None or only in Path(row[0]).parts]
        self._check_complete(root, Counter(label for _, label, _ in rows), whole=only is None)
        if binary:
            rows = [(path, self.binary[label], group) for path, label, group in rows if label in self.binary]
        paths, labels, groups = zip(*rows, strict=True)
        return ImageCollection(paths, labels, None if "" in groups else groups)

    def _rows(self, root: Path) -> list[tuple[str, str, str]]:
        rows = []
        for path in sorted(root.rglob("*")):
            found = re.search(self.pattern, path.relative_to(root.parent).as_posix(), flags=re.IGNORECASE)
            if path.suffix.lower() not in IMAGE_SUFFIXES or found is None:
                continue
            label = self.classes.get(found["label"].lower())
            if label is not None and path.is_file():
                rows.append((str(path), label, found.groupdict().get("group") or ""))
        return rows

    def _check_complete(self, root: Path, counts: Counter[str], *, whole: bool) -> None:
        missing = [label for label in dict.fromkeys(self.classes.values()) if counts[label] == 0]
        if missing:
            raise ValueError(
                f"{root} is not a complete copy of {self.title}: no images of {', '.join(missing)};"
                f" found {dict(counts) or 'none'}. {self.origin}"
            )
        few = [f"{label} {counts[label]} of {n}" for label, n in self.n_images.items() if counts[label] < n]
        if few and whole:
            warnings.warn(f"{root} has fewer images than {self.title}: {', '.join(few)}.", UserWarning, stacklevel=3)


STEX = PublishedSet(
    title="Salzburg Texture Image Database (STex)",
    pattern=r"/(?P<group>(?P<label>[A-Za-z]+)[_-]?\d+)[^/]*$",
    classes={"fabric": "fabric", "misc": "misc"},
    binary={"fabric": "fabric", "misc": "misc"},
    n_images={},
    origin="From the Multimedia Signal Processing and Security Lab, University of Salzburg (wavelab.at/sources/STex);"
    " free for research, on request.",
)

BREAKHIS = PublishedSet(
    title="BreaKHis",
    pattern=r"/(?P<label>adenosis|fibroadenoma|phyllodes_tumor|tubular_adenoma|ductal_carcinoma|lobular_carcinoma"
    r"|mucinous_carcinoma|papillary_carcinoma)/.*SOB_[BM]_[A-Z]+-(?P<group>\d+-[0-9A-Z]+)-\d+-\d+\.[a-z]+$",
    classes={
        name: name.replace("_", " ")
        for name in (
            "adenosis",
            "fibroadenoma",
            "phyllodes_tumor",
            "tubular_adenoma",
            "ductal_carcinoma",
            "lobular_carcinoma",
            "mucinous_carcinoma",
            "papillary_carcinoma",
        )
    },
    binary={
        "adenosis": "benign",
        "fibroadenoma": "benign",
        "phyllodes tumor": "benign",
        "tubular adenoma": "benign",
        "ductal carcinoma": "malignant",
        "lobular carcinoma": "malignant",
        "mucinous carcinoma": "malignant",
        "papillary carcinoma": "malignant",
    },
    n_images={
        "adenosis": 444,
        "fibroadenoma": 1014,
        "phyllodes tumor": 453,
        "tubular adenoma": 569,
        "ductal carcinoma": 3451,
        "lobular carcinoma": 626,
        "mucinous carcinoma": 792,
        "papillary carcinoma": 560,
    },
    origin="Spanhol et al. 2016, from the Federal University of Parana (web.inf.ufpr.br/vri, BreaKHis database);"
    " CC BY 4.0. The patient is the group.",
)

BACH = PublishedSet(
    title="BACH (ICIAR 2018)",
    pattern=r"/(?P<label>normal|benign|insitu|in situ|invasive)/[^/]+$",
    classes={
        "normal": "normal",
        "benign": "benign",
        "insitu": "in situ",
        "in situ": "in situ",
        "invasive": "invasive",
    },
    binary={"normal": "non-cancer", "benign": "non-cancer", "in situ": "cancer", "invasive": "cancer"},
    n_images={"normal": 100, "benign": 100, "in situ": 100, "invasive": 100},
    origin="Aresta et al. 2019, folder Photos of the challenge data (iciar2018-challenge.grand-challenge.org);"
    " CC BY-NC-ND.",
)

CRC = PublishedSet(
    title="CRC textures (Kather 2016)",
    pattern=r"/\d\d_(?P<label>tumor|stroma|complex|lympho|debris|mucosa|adipose|empty)/"
    r"[^/]*?(?P<group>CRC-Prim-HE-\d+)[^/]*$",
    classes={name: name for name in ("tumor", "stroma", "complex", "lympho", "debris", "mucosa", "adipose", "empty")},
    binary={"tumor": "tumor", "stroma": "stroma"},
    n_images=dict.fromkeys(("tumor", "stroma", "complex", "lympho", "debris", "mucosa", "adipose", "empty"), 625),
    origin="Kather et al. 2016, Zenodo record 53169, archive Kather_texture_2016_image_tiles_5000; CC BY 4.0."
    " The slide is the group.",
)

PUBLISHED = {"stex": STEX, "breakhis": BREAKHIS, "bach": BACH, "crc": CRC}


PHOTOGRAPHS = ("brick", "grass", "gravel")
"""Photographs of textures, 512x512 pixels, that come with scikit-image."""

_TEST_BAND = 384  # the first row of the photographs from which test tiles and the mosaic are taken


def load_photographed_textures(tile: int = 64) -> ImageCollection:
    """Return tiles of brick, grass and gravel, three photographs that come with scikit-image.

    The split takes the tiles for training, validation and test from separate bands of each photograph.

    Parameters
    ----------
    tile : int, default=64
        Side of a tile in pixels; at most 128.
    """
    photographs = _load_photographs()
    if not 8 <= tile <= 128:
        raise ValueError(f"tile must be between 8 and 128 pixels, got {tile}.")
    images: list[np.ndarray] = []
    labels: list[str] = []
    parts: list[str] = []
    for label, photograph in photographs.items():
        for part, top, bottom in (("train", 0, 256), ("val", 256, _TEST_BAND), ("test", _TEST_BAND, 512)):
            for y in range(top, bottom - tile + 1, tile):
                for x in range(0, 512 - tile + 1, tile):
                    images.append(photograph[y : y + tile, x : x + tile])
                    labels.append(label)
                    parts.append(part)
    groups = [f"{label} {part}" for label, part in zip(labels, parts, strict=True)]
    return ImageCollection(np.stack(images), labels, groups, parts)


def photographed_mosaic() -> tuple[np.ndarray, np.ndarray]:
    """Return a mosaic of the photographed textures and the label of each pixel, both (256, 384).

    It is made of the band of each photograph from which `load_photographed_textures` takes the test tiles, mirrored to
    twice its height: brick on the left, grass on the right, and a disc of gravel.
    """
    rows, columns = np.mgrid[:256, :384]
    numbers = np.where((rows - 128) ** 2 + (columns - 192) ** 2 < 90**2, 2, columns // 192)
    bands = [photograph[_TEST_BAND:, :384] for photograph in _load_photographs().values()]
    mirrored = [np.concatenate([band, band[::-1]]) for band in bands]
    return np.choose(numbers, mirrored), np.array(PHOTOGRAPHS)[numbers]


def _load_photographs() -> dict[str, np.ndarray]:
    try:
        from skimage import data
    except ImportError as error:
        raise ImportError("The photographed textures need scikit-image: pip install 'lmfcn[textures]'.") from error
    return {label: getattr(data, label)() for label in PHOTOGRAPHS}


def make_gaussians(
    n_per_class: int = 100,
    size: int | tuple[int, int] = 64,
    random_state: RandomState = None,
    *,
    channels: int | None = None,
    means: Sequence[float] = (128.0, 125.0),
    stds: Sequence[float] = (30.0, 35.0),
    pattern: Sequence[float] = (0.4, 0.7, 1.0, 0.7),
    max_angle: float = 30.0,
    noise_weight: float = 0.25,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw striped images whose classes differ only in mean and standard deviation of their noise.

    The defaults are those of the synthetic set of the LMFCN paper: stripes of one-pixel bands, each image
    rotated by a random angle, mixed with Gaussian noise. The stripes are drawn at their angle over the
    whole image, so no empty corners reveal the angle.

    Parameters
    ----------
    n_per_class : int, default=100
    size : int or (height, width), default=64
    random_state : None, int or NumPy generator, optional
        The same seed gives the same images.
    channels : int, optional
        With None the images are grey, of shape (height, width); otherwise (height, width, channels), with
        independent noise in every channel.
    means, stds : sequences of float, default=(128, 125) and (30, 35)
        Mean and standard deviation of the noise in grey levels, one entry per class.
    pattern : sequence of float, default=(0.4, 0.7, 1.0, 0.7)
        Brightness of the bands of one stripe, each a pixel wide, from 0 (black) to 1 (white).
    max_angle : float, default=30
        Maximum rotation of the stripes in degrees, in both directions.
    noise_weight : float, default=0.25
        Weight of the noise in the image; that of the stripes is 1 minus it.

    Returns
    -------
    images : array of uint8, (n, height, width) or (n, height, width, channels)
    labels : array of int, (n,)
        0, 1, ... in random order.

    Examples
    --------
    >>> images, labels = make_gaussians(n_per_class=3, size=32, random_state=0)
    >>> images.shape, images.dtype, sorted(labels.tolist())
    ((6, 32, 32), dtype('uint8'), [0, 0, 0, 1, 1, 1])
    """
    height, width = as_pair(size)
    _check_arguments(n_per_class, channels, means, stds, pattern, max_angle, noise_weight)
    random = as_generator(random_state)
    labels = random.permutation(np.repeat(np.arange(len(means)), n_per_class))
    images = np.empty((len(labels), height, width, channels or 1), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        stripes = _draw_stripes(height, width, np.asarray(pattern), max_angle, random)
        noise = random.standard_normal(image.shape, dtype=np.float32) * stds[label] + means[label]
        mixture = (1.0 - noise_weight) * 256.0 * stripes[..., None] + noise_weight * noise
        image[...] = np.clip(mixture, 0, 255)
    return (images[..., 0] if channels is None else images), labels


def _draw_stripes(
    height: int, width: int, pattern: np.ndarray, max_angle: float, random: np.random.Generator
) -> np.ndarray:
    """Return the brightness (height, width) of stripes at a random angle and offset."""
    angle = np.deg2rad(random.uniform(-max_angle, max_angle))
    offset = random.uniform(0, len(pattern))
    across = np.arange(width) * np.cos(angle) + offset
    down = np.arange(height) * np.sin(angle)
    bands = np.floor(down[:, None] + across[None, :]).astype(np.int64)
    return pattern[bands % len(pattern)]


def _check_arguments(
    n_per_class: Any,
    channels: Any,
    means: Sequence[float],
    stds: Sequence[float],
    pattern: Sequence[float],
    max_angle: float,
    noise_weight: float,
) -> None:
    for name, value in (("n_per_class", n_per_class), ("channels", 1 if channels is None else channels)):
        if not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value}.")
    if len(means) != len(stds):
        raise ValueError(f"means and stds must have one entry per class each, got {len(means)} and {len(stds)}.")
    if len(means) == 0 or not np.isfinite([*means, *stds]).all() or min(stds) < 0:
        raise ValueError(f"means and stds must be finite, stds not negative, got {tuple(means)} and {tuple(stds)}.")
    if not 0.0 <= max_angle <= 180.0:
        raise ValueError(f"max_angle must be between 0 and 180 degrees, got {max_angle}.")
    if len(pattern) == 0:
        raise ValueError("pattern must have at least one band, got none.")
    if not 0.0 <= noise_weight <= 1.0:
        raise ValueError(f"noise_weight must be between 0 and 1, got {noise_weight}.")
