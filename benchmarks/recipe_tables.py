"""The tables of docs/recipe.md, from the runs of the study.

python benchmarks/recipe_tables.py --study benchmarks/study.jsonl

Prints them in Markdown: test balanced accuracies, paired differences of LMFCN in points with 95 % intervals, what a fit
costs, and the support vectors of the epochs. A number in brackets says how many seeds there are where it is not five.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lmfcn.benchmark.runs import Run, read_runs
from lmfcn.benchmark.statistics import paired_difference, summarize
from lmfcn.benchmark.tables import markdown_table, matched_pairs, spread
from lmfcn.benchmark.tasks import TASKS

N_SEEDS = 5
METHODS = ("LMFCN", "CNN-CE", "CNN + SVM", "FV-CNN", "GLCM", "LBP", "PFTAS", "random-fcn", "LMFCN, untrained")
OPPONENTS = ("random-fcn", "LMFCN, untrained", "CNN-CE", "CNN + SVM", "FV-CNN", "GLCM", "LBP", "PFTAS")
MISSING = "\N{EN DASH}"


def accuracies(runs: Sequence[Run]) -> str:
    """Return the table of test accuracies: a row for each method."""
    return _table("test", runs, {method: _accuracy(method) for method in METHODS})


def differences(runs: Sequence[Run]) -> str:
    """Return the table of what LMFCN is better by, in points; in bold where the interval excludes zero."""
    return _table("LMFCN minus", runs, {method: _difference(method) for method in OPPONENTS})


def costs(runs: Sequence[Run]) -> str:
    """Return the table of epochs, images back-propagated and seconds of a processor."""
    rows = {"LMFCN: epochs, images back-propagated, seconds": "LMFCN", "CNN-CE, without its tuning": "CNN-CE"}
    return _table("", runs, {title: _cost(method) for title, method in rows.items()})


def support(runs: Sequence[Run]) -> str:
    """Return the table of the support vectors of LMFCN's epochs."""
    rows = {
        "at the start": lambda run: (run.history[0]["n_support"][0], run.n_train),
        "after 8 epochs": lambda run: (run.history[0]["n_support"][-1], run.n_train),
        "after 15 epochs": lambda run: (run.closing_history[0]["n_support"][-1], run.n_train + run.n_validation),
    }
    return _table("", runs, {title: _of_all(count) for title, count in rows.items()})


def _table(title, runs, rows):
    tasks = [task for task in TASKS if any(run.task == task and run.method == "LMFCN" for run in runs)]
    return markdown_table(
        [title, *tasks], [[name, *(entry(runs, task) for task in tasks)] for name, entry in rows.items()]
    )


def _select(runs, task, method):
    return [run for run in runs if (run.task, run.method) == (task, method)]


def _counted(text, n_seeds):
    return text if n_seeds == N_SEEDS else f"{text} ({n_seeds})"


def _accuracy(method):
    def entry(runs, task):
        scores = [run.test_balanced_accuracy for run in _select(runs, task, method)]
        return _counted(spread(summarize(scores)), len(scores)) if scores else MISSING

    return entry


def _difference(method):
    def entry(runs, task):
        pairs = matched_pairs(runs, task, "LMFCN", method)
        if not pairs:
            return MISSING
        ours, theirs = ([100 * run.test_balanced_accuracy for run in side] for side in zip(*pairs, strict=True))
        found = paired_difference(ours, theirs)
        mean = f"**{found.mean:+.1f}**" if found.excludes_zero else f"{found.mean:+.1f}"
        ends = f" ({found.low:+.1f} to {found.high:+.1f})" if len(pairs) > 1 else ""
        return _counted(f"{mean}{ends}".replace("-", "\N{MINUS SIGN}"), len(pairs))

    return entry


def _cost(method):
    def entry(runs, task):
        mine = _select(runs, task, method)
        if not mine:
            return MISSING
        epochs, images, seconds = (
            np.mean([getattr(run, name) for run in mine]) for name in ("epochs", "n_backpropagated", "cpu_seconds")
        )
        return _counted(f"{epochs:.0f}, {images:,.0f}, {seconds:.0f}", len(mine))

    return entry


def _of_all(count):
    def entry(runs, task):
        numbers, totals = zip(*(count(run) for run in _select(runs, task, "LMFCN")), strict=True)
        return f"{np.mean(numbers):.0f} of {np.mean(totals):.0f}"

    return entry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", type=Path, default=Path("benchmarks/study.jsonl"))
    runs = list(read_runs(parser.parse_args().study).values())
    print("\n\n".join(table(runs) for table in (accuracies, differences, costs, support)))


if __name__ == "__main__":
    main()
