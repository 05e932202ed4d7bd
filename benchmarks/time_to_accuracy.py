"""How long LMFCN and the CNN take to the CNN's best validation accuracy, both on the same core in one run.

python benchmarks/time_to_accuracy.py DATA --study benchmarks/study.jsonl

The study tells in which epoch of which run the CNN's validation accuracy was best, and in which epoch LMFCN's first was
as good. The best of a hundred epochs on a hundred images is mostly luck, so the same is told for the CNN's plateau, the
mean of its last twenty epochs: when did each first get there? The study's seconds are worth little where other work
shared the machine, so the seconds of an epoch are measured here: on seed 0 of every task LMFCN's epochs before the
refit epochs, one after the other as they become cheaper, and two epochs of the CNN, which all cost the same. Run it on
a machine that has nothing else to do. A line of JSON per task.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lmfcn import LMFCNClassifier
from lmfcn.baselines.cnn import CNNClassifier
from lmfcn.benchmark.measure import history_fields
from lmfcn.benchmark.runs import Run, read_runs
from lmfcn.benchmark.tables import matched_pairs
from lmfcn.benchmark.tasks import TASKS, SplitData
from lmfcn.recipe import Recipe

OURS, THEIRS = "LMFCN", "CNN-CE"


def best(curve: Sequence[float]) -> float:
    """Return the best validation accuracy of a training."""
    return max(curve)


def plateau(curve: Sequence[float]) -> float:
    """Return the validation accuracy that a training ends at, without picking an epoch: the mean of the last twenty."""
    return float(np.mean(curve[-20:]))


def epochs_to(
    aim: Callable[[Sequence[float]], float], pairs: Sequence[tuple[Run, Run]]
) -> list[tuple[int | None, int]]:
    """Return for every seed the epochs in which LMFCN and the CNN first were as good as the aim of the CNN's curve."""
    found = []
    for ours, theirs in pairs:
        curve = theirs.validation_by_epoch or []
        enough = aim(curve) - 1e-6  # curves are kept with six digits
        reached = [epoch for epoch, score in enumerate(ours.validation_by_epoch or []) if score >= enough]
        found.append((reached[0] if reached else None, int(np.argmax(np.array(curve) >= enough))))
    return found


def seconds_of_epochs(parts: SplitData, choice: dict[str, Any]) -> tuple[list[float], float]:
    """Return the seconds until each of LMFCN's epochs was measured, and those of one epoch of the CNN."""
    recipe = Recipe().for_data(2, len(parts.train[1]), has_validation=True)
    n_epochs = recipe.n_epochs - recipe.n_refit_epochs
    first_phase = LMFCNClassifier(epochs=n_epochs, recipe=Recipe(refit_epochs=0), random_state=0)
    ours = first_phase.fit(*parts.train, validation=parts.validation)
    theirs = CNNClassifier(epochs=2, random_state=0, **choice).fit(*parts.train, validation=parts.validation)
    until = history_fields(theirs)["seconds_by_epoch"]
    return history_fields(ours)["seconds_by_epoch"], (until[-1] - until[0]) / (len(until) - 1)


def measure(task: str, data: Path, runs: Sequence[Run]) -> dict[str, Any] | None:
    """Return what there is to say about a task; None without runs of both methods."""
    pairs = matched_pairs(runs, task, OURS, THEIRS)
    pairs = [pair for pair in pairs if all(run.validation_by_epoch for run in pair)]
    if not pairs:
        return None
    ours, theirs = seconds_of_epochs(TASKS[task](data, 0), pairs[0][1].chosen)
    told: dict[str, Any] = {"task": task, "seeds": len(pairs)}
    for aim in (best, plateau):
        epochs = epochs_to(aim, pairs)
        known = [(mine, his) for mine, his in epochs if mine is not None and mine < len(ours) and his > 0]
        ratios = [ours[mine] / (his * theirs) for mine, his in known]
        told[aim.__name__] = {
            "reached": sum(mine is not None for mine, _ in epochs),
            "epochs_ours": [mine for mine, _ in epochs],
            "epochs_theirs": [his for _, his in epochs],
            "ratios": [round(ratio, 3) for ratio in ratios],
            "median_ratio": round(float(np.median(ratios)), 3) if ratios else None,
        }
    return {**told, "seconds_ours": [round(until, 2) for until in ours], "seconds_per_epoch_theirs": round(theirs, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA", help="the folder that the study was run on")
    parser.add_argument("--study", type=Path, default=Path("benchmarks/study.jsonl"))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs = list(read_runs(options.study).values())
    for task in options.tasks:
        found = measure(task, options.data, runs)
        if found is not None:
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
