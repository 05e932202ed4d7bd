"""Runs on disk: one line of JSON each, written as soon as it is measured, so that no run is repeated."""

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from lmfcn.benchmark.model_summary import ModelSummary, summary_path, write_summary
from lmfcn.util.files import name_in_errors


class RunKey(NamedTuple):
    """The task, method and seed that identify a run."""

    task: str
    method: str
    seed: int


@dataclass(frozen=True)
class Run:
    """The result of one method on one split of one task.

    For one-vs-all, counts and seconds are sums over its networks, and accuracies are means. Fields with a default may
    be absent from a line; older versions did not write them.

    Attributes
    ----------
    validation_balanced_accuracy : float or None
        On images that the measured model was not fitted on: that of the selected epoch, or by cross-validation.
    chosen : dict
        Parameters of the candidate that tuning chose, and `tried` all of them with their validation accuracies.
    cpu_seconds : float
        Computing time of the chosen candidate, over all threads; `cpu_seconds_with_tuning` of all candidates.
    best_epoch : int, list of int, or None
        The selected epoch, for each network if there are several.
    split : str or None
        Fingerprint of the images and their split.
    settings : dict
        Parameters of the method.
    n_backpropagated : int or None
        Images that were back-propagated, each counted as often as it was.
    n_support_first, n_support_kept, n_support_last : int or None
        Support vectors of the SVM of an epoch: of the untrained network, of the selected epoch, and of the last
        epoch before the refit on all images.
    validation_by_epoch, seconds_by_epoch : lists of float, or None
        Validation accuracy of every epoch, and seconds by the clock from the start of training until it was known.
    seconds_to_best : float or None
        Seconds until the best validation accuracy was first reached.
    history : list of dicts, or None
        For each network every quantity of its epochs, as a list by name.
    closing_history : list of dicts, or None
        The same for the refit epochs, which also train on validation images. Fields by epoch do not include them.
    machine : dict
        The computer.
    digest : str or None
        Changes with the requested parameters and the data; see `Study.digest`.
    n_support_by_epoch : list of int, or None
        Support vectors of every epoch.
    n_support_final : int or None
        Support vectors of the final SVM, which predicts; validation images can be among them if it is fitted on them.
    classes : list of str, or None
        Names of the classes, in the order of their numbers.
    test_classes, predicted_classes, confidences : lists, or None
        For every test image its class number, its predicted class number, and the probability of the prediction.
    model_summary : ModelSummary or None
        Latent space and hardest images of the fitted model; written to a file of its own.
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
    model_summary: ModelSummary | None = field(default=None, repr=False, compare=False)

    @property
    def key(self) -> RunKey:
        """Task, method and seed."""
        return RunKey(self.task, self.method, self.seed)

    @property
    def origin(self) -> dict[str, Any]:
        """The values that identify the run in the file of its model summary."""
        return {**self.key._asdict(), "method": former_method(self.method), "split": self.split}

    def seconds_to_reach(self, score: float) -> float | None:
        """Return the seconds of training until the validation accuracy first reached `score`; None if it never did."""
        pairs = zip(self.validation_by_epoch or [], self.seconds_by_epoch or [], strict=True)
        return next((seconds for reached, seconds in pairs if reached >= score), None)


def append_run(path: Path, run: Run) -> None:
    """Append one line to the file; write the model summary of the run, if it has one, to a file of its own first."""
    if run.model_summary is not None:
        write_summary(summary_path(path, former_method(run.method)), run.model_summary, run.origin)
    values = asdict(replace(run, model_summary=None))
    del values["model_summary"]
    line = json.dumps(values, allow_nan=False) + "\n"
    with name_in_errors(path), path.open("ab+") as file:
        # A killed process may have left half a line; the new one must not become part of it.
        if file.tell() > 0:
            file.seek(-1, 2)
            line = line if file.read(1) == b"\n" else "\n" + line
        file.write(line.encode())


def read_runs(path: Path) -> dict[RunKey, Run]:
    """Return the runs of a file by their keys, the last one of each; none if there is no such file."""
    return {run.key: run for run in read_lines(path)}


def read_lines(path: Path) -> list[Run]:
    """Return all runs of a file in order; a line that is not a complete run is skipped with a warning."""
    return RunReader(path).read()


class RunReader:
    """Read the runs of a file that processes append to: every line once, later only new lines.

    Parameters
    ----------
    path : Path
        The file need not exist yet. If it is replaced or becomes shorter, it is read from its start again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._forget(file_id=None)

    def read(self) -> list[Run]:
        """Return all runs in order; a line that is not a complete run is skipped with a warning."""
        *lines, unfinished = self._new_content().split(b"\n")
        self._runs += list(self._parsed(lines))  # all of them, or none if a warning is raised as an error
        self._n_lines += len(lines)
        self._n_bytes += sum(len(line) + 1 for line in lines)
        # Another process may be writing the last line, so it is parsed again until it ends.
        return [*self._runs, *self._parsed([unfinished])]

    def _forget(self, file_id: tuple[int, int] | None) -> None:
        self._file_id = file_id
        self._runs: list[Run] = []
        self._n_lines = self._n_bytes = 0

    def _new_content(self) -> bytes:
        """Return the bytes after the lines that have been read."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            self._forget(file_id=None)
            return b""
        with file:
            status = os.fstat(file.fileno())
            file_id = status.st_dev, status.st_ino
            if file_id != self._file_id or status.st_size < self._n_bytes:
                self._forget(file_id)
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
_FORMER_PARAMETERS = {
    "augmentation": "views",
    "contrast_scale": "sharpness",
    "distance_units": "units",
    "epoch_selection": "keep",
    "fallback_anchors": "stand_ins",
    "refit_epochs": "closing_epochs",
}
_FORMER_VALUES = {"augmentation": {"dihedral": "turns"}, "epoch_selection": {"one-se": "latest"}}
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


_KNOWN = [entry.name for entry in fields(Run) if entry.name != "model_summary"]
_NEEDED = [entry.name for entry in fields(Run) if entry.default is MISSING and entry.default_factory is MISSING]
