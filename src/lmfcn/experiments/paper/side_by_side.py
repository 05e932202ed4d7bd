"""Our rows beside the paper's: means, spreads and differences."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lmfcn.experiments.paper.reproduction import Reproduction
from lmfcn.experiments.paper.rows import Row
from lmfcn.experiments.runs import Run
from lmfcn.experiments.statistics import Summary, summarize
from lmfcn.experiments.tables import NOTHING

PARTS = ("train", "validation", "test")
SIDES = ("paper", "ours", "difference")
HEADINGS = (
    *("images", "method"),
    *(f"{part}, {side}" for part in PARTS for side in SIDES),
    *("epoch, paper", "epoch, ours", "repetitions", "remark"),
)
NOT_YET = "not measured yet"


@dataclass(frozen=True)
class Line:
    """A row of the paper with the runs that answer it.

    Attributes
    ----------
    row : Row
    runs : sequence of Run
        By seed; those that are there.
    remark : str
        Why there are none, or fewer than asked for; empty if all are there.
    """

    row: Row
    runs: Sequence[Run]
    remark: str

    def ours(self, part: str) -> Summary | None:
        """Return mean and standard deviation of our balanced accuracy on "train", "validation" or "test"."""
        scores = [getattr(run, f"{part}_balanced_accuracy") for run in self.runs]
        known = [score for score in scores if score is not None]
        return summarize(known) if known else None

    def paper(self, part: str) -> Summary:
        """Return the paper's mean and standard deviation."""
        found: Summary = getattr(self.row.printed, part)
        return found

    def difference(self, part: str) -> float | None:
        """Return our mean minus the paper's."""
        ours = self.ours(part)
        return None if ours is None else ours.mean - self.paper(part).mean

    @property
    def epoch(self) -> float | None:
        """The mean of our kept epochs."""
        kept = [np.mean(run.best_epoch) for run in self.runs if run.best_epoch is not None]
        return float(np.mean(kept)) if kept else None

    @property
    def entries(self) -> list[str]:
        """What stands under `HEADINGS`."""
        scores = [entry for part in PARTS for entry in self.scores(part)]
        printed = self.row.printed.epoch
        epochs = [NOTHING if printed is None else str(printed), NOTHING if self.epoch is None else f"{self.epoch:.0f}"]
        return [self.row.printed.images, self.row.label, *scores, *epochs, str(len(self.runs)), self.remark]

    def scores(self, part: str) -> list[str]:
        """Return the paper's figure, ours and the difference as text."""
        ours, difference = self.ours(part), self.difference(part)
        return [
            spread(self.paper(part)),
            NOTHING if ours is None else spread(ours),
            NOTHING if difference is None else f"{difference:+.4f}",
        ]


def spread(found: Summary) -> str:
    """Return mean ± standard deviation with as many digits as the paper prints."""
    return f"{found.mean:.4f}" + ("" if found.deviation is None else f" ± {found.deviation:.4f}")


def lines_of(reproduction: Reproduction, table: int) -> list[Line]:
    """Return all rows of one of the paper's tables with the runs that are there."""
    found, lines = reproduction.runs(), []
    for row in (row for row in reproduction.rows if row.printed.table == table):
        cells = [row.cell(seed) for seed in reproduction.seeds]
        runs = [found[cell] for cell in cells if cell in found]
        lines.append(Line(row, runs, _remark(reproduction, row, len(runs))))
    return lines


def _remark(reproduction: Reproduction, row: Row, n_runs: int) -> str:
    obstacle, n_asked = reproduction.obstacle(row), len(reproduction.seeds)
    if obstacle is not None:
        return f"not run: {obstacle}"
    if n_runs == n_asked:
        return ""
    return NOT_YET if n_runs == 0 else f"{n_runs} of {n_asked} repetitions so far"


def in_words(lines: Sequence[Line]) -> str:
    """Say in a sentence or two how near our test accuracies came to the paper's, of the rows that the paper has."""
    papers = [line for line in lines if not line.row.is_ours]
    paired = [(line, found) for line in papers if (found := line.difference("test")) is not None]
    n_ours = sum(bool(line.runs) for line in lines if line.row.is_ours)
    beside = f", and {n_ours} of our defaults" if n_ours else ""
    measured = f"{len(paired)} of the paper's {len(papers)} rows are measured{beside}."
    if not paired:
        return measured
    sizes = [abs(found) for _, found in paired]
    line, largest = max(paired, key=lambda pair: abs(pair[1]))
    return (
        f"{measured} Our mean test balanced accuracy differs from the paper's by {np.median(sizes):.3f} in the median"
        f" row; the largest difference, ours minus the paper's, is {largest:+.3f} ({line.row.printed.images},"
        f" {line.row.label})."
    )
