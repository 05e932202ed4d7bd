"""What the paper printed: every row of its three tables of results.

printed.csv was taken from the source of J. de Matos, L. E. S. Oliveira, A. de S. Britto Jr. and A. L. Koerich,
*Large-Margin Representation Learning for Texture Classification*, Pattern Recognition Letters, tables 2, 3 and 4 (the
first table is that of the network). Rows, names and figures are the paper's, and so is their order.
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from lmfcn.experiments.statistics import Summary

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
