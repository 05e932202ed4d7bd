"""The tables of docs/research/pretrained.md: what a frozen pretrained network adds to the start from scratch.

python benchmarks/study.py DATA --methods "LMFCN, pretrained" "EfficientNet-Lite0 + SVM" \
    --tasks lung-224 lung-3-224 lung-groups neu-5-200 neu-10-200 neu-20-200 neu-50-200 usptex-128 usptex-191 textures \
    --output benchmarks/pretrained.jsonl
python benchmarks/pretrained_tables.py

The start from scratch is that of the study (study.jsonl), at 64x64 pixels. The same seed splits the same images alike,
whatever their size, so that differences are paired by seed.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from lmfcn.benchmark.runs import Run, read_runs
from lmfcn.benchmark.statistics import paired_difference
from lmfcn.benchmark.tables import markdown_table

FOLDER = Path(__file__).parent
OURS, USUAL, SCRATCH = "LMFCN, pretrained", "EfficientNet-Lite0 + SVM", "LMFCN"
AT_64_PIXELS = {
    "lung-224": "lung",
    "lung-3-224": "lung-3",
    "neu-10-200": "neu-10",
    "neu-20-200": "neu-20",
    "neu-50-200": "neu-50",
    "usptex-128": "usptex",
    "textures": "textures",
}
TASKS = ("lung-224", "lung-3-224", "lung-groups", "neu-5-200", *list(AT_64_PIXELS)[2:6], "usptex-191", "textures")
Runs = Mapping[int, Run]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pretrained", type=Path, default=FOLDER / "pretrained.jsonl")
    parser.add_argument("--study", type=Path, default=FOLDER / "study.jsonl")
    options = parser.parse_args()
    print(table(list(read_runs(options.pretrained).values()), list(read_runs(options.study).values())))


def table(pretrained: list[Run], study: list[Run]) -> str:
    """Return the accuracies, paired differences in points with 95 % intervals, and seconds of a processor for a fit."""
    headings = ["task", OURS, USUAL, "from scratch", f"minus {USUAL}", "minus from scratch", "seconds of both"]
    return markdown_table(headings, [_row(task, pretrained, study) for task in TASKS])


def _row(task: str, pretrained: list[Run], study: list[Run]) -> list[str]:
    ours, usual = (_by_seed(pretrained, task, method) for method in (OURS, USUAL))
    scratch = _by_seed(study, AT_64_PIXELS.get(task, ""), SCRATCH)
    seconds = " / ".join(_mean(runs, "cpu_seconds", ".0f") for runs in (ours, scratch))
    return [
        task,
        *map(_accuracy, (ours, usual, scratch)),
        _difference(ours, usual),
        _difference(ours, scratch),
        seconds,
    ]


def _by_seed(runs: list[Run], task: str, method: str) -> Runs:
    return {run.seed: run for run in runs if (run.task, run.method) == (task, method)}


def _accuracy(runs: Runs) -> str:
    return _mean(runs, "test_balanced_accuracy", ".3f") + (f" ({len(runs)})" if 0 < len(runs) < 5 else "")


def _mean(runs: Runs, name: str, form: str) -> str:
    return f"{np.mean([getattr(run, name) for run in runs.values()]):{form}}" if runs else "-"


def _difference(ours: Runs, theirs: Runs) -> str:
    seeds = sorted(set(ours) & set(theirs))
    if len(seeds) < 2:
        return "-"
    first, second = ([runs[seed].test_balanced_accuracy for seed in seeds] for runs in (ours, theirs))
    found = paired_difference(100 * np.array(first), 100 * np.array(second))
    mean = f"**{found.mean:+.1f}**" if found.excludes_zero else f"{found.mean:+.1f}"
    return f"{mean} ({found.low:+.1f} to {found.high:+.1f})"


if __name__ == "__main__":
    main()
