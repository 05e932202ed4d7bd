"""Which moments of feature maps describe an image: means, standard deviations, correlations of mixtures.

    python benchmarks/moments.py DATA --network texture-fcn --tasks lung-224 neu-10-200 --seeds 100 101

The final SVM sees the untrained network, or a frozen one, and nothing is trained. A line of JSON per split and kind of
moments, with the test balanced accuracy at three shrinkages of the whitening and at the one that cross-validation
chooses. At most `--images` test images are used. DATA holds lung, neu and usptex, as for study.py.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from lmfcn import Recipe
from lmfcn.benchmark.tasks import TASKS, SplitData
from lmfcn.compute.encode import encode
from lmfcn.data.training_data import TrainingData, check_training_data
from lmfcn.method.kernel_svm import balanced_accuracy, class_numbers
from lmfcn.model import Networks
from lmfcn.networks.registry import find_network
from lmfcn.training.final_svm import NEVER_HELD_OUT, SHRINKAGES, Mirrored, SVMCandidate, fit_final_svm
from lmfcn.training.fit import make_options, start_of_training

KINDS = {
    "means": {"deviations": False},
    "deviations": {"deviations": True, "correlations": False},
    "correlations": {"correlations": True},
    "chosen": {},
}


def measure(split_data: SplitData, network: str, kind: str, seed: int, n_test: int) -> dict[str, object]:
    """Describe the images of a split with some moments, and return what an SVM makes of them."""
    data = check_training_data(
        split_data.train.images, None, None, tuple(split_data.validation), 0.2, np.random.default_rng(seed)
    )
    recipe = Recipe(**KINDS[kind])
    frozen = find_network(network)
    options = make_options(
        recipe, data, "auto", seed=seed, device="cpu", n_jobs=None, callbacks=(), verbose=False, network=frozen
    )
    begin = time.process_time()
    start = start_of_training(data, options)
    seconds = time.process_time() - begin
    test = np.sort(np.random.default_rng(0).permutation(len(split_data.test.labels))[:n_test])
    images = split_data.test.images[test]
    described = encode(Networks(start.untrained, start.trunk), images, options.device)
    new = described[:, : start.beside.train.shape[1]]
    labels = torch.from_numpy(np.searchsorted(data.classes, np.asarray(split_data.test.labels)[test]))
    scores = {share: score(start.beside, data, recipe, share, new, labels) for share in SHRINKAGES}
    return {
        "moments": start.options(options).recipe.moment_orders,
        "n_features": start.beside.train.shape[1],
        "accuracies": scores,
        "chosen": scores[start.shrinkage],
        "cpu_seconds": round(seconds, 1),
    }


def score(beside, data: TrainingData, recipe: Recipe, share: float, new: torch.Tensor, labels: torch.Tensor) -> float:
    features = beside.of_parts(2)
    numbers = torch.from_numpy(np.concatenate([data.train.numbers, data.validation.numbers]))
    folds = torch.full_like(numbers, NEVER_HELD_OUT)
    mirrored = None
    if beside.mirrored is not None:
        rows = np.arange(len(beside.mirrored)) * len(data.train) // len(beside.mirrored)
        mirrored = Mirrored(torch.from_numpy(rows), beside.mirrored)
    rule = SVMCandidate(recipe.C, whiten=True, shrinkage=share)
    found = fit_final_svm(features, numbers, folds, recipe, [rule], mirrored)
    return round(balanced_accuracy(labels, class_numbers(found.decision.scores(new))), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--network", default="texture-fcn")
    parser.add_argument("--tasks", nargs="+", default=["lung-224", "lung-3-224", "neu-5-200", "neu-10-200"])
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[100, 101, 102])
    parser.add_argument("--images", type=int, default=600)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for task in options.tasks:
        for seed in options.seeds:
            split_data = TASKS[task](options.data, seed)
            for kind in options.kinds:
                found = measure(split_data, options.network, kind, seed, options.images)
                line = {"network": options.network, "task": task, "seed": seed, "kind": kind, **found}
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
