"""Every row of the paper's tables, and the runs that answer it."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from lmfcn.experiments.paper.printed import Printed, printed_rows
from lmfcn.experiments.paper.profiles import LATENT_DIM, OURS, PRESET
from lmfcn.experiments.runs import Cell

_N_CLASSES = {"BACH": 4, "BreaKHis": 8, "CRC": 8}
"""Of the tasks of table 4."""

_METHODS = {"LMFCN": PRESET, "LMFCN-59": PRESET, "LMFCN-162": PRESET, "CNN": "CNN multiclass"}
"""Names in our study of what the paper calls otherwise."""


@dataclass(frozen=True)
class Task:
    """Images, and the setting that all methods have on them.

    Attributes
    ----------
    images : str
        The paper's name of the set.
    latent_dim : int
        Of the paper's preset and the CNNs.
    many : bool
        Whether it is the task with more than two classes.
    quick : bool
    """

    images: str
    latent_dim: int
    many: bool
    quick: bool

    @property
    def name(self) -> str:
        """What the runs of this task are known by."""
        dimensions = "" if self.latent_dim == LATENT_DIM else f", {self.latent_dim} dimensions"
        classes = f", {_N_CLASSES[self.images]} classes" if self.many else ""
        return f"{self.images}{classes}{dimensions}{', quick' if self.quick else ''}"

    @property
    def division(self) -> str:
        """What its images and their division are known by, which are the same for all dimensions."""
        return replace(self, latent_dim=LATENT_DIM).name


@dataclass(frozen=True)
class Row:
    """One of our rows beside the paper's.

    Attributes
    ----------
    printed : Printed
        What the paper has; our own defaults stand beside its first LMFCN of the same set.
    label : str
    task : Task
    method : str
        Its name in `lmfcn.experiments.measuring.METHODS`.
    """

    printed: Printed
    label: str
    task: Task
    method: str

    @property
    def is_ours(self) -> bool:
        """Whether the paper has no such row: that of our own defaults."""
        return self.method == OURS

    def cell(self, seed: int) -> Cell:
        """Return what the run of one repetition is known by."""
        return Cell(self.task.name, self.method, seed)


def rows_of(tables: Collection[int], *, quick: bool) -> list[Row]:
    """Return our rows for some of the paper's tables, in its order.

    Examples
    --------
    >>> [row.label for row in rows_of([3], quick=False)][:4]
    ['LMFCN-59', 'LMFCN, our defaults', 'LMFCN-162', 'GLCM']
    """
    rows = []
    for printed in printed_rows():
        if printed.table in tables:
            rows += _answers(printed, quick=quick)
    return rows


def _answers(printed: Printed, *, quick: bool) -> list[Row]:
    many = printed.table == 4
    dimensions = int(printed.method.partition("-")[2]) if printed.method.startswith("LMFCN-") else LATENT_DIM
    task = Task(printed.images, dimensions, many, quick)
    rows = [Row(printed, printed.method, task, _METHODS.get(printed.method, printed.method))]
    if printed.method in ("LMFCN", "LMFCN-59"):
        rows.append(Row(printed, f"{OURS}, our defaults", Task(printed.images, LATENT_DIM, many, quick), OURS))
    return rows
