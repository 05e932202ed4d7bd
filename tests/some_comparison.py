"""A made-up comparison with everything that its report can show."""

from pathlib import Path

import numpy as np

from lmfcn.benchmark.comparison import Comparison, Outcome
from lmfcn.benchmark.model_summary import HardImage, LabelledPicture, ModelSummary, Points
from lmfcn.benchmark.runs import Run, append_run, read_runs
from lmfcn.benchmark.tasks import inspect_images
from lmfcn.data.collection import ImageCollection

SCORES = {
    "LMFCN": [0.9, 0.95, 0.92],
    "CNN-CE": [0.8, 0.81, 0.79],
    "CNN + SVM": [0.8, 0.82, 0.8],
    "LBP": [0.6, 0.6, 0.6],
}
CLASSES = ["bark & co", "wood"]
TRUE = [0] * 20 + [1] * 20


def run_of(method, seed, score, **others):
    trained = {}
    if method != "LBP":
        trained = {"epochs": 2, "best_epoch": 1, "validation_by_epoch": [0.5, 0.8, 0.7 + seed / 100]}
        trained["seconds_by_epoch"] = [0.1, 1.0, 12.0 + seed + 100 * (method == "LMFCN")]
    if method == "LMFCN":
        trained |= {"n_support_first": 40, "n_support_kept": 17, "n_support_by_epoch": [40, 17 + seed, 15]}
        trained["n_support_final"] = 31
    predictions = {
        "classes": CLASSES,
        "test_classes": TRUE,
        "predicted_classes": [1] * 5 + TRUE[5:],
        "confidences": [0.9] * 40,
    }
    more = {"machine": {"system": "a & b", "cores": 2, "accelerator": None}}
    more |= {
        "split": str(seed),
        "versions": {"lmfcn": "0.1"},
        "n_validation": 40,
        "settings": {"C": 10, "verbose": True},
    }
    return Run("<cloth>", method, seed, 1.0, 0.9, score, 120, 40, 3.0, **{**more, **predictions, **trained, **others})


RUNS = [run_of(method, seed, score) for method, scores in SCORES.items() for seed, score in enumerate(scores)]


def some_summary(random, n_classes=2, n_hardest=1, side=16, n_images=30):
    def points(n):
        classes = np.arange(n) % n_classes
        return Points(random.normal(size=(n, 2)).astype(np.float32), classes, np.arange(n) % 3 == 0)

    def picture(name):
        return LabelledPicture(random.integers(0, 256, (side, side, 3), dtype=np.uint8), name, 0)

    hardest = [
        HardImage(picture(f"hard {number}"), 1, 0.9, [picture(f"near {place}") for place in range(3)], [0.9, 0.8, 0.7])
        for number in range(n_hardest)
    ]
    classes = CLASSES if n_classes == 2 else [f"class of number {number}" for number in range(n_classes)]
    return ModelSummary(classes, points(n_images), points(n_images), (0.5, 0.25), hardest)


def outcome_of(runs, summary, output, images, labels):
    """Return the outcome of a comparison whose runs are kept in a file, with the summary of the first of LMFCN."""
    for run in runs:
        if summary is not None and (run.method, run.seed) == ("LMFCN", 0):
            run = run_of("LMFCN", 0, run.test_balanced_accuracy, **_predictions(run), model_summary=summary)
        append_run(output, run)
    collection = ImageCollection(images, labels=labels)
    methods, seeds = list(dict.fromkeys(run.method for run in runs)), sorted({run.seed for run in runs})
    reason = {"GLCM": "This needs mahotas."}
    comparison = Comparison(
        "<cloth>", collection, inspect_images(collection, seeds), methods, reason, seeds, Path(output), {}
    )
    return Outcome(comparison, list(read_runs(output).values()), [], "lmfcn compare cloth")


def _predictions(run):
    return {name: getattr(run, name) for name in ("classes", "test_classes", "predicted_classes", "confidences")}


def small_outcome(folder, random):
    images = random.integers(0, 256, (40, 16, 16), dtype=np.uint8)
    images[1] = images[0]
    labels = np.repeat(CLASSES, 20)
    return outcome_of(RUNS, some_summary(random), folder / "runs.jsonl", images, labels)
