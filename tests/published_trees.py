"""Small trees of the published sets with their original names and layouts, filled with made-up textures."""

import numpy as np
from PIL import Image

_BREAKHIS = {
    "benign": {"adenosis": "A", "fibroadenoma": "F", "phyllodes_tumor": "PT", "tubular_adenoma": "TA"},
    "malignant": {
        "ductal_carcinoma": "DC",
        "lobular_carcinoma": "LC",
        "mucinous_carcinoma": "MC",
        "papillary_carcinoma": "PC",
    },
}
_CRC = ("TUMOR", "STROMA", "COMPLEX", "LYMPHO", "DEBRIS", "MUCOSA", "ADIPOSE", "EMPTY")


def make_trees(folder, n_groups=4, n_images=2, side=24):
    """Make all four sets; every class has `n_groups` groups with `n_images` images each (BACH: so many images)."""
    makers = {"stex": stex_names, "breakhis": breakhis_names, "bach": bach_names, "crc": crc_names}
    random = np.random.default_rng(0)
    for name, maker in makers.items():
        for number, names in enumerate(maker(n_groups, n_images)):
            for path in names:
                _draw(folder / name / path, number, random, side)
    return {name: folder / name for name in makers}


def stex_names(n_groups, n_images):
    return [
        [f"{kind}.{group:04}.{tile:02}.pnm" for group in range(n_groups) for tile in range(n_images)]
        for kind in ("Fabric", "Misc")
    ]


def breakhis_names(n_groups, n_images):
    names = []
    for side, kinds in _BREAKHIS.items():
        for kind, code in kinds.items():
            stem = f"SOB_{side[0].upper()}_{code}"
            folder = f"BreaKHis_v1/histology_slides/breast/{side}/SOB/{kind}"
            patients = [f"14-{code}{group}" for group in range(n_groups)]
            names.append(
                [
                    f"{folder}/{stem}_{patient}/200X/{stem}-{patient}-200-{number:03}.png"
                    for patient in patients
                    for number in range(n_images)
                ]
            )
    return names


def bach_names(n_groups, n_images):
    kinds = {"Normal": "n", "Benign": "b", "InSitu": "is", "Invasive": "iv"}
    return [[f"{kind}/{code}{number:03}.tif" for number in range(n_groups * n_images)] for kind, code in kinds.items()]


def crc_names(n_groups, n_images):
    return [
        [
            f"{number:02}_{kind}/{slide}{image}A_CRC-Prim-HE-{slide:02}_{image:03}.tif_Row_1_Col_151.tif"
            for slide in range(1, n_groups + 1)
            for image in range(n_images)
        ]
        for number, kind in enumerate(_CRC, start=1)
    ]


def _draw(path, number, random, side):
    """Draw noise whose colour and grain depend on the class."""
    path.parent.mkdir(parents=True, exist_ok=True)
    grain = 1 + number % 4
    noise = random.integers(0, 120, (side // grain + 1, side // grain + 1, 3))
    image = np.kron(noise, np.ones((grain, grain, 1), int))[:side, :side] + 12 * number
    Image.fromarray(image.astype(np.uint8)).save(path)
