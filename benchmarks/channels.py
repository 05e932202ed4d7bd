"""Images with two and four channels: a pretrained network, each channel by itself, beside the start from scratch.

python benchmarks/channels.py DATA [--seeds 0 1 2] [--size 64]

DATA is the folder of the study. Prints a line of JSON per task, seed, number of channels and method. Both methods see
the same images. The channels are

- lung histology: two stains, haematoxylin and eosin (colour deconvolution), or the colours and their gradient;
- steel surfaces: the grey image and its gradient, or the same with both derivatives.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter
from skimage.color import rgb2hed
from sklearn.metrics import balanced_accuracy_score

from lmfcn import LMFCNClassifier
from lmfcn.benchmark.tasks import LUNG_CLASSES, SplitData, Subset, lung, neu

NETWORKS = ("efficientnet-lite0", "texture-fcn")
MOST_TEST_IMAGES = 240
_STAIN_RANGE = 0.25
"""Concentrations of a stain up to this become pixels up to 255."""


def main() -> None:
    """Print a line per run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--size", type=int, default=64)
    options = parser.parse_args()
    for seed in options.seeds:
        for task, data in tasks(options.data, seed, options.size):
            for n_channels in (2, 4):
                for network in NETWORKS:
                    run = {"task": task, "seed": seed, "channels": n_channels, "network": network}
                    print(json.dumps(run | measure(data, n_channels, network, seed)), flush=True)


def tasks(data: Path, seed: int, size: int) -> Iterator[tuple[str, SplitData]]:
    """Go through the tasks: few training images, as where a pretrained network matters."""
    yield "lung", lung(data, seed, size=size, counts=(40, 12, None))
    yield "lung-3", lung(data, seed, classes=LUNG_CLASSES, size=size, counts=(20, 8, None))
    yield "neu-10", neu(data, seed, n_train=10, size=size)


def measure(data: SplitData, n_channels: int, network: str, seed: int) -> dict[str, float]:
    """Return the test balanced accuracy of a fit, and its seconds of a processor."""
    train, validation, test = (
        (with_channels(subset, n_channels), subset.labels) for subset in (data.train, data.validation, _some(data.test))
    )
    start = time.process_time()
    classifier = LMFCNClassifier(network=network, random_state=seed).fit(*train, validation=validation)
    seconds = time.process_time() - start
    accuracy = balanced_accuracy_score(test[1], classifier.predict(test[0]))
    return {"test_balanced_accuracy": round(float(accuracy), 4), "cpu_seconds": round(seconds, 1)}


def _some(subset: Subset) -> Subset:
    rows = np.unique(np.linspace(0, len(subset.labels) - 1, MOST_TEST_IMAGES).astype(int))
    return Subset(subset.images[rows], subset.labels[rows])


def with_channels(subset: Subset, n_channels: int) -> np.ndarray:
    """Return the images (n, h, w, 2 or 4) of a subset."""
    images = np.stack([np.asarray(image) for image in subset.images])
    channels = _of_colours(images, n_channels) if images.shape[-1] == 3 else _of_grey(images, n_channels)
    return np.rint(channels).clip(0, 255).astype(np.uint8)


def _of_colours(images: np.ndarray, n_channels: int) -> np.ndarray:
    if n_channels == 2:
        return rgb2hed(images)[..., :2] * (255 / _STAIN_RANGE)
    rows, columns = _derivatives(images.mean(axis=-1))
    return np.concatenate([images, 4 * np.hypot(rows, columns)[..., None]], axis=-1)


def _of_grey(images: np.ndarray, n_channels: int) -> np.ndarray:
    grey = images.reshape(images.shape[:3]).astype(float)
    rows, columns = _derivatives(grey)
    others = [rows * 4 + 128, columns * 4 + 128] if n_channels == 4 else []
    return np.stack([grey, 4 * np.hypot(rows, columns), *others], axis=-1)


def _derivatives(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the derivatives (n, h, w) of slightly smoothed images, from row to row and from column to column."""
    return (
        gaussian_filter(images, (0, 1, 1), order=(0, 1, 0)),
        gaussian_filter(images, (0, 1, 1), order=(0, 0, 1)),
    )


if __name__ == "__main__":
    main()
