"""How many labels `lmfcn label` needs: in the order in which it asks, and in random order.

    python benchmarks/label.py DATA --cache FOLDER

DATA holds the folders lung, neu and usptex, each with class folders. Features are computed once and kept in the cache.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lmfcn.data.sources import from_table, image_files
from lmfcn.data.splits import split
from lmfcn.label.describe import Describer, Features
from lmfcn.label.learner import fit, judge, predict
from lmfcn.label.space import ask_for, coordinates_of, doubts
from lmfcn.util.progress import item_progress

N_CLASSES = {"usptex": 50}
"""Of a set with many classes, so many are used."""

STEP = 5
GOAL = 0.95
SHOWN = (30, 60, 120)


def load_set(data: Path, name: str, cache: Path, most: int | None) -> tuple[Tensor, np.ndarray, np.ndarray | None]:
    """Return coordinates (n, k), class numbers (n,) and groups (n,) of a set; describe what is not in the cache."""
    folder = data / name
    names = sorted(path.relative_to(folder).as_posix() for path in image_files(folder))
    classes = sorted({entry.split("/")[0] for entry in names})[: N_CLASSES.get(name)]
    names = [entry for entry in names if entry.split("/")[0] in classes]
    if most is not None and len(names) > most:
        names = sorted(np.random.default_rng(0).permutation(names)[:most].tolist())
    features = Features.open(cache / f"{name}.features")
    if features.describer is None:
        features.describer = Describer.for_files([folder / entry for entry in names])
    missing = features.missing(folder, names)
    with item_progress(f"Describing {name}", len(missing), visible=bool(missing)) as advance:
        for start in range(0, len(missing), features.describer.batch_size):
            for _ in features.add(folder, missing[start : start + features.describer.batch_size]):
                advance()
    features.save()
    numbers = np.array([classes.index(entry.split("/")[0]) for entry in names])
    return coordinates_of(features.matrix(names)), numbers, groups_of(folder, names)


def groups_of(folder: Path, names: list[str]) -> np.ndarray | None:
    """Return the groups in `groups.csv`, if there is one."""
    if not (folder / "groups.csv").exists():
        return None
    table = from_table(folder / "groups.csv")
    known = dict(zip(table.paths, np.asarray(table.groups).tolist(), strict=True))
    return np.array([known[str(folder / entry)] for entry in names])


def balanced(numbers: np.ndarray, predicted: np.ndarray) -> float:
    """Return the mean recall of the classes."""
    return float(np.mean([(predicted[numbers == number] == number).mean() for number in np.unique(numbers)]))


def predictions(coordinates: Tensor, known: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """Return probabilities of all images after learning from the known ones, and the class numbers of the columns."""
    classes, own = np.unique(numbers[known], return_inverse=True)
    if len(classes) < 2:
        return None, classes
    return predict(fit(coordinates, known, own), coordinates, None), classes


def orders(
    coordinates: Tensor, numbers: np.ndarray, pool: np.ndarray, random: np.random.Generator | None
) -> Iterator[tuple[np.ndarray, np.ndarray | None, np.ndarray]]:
    """Yield the known images, a few more each time, with what they predict: in random order, or as the page asks."""
    known, predicted, classes = np.array([], dtype=int), None, np.array([], dtype=int)
    shuffled = None if random is None else random.permutation(pool)
    while len(known) < len(pool):
        if shuffled is not None:
            known = shuffled[: len(known) + STEP]
        else:
            free = np.setdiff1d(pool, known)
            own = np.unique(numbers[known], return_inverse=True)[1]
            doubt = np.ones(len(numbers)) if predicted is None else doubts(predicted, np.bincount(own))
            known = np.concatenate([known, ask_for(coordinates, free, known, doubt, STEP)])
        predicted, classes = predictions(coordinates, known, numbers)
        yield known, predicted, classes


def labels_needed(coordinates: Tensor, numbers: np.ndarray, groups: np.ndarray | None, seed: int) -> dict[str, float]:
    """Return the labels that each order needs for a share `GOAL` of the accuracy that all labels of the pool give."""
    parts = split(numbers, fractions=(0.5, 0.0, 0.5), groups=groups, random_state=seed)
    predicted, classes = predictions(coordinates, parts.train, numbers)
    final = balanced(numbers[parts.test], classes[predicted[parts.test].argmax(axis=1)])
    found = {"final": final, "pool": len(parts.train)}
    for name, random in (("asked", None), ("random", np.random.default_rng(seed))):
        for known, predicted, classes in orders(coordinates, numbers, parts.train, random):
            if predicted is None:
                continue
            accuracy = balanced(numbers[parts.test], classes[predicted[parts.test].argmax(axis=1)])
            if accuracy >= GOAL * final:
                found[name] = len(known)
                break
    return found


def accuracy_on_the_rest(coordinates: Tensor, numbers: np.ndarray) -> Iterator[dict[str, float | None]]:
    """Yield the balanced accuracy on the images that are left after some numbers of labels, and what the page says."""
    for known, predicted, classes in orders(coordinates, numbers, np.arange(len(numbers)), None):
        if len(known) in SHOWN:
            rest = np.setdiff1d(np.arange(len(numbers)), known)
            on_rest = balanced(numbers[rest], classes[predicted[rest].argmax(axis=1)])
            own = np.unique(numbers[known], return_inverse=True)[1]
            found: dict[str, float | None] = {"labels": len(known), "classes": len(classes), "rest": round(on_rest, 4)}
            if (judgement := judge(coordinates, known, own)) is not None:
                said = predict(fit(coordinates, known, own), coordinates[torch.from_numpy(rest)], judgement)
                found["cross_validated"] = round(judgement.accuracy.value, 4)
                found["expected"] = round(float(said.max(axis=1).mean()), 4)
            yield found
        if len(known) >= max(SHOWN):
            return


def seconds_to_learn(coordinates: Tensor, numbers: np.ndarray) -> Iterator[dict[str, float]]:
    """Yield the processor time from a label to new suggestions, and that of the cross-validation behind it."""
    shuffled = np.random.default_rng(0).permutation(len(numbers))
    for n_labels in (60, 300, len(numbers) - 100):
        known, start = shuffled[:n_labels], time.process_time()
        own = np.unique(numbers[known], return_inverse=True)[1]
        predicted = predict(fit(coordinates, known, own), coordinates, None)
        ask_for(coordinates, shuffled[n_labels:], known, doubts(predicted, np.bincount(own)), 40)
        learnt = time.process_time()
        judge(coordinates, known, own)
        judged = time.process_time()
        yield {"labels": n_labels, "learn": round(learnt - start, 3), "cross_validate": round(judged - learnt, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=["lung", "neu", "usptex"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--most", type=int, default=600, help="images of a set in the comparison of orders")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.cache.mkdir(parents=True, exist_ok=True)
    for name in arguments.sets:
        loaded = load_set(arguments.data, name, arguments.cache, arguments.most)
        for seed in range(arguments.seeds):
            print(json.dumps({"set": name, "seed": seed, **labels_needed(*loaded, seed)}), flush=True)
        coordinates, numbers, _ = load_set(
            arguments.data, name, arguments.cache, None if name == "neu" else arguments.most
        )
        for found in accuracy_on_the_rest(coordinates, numbers):
            print(json.dumps({"set": name, "images": len(numbers), **found}), flush=True)
        for found in seconds_to_learn(coordinates, numbers):
            print(json.dumps({"set": name, "images": len(numbers), "seconds": found}), flush=True)


if __name__ == "__main__":
    main()
