"""The tables printed in the paper, and the runs that reproduce each row.

printed.csv was taken from the source of J. de Matos, L. E. S. Oliveira, A. de S. Britto Jr. and A. L. Koerich,
*Large-Margin Representation Learning for Texture Classification*, Pattern Recognition Letters, tables 2, 3 and 4 (the
first table is that of the network). Rows, names and figures are the paper's, and so is their order.
"""

import csv
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from lmfcn.benchmark.measure import divided_at_commas
from lmfcn.benchmark.paper.profiles import LATENT_DIM, OURS, PRESET
from lmfcn.benchmark.runs import Cell
from lmfcn.benchmark.statistics import Summary

REPEATS = 5
TITLES = {
    2: "LMFCN and convolutional networks",
    3: "LMFCN and handcrafted features",
    4: "More than two classes",
}
"""Tables by their number in the paper, and in a few words what they compare."""


@dataclass(frozen=True)
class Printed:
    """A row of one of the paper's tables: balanced accuracies of five repetitions.

    Attributes
    ----------
    table : int
        2, 3 or 4.
    images : str
        Set of images, as the paper calls it.
    method : str
    train, validation, test : Summary
    epoch : int or None
        The epoch of the best validation accuracy, which only table 2 tells and only of what is trained.
    """

    table: int
    images: str
    method: str
    train: Summary
    validation: Summary
    test: Summary
    epoch: int | None


@cache
def printed_rows() -> tuple[Printed, ...]:
    """Return all rows in the paper's order.

    Examples
    --------
    >>> row = printed_rows()[0]
    >>> row.images, row.method, row.test.mean, row.test.deviation, row.epoch
    ('BACH', 'LMFCN', 0.8056, 0.0203, 6)
    """
    with files(__package__).joinpath("printed.csv").open(encoding="utf-8") as file:
        return tuple(_row(entries) for entries in csv.DictReader(file))


def _row(entries: dict[str, str]) -> Printed:
    return Printed(
        table=int(entries["table"]),
        images=entries["images"],
        method=entries["method"],
        train=_summary(entries, "train"),
        validation=_summary(entries, "validation"),
        test=_summary(entries, "test"),
        epoch=int(entries["epoch"]) if entries["epoch"] else None,
    )


def _summary(entries: dict[str, str], part: str) -> Summary:
    return Summary(float(entries[part]), float(entries[f"{part}_deviation"]), REPEATS)


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
        Its name in `lmfcn.benchmark.measure.METHODS`.
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


METHOD_OF = {row.label: row.method for row in rows_of((2, 3, 4), quick=False)}
"""The labels of all tables, and the names of their methods in `lmfcn.benchmark.measure.METHODS`."""


def chosen_labels(only: Sequence[str]) -> list[str]:
    """Return the labels by these names, all if there are none.

    Upper and lower case do not matter, and several names may be joined by commas. Names of methods in `lmfcn compare`
    stand for all their rows, unless a label of that name means another one: "LMFCN" is the paper's, as in the tables.

    Examples
    --------
    >>> chosen_labels(["lbp,LMFCN, our defaults"])
    ['LMFCN, our defaults', 'LBP']
    >>> chosen_labels(["LMFCN, paper's preset"])
    ['LMFCN', 'LMFCN-59', 'LMFCN-162']
    """
    known = {
        method.lower(): [label for label in METHOD_OF if METHOD_OF[label] == method] for method in METHOD_OF.values()
    }
    known |= {label.lower(): [label] for label in METHOD_OF}
    names = divided_at_commas(only, known)
    for name in names:
        if name not in known:
            raise ValueError(f"--only must name rows of the tables, got {name!r}; there are {_listed(METHOD_OF)}.")
    if only and not names:
        raise ValueError(f"--only names no row; there are {_listed(METHOD_OF)}.")
    wanted = {label for name in names for label in known[name]}
    return [label for label in METHOD_OF if label in wanted or not only]


def check_rows_left(rows: Sequence[Row], chosen: Collection[str]) -> None:
    """Refuse a choice of labels that leaves no row of the tables that were asked for."""
    labels = dict.fromkeys(row.label for row in rows)
    if labels and not any(label in chosen for label in labels):
        tables = " and ".join(f"table {table}" for table in sorted({row.printed.table for row in rows}))
        raise ValueError(f"--only leaves no row of {tables}; there are {_listed(labels)}.")


def _listed(labels: Collection[str]) -> str:
    return "; ".join(labels)
