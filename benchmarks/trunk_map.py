"""How far maps behind a pretrained network are from the windows cut out, for several surroundings; one thread.

python benchmarks/trunk_map.py

The textures are the photographs brick, grass and gravel of scikit-image. A model learns from their upper halves. The
image to map is a mosaic of squares of the lower halves. Needs the extras `textures` and `pretrained`.
"""

import time

import numpy as np
import torch
from skimage import data

from lmfcn import LMFCNClassifier
from lmfcn.maps import trunk_map
from lmfcn.model import TextureModel

NAMES = ("brick", "grass", "gravel")
HALF, LENGTH = 256, 512  # of each photograph
N_SQUARES, STRIDE = 6, 16
HALOS = (0.0, 0.5, 1.0)


def fitted_model(window: int, n_tiles: int = 16) -> TextureModel:
    """Train on a few tiles of the upper halves."""
    random, tiles = np.random.default_rng(0), []
    for name in NAMES:
        places = random.integers(0, (HALF - window + 1, LENGTH - window + 1), (n_tiles, 2))
        tiles += [getattr(data, name)()[top : top + window, left : left + window] for top, left in places]
    classifier = LMFCNClassifier(network="efficientnet-lite0", epochs=4, random_state=0, device="cpu")
    return classifier.fit(np.stack(tiles), np.repeat(NAMES, n_tiles)).model_


def mosaic() -> tuple[np.ndarray, np.ndarray]:
    """Return squares of the lower halves side by side, and the number of the texture of every square."""
    random = np.random.default_rng(1)
    numbers = np.add.outer(np.arange(N_SQUARES), np.arange(N_SQUARES)) % len(NAMES)
    lefts = random.integers(0, LENGTH - HALF + 1, numbers.shape)
    lower = [getattr(data, name)()[HALF:] for name in NAMES]
    squares = [
        [lower[number][:, left : left + HALF] for number, left in zip(*row, strict=True)]
        for row in zip(numbers, lefts, strict=True)
    ]
    return np.block(squares), numbers


def main(n_windows: int = 512) -> None:
    torch.set_num_threads(1)
    image, numbers = mosaic()
    for window in (64, 128):
        model = fitted_model(window)
        n_places = (len(image) - window) // STRIDE + 1
        places = np.random.default_rng(2).integers(0, n_places, (n_windows, 2))
        first, last = STRIDE * places // HALF, (STRIDE * places + window - 1) // HALF
        pure, truth = (first == last).all(axis=1), numbers[tuple(first.T)]
        tiles = [image[row:, column:][:window, :window] for row, column in STRIDE * places]
        start = time.process_time()
        expected = model.predict_proba(np.stack(tiles))
        seconds = (time.process_time() - start) * n_places**2 / n_windows * 1e6 / image.size
        right = (expected.argmax(axis=1) == truth)[pure].mean()
        print(f"window {window}, cut out: right {right:.3f} of {pure.sum()}, seconds per megapixel {seconds:.1f}")
        for trunk_map.HALO in HALOS:
            start = time.process_time()
            found = model.map(image, window, STRIDE).probabilities[tuple(places.T)]
            seconds = (time.process_time() - start) * 1e6 / image.size
            apart, equal = np.abs(found - expected), found.argmax(axis=1) == expected.argmax(axis=1)
            right = (found.argmax(axis=1) == truth)[pure].mean()
            print(
                f"window {window}, halo {trunk_map.HALO}: difference mean {apart.mean():.3f}, max {apart.max():.2f};"
                f" equal labels {equal.mean():.3f}, inside one texture {equal[pure].mean():.3f}, right {right:.3f};"
                f" seconds per megapixel {seconds:.1f}"
            )


if __name__ == "__main__":
    main()
