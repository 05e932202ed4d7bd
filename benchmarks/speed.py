"""How close the package comes to what the machine can do, as ratios measured in one run.

Run with `make bench` on an idle machine. Prints a table, writes benchmarks/results/speed.json, and says what fell by
more than 20 % against benchmarks/baseline.json. `--quick` leaves out the largest training set; `--save-baseline` makes
this run the one to compare with.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from lmfcn import LMFCNClassifier, make_gaussians
from lmfcn.baselines.cnn import CNNClassifier
from lmfcn.compute.encode import convolutions_in, encode, has_bfloat16
from lmfcn.method.epoch import Problem, Training
from lmfcn.method.network import TextureFCN
from lmfcn.recipe import Recipe
from plain import plain_epoch, plain_network

HERE = Path(__file__).parent
CPU = torch.device("cpu")
EPOCH = Recipe(passes=1, epochs=1, refit_epochs=0, precision="float32")
LATENT_DIM = 64
GOALS = {
    "encoding / matrix product, 64x64": 0.65,
    "encoding / matrix product, 200x200": 0.65,
    "training step, plain / ours, 64x64": 1.4,
    "epoch, plain / ours, 200 images of 64x64": 5.0,
    "epoch, plain / ours, 2000 images of 32x32": 10.0,
    "import torch / import lmfcn": 5.0,
    "import torch / lmfcn --help": 5.0,
}
Results = dict[str, float]


def best_of(run: Callable[[], object], repeats: int = 5) -> float:
    run()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def best_in_turn(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the best time of each, taken in turn: a shared machine may be slower from one second to the next.

    Each turn starts with a run that is not counted.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            run()
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: min(taken) for name, taken in seconds.items()}


def operations(side: int, channels: int) -> float:
    """Additions and multiplications of one image's convolutions."""
    total, inputs = 0.0, channels
    for outputs in (64, 128, LATENT_DIM):
        total += 2 * 9 * inputs * outputs * side**2
        inputs, side = outputs, (side + 1) // 2
    return total


def drawn(n_images: int, side: int, channels: int = 1) -> tuple[np.ndarray, np.ndarray]:
    images, labels = make_gaussians(n_images // 2, side, random_state=0, channels=channels)
    return images.reshape(n_images, side, side, channels), labels


def encoding(results: Results) -> None:
    """Compare the forward pass with a plain matrix product."""
    matrix = torch.rand(2048, 2048)
    for side, n_images in ((64, 64), (200, 16)):
        images, network = drawn(n_images, side, 3)[0], TextureFCN(3, LATENT_DIM)
        product = 2 * 2048**3 / best_of(lambda: matrix @ matrix)
        speed = operations(side, 3) * n_images / best_of(lambda i=images, n=network: encode(n, i, CPU))
        results[f"encoding / matrix product, {side}x{side}"] = speed / product
        if has_bfloat16(CPU):
            with convolutions_in(bfloat16=True, device=CPU):
                speed = operations(side, 3) * n_images / best_of(lambda i=images, n=network: encode(n, i, CPU))
            results[f"encoding in bfloat16 / matrix product, {side}x{side}"] = speed / product


def training_step(results: Results) -> None:
    """Compare forward, backward and optimiser step on a batch of 32 with the plain loop in NCHW."""
    batch = torch.rand(32, 64, 64, 1).permute(0, 3, 1, 2)

    def stepper(network: torch.nn.Module, batch: torch.Tensor, *, bfloat16: bool = False) -> Callable[[], None]:
        optimizer = torch.optim.AdamW(network.parameters())

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            with convolutions_in(bfloat16=bfloat16, device=CPU):
                latents = network.train()(batch)
            latents.square().mean().backward()
            optimizer.step()

        return step

    runs = {"plain": stepper(plain_network(1, LATENT_DIM), batch.contiguous())}
    runs["ours"] = stepper(TextureFCN(1, LATENT_DIM), batch)
    if has_bfloat16(CPU):
        runs["ours in bfloat16"] = stepper(TextureFCN(1, LATENT_DIM), batch, bfloat16=True)
    seconds = best_in_turn(runs, 10)
    for name in list(runs)[1:]:
        results[f"training step, plain / {name}, 64x64"] = seconds["plain"] / seconds[name]


def our_epoch(images: np.ndarray, labels: np.ndarray, recipe: Recipe = EPOCH) -> Training:
    generator = torch.Generator().manual_seed(0)
    network = TextureFCN(images.shape[3], LATENT_DIM, generator=generator)
    return Training(network, Problem(images, torch.from_numpy(labels)), recipe, generator)


def whole_epoch(results: Results) -> None:
    """Compare encoding, SVM, anchors and one pass over the support vectors with the plain implementation."""
    for n_images, side, turns in ((200, 64, 4), (2000, 32, 2)):
        seconds, moved = epochs_in_turn(n_images, side, turns)
        results[f"epoch, plain / ours, {n_images} images of {side}x{side}"] = seconds["plain"] / seconds["ours"]
        results[f"images back-propagated, plain / ours, {n_images}"] = moved["plain"] / moved["ours"]


def epochs_in_turn(n_images: int, side: int, turns: int) -> tuple[dict[str, float], dict[str, int]]:
    """Return seconds of an epoch, and images that it back-propagated, of the plain implementation and of ours."""
    images, labels = drawn(n_images, side)
    moved: dict[str, int] = {}

    def plain() -> None:
        torch.manual_seed(0)
        network = plain_network(1, LATENT_DIM)
        moved["plain"] = plain_epoch(network, images, labels, torch.optim.AdamW(network.parameters()))

    def ours() -> None:
        moved["ours"] = our_epoch(images, labels).train_epoch(0)[0].n_backpropagated

    return best_in_turn({"plain": plain, "ours": ours}, turns), moved


def growth(results: Results, *, quick: bool) -> None:
    """Measure seconds, shares and peak memory of an epoch, each in a process of its own; last the paper's recipe."""
    sizes = [(250, 64), (1000, 64), (2000, 64), (250, 32), (250, 128), (250, 256)] + ([] if quick else [(10_000, 64)])
    for n_images, side in sizes:
        command = [sys.executable, str(HERE / "speed.py"), "--one-epoch", str(n_images), str(side)]
        told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for name, value in told.items():
            results[f"epoch of {n_images} images of {side}x{side} RGB, {name}"] = value
    told = json.loads(subprocess.run([*command[:3], "400", "128", "--paper"], capture_output=True, check=True).stdout)
    for name in ("milliseconds per image", "peak GB"):
        results[f"epoch of the paper's recipe, 400 images of 128x128 RGB, {name}"] = told[name]


def one_epoch(n_images: int, side: int, *, paper: bool) -> None:
    """Measure one epoch and print what the parent wants to know."""
    images, labels = drawn(n_images, side, 3)
    recipe = replace(Recipe.paper(), epochs=1) if paper else EPOCH
    our_epoch(images[:8], labels[:8], recipe).train_epoch(0)  # imports what the first optimiser step imports
    start = time.perf_counter()
    record, _ = our_epoch(images, labels, recipe).train_epoch(0)
    seconds = time.perf_counter() - start
    told = {
        "milliseconds per image": 1000 * seconds / n_images,
        "share of encoding": record.seconds_encoding / seconds,
        "share of kernel, SVM and anchors": (record.seconds_svm + record.seconds_anchors) / seconds,
        "share of back-propagation": record.seconds_backpropagation / seconds,
        "peak GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }
    print(json.dumps(told))


def prediction(results: Results) -> None:
    """Measure images per second in bulk and the latency of one, beside the CNN of the same size."""
    images, labels = drawn(200, 64)
    ours = LMFCNClassifier(epochs=1, recipe=Recipe(passes=1), random_state=0).fit(images, labels)
    cnn = CNNClassifier(epochs=1, random_state=0).fit(images, labels)
    bulk, one = (best_of(lambda x=x: ours.predict(x)) for x in (images, images[:1]))
    cnn_bulk, cnn_one = (best_of(lambda x=x: cnn.predict(x)) for x in (images, images[:1]))
    results["prediction in bulk, images per second"] = len(images) / bulk
    results["prediction in bulk, CNN / ours"] = cnn_bulk / bulk
    results["prediction of one image, milliseconds"] = 1000 * one
    results["prediction of one image, CNN / ours"] = cnn_one / one


def imports(results: Results) -> None:
    """Measure what a user waits for before anything happens."""

    def seconds(*arguments: str) -> float:
        return best_of(lambda: subprocess.run([sys.executable, *arguments], capture_output=True, check=True), 3)

    bare = seconds("-c", "pass")
    torch_seconds = seconds("-c", "import torch") - bare
    results["import torch / import lmfcn"] = torch_seconds / (seconds("-c", "import lmfcn") - bare)
    results["import torch / lmfcn --help"] = torch_seconds / (seconds("-m", "lmfcn.__main__", "--help") - bare)


def compare(results: Results, baseline: Results) -> list[str]:
    """Return a sentence for every goal that is missed and every ratio that fell by more than 20 %."""
    missed = [f"{name} is {results[name]:.2f}, the goal {goal}" for name, goal in GOALS.items() if results[name] < goal]
    fallen = [
        f"{name} fell from {baseline[name]:.2f} to {results[name]:.2f}"
        for name in baseline
        if " / " in name and name in results and results[name] < 0.8 * baseline[name]
    ]
    return missed + fallen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--save-baseline", action="store_true")
    parser.add_argument("--one-epoch", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--paper", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one_epoch:
        one_epoch(*arguments.one_epoch, paper=arguments.paper)
        return
    results: Results = {}
    for part in (encoding, training_step, whole_epoch, lambda r: growth(r, quick=arguments.quick), prediction, imports):
        before = set(results)
        part(results)
        for name in results:
            if name not in before:
                print(f"{name:75s} {results[name]:9.3f}", flush=True)
    text = json.dumps({name: round(value, 4) for name, value in results.items()}, indent=2) + "\n"
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / "speed.json").write_text(text, encoding="utf-8")
    if arguments.save_baseline:
        (HERE / "baseline.json").write_text(text, encoding="utf-8")
    complaints = compare(results, json.loads((HERE / "baseline.json").read_text(encoding="utf-8")))
    print("\n".join(complaints) if complaints else "All goals are met, and nothing fell by more than 20 %.")


if __name__ == "__main__":
    main()
