"""Data sets: the published sets of the LMFCN paper, and photographed textures.

Nothing is downloaded: the user gives the path of a published set. Each set has its classes, binary task and groups, and
reports what is missing from an incomplete folder.
"""

import re
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lmfcn.data.collection import ImageCollection
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
    # Whole images are Fabric.0000.pnm, the publisher's 16 tiles of each Fabric.0000.15.pnm; copies also use _ and -.
    pattern=r"/(?P<group>(?P<label>[A-Za-z]+)[._-]?\d+)[^/]*$",
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
    # Patient 14-13412 is both a ductal and a lobular carcinoma there, with some images under both labels.
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
    origin="Aresta et al. 2019, Zenodo record 3632035, folder Photos of the challenge data; CC BY-NC-ND 4.0.",
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
