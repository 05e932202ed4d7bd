"""What a reproduction brought, for those who write it down."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from lmfcn.experiments.paper.reproduction import Reproduction
from lmfcn.experiments.paper.side_by_side import Line, lines_of


@dataclass(frozen=True)
class Outcome:
    """A reproduction after it has run, whether to its end or not.

    Attributes
    ----------
    reproduction : Reproduction
    figures : sequence of str
        Those that were asked for, of "figure1" and "figure3".
    failures : sequence of str
        A sentence for each training that failed.
    command : str
        What to type to run it again, or to go on.
    """

    reproduction: Reproduction
    figures: Sequence[str]
    failures: Sequence[str]
    command: str

    @cached_property
    def tables(self) -> dict[int, list[Line]]:
        """Our rows beside the paper's, by the number of its table."""
        return {table: lines_of(self.reproduction, table) for table in self.reproduction.tables}

    @property
    def remarks(self) -> list[str]:
        """What a reader should know beside the tables."""
        asked = self.reproduction
        remarks = asked.notes
        remarks += [f"A training failed: {failure}" for failure in self.failures]
        n_cells, n_done = len(asked.cells), len(asked.runs())
        if n_done < n_cells:
            remarks.append(f"Runs that are there: {n_done} of {n_cells}. The same command goes on.")
        return remarks
