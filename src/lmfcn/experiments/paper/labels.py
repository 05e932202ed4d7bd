"""The rows of our tables by the names that are printed there: what `--only` takes, and what notes and errors use."""

from collections.abc import Collection, Sequence

from lmfcn.experiments.paper.rows import Row, rows_of
from lmfcn.experiments.selection import divided_at_commas

METHOD_OF = {row.label: row.method for row in rows_of((2, 3, 4), quick=False)}
"""The labels of all tables, and the names of their methods in `lmfcn.experiments.measuring.METHODS`."""


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
