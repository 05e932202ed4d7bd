"""Reproductions with made-up runs, for tests of what is written about them."""

import numpy as np

from lmfcn.benchmark.paper.reproduced_tables import Outcome
from lmfcn.benchmark.paper.reproduction import Request, prepare
from lmfcn.benchmark.runs import Run, append_run

N_CLASSES = {"4 classes": 4, "8 classes": 8}
EPOCHS = {"CNN-CE": 100, "CNN-H": 100, "CNN multiclass": 400}


def outcome_of(folder, profile="quick", n_test=60, **options):
    """Return the outcome of tables 2 and 3, or what is asked for, all of whose runs are there."""
    request = Request(
        **{"what": ["table2", "table3"], "repeats": 2, "size": 16, **options, "profile": profile}, output=folder
    )
    reproduction = prepare(request)
    digests = {task: study.digest for study in reproduction.studies() for task in study.tasks}
    random = np.random.default_rng(0)
    for key in reproduction.keys:
        more = {"split": "f00d", "versions": {"lmfcn": "0.1"}, "machine": {"cores": 2}, "settings": {"C<": 10}}
        score = 0.99 if key.method == "CNN-H" else 0.9
        fields = {**trained(key, random), **predictions(key, n_test, random)}
        run = Run(*key, 1.0, 0.9, score, 24, 8, 3.0, digest=digests[key.task](key), **more, **fields)
        append_run(reproduction.output, run)
    return Outcome(reproduction, ["figure1", "figure3"], ["Gaussian, LBP: <no>."], "lmfcn reproduce table2 & more")


def trained(key, random):
    """Return the course of a training that never settles, which is the longest to draw."""
    if "LMFCN" not in key.method and "CNN" not in key.method:
        return {}
    n_epochs = EPOCHS.get(key.method, 15)
    course = {
        "epochs": n_epochs,
        "best_epoch": 1,
        "validation_by_epoch": random.random(n_epochs + 1).tolist(),
        "seconds_by_epoch": (np.arange(n_epochs + 1) + 0.1 + key.seed).tolist(),
    }
    support = random.integers(5, 40, n_epochs + 1).tolist()
    return {**course, "n_support_by_epoch": support} if "LMFCN" in key.method else course


def predictions(key, n_test, random):
    """Return answers to so many test images, as of a method that guesses; none as of older versions."""
    if n_test == 0:
        return {}
    n_classes = next((n for name, n in N_CLASSES.items() if name in key.task), 2)
    return {
        "classes": [f"class of number {number}" for number in range(n_classes)],
        "test_classes": (np.arange(n_test) % n_classes).tolist(),
        "predicted_classes": random.integers(0, n_classes, n_test).tolist(),
        "confidences": random.random(n_test).round(4).tolist(),
    }
