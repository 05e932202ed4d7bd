"""Results of runs as Markdown tables."""

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from lmfcn.benchmark.runs import Run
from lmfcn.benchmark.statistics import Difference, Summary, paired_difference, summarize

NOTHING = "-"
HEADINGS = (
    "train",
    "validation",
    "test",
    "seeds",
    "selected of epochs",
    "cpu seconds",
    "images back-propagated",
    "support vectors, first → selected epoch",
    "support vectors, final SVM",
    "weights",
    "chosen",
)


def all_tables(runs: Collection[Run], tasks: Sequence[str], methods: Sequence[str]) -> str:
    """Return one table for each task that has runs, then the overview."""
    chosen = [run for run in runs if run.task in tasks and run.method in methods]
    tables = [task_table(chosen, task, methods) for task in tasks if any(run.task == task for run in chosen)]
    return "\n\n".join([*tables, overview_table(chosen, tasks, methods)])


def task_table(runs: Collection[Run], task: str, methods: Sequence[str]) -> str:
    """Return the table of one task: a row for each method, means over its seeds."""
    rows = [[method, *row_entries(found)] for method in methods if (found := _select(runs, task, method))]
    return markdown_table([task, *HEADINGS], rows)


def row_entries(runs: Sequence[Run]) -> list[str]:
    """Return the entries under `HEADINGS` for the runs of one method on one task."""
    first = runs[0]
    return [
        _mean(runs, "train_balanced_accuracy"),
        _mean(runs, "validation_balanced_accuracy"),
        spread(summarize([run.test_balanced_accuracy for run in runs])),
        str(len(runs)),
        NOTHING if first.epochs is None else f"{_mean(runs, 'best_epoch', '.0f')} of {_mean(runs, 'epochs', '.0f')}",
        _mean(runs, "cpu_seconds", ".0f"),
        _mean(runs, "n_backpropagated", ",.0f"),
        NOTHING
        if first.n_support_first is None
        else f"{_mean(runs, 'n_support_first', '.0f')} → {_mean(runs, 'n_support_kept', '.0f')}",
        _mean(runs, "n_support_final", ".0f"),
        _mean(runs, "n_weights", ",.0f"),
        ", ".join(f"{name} {value}" for name, value in first.chosen.items()) or NOTHING,
    ]


def overview_table(runs: Collection[Run], tasks: Sequence[str], methods: Sequence[str]) -> str:
    """Return test accuracies of all methods on all tasks, the best of each task in bold."""
    tasks = [task for task in tasks if any(run.task == task for run in runs)]
    columns = [_column(runs, task, methods) for task in tasks]
    rows = [[method, *(column[method] for column in columns)] for method in methods]
    return markdown_table(
        ["test", *tasks], [entries for entries in rows if any(entry != NOTHING for entry in entries[1:])]
    )


def difference_table(
    runs: Collection[Run], tasks: Sequence[str], ours: str, theirs: str, *, corrected: bool = False
) -> str:
    """Return paired differences of test accuracies with 95 % intervals, and a comparison of training times.

    Differences whose interval excludes zero are in bold. The last column is the ratio of the seconds of training until
    the validation accuracy reached the best one of `theirs`: the median over the seeds where `ours` reached it. With
    `corrected`, intervals are those of the corrected resampled t-test, which are too wide for a task whose images are
    drawn anew for every seed.
    """
    rows = []
    for task in tasks:
        pairs = matched_pairs(runs, task, ours, theirs)
        if pairs:
            rows.append([task, *_difference(pairs, corrected=corrected), str(len(pairs)), _speed(pairs)])
    headings = [
        f"{ours} minus {theirs}",
        "difference",
        "95 % interval",
        "seeds",
        "seconds to their best, ours / theirs",
    ]
    return markdown_table(headings, rows)


def matched_pairs(runs: Collection[Run], task: str, ours: str, theirs: str) -> list[tuple[Run, Run]]:
    """Return pairs of runs of two methods on the same splits; seeds whose splits are known to differ are left out."""
    other = {run.seed: run for run in _select(runs, task, theirs)}
    pairs = [(run, other[run.seed]) for run in _select(runs, task, ours) if run.seed in other]
    return [(one, other) for one, other in pairs if None in (one.split, other.split) or one.split == other.split]


def _difference(pairs: Sequence[tuple[Run, Run]], *, corrected: bool) -> list[str]:
    scores = [[run.test_balanced_accuracy for run in side] for side in zip(*pairs, strict=True)]
    ratio = np.mean([run.n_test / (run.n_train + (run.n_validation or 0)) for run, _ in pairs])
    found = paired_difference(scores[0], scores[1], test_to_train=float(ratio) if corrected else 0.0)
    return [f"**{found.mean:+.3f}**" if found.excludes_zero else f"{found.mean:+.3f}", interval(found)]


def interval(found: Difference) -> str:
    """Return the two ends of the interval as text, or `NOTHING` where they are infinite."""
    return f"{found.low:+.3f} to {found.high:+.3f}" if math.isfinite(found.low) else NOTHING


def _speed(pairs: Sequence[tuple[Run, Run]]) -> str:
    known = [pair for pair in pairs if all(run.validation_by_epoch for run in pair)]
    if not known:
        return NOTHING
    times = [
        (one.seconds_to_reach(max(other.validation_by_epoch or [])), other.seconds_to_best) for one, other in known
    ]
    ratios = [one / other for one, other in times if one is not None and other]
    reached = f"reached {len(ratios)} of {len(known)} times"
    return f"{np.median(ratios):.2f}, {reached}" if ratios else reached


def _select(runs: Collection[Run], task: str, method: str) -> list[Run]:
    return sorted((run for run in runs if (run.task, run.method) == (task, method)), key=lambda run: run.seed)


def _column(runs: Collection[Run], task: str, methods: Sequence[str]) -> dict[str, str]:
    """Return the entry of each method; it holds the number of seeds if another method has more."""
    scores = {method: [run.test_balanced_accuracy for run in _select(runs, task, method)] for method in methods}
    found = {method: summarize(values) for method, values in scores.items() if values}
    best, most = max(one.mean for one in found.values()), max(one.n for one in found.values())
    entries = dict.fromkeys(methods, NOTHING)
    for method, one in found.items():
        text = spread(one)
        # Equal after rounding counts as equal.
        text = f"**{text}**" if f"{one.mean:.3f}" == f"{best:.3f}" else text
        entries[method] = text if one.n == most else f"{text} ({one.n} of {most} seeds)"
    return entries


def spread(found: Summary, digits: int = 3) -> str:
    """Return mean ± standard deviation as text."""
    return f"{found.mean:.{digits}f}" + ("" if found.deviation is None else f" ± {found.deviation:.{digits}f}")


def _mean(runs: Sequence[Run], name: str, form: str = ".3f") -> str:
    values: list[Any] = [np.mean(getattr(run, name)) for run in runs if getattr(run, name) is not None]
    return format(np.mean(values), form) if values else NOTHING


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows of text as a table in Markdown."""
    heading, *lines = [f"| {' | '.join(entries)} |" for entries in (headings, *rows)]
    return "\n".join([heading, "|" + "---|" * len(headings), *lines])
