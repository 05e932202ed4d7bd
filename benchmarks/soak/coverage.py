"""Prediction sets and calibration of the default model: promised against found, on ten tasks and twenty seeds.

    python benchmarks/soak/coverage.py DATA -o coverage.jsonl

DATA holds the folders lung, neu and usptex; without it only the built-in tasks are measured. Every fit is a line of the
file as soon as it is measured, and none is measured twice: after an interruption the same command goes on. The table at
the end compares the means over the seeds with what was promised.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":  # the folder of this file holds names that other packages have, too
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from lmfcn import LMFCNClassifier, make_gaussians
from lmfcn.benchmark import tasks
from lmfcn.benchmark.tasks import SplitData, Subset
from lmfcn.data.arrays import as_generator
from lmfcn.data.collection import ImageCollection
from lmfcn.predict.evaluation import evaluate_predictions
from soak.rows import Row, row, table

COMMAND = "python benchmarks/soak/coverage.py"
TARGET = 0.9
SLACK = 0.02
"""By which the mean may miss the target, beside chance: the model is fitted on all images after it was calibrated."""
_NORMAL = 1.96


def four_textures(_: Path, seed: int, *, counts: tuple[int, int, int] = (20, 8, 50), size: int = 32) -> SplitData:
    """Draw two similar textures, each in two contrasts: two of four classes are easily confused."""
    random = as_generator(seed)
    return SplitData(*(_four(count, size, random) for count in counts))


def _four(count: int, size: int, random: np.random.Generator) -> Subset:
    images, labels = make_gaussians(2 * count, size, random)
    pale = np.arange(len(labels)) % 2 == 1
    images[pale] = 96 + images[pale] // 4
    return Subset(images, labels + 2 * pale)


def unequal(task: tasks.Task, data: Path, seed: int) -> SplitData:
    """Leave a third of the images in every second class, in all three parts."""
    split = task(data, seed)
    return SplitData(*(_thinned(part) for part in (split.train, split.validation, split.test)))


def _thinned(part: Subset) -> Subset:
    labels = np.asarray(part.labels)
    kept = np.zeros(len(labels), dtype=bool)
    for number, label in enumerate(np.unique(labels)):
        positions = np.flatnonzero(labels == label)
        kept[positions[:: 3 if number % 2 else 1]] = True
    images = part.images.subset(kept) if isinstance(part.images, ImageCollection) else part.images[kept]
    return Subset(images, labels[kept])


BUILT_IN: dict[str, tasks.Task] = {
    "gaussians": partial(tasks.gaussians, size=32, counts=(24, 12, 150)),
    "gaussians, unequal": partial(unequal, partial(tasks.gaussians, size=32, counts=(36, 18, 150))),
    "four textures": four_textures,
    "four textures, unequal": partial(unequal, partial(four_textures, counts=(30, 12, 75))),
    "photographs": tasks.textures,
}
PUBLISHED: dict[str, tasks.Task] = {
    "steel": partial(tasks.neu, n_train=10, size=48),
    "steel, unequal": partial(unequal, partial(tasks.neu, n_train=20, size=48)),
    "lung": partial(tasks.lung, size=48, counts=(40, 20, 150)),
    "lung, three classes": partial(tasks.lung, classes=tasks.LUNG_CLASSES, size=48, counts=(30, 15, 100)),
    "materials": partial(tasks.usptex, n_classes=10, size=48),
}


def measure(task: tasks.Task, data: Path, seed: int, make: Callable[..., Any] = LMFCNClassifier) -> dict[str, Any]:
    """Fit the default model, with the validation images of the split, and measure it on the test images."""
    split = task(data, seed)
    begin = time.process_time()
    classifier = make(random_state=seed).fit(*split.train, validation=tuple(split.validation))
    seconds = time.process_time() - begin
    model, (images, labels) = classifier.model_, split.test
    predicted = model.predict_proba(images)
    numbers = np.searchsorted(model.classes, np.asarray(labels))
    sets = model.sets_of(predicted, TARGET)
    return {
        "n_train": len(split.train.labels) + len(split.validation.labels),
        "n_held_out": len(model.calibration.true_probabilities),
        "n_test": len(numbers),
        "n_classes": len(model.classes),
        "coverage": float(sets[np.arange(len(numbers)), numbers].mean()),
        "size": float(sets.sum(axis=1).mean()),
        "needed_size": needed_size(predicted, numbers),
        "accuracy": float((predicted.argmax(axis=1) == numbers).mean()),
        "calibration_error": evaluate_predictions(model, numbers, predicted).calibration_error,
        "promised_error": model.calibration.error,
        "cpu_seconds": round(seconds, 2),
    }


def needed_size(predicted: np.ndarray, numbers: np.ndarray) -> float:
    """Return the mean size of sets, never empty, by the highest bound with which the true class is in enough of them.

    Examples
    --------
    >>> needed_size(np.array([[0.8, 0.2], [0.6, 0.4]]), np.array([0, 1]))
    1.5
    """
    true = predicted[np.arange(len(numbers)), numbers]
    bound = np.sort(true)[round((1 - TARGET) * len(true))]
    return float(np.maximum(1, (predicted >= bound).sum(axis=1)).mean())


def summarize(name: str, lines: list[dict[str, Any]]) -> list[Row]:
    """Return what was promised and found on a task, over its seeds."""
    n_seeds, found = len(lines), np.array([line["coverage"] for line in lines])
    # Images that were held out are few: even perfect sets differ from fit to fit by this much.
    expected = [TARGET * (1 - TARGET) * (1 / (line["n_held_out"] + 2) + 1 / line["n_test"]) for line in lines]
    half = _NORMAL * math.sqrt(max(float(np.mean(expected)), found.var(ddof=1) if n_seeds > 1 else 0.0) / n_seeds)
    size, needed = (float(np.mean([line[key] for line in lines])) for key in ("size", "needed_size"))
    most = min(2 * needed, (needed + lines[0]["n_classes"]) / 2)
    errors, promised = ([line[key] for line in lines] for key in ("calibration_error", "promised_error"))
    coverage = f"{found.mean():.3f} (± {half:.3f}), {n_seeds} seeds"
    return [
        row(f"{name}: sets hold the class", f"{TARGET:g}", coverage, found.mean() + half >= TARGET - SLACK, COMMAND),
        row(
            f"{name}: classes in a set",
            f"at most {most:.2f}, as {needed:.2f} are needed",
            f"{size:.2f}",
            size <= most,
            COMMAND,
        ),
        row(
            f"{name}: calibration error",
            f"{np.mean(promised):.3f} on held-out images",
            f"{np.mean(errors):.3f}",
            np.mean(errors) <= np.mean(promised) + 0.1,
            COMMAND,
        ),
    ]


def run(seconds: float, seed: int) -> list[Row]:
    """Measure one hard task with as many seeds as there is time for, at least three."""
    lines, end = [], time.monotonic() + seconds
    while len(lines) < 3 or time.monotonic() < end:
        lines.append(measure(BUILT_IN["four textures"], Path(), 1000 * seed + len(lines)))
    return [{**found, "command": "python benchmarks/soak coverage"} for found in summarize("four textures", lines)]


def read(path: Path) -> list[dict[str, Any]]:
    """Return what was measured before; half a line, which a kill leaves, is left out."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return list(_parsed(lines))


def _parsed(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            continue


def main() -> int:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", help="folder with lung, neu and usptex")
    parser.add_argument("-o", "--output", type=Path, default=Path("coverage.jsonl"))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--tasks", nargs="*", help="names of tasks; all by default")
    options = parser.parse_args()
    known = BUILT_IN | (PUBLISHED if options.data else {})
    chosen = {name: known[name] for name in options.tasks or known}
    done = {(line["task"], line["seed"]) for line in read(options.output)}
    for seed in range(options.seeds):  # every task with few seeds first
        for name, task in chosen.items():
            if (name, seed) not in done:
                _append(options.output, {"task": name, "seed": seed, **measure(task, options.data or Path(), seed)})
    found = read(options.output)
    rows = [row for name in chosen for row in summarize(name, [line for line in found if line["task"] == name])]
    print(table(rows))
    return 0 if all(row["ok"] for row in rows) else 1


def _append(path: Path, values: dict[str, Any]) -> None:
    with path.open("ab+") as file:
        file.seek(0, 2)
        if file.tell() > 0:
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(json.dumps(values).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
