"""Every method on the same splits of the same images, given the same care: one table.

python benchmarks/methods.py DATA --tasks lung neu gaussians --seeds 0 1 2

DATA holds `neu` (a folder per class) and `lung` (a table groups.csv with path, label and group); Gaussians are drawn.
Learning rate and weight decay of every method that trains are chosen among the same three candidates by the validation
images of seed 0, which therefore has to come first; the other seeds use that choice. (Some of those validation images
are test images of other seeds; with one choice among three, for every method alike, that is tolerable.) Test images are
looked at once per run. Every run is a line of JSON in --output; runs that are there already are not repeated, so
several processes or days can share the work.
With --table the lines are printed as a table and nothing is run.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import balanced_accuracy_score

from lmfcn import LMFCNClassifier, make_gaussians
from lmfcn.baselines import METHODS
from lmfcn.baselines.cnn import CNNClassifier
from lmfcn.baselines.fisher import FisherSVC
from lmfcn.baselines.network_svm import CNNSVC
from lmfcn.baselines.network_training import Criterion, TrainedNetwork
from lmfcn.baselines.tuning import Tuned, validation_score
from lmfcn.data.collections import ImageCollection
from lmfcn.data.sources import open_collection
from lmfcn.data.splits import split

Part = tuple[Any, np.ndarray]
OURS = {"LMFCN": LMFCNClassifier, "LMFCN, paper's preset": lambda: LMFCNClassifier(preset="paper")}
ALL = {**OURS, **METHODS}
WITHOUT_WEIGHTS = ("ResNet18", "InceptionV3")
TUNING_SEED = 0
CHANGES: dict[str, dict[str, Any]] = {
    **{method: {"patience": 15} for method in ("CNN-CE", "CNN-H", "CNN multiclass", "CNN + SVM", "FV-CNN")},
    # About as many back-propagated images as LMFCN.
    **{method: {"epochs": 30} for method in ("contrastive", "proxy-anchor", "proxy-NCA", "ranked-list")},
}
"""What differs from the defaults, to keep the time of the whole table within hours."""
UNTUNED = ("LMFCN, paper's preset",)  # it has an optimiser and rates of its own


def gaussians(_: Path, seed: int) -> Iterator[Part]:
    random = np.random.default_rng(seed)
    for count in (60, 60, 150):
        yield make_gaussians(count, 64, random)


def lung(data: Path, seed: int) -> Iterator[Part]:
    images = open_collection(data / "lung" / "groups.csv")
    images = images[np.flatnonzero(np.isin(images.labels, ["lung_aca", "lung_scc"]))].resized(64)
    return _divided(images, (150, 50, None), seed)


def neu(data: Path, seed: int) -> Iterator[Part]:
    return _divided(open_collection(data / "neu", color="grey").resized(64), (20, 20, None), seed)


def _divided(images: ImageCollection, counts: tuple[int | None, ...], seed: int) -> Iterator[Part]:
    parts = split(images.labels, counts=counts, groups=images.groups, random_state=seed)
    for part in (parts.train, parts.validation, parts.test):
        yield images[part], images[part].labels


TASKS = {"lung": lung, "neu": neu, "gaussians": gaussians}


def on_top_of(cnn: CNNClassifier, method: type[CNNSVC]) -> CNNSVC:
    """Return CNN + SVM or FV-CNN on a trained CNN: with the same seed it would only be trained again."""
    estimator = method(random_state=cnn.random_state)
    trained = TrainedNetwork(cnn.network_[0], Criterion(), cnn.history_, cnn.best_epoch_)
    estimator._train = lambda *_: trained
    return estimator


def measure(method: str, parts: list[Part], seed: int, choice: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield the result of a method; CNN-CE also yields those of the methods that build on its network."""
    estimator = ALL[method]().set_params(random_state=seed, **CHANGES.get(method, {}))
    if method in UNTUNED:
        choice = {}
    tuned = Tuned(estimator, candidates=None if choice is None else [choice])
    start = time.process_time()
    tuned.fit(*parts[0], validation=parts[1])
    winner = next(one for one in tuned.tried_ if one.parameters == tuned.best_params_)
    tuning = {
        "cpu_seconds_with_tuning": round(time.process_time() - start, 1),
        "chosen": tuned.best_params_,
        "tried": [[one.parameters, one.validation_balanced_accuracy] for one in tuned.tried_],
    }
    cnn = tuned.best_estimator_
    yield {"method": method, **describe(cnn, parts, winner.seconds), **tuning}
    if method == "CNN-CE":
        for name, kind in {"CNN + SVM": CNNSVC, "FV-CNN": FisherSVC}.items():
            start = time.process_time()
            fitted = on_top_of(cnn, kind).fit(*parts[0], validation=parts[1])
            seconds = winner.seconds + time.process_time() - start
            yield {"method": name, **describe(fitted, parts, seconds), **tuning}


def describe(fitted: Any, parts: list[Part], seconds: float) -> dict[str, Any]:
    network = getattr(fitted, "model_", getattr(fitted, "network_", None))
    train, test = (float(balanced_accuracy_score(y, fitted.predict(images))) for images, y in (parts[0], parts[2]))
    # Not by predicting the validation images: the last SVM of most methods has learnt from them.
    held_out = validation_score(fitted)
    return {
        "train_balanced_accuracy": train,
        "validation_balanced_accuracy": getattr(fitted, "held_out_score_", None) if held_out is None else held_out,
        "test_balanced_accuracy": test,
        "n_train": len(parts[0][1]),
        "n_test": len(parts[2][1]),
        "best_epoch": getattr(fitted, "best_epoch_", None),
        "epochs": getattr(fitted, "n_iter_", None),
        "parameters": 0 if network is None else sum(weights.numel() for weights in network.parameters()),
        "cpu_seconds": round(seconds, 1),
    }


def done(output: Path) -> dict[tuple[str, str, int], dict[str, Any]]:
    runs = {}
    for number, line in enumerate(output.read_text(encoding="utf-8").splitlines() if output.exists() else [], start=1):
        try:
            run = json.loads(line)
        except json.JSONDecodeError:
            print(f"{output}, line {number}: not a whole JSON object, left out", file=sys.stderr)
            continue
        runs[run["task"], run["method"], run["seed"]] = run
    return runs


def table(output: Path) -> None:
    runs = done(output)
    for task in TASKS:
        print(f"\n| {task} | train | validation | test | seeds | kept of epochs | cpu seconds | weights | chosen |")
        print("|---|---|---|---|---|---|---|---|---|")
        for method in ALL:
            mine = [run for (t, m, _), run in runs.items() if (t, m) == (task, method)]
            if mine:
                print(f"| {method} | {row(mine)} |")


def row(runs: list[dict[str, Any]]) -> str:
    def mean(name: str, form: str = ".3f") -> str:
        values = [np.mean(run[name]) for run in runs if run[name] is not None]
        return format(np.mean(values), form) if values else "-"

    spread = np.std([run["test_balanced_accuracy"] for run in runs], ddof=1) if len(runs) > 1 else 0.0
    chosen = ", ".join(f"{name} {value}" for name, value in runs[0]["chosen"].items()) or "-"
    return (
        f"{mean('train_balanced_accuracy')} | {mean('validation_balanced_accuracy')}"
        f" | {mean('test_balanced_accuracy')} ± {spread:.3f} | {len(runs)}"
        f" | {mean('best_epoch', '.0f')} of {mean('epochs', '.0f')} | {mean('cpu_seconds', '.0f')}"
        f" | {mean('parameters', ',.0f')} | {chosen}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    able = [method for method in ALL if method not in WITHOUT_WEIGHTS]
    parser.add_argument("--methods", nargs="+", choices=ALL, default=able, help="all but those that need weights")
    parser.add_argument("--weights", type=Path, help="file for ResNet18 or InceptionV3, if one of them is asked for")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--threads", type=int, help="of one process; 1 if several share the cores")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "methods.jsonl")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if arguments.table:
        table(arguments.output)
        return
    if arguments.weights:
        CHANGES.update({method: {"weights": arguments.weights} for method in WITHOUT_WEIGHTS})
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    for method in arguments.methods:
        for task in arguments.tasks:
            for seed in arguments.seeds:
                runs = done(arguments.output)
                if (task, method, seed) in runs:
                    continue
                tuned = None if seed == TUNING_SEED else runs[task, method, TUNING_SEED]["chosen"]
                parts = list(TASKS[task](arguments.data, seed))
                for result in measure(method, parts, seed, tuned):
                    run = {"task": task, "seed": seed, **result}
                    with arguments.output.open("a", encoding="utf-8") as lines:
                        lines.write(json.dumps(run) + "\n")
                    print(f"{task:10s} {run['method']:24s} seed {seed} | {row([run])}", flush=True)


if __name__ == "__main__":
    main()
