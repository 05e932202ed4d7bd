"""Both strategies, and untrained networks beside them, on a folder of class folders: accuracy, seconds, size, doubt.

python benchmarks/many_classes.py FOLDER --train 50 --validation 20 --seeds 0 1 2

Images are made grey and 64x64; what is left of every class is the test set, looked at once. A line of JSON per run.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import balanced_accuracy_score

import lmfcn
from lmfcn import LMFCNClassifier, Recipe
from lmfcn.data.collection import ImageCollection
from lmfcn.data.sources import open_collection
from lmfcn.data.splits import Split, split
from lmfcn.training.calibration import expected_calibration_error

UNTRAINED = {"epochs": 1, "recipe": Recipe(passes=1, learning_rate=1e-9, keep_untrained=False)}
VARIANTS = {
    "joint": {"strategy": "joint"},
    "one-vs-all": {"strategy": "one-vs-all"},
    "joint, untrained": {"strategy": "joint", **UNTRAINED},
    "one-vs-all, untrained": {"strategy": "one-vs-all", **UNTRAINED},
}


def measure(name: str, images: ImageCollection, parts: Split, seed: int, n_jobs: int) -> dict[str, object]:
    train, validation, test = (images[part] for part in (parts.train, parts.validation, parts.test))
    start = time.perf_counter()
    classifier = LMFCNClassifier(random_state=seed, n_jobs=n_jobs, **VARIANTS[name])
    classifier.fit(train, validation=validation)
    seconds = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.lmfcn"
        classifier.save(path)
        model, size = lmfcn.load(path), path.stat().st_size
    probabilities = model.predict_proba(test)
    numbers = np.searchsorted(model.classes, test.labels)
    sets = model.predict_set(test, 0.95)
    return {
        "variant": name,
        "seed": seed,
        "test_balanced_accuracy": balanced_accuracy_score(numbers, probabilities.argmax(axis=1)),
        "calibration_error": expected_calibration_error(torch.from_numpy(numbers), torch.from_numpy(probabilities)),
        "coverage_at_0.95": float(sets[np.arange(len(numbers)), numbers].mean()),
        "classes_per_set": float(sets.sum(axis=1).mean()),
        "kept_epoch": classifier.best_epoch_,
        "seconds": round(seconds, 1),
        "model_kb": size // 1000,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--train", type=int, default=50)
    parser.add_argument("--validation", type=int, default=20)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    arguments = parser.parse_args()
    images = open_collection(arguments.folder, color="grey").resized(64)
    for seed in arguments.seeds:
        counts = (arguments.train, arguments.validation, None)
        parts = split(images.labels, counts=counts, groups=images.groups, random_state=seed)
        for name in arguments.variants:
            print(json.dumps(measure(name, images, parts, seed, arguments.jobs)), flush=True)


if __name__ == "__main__":
    main()
