"""Test accuracy on striped Gaussians over several seeds: new images and new weights for each.

60 training and 60 validation images per class choose everything; 150 fresh ones per class are looked at once.
Run with `make accuracy`, or with --seeds and --methods for a part of it. Every run is a line of JSON. Ends with code 1
if a mean is below its goal.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.metrics import balanced_accuracy_score

from lmfcn import LMFCNClassifier, __version__, make_gaussians
from lmfcn.baselines.cnn import CNNClassifier
from lmfcn.benchmark.measure import history_fields

METHODS = {
    "LMFCN": lambda: LMFCNClassifier(),
    "LMFCN-16": lambda: LMFCNClassifier(latent_dim=16),
    "LMFCN-2": lambda: LMFCNClassifier(latent_dim=2),
    "LMFCN-16 paper": lambda: LMFCNClassifier(recipe="paper"),
    # Thirty epochs of a CNN back-propagate about as many images as fifteen of LMFCN.
    "CNN": lambda: CNNClassifier(epochs=30),
    "CNN-16": lambda: CNNClassifier(epochs=30, latent_dim=16),
}
GOALS = {"LMFCN": 0.97, "LMFCN-16": 0.95}


def measure(name: str, seed: int) -> dict[str, object]:
    random = np.random.default_rng(seed)
    train, validation, test = (make_gaussians(count, 64, random) for count in (60, 60, 150))
    model = METHODS[name]().set_params(random_state=seed)
    start = time.perf_counter()
    model.fit(*train, validation=validation)
    seconds = time.perf_counter() - start
    kept = model.history_[model.best_epoch_]
    support = [getattr(record, "n_support", None) for record in (model.history_[0], kept, model.history_[-1])]
    return {
        "method": name,
        "seed": seed,
        "version": __version__,
        "test_balanced_accuracy": float(balanced_accuracy_score(test[1], model.predict(test[0]))),
        "validation_balanced_accuracy": kept.validation_balanced_accuracy,
        "kept_epoch": model.best_epoch_,
        "n_support_first_kept_last": support,
        "n_backpropagated": history_fields(model)["n_backpropagated"],
        "seconds": round(seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/accuracy.jsonl"))
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    missed = []
    with arguments.output.open("w", encoding="utf-8") as lines:
        for name in arguments.methods:
            runs = []
            for seed in range(arguments.seeds):
                runs.append(measure(name, seed))
                lines.write(json.dumps(runs[-1]) + "\n")
                lines.flush()
            print_row(name, runs)
            mean = np.mean([run["test_balanced_accuracy"] for run in runs])
            if mean < GOALS.get(name, 0.0):
                missed.append(f"{name}: {mean:.3f} is below the goal of {GOALS[name]}")
    if missed:
        sys.exit("\n".join(missed))


def print_row(name: str, runs: list[dict]) -> None:
    scores = np.array([run["test_balanced_accuracy"] for run in runs])
    epochs = np.mean([run["kept_epoch"] for run in runs])
    seconds = np.mean([run["seconds"] for run in runs])
    support = " ".join("/".join(map(str, run["n_support_first_kept_last"])) for run in runs)
    print(
        f"{name:15s} test {scores.mean():.3f} ± {scores.std(ddof=1) if len(runs) > 1 else 0:.3f}"
        f"  {np.round(scores, 3).tolist()}  kept epoch {epochs:.1f}  {seconds:.0f} s"
        f"  support vectors first/kept/last {support}",
        flush=True,
    )


if __name__ == "__main__":
    main()
