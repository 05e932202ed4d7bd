"""Measure "none of these": train without some classes, and see what the model rejects.

python benchmarks/none_of_these.py DATA --output none_of_these.jsonl
python benchmarks/none_of_these.py DATA --output none_of_these.jsonl --table

DATA holds `neu` and `usptex`, a folder per class. In every run some classes are left out of training. Of the known
classes, test images should not be rejected more often than was promised (false alarms); those of the left-out classes
should be rejected (found). Beside the distance ("typicality") stands a threshold on the highest probability that
rejects as many held-out images. Finished runs are not repeated.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from lmfcn import LMFCNClassifier, Recipe
from lmfcn.benchmark.tables import markdown_table
from lmfcn.data.collection import ImageCollection
from lmfcn.data.sources import open_collection

RATES = (0.05, 0.1)
PRETRAINED, SCRATCH = "efficientnet-lite0", "texture-fcn"
# Task: folder, classes at most, left out per run, runs, images per class to learn from and to test on.
TASKS = {
    "neu": ("neu", 6, 1, 6, 40, 40),
    "usptex": ("usptex", 24, 6, 2, 8, 4),
}


def main() -> None:
    """Run what is missing in the output file, or print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--networks", nargs="+", default=[PRETRAINED], choices=[PRETRAINED, SCRATCH])
    parser.add_argument("--refit", nargs="+", default=["yes"], choices=["yes", "no"])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if not options.table:
        for task, run, network, refit in _missing(options):
            row = measure(options.data, task, run, network, refit=refit == "yes")
            with options.output.open("a") as file:
                file.write(json.dumps({"task": task, "run": run, "network": network, "refit": refit, **row}) + "\n")
    print(table(_rows(options.output)))


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _missing(options: argparse.Namespace) -> Iterator[tuple[str, int, str, str]]:
    done = {(row["task"], row["run"], row["network"], row["refit"]) for row in _rows(options.output)}
    for task in options.tasks:
        for network in options.networks:
            for refit in options.refit:
                for run in range(TASKS[task][3]):
                    if (task, run, network, refit) not in done:
                        yield task, run, network, refit


def measure(data: Path, task: str, run: int, network: str, *, refit: bool) -> dict[str, Any]:
    """Return the rates of one run."""
    train, test, known = split(data, task, run)
    if network == SCRATCH:
        train, test = train.resized(64), test.resized(64)
    start = time.process_time()
    classifier = LMFCNClassifier(network=network, recipe=Recipe(refit=refit), random_state=run).fit(train)
    seconds = time.process_time() - start
    probabilities, typicality = classifier.model_.predict_with_typicality(test)
    held_out = classifier.held_out_.probabilities.max(axis=1)
    best = probabilities.max(axis=1)
    found: dict[str, Any] = {"seconds": seconds, "n_held_out": len(held_out), "n_known": int(known.sum())}
    found |= {"auc_typicality": roc_auc_score(known, typicality), "auc_probability": roc_auc_score(known, best)}
    for rate in RATES:
        threshold = np.quantile(held_out, rate, method="lower")
        for name, rejected in (("typicality", typicality <= rate), ("probability", best <= threshold)):
            found[f"{name} {rate}"] = [float(rejected[known].mean()), float(rejected[~known].mean())]
    return found


def split(data: Path, task: str, run: int) -> tuple[ImageCollection, ImageCollection, np.ndarray]:
    """Return training images without the left-out classes, test images of all classes, and which of these are known."""
    folder, most, n_left_out, n_runs, n_train, n_test = TASKS[task]
    images = open_collection(data / folder)
    labels = np.asarray(images.labels)
    classes = np.unique(labels)[:most]
    left_out = classes[run::n_runs][:n_left_out]
    random = np.random.default_rng(run)
    train, test = [], []
    for label in classes:
        order = random.permutation(np.flatnonzero(labels == label))
        train += [] if label in left_out else order[:n_train].tolist()
        test += order[n_train : n_train + n_test].tolist()
    return images.subset(train), images.subset(test), ~np.isin(labels[test], left_out)


def table(rows: list[dict[str, Any]]) -> str:
    """Return means over the runs: false alarms and found images at every promised rate, and areas under the curve."""
    headings = ["task", "network", "refit", "runs", "by"]
    headings += [f"{what}, {rate:.0%}" for rate in RATES for what in ("false alarms", "found")]
    lines = []
    for key in dict.fromkeys((row["task"], row["network"], row["refit"]) for row in rows):
        of_key = [row for row in rows if (row["task"], row["network"], row["refit"]) == key]
        for name in ("typicality", "probability"):
            rates = [np.mean([row[f"{name} {rate}"] for row in of_key], axis=0) for rate in RATES]
            area = np.mean([row[f"auc_{name}"] for row in of_key])
            lines.append(
                [*key, str(len(of_key)), name, *(f"{share:.3f}" for pair in rates for share in pair), f"{area:.3f}"]
            )
    return markdown_table([*headings, "AUC"], lines)


if __name__ == "__main__":
    main()
