"""How much faster `lmfcn predict` is with two processes than with one: the same files, in turn, in one run.

python benchmarks/many_files.py --images 6000 --side 64 --jobs 2 --repeats 3

Draws noise, predicts it with one process and with N in turn, and checks that both give the same. Prints a line of JSON:
images a second of both, the start of the processes left out, and their ratio (the median of the repeats). Leave the
machine alone meanwhile.
"""

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from lmfcn import LMFCNClassifier, make_gaussians
from lmfcn.compute.resources import WithThreads
from lmfcn.model import TextureModel
from lmfcn.predict.stream import BATCH_SIZE, FilePredictor, stream_predictions


def draw(folder: Path, n_images: int, side: int) -> list[str]:
    random = np.random.default_rng(0)
    paths = [str(folder / f"{number}.png") for number in range(n_images)]
    for path in paths:
        Image.fromarray(random.integers(0, 256, (side, side), dtype=np.uint8)).save(path)
    return paths


def fitted(side: int) -> TextureModel:
    images, labels = make_gaussians(32, side, random_state=0, stds=(10, 60))
    return LMFCNClassifier(epochs=1, random_state=0).fit(images, labels).model_


def images_per_second(model: TextureModel, paths: list[str], jobs: int) -> tuple[float, list[float]]:
    """Return the speed behind the first batch of every process, and the probabilities of one class."""
    rows = stream_predictions(WithThreads(FilePredictor(model), 1), _twice(paths, jobs), jobs=jobs)
    n_start = jobs * BATCH_SIZE
    found = [float(row.probabilities[0]) for row in itertools.islice(rows, n_start)]
    start = time.perf_counter()
    found += [float(row.probabilities[0]) for row in rows]
    return len(paths) / (time.perf_counter() - start), found[n_start:]


def _twice(paths: list[str], jobs: int) -> Iterator[str]:
    """Yield as many paths as the processes begin with, then all."""
    yield from itertools.islice(itertools.cycle(paths), jobs * BATCH_SIZE)
    yield from paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=6000)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    model = fitted(arguments.side)
    with tempfile.TemporaryDirectory() as folder:
        paths = draw(Path(folder), arguments.images, arguments.side)
        speeds: dict[int, list[float]] = {1: [], arguments.jobs: []}
        for _ in range(arguments.repeats):
            answers = {}
            for jobs in speeds:
                speed, answers[jobs] = images_per_second(model, paths, jobs)
                speeds[jobs].append(speed)
            if answers[1] != answers[arguments.jobs]:
                raise SystemExit("One process and several give different answers.")
    ratios = [many / one for one, many in zip(speeds[1], speeds[arguments.jobs], strict=True)]
    medians = {f"images_per_second_{jobs}": round(statistics.median(each), 1) for jobs, each in speeds.items()}
    print(json.dumps(medians | {"ratio": round(statistics.median(ratios), 3), "same": True}))


if __name__ == "__main__":
    main()
