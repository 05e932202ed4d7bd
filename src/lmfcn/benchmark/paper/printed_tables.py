"""The tables printed in the paper, and the runs that reproduce each row.

printed.csv was taken from the source of J. de Matos, L. E. S. Oliveira, A. de S. Britto Jr. and A. L. Koerich,
*Large-Margin Representation Learning for Texture Classification*, Pattern Recognition Letters, tables 2, 3 and 4 (the
first table describes the network). Rows, names, numbers and their order are the paper's.
"""

import csv
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from lmfcn.benchmark.measure import split_names
from lmfcn.benchmark.paper.image_sets import GAUSSIAN, OUR_GAUSSIAN
from lmfcn.benchmark.paper.profiles import LATENT_DIM, OURS, PAPER
from lmfcn.benchmark.runs import RunKey
from lmfcn.benchmark.statistics import Summary

REPEATS = 5
TITLES = {
    2: "LMFCN and convolutional networks",
    3: "LMFCN and handcrafted features",
    4: "More than two classes",
}
"""Tables by their number in the paper, with what they compare."""


@dataclass(frozen=True)
class PrintedRow:
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
        The epoch with the best validation accuracy; only in table 2, and only for trained methods.
    """

    table: int
    images: str
    method: str
    train: Summary
    validation: Summary
    test: Summary
    epoch: int | None


@cache
def printed_rows() -> tuple[PrintedRow, ...]:
    """Return all rows in the paper's order.

    Examples
    --------
    >>> row = printed_rows()[0]
    >>> row.images, row.method, row.test.mean, row.test.deviation, row.epoch
    ('BACH', 'LMFCN', 0.8056, 0.0203, 6)
    """
    with files(__package__).joinpath("printed.csv").open(encoding="utf-8") as file:
        return tuple(_row(entries) for entries in csv.DictReader(file))


def _row(entries: dict[str, str]) -> PrintedRow:
    return PrintedRow(
        table=int(entries["table"]),
        images=entries["images"],
        method=entries["method"],
        train=_summary(entries, "train"),
        validation=_summary(entries, "validation"),
        test=_summary(entries, "test"),
        epoch=int(entries["epoch"]) if entries["epoch"] else None,
    )


def _summary(entries: dict[str, str], subset: str) -> Summary:
    return Summary(float(entries[subset]), float(entries[f"{subset}_deviation"]), REPEATS)


_N_CLASSES = {"BACH": 4, "BreaKHis": 8, "CRC": 8}
"""Numbers of classes in table 4."""

_METHODS = {"LMFCN": PAPER, "LMFCN-59": PAPER, "LMFCN-162": PAPER, "CNN": "CNN multiclass"}
"""Names in `lmfcn.benchmark.measure.METHODS` of methods that have another name in the paper."""

_LABELS = {"LMFCN": PAPER}
"""Our labels of rows that have another name in the paper."""


@dataclass(frozen=True)
class Task:
    """A set of images, and the settings of all methods on it.

    Attributes
    ----------
    images : str
        The paper's name of the set.
    latent_dim : int
        Of LMFCN (paper) and the CNNs.
    multiclass : bool
        Whether it has more than two classes.
    quick : bool
    """

    images: str
    latent_dim: int
    multiclass: bool
    quick: bool

    @property
    def name(self) -> str:
        """The name of this task in the file of runs."""
        dimensions = "" if self.latent_dim == LATENT_DIM else f", {self.latent_dim} dimensions"
        classes = f", {_N_CLASSES[self.images]} classes" if self.multiclass else ""
        return f"{self.images}{classes}{dimensions}{', quick' if self.quick else ''}"

    @property
    def split_name(self) -> str:
        """The name of its images and splits, which do not depend on the latent dimensions."""
        return replace(self, latent_dim=LATENT_DIM).name


@dataclass(frozen=True)
class Row:
    """A row of our tables, with the row of the paper that it is compared with.

    Attributes
    ----------
    printed : PrintedRow
        The paper's row; that of our LMFCN is the paper's first LMFCN on the same images. Rows on our Gaussian images
        are measured like the paper's rows on its own, but are not compared with them.
    label : str
        Name of the row in our tables.
    task : Task
    method : str
        Its name in `lmfcn.benchmark.measure.METHODS`.
    """

    printed: PrintedRow
    label: str
    task: Task
    method: str

    @property
    def is_ours(self) -> bool:
        """Whether this is the row of our LMFCN, which the paper does not have."""
        return self.method == OURS

    @property
    def is_compared(self) -> bool:
        """Whether the paper's images are the same, so that its numbers say something about ours."""
        return self.task.images == self.printed.images

    def key(self, seed: int) -> RunKey:
        """Return the key of the run of one repetition."""
        return RunKey(self.task.name, self.method, seed)


def rows_of(tables: Collection[int], *, quick: bool) -> list[Row]:
    """Return our rows for some of the paper's tables, in its order, with our Gaussian images behind the paper's.

    Examples
    --------
    >>> [row.label for row in rows_of([3], quick=False)][:4]
    ['LMFCN-59', 'LMFCN', 'LMFCN-162', 'GLCM']
    """
    rows = []
    for table in sorted(set(tables)):
        of_table = [row for printed in printed_rows() if printed.table == table for row in _our_rows(printed, quick)]
        rows += of_table + [_on_our_images(row) for row in of_table if row.task.images == GAUSSIAN]
    return rows


def _on_our_images(row: Row) -> Row:
    return replace(row, task=replace(row.task, images=OUR_GAUSSIAN))


def _our_rows(printed: PrintedRow, quick: bool) -> list[Row]:
    multiclass = printed.table == 4
    dimensions = int(printed.method.partition("-")[2]) if printed.method.startswith("LMFCN-") else LATENT_DIM
    task = Task(printed.images, dimensions, multiclass, quick)
    label, method = (names.get(printed.method, printed.method) for names in (_LABELS, _METHODS))
    rows = [Row(printed, label, task, method)]
    if printed.method in ("LMFCN", "LMFCN-59"):
        rows.append(Row(printed, OURS, Task(printed.images, LATENT_DIM, multiclass, quick), OURS))
    return rows


METHODS_BY_LABEL = {row.label: row.method for row in rows_of((2, 3, 4), quick=False)}
"""The labels of all rows, with the names of their methods in `lmfcn.benchmark.measure.METHODS`."""


def chosen_labels(only: Sequence[str]) -> list[str]:
    """Return the labels of the rows with these names; all labels if there are no names.

    Upper and lower case do not matter, and several names may be joined by commas. A name is the label of a row, or the
    name of a method in `lmfcn compare`, which stands for all its rows.

    Examples
    --------
    >>> chosen_labels(["lbp,LMFCN"])
    ['LMFCN', 'LBP']
    >>> chosen_labels(["LMFCN (paper)"])
    ['LMFCN (paper)', 'LMFCN-59', 'LMFCN-162']
    """
    known = {label.lower(): [label] for label in METHODS_BY_LABEL}
    known |= {
        method.lower(): [label for label in METHODS_BY_LABEL if METHODS_BY_LABEL[label] == method]
        for method in METHODS_BY_LABEL.values()
    }
    names = split_names(only, known)
    for name in names:
        if name not in known:
            raise ValueError(
                f"--only must name rows of the tables, got {name!r}; there are {'; '.join(METHODS_BY_LABEL)}."
            )
    if only and not names:
        raise ValueError(f"--only names no row; there are {'; '.join(METHODS_BY_LABEL)}.")
    wanted = {label for name in names for label in known[name]}
    return [label for label in METHODS_BY_LABEL if label in wanted or not only]


def check_rows_left(rows: Sequence[Row], chosen: Collection[str]) -> None:
    """Raise ValueError if the chosen labels leave no row of the requested tables."""
    labels = dict.fromkeys(row.label for row in rows)
    if labels and not any(label in chosen for label in labels):
        tables = " and ".join(f"table {table}" for table in sorted({row.printed.table for row in rows}))
        raise ValueError(f"--only leaves no row of {tables}; there are {'; '.join(labels)}.")
