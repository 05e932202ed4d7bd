"""Every method on the same splits of the same images, given the same care: one table.

python benchmarks/methods.py DATA --tasks lung neu gaussians --seeds 0 1 2

DATA holds `neu` (a folder per class) and `lung` (a table groups.csv with path, label and group); Gaussians are drawn.
Learning rate and weight decay of every method that trains are chosen among the same three candidates, by the validation
images of the first seed; the other seeds use that choice. Test images are looked at once per run. Every run is a line
of JSON in --output; runs that are there already are not repeated, so several processes or days can share the work.
With --table the lines are printed as a table and nothing is run.
"""

import argparse
import json
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
from lmfcn.baselines.tuning import Tuned
from lmfcn.data.collections import ImageCollection
from lmfcn.data.sources import open_collection
from lmfcn.data.splits import split

Part = tuple[Any, np.ndarray]
PARTS = ("train", "validation", "test")
OURS = {"LMFCN": LMFCNClassifier, "LMFCN, paper's preset": lambda: LMFCNClassifier(preset="paper")}
ALL = {**OURS, **METHODS}
PATIENCE = {"patience": 15}
SHORT = {"epochs": 30}  # about as many back-propagated images as LMFCN
CHANGES = {"CNN-CE": PATIENCE, "CNN-H": PATIENCE, "CNN multiclass": PATIENCE}
CHANGES |= dict.fromkeys(("contrastive", "proxy-anchor", "proxy-NCA", "ranked-list"), SHORT)
"""What differs from the defaults, to keep the time of the whole table within hours."""


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
    estimator = ALL[method]().set_params(random_state=seed)
    if method in CHANGES:
        estimator.set_params(**CHANGES[method])
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
    return {
        **{
            f"{name}_balanced_accuracy": float(balanced_accuracy_score(labels, fitted.predict(images)))
            for name, (images, labels) in zip(PARTS, parts, strict=True)
        },
        "n_train": len(parts[0][1]),
        "n_test": len(parts[2][1]),
        "best_epoch": getattr(fitted, "best_epoch_", None),
        "epochs": getattr(fitted, "n_iter_", None),
        "parameters": 0 if network is None else sum(weights.numel() for weights in network.parameters()),
        "cpu_seconds": round(seconds, 1),
    }


def done(output: Path) -> dict[tuple[str, str, int], dict[str, Any]]:
    lines = output.read_text(encoding="utf-8").splitlines() if output.exists() else []
    runs = [json.loads(line) for line in lines]
    return {(run["task"], run["method"], run["seed"]): run for run in runs}


def table(output: Path) -> None:
    runs = done(output)
    for task in TASKS:
        print(f"\n{task:34s} train  valid.  test            seeds  best epoch  cpu s  parameters")
        for method in ALL:
            mine = [run for (t, m, _), run in runs.items() if (t, m) == (task, method)]
            if mine:
                print(f"{method:34s} {row(mine)}")


def row(runs: list[dict[str, Any]]) -> str:
    means = {
        name: np.mean([run[f"{name}_balanced_accuracy"] for run in runs]) for name in ("train", "validation", "test")
    }
    spread = np.std([run["test_balanced_accuracy"] for run in runs], ddof=1) if len(runs) > 1 else 0.0
    epochs = [np.mean(run["best_epoch"]) for run in runs if run["best_epoch"] is not None]
    return (
        f"{means['train']:.3f}  {means['validation']:.3f}   {means['test']:.3f} ± {spread:.3f}  {len(runs):5d}"
        f"  {np.mean(epochs) if epochs else 0:10.1f}  {np.mean([run['cpu_seconds'] for run in runs]):5.0f}"
        f"  {int(np.mean([run['parameters'] for run in runs])):10,d}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--methods", nargs="+", choices=ALL, default=list(ALL))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--threads", type=int, help="of one process; 1 if several share the cores")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/methods.jsonl"))
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if arguments.table:
        table(arguments.output)
        return
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    for method in arguments.methods:
        for task in arguments.tasks:
            for seed in arguments.seeds:
                runs = done(arguments.output)
                if (task, method, seed) in runs:
                    continue
                first = runs.get((task, method, arguments.seeds[0]))
                parts = list(TASKS[task](arguments.data, seed))
                for result in measure(method, parts, seed, None if first is None else first["chosen"]):
                    run = {"task": task, "seed": seed, **result}
                    with arguments.output.open("a", encoding="utf-8") as lines:
                        lines.write(json.dumps(run) + "\n")
                    print(f"{task:10s} {run['method']:24s} seed {seed}: {row([run])}", flush=True)


if __name__ == "__main__":
    main()
