"""How much faster a map is than its windows one by one, as a ratio measured in one run on one thread.

python benchmarks/map.py

Windows one by one are what `predict_proba` does with them cut out, in batches, which is the fastest way without maps.
They are measured on a sample, in turns with the map, by the processor's time, and the agreement of both is checked.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

from lmfcn import LMFCNClassifier, Recipe, make_gaussians
from lmfcn.maps.texture_map import MapGrid
from lmfcn.model import TextureModel

GOAL = 20.0


def fitted_model(size: int) -> TextureModel:
    """Networks of the default size; how well they are trained does not matter here."""
    images, labels = make_gaussians(20, size, random_state=0, means=(128,) * 5, stds=(10, 20, 30, 45, 60))
    return LMFCNClassifier(epochs=1, recipe=Recipe(passes=1), random_state=0, device="cpu").fit(images, labels).model_


def processor_seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def sampled_tiles(image: np.ndarray, grid: MapGrid, n_tiles: int) -> tuple[np.ndarray, np.ndarray]:
    """Return windows at random places, cut out, and their rows and columns."""
    random = np.random.default_rng(1)
    places = np.stack([random.integers(0, grid.rows, n_tiles), random.integers(0, grid.columns, n_tiles)], axis=1)
    tiles = [image[row * grid.stride :, column * grid.stride :][: grid.window, : grid.window] for row, column in places]
    return np.stack(tiles), places


def compare(side: int, window: int, stride: int, n_tiles: int = 256, repeats: int = 3) -> dict[str, float]:
    """Return the ratio of processor times and the largest difference of probabilities."""
    torch.set_num_threads(1)
    model = fitted_model(window)
    image = np.random.default_rng(0).integers(0, 256, (side, side), dtype=np.uint8)
    found = model.map(image, window, stride)
    tiles, places = sampled_tiles(image, found.grid, n_tiles)
    expected = model.predict_proba(tiles)
    n_windows = found.grid.rows * found.grid.columns
    ratios = []
    for _ in range(repeats):
        one_by_one = processor_seconds(lambda: model.predict_proba(tiles)) * n_windows / n_tiles
        ratios.append(one_by_one / processor_seconds(lambda: model.map(image, window, stride)))
    at_places = found.probabilities[places[:, 0], places[:, 1]]
    return {
        "windows": n_windows,
        "times faster": float(np.median(ratios)),
        "same labels": float((at_places.argmax(axis=1) == expected.argmax(axis=1)).mean()),
        "largest difference": float(np.abs(at_places - expected).max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=1024, help="of the image, in pixels")
    side = parser.parse_args().side
    for window, stride in ((64, 4), (64, 16), (128, 16)):
        found = compare(side, window, stride)
        goal = f"  (goal {GOAL:.0f})" if (window, stride) == (64, 4) else ""
        print(f"window {window}, stride {stride}: " + ", ".join(f"{k} {v:.4g}" for k, v in found.items()) + goal)


if __name__ == "__main__":
    main()
