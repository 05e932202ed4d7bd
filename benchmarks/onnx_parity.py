"""Whether an exported ONNX file answers as the model does, and how fast.

python benchmarks/onnx_parity.py

Fits eight models of the default architecture (two and five classes; grey, RGB, 16-bit and 6-channel images), exports
each, and compares labels and scores on 1000 new images of the same textures, from 32x32 to 500x500 pixels. Then times
onnxruntime against TextureModel.predict, one thread each, by turns and in processor time. Ends with code 1 if a label
differs or a score differs by more than 1e-4. `--images` and `--epochs` make it smaller or more thorough.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from scipy.ndimage import uniform_filter

from lmfcn import LMFCNClassifier, TextureModel
from lmfcn.export import export_onnx
from lmfcn.export.agreement import compare
from lmfcn.export.exported_files import load_onnx_file

FORMS = {"grey": (1, "uint8"), "RGB": (3, "uint8"), "16-bit": (1, "uint16"), "6-channel": (6, "uint8")}
GRAINS = [(1, 1), (1, 5), (5, 1), (3, 3), (7, 7)]  # of the classes, in pixels
TRAINING_SIZE, TRAINING_IMAGES = 48, 16
SIDES = (32, 500)
LARGEST_DIFFERENCE = 1e-4


def draw(grain: tuple[int, int], size: tuple[int, int], form: str, random: np.random.Generator) -> np.ndarray:
    """Return blurred noise (height, width, channels) of random contrast on a random ground."""
    channels, pixels = FORMS[form]
    noise = np.stack([uniform_filter(random.normal(size=size), grain, mode="wrap") for _ in range(channels)], axis=2)
    image = random.uniform(0.3, 0.7) + random.uniform(0.1, 0.25) * noise / noise.std()
    full_scale = np.iinfo(pixels).max
    return np.rint(image.clip(0, 1) * full_scale).astype(pixels)


def fit(n_classes: int, form: str, epochs: int) -> TextureModel:
    random = np.random.default_rng(n_classes)
    labels = np.arange(TRAINING_IMAGES * n_classes) % n_classes
    images = np.stack([draw(GRAINS[label], (TRAINING_SIZE, TRAINING_SIZE), form, random) for label in labels])
    return LMFCNClassifier(epochs=epochs, random_state=0).fit(images, labels).model_


def new_images(n_images: int, n_classes: int, form: str) -> Iterator[np.ndarray]:
    """Draw batches of one image; the logarithms of the sides are evenly spread, the ends of the range among them."""
    random = np.random.default_rng(1000)
    sides = np.exp(random.uniform(*np.log(SIDES), (n_images, 2))).round().astype(int)
    sides[0], sides[-1] = SIDES
    for number, size in enumerate(sides):
        yield draw(GRAINS[number % n_classes], (int(size[0]), int(size[1])), form, random)[None]


def measure_parity(n_images: int, epochs: int, folder: Path) -> bool:
    print("| model | images | labels that differ | largest difference of scores | answers |\n|---|---|---|---|---|")
    sound, path = True, folder / "model.onnx"
    for n_classes in (2, 5):
        for form in FORMS:
            model = fit(n_classes, form, epochs)
            export_onnx(model, path)
            batches = list(new_images(n_images // (2 * len(FORMS)), n_classes, form))
            try:
                found = compare(model, load_onnx_file(path.read_bytes()), batches, LARGEST_DIFFERENCE)
            except ValueError as error:
                sound = False
                print(f"| {n_classes} classes, {form} | {len(batches)} | {error} | | |", flush=True)
                continue
            numbers = f"0 | {found.largest_difference:.1e} | {found.n_labels} of {n_classes} classes"
            print(f"| {n_classes} classes, {form} | {found.n_images} | {numbers} |", flush=True)
    return sound


def measure_speed(epochs: int, folder: Path) -> None:
    print("\n| images | TextureModel.predict / onnxruntime |\n|---|---|")
    fit_model, path = fit(2, "grey", epochs), folder / "speed.onnx"
    export_onnx(fit_model, path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    for n_images, side in ((1, 64), (32, 64), (1, 256), (1, 500)):
        images = random.integers(0, 256, (n_images, side, side, 1), dtype=np.uint8)
        model_time, file_time = by_turns(
            lambda images=images: fit_model.predict(images), lambda images=images: session.run(None, {"images": images})
        )
        print(f"| {n_images} of {side}x{side} | {model_time / file_time:.2f} |", flush=True)


def by_turns(*functions: Callable[[], object], n_turns: int = 15) -> list[float]:
    """Return the least processor time of each function."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(n_turns):
        for function, found in zip(functions, times, strict=True):
            start = time.process_time()
            function()
            found.append(time.process_time() - start)
    return [min(found) for found in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000, help="in total")
    parser.add_argument("--epochs", type=int, default=2, help="of every fit")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        sound = measure_parity(arguments.images, arguments.epochs, Path(folder))
        measure_speed(arguments.epochs, Path(folder))
    sys.exit(0 if sound else 1)


if __name__ == "__main__":
    main()
