"""Predictions as a Parquet file, which data tools read column by column."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, BinaryIO

import numpy as np

from lmfcn.cli.rows import Judge
from lmfcn.extras import needs

_GROUP = 2**14
"""Rows that are held and written together."""


class ParquetWriter:
    """Turns probabilities into the rows of a table: path, label, probability, and what else was asked for.

    Parameters
    ----------
    judge : Judge
    proba : bool
        Whether there is a column p(class) for every class.
    """

    def __init__(self, judge: Judge, *, proba: bool = False) -> None:
        self._arrow = needs("pyarrow", "parquet")
        self._files = needs("pyarrow.parquet", "parquet")
        self._judge, self._proba = judge, proba

    def write(self, rows: Iterable[tuple[str, np.ndarray]], file: BinaryIO) -> None:
        """Write all rows, group after group."""
        schema = self._schema()
        with self._files.ParquetWriter(file, schema) as writer:
            values = (self._values(path, probabilities) for path, probabilities in rows)
            for group in _groups(values):
                writer.write_table(self._arrow.Table.from_pylist(group, schema))

    def _schema(self) -> Any:
        label, share = self._arrow.array(self._judge.classes).type, self._arrow.float64()
        columns = [("path", self._arrow.string()), ("label", label), ("probability", share)]
        columns += [] if self._judge.coverage is None else [("set", self._arrow.list_(label))]
        columns += [(f"p({name})", share) for name in self._judge.classes] if self._proba else []
        return self._arrow.schema(columns)

    def _values(self, path: str, probabilities: np.ndarray) -> dict[str, Any]:
        # Texts in Parquet are UTF-8; of a name that is not, the odd bytes are written as \udc80 and the like.
        values: dict[str, Any] = {"path": path.encode("utf-8", "backslashreplace").decode()}
        values |= {"label": self._judge.label(probabilities), "probability": float(probabilities.max())}
        if self._judge.coverage is not None:
            values["set"] = self._judge.members(probabilities)
        if self._proba:
            shares = zip(self._judge.classes, probabilities.tolist(), strict=True)
            values |= {f"p({name})": share for name, share in shares}
        return values


def _groups(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while group := list(islice(rows, _GROUP)):
        yield group
