"""Results on disk: one line of JSON per run, written at once, so that nothing measured is measured again."""

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from lmfcn.benchmark.exhibit import Exhibit, exhibit_path, write_exhibit


class Cell(NamedTuple):
    """What a run is known by."""

    task: str
    method: str
    seed: int


@dataclass(frozen=True)
class Run:
    """One method on one division of one task.

    Of one-vs-all, counts and seconds are sums and accuracies means over its networks. Fields with a default may be
    absent from a line, as they are from those of older versions.

    Attributes
    ----------
    validation_balanced_accuracy : float or None
        On images that had no part in what is judged: that of the kept epoch, or by cross-validation.
    chosen : dict
        Parameters of the candidate that tuning chose, and `tried` all of them with their validation accuracies.
    cpu_seconds : float
        Computing time of the chosen candidate, over all threads; `cpu_seconds_with_tuning` of all candidates.
    best_epoch : int, list of int, or None
        The kept one, for each network if there are several.
    split : str or None
        Fingerprint of the images and their division.
    settings : dict
        Parameters of the method.
    n_backpropagated : int or None
        Images that went through a network backwards, each as often as it did.
    n_support_first, n_support_kept, n_support_last : int or None
        Support vectors of the SVM that training asks: of the untrained network, of the kept and of the last epoch
        before the closing ones.
    validation_by_epoch, seconds_by_epoch : lists of float, or None
        Validation accuracy of every epoch, and seconds by the clock from the start of training until it was known.
    seconds_to_best : float or None
        The second of them where the first is best for the first time.
    history : list of dicts, or None
        For each network every quantity of its epochs, as a list by name.
    closing_history : list of dicts, or None
        The same of the epochs that learn from validation images too. All fields by epoch end before these.
    machine : dict
        What it was computed on.
    digest : str or None
        Changes with the parameters that were asked for and the data; see `Study.digest`.
    n_support_by_epoch : list of int, or None
        Support vectors of every epoch.
    n_support_final : int or None
        Support vectors of the SVM that predicts; if it learnt from validation images too, some may be among those.
    classes : list of str, or None
        Names of the classes, in the order of their numbers.
    test_classes, predicted_classes, confidences : lists, or None
        Of every test image the number of its class, that of the class it was taken for, and the probability of that.
    exhibit : Exhibit or None
        What there is to show of the fitted model; kept in a file of its own, beside that of the runs.
    """

    task: str
    method: str
    seed: int
    train_balanced_accuracy: float
    validation_balanced_accuracy: float | None
    test_balanced_accuracy: float
    n_train: int
    n_test: int
    cpu_seconds: float
    n_validation: int | None = None
    cpu_seconds_with_tuning: float | None = None
    chosen: dict[str, Any] = field(default_factory=dict)
    tried: list[Any] = field(default_factory=list)
    n_weights: int | None = None
    epochs: int | None = None
    best_epoch: int | list[int] | None = None
    split: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    n_backpropagated: int | None = None
    n_support_first: int | None = None
    n_support_kept: int | None = None
    n_support_last: int | None = None
    seconds_to_best: float | None = None
    validation_by_epoch: list[float] | None = None
    seconds_by_epoch: list[float] | None = None
    history: list[dict[str, list[Any]]] | None = None
    machine: dict[str, Any] = field(default_factory=dict)
    digest: str | None = None
    n_support_by_epoch: list[int] | None = None
    n_support_final: int | None = None
    closing_history: list[dict[str, list[Any]]] | None = None
    classes: list[str] | None = None
    test_classes: list[int] | None = None
    predicted_classes: list[int] | None = None
    confidences: list[float] | None = None
    exhibit: Exhibit | None = field(default=None, repr=False, compare=False)

    @property
    def cell(self) -> Cell:
        """What the run is known by."""
        return Cell(self.task, self.method, self.seed)

    @property
    def origin(self) -> dict[str, Any]:
        """What an exhibit of the run is known by."""
        return {**self.cell._asdict(), "split": self.split}

    def seconds_to_reach(self, score: float) -> float | None:
        """Return how long training took until its validation accuracy first was `score`; None if it never was."""
        pairs = zip(self.validation_by_epoch or [], self.seconds_by_epoch or [], strict=True)
        return next((seconds for reached, seconds in pairs if reached >= score), None)


def append_run(path: Path, run: Run) -> None:
    """Write one more line, and before it the exhibit of the run, if it has one, to a file beside."""
    if run.exhibit is not None:
        write_exhibit(exhibit_path(path, run.method), run.exhibit, run.origin)
    values = asdict(replace(run, exhibit=None))
    del values["exhibit"]
    line = json.dumps(values, allow_nan=False) + "\n"
    with path.open("ab+") as file:
        # A line that a killed process left half-written must not swallow this one.
        if file.tell() > 0:
            file.seek(-1, 2)
            line = line if file.read(1) == b"\n" else "\n" + line
        file.write(line.encode())


def read_runs(path: Path) -> dict[Cell, Run]:
    """Return the runs of a file, the last one of each cell; none if there is no such file."""
    return {run.cell: run for run in read_lines(path)}


def read_lines(path: Path) -> list[Run]:
    """Return all runs of a file in their order; a line that is not a whole run is left out, with a warning."""
    return RunReader(path).read()


class RunReader:
    """Reads the runs of a file that processes append to: every line once, then only lines that are new.

    Parameters
    ----------
    path : Path
        The file need not exist yet. If it is replaced or becomes shorter, it is read from its start again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start_again(file_id=None)

    def read(self) -> list[Run]:
        """Return all runs in their order; a line that is not a whole run is left out, with a warning."""
        *lines, unfinished = self._new_content().split(b"\n")
        self._runs += list(self._parsed(lines))  # all or, if a warning is raised as an error, none
        self._n_lines += len(lines)
        self._n_bytes += sum(len(line) + 1 for line in lines)
        # The last line may be under way, so it is looked at again until its end is there.
        return [*self._runs, *self._parsed([unfinished])]

    def _start_again(self, file_id: tuple[int, int] | None) -> None:
        self._file_id = file_id
        self._runs: list[Run] = []
        self._n_lines = self._n_bytes = 0

    def _new_content(self) -> bytes:
        """Return what follows the lines that are known."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            self._start_again(file_id=None)
            return b""
        with file:
            status = os.fstat(file.fileno())
            file_id = status.st_dev, status.st_ino
            if file_id != self._file_id or status.st_size < self._n_bytes:
                self._start_again(file_id)
            file.seek(self._n_bytes)
            return file.read()

    def _parsed(self, lines: list[bytes]) -> Iterator[Run]:
        for number, line in enumerate(lines, start=self._n_lines + 1):
            if line.strip():
                try:
                    yield _parse(line.decode(errors="replace"))
                except ValueError as error:
                    warnings.warn(f"{self._path}, line {number}: {error}; left out.", UserWarning, stacklevel=3)


def _parse(line: str) -> Run:
    try:
        values = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError("not a whole JSON object") from error
    if not isinstance(values, dict):
        raise ValueError("not a whole JSON object")
    missing = [name for name in _NEEDED if name not in values]
    if missing:
        raise ValueError(f"without {', '.join(missing)}")
    return Run(**_with_current_names({name: values[name] for name in _KNOWN if name in values}))


_FORMER_METHODS = {"LMFCN (paper)": "LMFCN, paper's preset"}
_FORMER_PARAMETERS = {"augmentation": "views"}
_FORMER_VALUES = {"augmentation": {"dihedral": "turns"}}
"""Names that earlier versions wrote to files and put into digests, by the names of today."""


def former_method(method: str) -> str:
    """Return the name that a method had when the digests and exhibit files of earlier versions were written."""
    return _FORMER_METHODS.get(method, method)


def former_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters under their former names and with their former values, so that digests stay the same.

    Examples
    --------
    >>> former_parameters({"augmentation": "dihedral", "epochs": 5})
    {'views': 'turns', 'epochs': 5}
    """
    return {
        _FORMER_PARAMETERS.get(name, name): _translate(value, _FORMER_VALUES.get(name, {}))
        for name, value in parameters.items()
    }


def _with_current_names(fields_of_run: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a line with today's names of methods and parameters."""
    current = {**fields_of_run, "method": _translate(fields_of_run["method"], _inverse(_FORMER_METHODS))}
    for name in ("chosen", "settings"):
        if name in current:
            current[name] = _current_parameters(current[name])
    if "tried" in current:
        current["tried"] = [[_current_parameters(parameters), score] for parameters, score in current["tried"]]
    return current


def _current_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    names = _inverse(_FORMER_PARAMETERS)
    current = {names.get(name, name): value for name, value in parameters.items()}
    return {name: _translate(value, _inverse(_FORMER_VALUES.get(name, {}))) for name, value in current.items()}


def _translate(value: Any, names: Mapping[str, str]) -> Any:
    return names.get(value, value) if isinstance(value, str) else value


def _inverse(names: Mapping[str, str]) -> dict[str, str]:
    return {former: current for current, former in names.items()}


_KNOWN = [entry.name for entry in fields(Run) if entry.name != "exhibit"]
_NEEDED = [entry.name for entry in fields(Run) if entry.default is MISSING and entry.default_factory is MISSING]
