"""A mosaic of five textures and its map: python examples/map_mosaic.py FOLDER. Needs the extra `textures`."""

import sys
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.ndimage import distance_transform_edt
from skimage import data

from lmfcn import LMFCNClassifier, Recipe
from lmfcn.maps.run import MapRequest, map_image

NAMES = ["brick", "grass", "gravel", "waves", "checks"]
SIDE, WINDOW = 512, 64
TRAINED_ON = 320  # rows of each texture; the mosaic is made of those below


def textures() -> list[np.ndarray]:
    """Return three photographs and two drawings, each 512x512."""
    random = np.random.default_rng(0)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    waves = 128 + 60 * np.sin(columns / 2.5 + 0.3 * np.sin(rows / 9)) + random.normal(0, 25, (SIDE, SIDE))
    checks = np.kron(random.integers(40, 216, (SIDE // 8, SIDE // 8)), np.ones((8, 8)))
    checks = checks + random.normal(0, 12, (SIDE, SIDE))
    drawn = [np.rint(texture.clip(0, 255)).astype(np.uint8) for texture in (waves, checks)]
    return [data.brick(), data.grass(), data.gravel(), *drawn]


def training_tiles(step: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut tiles out of the upper rows of every texture."""
    places = [
        (top, left) for top in range(0, TRAINED_ON - WINDOW + 1, step) for left in range(0, SIDE - WINDOW + 1, step)
    ]
    tiles = [image[top : top + WINDOW, left : left + WINDOW] for image in textures() for top, left in places]
    return np.stack(tiles), np.repeat(NAMES, len(places))


def mosaic() -> tuple[np.ndarray, np.ndarray]:
    """Put a disc of one texture between quarters of the others; return the image and each pixel's texture."""
    rows, columns = np.mgrid[:384, :384] - 192
    numbers = np.where(rows**2 + columns**2 < 100**2, 4, 2 * (rows >= 0) + (columns >= 0))
    image = np.empty(numbers.shape, dtype=np.uint8)
    for number, texture in enumerate(textures()):
        below = texture[TRAINED_ON:, :384]
        image[numbers == number] = np.concatenate([below, below[::-1]])[numbers == number]
    return image, numbers


def share_right(found: np.ndarray, numbers: np.ndarray) -> float:
    """Return the share of right pixels among those farther than half a window from another texture."""
    distances = [distance_transform_edt(numbers == number) for number in range(len(NAMES))]
    far = np.max(distances, axis=0) > WINDOW / 2
    return float((found == np.array(NAMES)[numbers])[far].mean())


def main(folder: Path, epochs: int = 5, step: int = 64, stride: int = 4) -> float:
    """Train, map the mosaic in memory and through files, and return the share of right pixels."""
    # Described at one scale, images are not reduced, and windows may be as little as 4 pixels apart.
    classifier = LMFCNClassifier(epochs=epochs, recipe=Recipe(scales=1), random_state=0, verbose=True)
    classifier.fit(*training_tiles(step))
    image, numbers = mosaic()
    found = classifier.model_.map(image, window=WINDOW, stride=stride).at_pixels()
    right = share_right(found, numbers)
    print(f"right, farther than {WINDOW // 2} pixels from a border: {right:.3f}")

    classifier.save(folder / "textures.lmfcn")
    Image.fromarray(image).save(folder / "mosaic.png")
    request = MapRequest(folder / "textures.lmfcn", folder / "mosaic.png", folder / "map", WINDOW, stride)
    map_image(request, verbose=True)  # the same as: lmfcn map textures.lmfcn mosaic.png -o map --window 64 --stride 4
    print(f"pictures and tables: {folder / 'map'}")
    return right


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "mosaic")
    target.mkdir(exist_ok=True)
    main(target)
