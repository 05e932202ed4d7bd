"""Where the time of an epoch goes, as ratios measured in one run: machines differ, ratios less so.

Run with `make bench`. Prints a table and writes it as JSON.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from lmfcn import make_gaussians
from lmfcn.algorithm.encode import encode
from lmfcn.algorithm.history import Stopwatch
from lmfcn.algorithm.latent_space import survey
from lmfcn.algorithm.network import TextureFCN
from lmfcn.algorithm.settings import Settings
from lmfcn.algorithm.training import Problem, Training

CPU = torch.device("cpu")
SIZE, LATENT_DIM = 64, 64
MULTIPLICATIONS = SIZE**2 * 9 * 64 + (SIZE // 2) ** 2 * 9 * 64 * 128 + (SIZE // 4) ** 2 * 9 * 128 * LATENT_DIM


def best_of(run: Callable[[], object], repeats: int = 3) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def matrix_product_speed() -> float:
    """Operations per second of a plain matrix product: what the machine can do."""
    matrix = torch.rand(2048, 2048)
    return 2 * 2048**3 / best_of(lambda: matrix @ matrix, 5)


def encoding_speed(network: TextureFCN, images: np.ndarray) -> float:
    return 2 * MULTIPLICATIONS * len(images) / best_of(lambda: encode(network, images, CPU))


def epoch_seconds(images: np.ndarray, labels: torch.Tensor, settings: Settings) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    network = TextureFCN(1, LATENT_DIM, generator=generator)
    record, _ = Training(network, Problem(images, labels), settings, generator).train_epoch(0)
    return {
        "n_support": record.n_support,
        "encoding": record.seconds_encoding,
        "svm": record.seconds_svm,
        "anchors": record.seconds_anchors,
        "backpropagation": record.seconds_backpropagation,
    }


def survey_seconds(n_images: int) -> float:
    """Time steps 2 to 4 alone, on drawn latents."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n_images) % 2
    latents = torch.randn(n_images, LATENT_DIM, generator=generator) + 0.3 * labels[:, None]
    return best_of(lambda: survey(latents, labels, Settings(), Stopwatch()), 2)


def main() -> None:
    images, numbers = make_gaussians(100, SIZE, random_state=0)
    images, labels = images[..., None], torch.from_numpy(numbers)
    network = TextureFCN(1, LATENT_DIM)
    encode_one = best_of(lambda: encode(network, images, CPU)) / len(images)
    results: dict[str, object] = {
        "encoding speed / matrix product speed": encoding_speed(network, images) / matrix_product_speed()
    }
    epoch = epoch_seconds(images, labels, Settings(passes=1))
    everyone = epoch_seconds(images, labels, Settings(passes=1, sh_close=1))
    total = sum(epoch[name] for name in ("encoding", "svm", "anchors", "backpropagation"))
    results["share of SVM and anchors in an epoch of 200 images"] = (epoch["svm"] + epoch["anchors"]) / total
    results["support vectors / images in the first epoch"] = epoch["n_support"] / len(images)
    results["back-propagating support vectors / everyone"] = epoch["backpropagation"] / everyone["backpropagation"]
    for n_images in (250, 1000, 4000):
        ratio = survey_seconds(n_images) / (encode_one * n_images)
        results[f"steps 2-4 / encoding, {n_images} images"] = ratio
    for name, ratio in results.items():
        print(f"{name:55s} {ratio:7.3f}")
    path = Path("benchmarks/results/speed.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
