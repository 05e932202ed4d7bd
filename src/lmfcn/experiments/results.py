"""A comparison written down: verdict and tables as Markdown, every run as a row of a CSV file."""

import csv
import io
import json
from collections.abc import Collection
from pathlib import Path

from lmfcn.experiments.comparing import Outcome
from lmfcn.experiments.runs import Run
from lmfcn.experiments.tables import HEADINGS, NOTHING, interval, markdown_table, row
from lmfcn.experiments.verdict import FEWEST_REPEATS, Rival, Verdict
from lmfcn.files import write_text

_COLUMNS = (
    *("task", "method", "seed", "test_balanced_accuracy", "validation_balanced_accuracy", "train_balanced_accuracy"),
    *("n_train", "n_validation", "n_test", "cpu_seconds", "cpu_seconds_with_tuning", "n_weights", "epochs"),
    *("best_epoch", "n_backpropagated", "n_support_first", "n_support_kept", "n_support_final", "split"),
)

RIVAL_HEADINGS = ("by", "95 % interval", "p, Holm's correction", "more than chance")


def write_results(outcome: Outcome, folder: Path) -> None:
    """Write results.md and results.csv."""
    write_text(folder / "results.md", as_markdown(outcome))
    write_text(folder / "results.csv", as_csv(outcome.runs))


def as_markdown(outcome: Outcome) -> str:
    """Return verdict, tables, remarks and the data in a few words."""
    verdict, found = outcome.verdict, outcome.comparison.data.found
    classes = ", ".join(f"{label} ({count})" for label, count in found.classes.items())
    parts = [
        f"# Methods compared on {outcome.comparison.name}",
        " ".join(verdict.sentences),
        results_table(outcome),
        *([rivals_table(verdict)] if verdict.rivals else []),
        "\n".join(f"- {remark}" for remark in outcome.remarks),
        f"{found.n_images} images; classes: {classes}. {outcome.comparison.data.leak_sentence}",
        f"Run again with:\n\n```\n{outcome.command}\n```",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def results_table(outcome: Outcome) -> str:
    """Return a row for each method from the best to the worst, the winner in bold."""
    verdict = outcome.verdict
    rows = [[f"**{verdict.winner}**", *row(runs_of(outcome.shared, verdict.winner))]]
    rows += [[rival.method, *row(runs_of(outcome.shared, rival.method))] for rival in verdict.rivals]
    return markdown_table(["method", *(heading.replace("seeds", "repeats") for heading in HEADINGS)], rows)


def rivals_table(verdict: Verdict) -> str:
    """Return what each method is behind the winner, and whether that is more than chance."""
    return markdown_table([f"behind {verdict.winner}", *RIVAL_HEADINGS], rival_rows(verdict))


def rival_rows(verdict: Verdict) -> list[list[str]]:
    """Return the name of each method behind the winner and its entries under `RIVAL_HEADINGS`."""
    return [[rival.method, f"{rival.behind.mean:.3f}", *_certainty(verdict, rival)] for rival in verdict.rivals]


def _certainty(verdict: Verdict, rival: Rival) -> list[str]:
    if verdict.n_repeats < FEWEST_REPEATS:
        return [NOTHING] * 3
    p_value = "< 0.001" if rival.p_value < 0.001 else f"{rival.p_value:.3f}"
    return [interval(rival.behind), p_value, "no" if rival in verdict.level_with else "yes"]


def as_csv(runs: Collection[Run]) -> str:
    """Return one row for each run, the parameters that tuning chose as JSON in the last column."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_COLUMNS, "chosen"])
    for run in sorted(runs, key=lambda run: (run.method, run.seed)):
        writer.writerow([*(getattr(run, name) for name in _COLUMNS), json.dumps(run.chosen)])
    return text.getvalue()


def runs_of(runs: Collection[Run], method: str) -> list[Run]:
    """Return the runs of one method, by seed."""
    return sorted((run for run in runs if run.method == method), key=lambda run: run.seed)
