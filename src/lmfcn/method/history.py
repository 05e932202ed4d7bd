"""What is recorded in each epoch, and the errors of a training that cannot go on."""

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from lmfcn.util.files import write_text
from lmfcn.util.packages import needs


class TrainingError(RuntimeError):
    """Training cannot go on: a quantity is not finite, or all latents coincide."""


class TrainingWarning(UserWarning):
    """Training ended or went on in a way that the user should know about."""


Record = TypeVar("Record")
Phase = Literal["training", "refit"]
"""The two phases of a fit: with validation images held out, then on all images."""


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """One epoch of one network, measured at its start; only `n_backpropagated` tells of its updates.

    Epoch 0 is the untrained network. The numbers count on from the phase "training" to the phase "refit", which goes on
    from the selected epoch: its first record measures the selected network on all images. A phase of k rounds of
    back-propagation has k + 1 records. `head_loss` is the cross-entropy of the linear head over all training images, 0
    without a head. The training accuracy is that of the epoch's own SVM. The validation accuracy is that of an SVM like
    the final one, which is the epoch's own in LMFCN (paper).

    Files of earlier versions name no phase (None). There, the first refit epoch repeats the last number before it.
    """

    epoch: int
    phase: Phase | None = None
    train_balanced_accuracy: float
    validation_balanced_accuracy: float | None
    n_support: int
    n_misclassified: int
    n_settled: int
    support_loss: float
    correction_loss: float
    separation_loss: float
    head_loss: float
    n_backpropagated: int
    n_without_anchor: int
    gamma: float
    learning_rate: float
    latent_spread: float
    seconds_encoding: float
    seconds_svm: float
    seconds_anchors: float
    seconds_backpropagation: float


class History(Generic[Record]):
    """The records of a training in the order of its epochs.

    Parameters
    ----------
    records : iterable of dataclass instances, optional

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Measured:
    ...     epoch: int
    ...     n_support: int
    >>> history = History([Measured(0, 40), Measured(1, 25)])
    >>> history.column("n_support")
    [40, 25]
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._records = list(records)

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)

    def __getitem__(self, index: int) -> Record:
        return self._records[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self._records == other._records

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"History({len(self)} records)"

    def append(self, record: Record) -> None:
        """Add the record of the next epoch."""
        self._records.append(record)

    def column(self, name: str) -> list[Any]:
        """Return one quantity over the epochs."""
        return [getattr(record, name) for record in self._records]

    def to_frame(self) -> Any:
        """Return a pandas DataFrame: a row per record, a column per quantity. Needs pandas.

        Examples
        --------
        >>> from dataclasses import make_dataclass
        >>> Measured = make_dataclass("Measured", [("epoch", int), ("n_support", int)])
        >>> History([Measured(0, 40), Measured(1, 25)]).to_frame()
           epoch  n_support
        0      0         40
        1      1         25
        """
        pandas = needs("pandas", "pandas")
        return pandas.DataFrame([asdict(record) for record in self._records])  # type: ignore[call-overload]

    def save(self, path: str | Path) -> None:
        """Write one JSON object per line; a file of that name is replaced whole or not at all."""
        lines = [json.dumps(asdict(record), allow_nan=False) + "\n" for record in self._records]  # type: ignore[call-overload]
        write_text(path, "".join(lines))

    @classmethod
    def load(cls, path: str | Path, record_type: type[Record] = EpochRecord) -> "History[Record]":  # type: ignore[assignment]
        """Read what `save` wrote, as records of the given dataclass; fields with a default may be missing."""
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        return cls(_parse(line, record_type, f"{path}, line {i}") for i, line in enumerate(lines, start=1))


def _parse(line: str, record_type: type[Record], where: str) -> Record:
    expected = {field.name: field.default is MISSING for field in fields(record_type)}  # type: ignore[arg-type]
    try:
        values = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: expected a JSON object, got {line[:40]!r}; the file may be truncated.") from error
    required = {name for name, is_required in expected.items() if is_required}
    if not isinstance(values, dict) or not required <= set(values) <= set(expected):
        found = sorted(values) if isinstance(values, dict) else type(values).__name__
        raise ValueError(f"{where}: expected the fields {sorted(expected)}, got {found}.")
    return record_type(**values)


class Stopwatch:
    """Add up the seconds spent under each name."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the time of a `with` block under `name`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start
