"""Which choice of the authors' published program keeps it from learning? One choice changed at a time.

    python benchmarks/authors_program.py --output benchmarks/authors_program.jsonl [--only NAME] [--seeds 0 1 2 3 4]
    python benchmarks/authors_program.py --output benchmarks/authors_program.jsonl --table

On the paper's Gaussian images, drawn smaller: 64x64 pixels, 40 + 40 images each for training, validation and test. A
line of JSON per training; a training whose line is there is not repeated.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import balanced_accuracy_score

from lmfcn import LMFCNClassifier, Recipe
from lmfcn.benchmark.tables import markdown_table
from lmfcn.benchmark.tasks import gaussians

SIZE, COUNTS = 64, (40, 40, 40)
PROGRAM, PAPER = Recipe.authors_program(), Recipe.paper()
REFRESHED, JOINT, ALLOWED = {"batch_statistics": "refreshed"}, {"batch_size": "all"}, {"fill_anchors": False}
VARIANTS = {
    "the program": PROGRAM,
    "statistics refreshed": replace(PROGRAM, **REFRESHED),
    "statistics of the whole batch": replace(PROGRAM, **JOINT),
    "both": replace(PROGRAM, **REFRESHED, **JOINT),
    "only allowed anchors": replace(PROGRAM, **ALLOWED),
    "statistics refreshed, only allowed anchors": replace(PROGRAM, **REFRESHED, **ALLOWED),
    "one step for all terms": replace(PROGRAM, step_per="batch"),
    "squared distances": replace(PROGRAM, distance="squared"),
    "type 2 anchors of equation 6": replace(PROGRAM, correction_class="any"),
    "LMFCN (paper)": PAPER,
    "LMFCN (paper), running averages": replace(PAPER, batch_statistics="running"),
    "LMFCN (paper), image by image": replace(PAPER, batch_size="image"),
    "LMFCN (paper), image by image, running averages": replace(PAPER, batch_size="image", batch_statistics="running"),
    "LMFCN (paper), filled anchors": replace(PAPER, fill_anchors=True),
    "LMFCN (paper), one step per term": replace(PAPER, step_per="term"),
    "LMFCN (paper), distances not squared": replace(PAPER, distance="euclidean"),
    "LMFCN (paper), losses added up": replace(PAPER, anchor_weight=80.0),
}


def train(name: str, seed: int) -> dict[str, Any]:
    """Train one variant on the images of a seed; return what the table and its readers need."""
    data = gaussians(Path(), seed, size=SIZE, counts=COUNTS, kind="paper")
    classifier = LMFCNClassifier(recipe=VARIANTS[name], random_state=seed)
    start = time.process_time()
    classifier.fit(*data.train, validation=data.validation)
    seconds = time.process_time() - start
    history = classifier.history_
    return {
        "name": name,
        "seed": seed,
        "test": float(balanced_accuracy_score(data.test.labels, classifier.predict(data.test.images))),
        "epoch": classifier.best_epoch_,
        "validation": history.column("validation_balanced_accuracy"),
        "n_support": history.column("n_support"),
        "latent_spread": history.column("latent_spread"),
        "cpu_seconds": round(seconds, 1),
    }


def table(lines: list[dict[str, Any]]) -> str:
    """Return the variants in their order, each with its means over the seeds."""
    rows = []
    for name in VARIANTS:
        runs = [line for line in lines if line["name"] == name]
        if runs:
            tests = [run["test"] for run in runs]
            best = np.mean([max(run["validation"]) for run in runs])
            support = [np.mean([run["n_support"][end] for run in runs]) for end in (0, -1)]
            rows.append(
                [
                    name,
                    f"{np.mean(tests):.3f} ± {np.std(tests, ddof=1) if len(tests) > 1 else 0:.3f}",
                    f"{best:.3f}",
                    f"{support[0]:.0f} → {support[1]:.0f}",
                    str(len(runs)),
                ]
            )
    return markdown_table(["variant", "test", "best validation", "support vectors", "seeds"], rows)


def main() -> None:
    """Measure what is missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.output.read_text().splitlines()] if options.output.exists() else []
    if options.table:
        print(table(lines))
        return
    done = {(line["name"], line["seed"]) for line in lines}
    for seed in options.seeds:
        for name in options.only:
            if (name, seed) not in done:
                line = train(name, seed)
                print(name, seed, line["test"], f"{line['cpu_seconds']} s", flush=True)
                with options.output.open("a") as file:
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
