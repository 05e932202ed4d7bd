"""Checkpoints: save a training after every epoch and resume it bit for bit."""

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lmfcn.compute.resources import ThreadCounts
from lmfcn.method.anchors import LatentSpace
from lmfcn.method.epoch import Callback, SelectedEpoch, Trained, Training
from lmfcn.method.history import EpochRecord, History
from lmfcn.method.kernel_svm import Decision
from lmfcn.util.files import remove_unfinished, write_text
from lmfcn.util.tensor_files import read_tensors, write_tensors

Tensors = dict[str, Tensor]
Values = dict[str, Any]


def training_state(training: Training) -> tuple[Tensors, Values]:
    """Return everything that the next epoch depends on."""
    selected = training.selected
    tensors = {
        **_prefixed("network", training.network.state_dict()),
        **_prefixed("head", _head_state(training)),
        **_prefixed("optimizer", _optimizer_tensors(training.descent.optimizer)),
        "generator": training.descent.generator.get_state(),
        **_prefixed("kept.network", selected.network.state_dict()),
        **_prefixed("kept.decision", selected.decision.tensors()),
        "kept.support": selected.support,
    }
    values = {
        "history": [asdict(record) for record in training.history],
        "kept": {"epoch": selected.epoch, "score": selected.score, "gamma": selected.decision.gamma},
        "stop_reason": training.stop_reason,
    }
    return tensors, values


def restore_training(training: Training, tensors: Tensors, values: Values) -> None:
    """Bring a training that was just made into the state that `training_state` described."""
    training.network.load_state_dict(_under("network", tensors))
    if training.descent.head is not None:
        training.descent.head.load_state_dict(_under("head", tensors))
    training.descent.generator.set_state(tensors["generator"])
    _restore_optimizer(training.descent.optimizer, _under("optimizer", tensors))
    network = copy.deepcopy(training.network)
    network.load_state_dict(_under("kept.network", tensors))
    device = training.problem.labels.device
    kept = values["kept"]
    decision = Decision.of_tensors(_under("kept.decision", tensors), kept["gamma"], device)
    training.selected = SelectedEpoch(
        kept["epoch"], kept["score"], network.eval(), decision, tensors["kept.support"].to(device)
    )
    training.history = History(EpochRecord(**record) for record in values["history"])
    training.stop_reason = values.get("stop_reason")  # files of older versions have none


def _head_state(training: Training) -> Tensors:
    head = training.descent.head
    return {} if head is None else head.state_dict()


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> Tensors:
    state = optimizer.state_dict()["state"]
    return {f"{number}.{name}": tensor for number, entries in state.items() for name, tensor in entries.items()}


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Tensors) -> None:
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    state: dict[int, Tensors] = {}
    for key, tensor in tensors.items():
        number, name = key.split(".")
        if tensor.shape == weights[int(number)].shape:
            # In the memory layout of the weights: another one may be summed in another order.
            tensor = torch.empty_like(weights[int(number)]).copy_(tensor)
        state.setdefault(int(number), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _prefixed(prefix: str, tensors: Tensors) -> Tensors:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _under(prefix: str, tensors: Tensors) -> Tensors:
    return {name.removeprefix(f"{prefix}."): t for name, t in tensors.items() if name.startswith(f"{prefix}.")}


KIND = "lmfcn checkpoint"
VERSION = 2
"""Format of the files. In version 1, records of epochs named no phase, and refit epochs repeated a number."""

_IDENTITY = "run.json"
_THREADS = "threads"
_FORMAT = "format of the checkpoints"
_NETWORK = "network-{}.safetensors"


class Checkpoint(Callback):
    """The file of one network's training: restored at its start, replaced after every epoch.

    `run` is the digest of the run that the file belongs to.
    """

    def __init__(self, path: Path, run: str) -> None:
        self.path = path
        self.run = run

    def on_training_start(self, training: Training) -> None:
        """Bring a new training to the state of the file, if there is one."""
        if not self.path.exists():
            return
        values, tensors = read_tensors(self.path, KIND, VERSION)
        if values.get("run") != self.run:
            raise ValueError(f"{self.path} belongs to another run; delete {self.path.parent} to start anew.")
        restore_training(training, tensors, values)

    def on_epoch_end(self, training: Training, record: EpochRecord, space: LatentSpace) -> None:  # noqa: ARG002
        """Replace the file by the present state."""
        self._write(training)

    def on_training_end(self, training: Training, result: Trained) -> None:  # noqa: ARG002
        """Replace the file once more if a callback stopped the training, which happens after `on_epoch_end` of this."""
        if training.stop_reason is not None:
            self._write(training)

    def _write(self, training: Training) -> None:
        tensors, values = training_state(training)
        write_tensors(self.path, KIND, VERSION, {**values, "run": self.run}, tensors)


@dataclass(frozen=True)
class Checkpoints:
    """The folder of one fit: who it belongs to, and a file for each network.

    Attributes
    ----------
    folder : Path
    run : str
        Digest of what must be the same for a run to go on.
    threads : ThreadCounts or None
        Numbers of threads that the run was started with and goes on with; None before `claim`.
    """

    folder: Path
    run: str = ""
    threads: ThreadCounts | None = None

    @classmethod
    def open(cls, folder: str | Path) -> "Checkpoints":
        """Make the folder if it is missing, and remove what a killed process left unfinished."""
        if not isinstance(folder, str | Path) or not str(folder):
            raise ValueError(f"checkpoint_dir must be the path of a folder, got {folder!r}.")
        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"checkpoint_dir must be a folder, but {folder} is a file.")
        folder.mkdir(parents=True, exist_ok=True)
        remove_unfinished(folder, (_IDENTITY, _NETWORK.format("*")))
        return cls(folder)

    def seed(self) -> int | None:
        """Return the seed of the run that the folder holds, if it holds one."""
        seed = self._identity().get("seed")
        return seed if isinstance(seed, int) else None

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the run that the folder holds; none if it holds no run."""
        values = self._identity().get("parameters")
        return values if isinstance(values, dict) else {}

    def claim(self, identity: Mapping[str, Any], threads: ThreadCounts) -> "Checkpoints":
        """Make the folder this run's, or refuse if it is another one's.

        Parameters
        ----------
        identity : mapping
            What must be the same for a run to go on: the data, the parameters, the versions, the seed.
        threads : ThreadCounts
            For a new run. One that has saved a network goes on with the numbers that it was started with.
        """
        there, here = self._identity(), json.loads(json.dumps({**identity, _FORMAT: VERSION}))
        stored = self._threads(there.pop(_THREADS, None))
        started = any(self.folder.glob(_NETWORK.format("*")))
        if there and there != here and started:
            raise ValueError(
                f"The checkpoints in {self.folder} belong to another run:"
                f" {'; '.join(list(_differences(there, here))[:5])}. Use what they were made with, another"
                " checkpoint_dir (every fit needs its own, also in cross-validation), or delete the folder."
            )
        threads = stored if stored is not None and started else threads
        if there != here or stored != threads:
            write_text(self.folder / _IDENTITY, _json({**here, _THREADS: threads._asdict()}))
        return replace(self, run=hashlib.sha256(_json(here).encode()).hexdigest(), threads=threads)

    def of(self, name: str) -> Checkpoint:
        """Return the checkpoint of one network's training."""
        return Checkpoint(self.folder / _NETWORK.format(name), self.run)

    def _identity(self) -> dict[str, Any]:
        path = self.folder / _IDENTITY
        if not path.exists():
            return {}
        try:
            identity = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise self._damaged() from error
        if not isinstance(identity, dict):
            raise self._damaged()
        return identity

    def _threads(self, values: Any) -> ThreadCounts | None:
        """Return the numbers in the folder; folders of older versions have none."""
        if values is None:
            return None
        if not isinstance(values, dict) or set(values) != set(ThreadCounts._fields):
            raise self._damaged()
        if not all(type(count) is int and count > 0 for count in values.values()):
            raise self._damaged()
        return ThreadCounts(**values)

    def _damaged(self) -> ValueError:
        return ValueError(f"{self.folder / _IDENTITY} is damaged; delete {self.folder} to start anew.")


def _json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, indent=2, sort_keys=True) + "\n"


def _differences(there: Mapping[str, Any], here: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name in sorted({*there, *here}):
        before, now = there.get(name, "missing"), here.get(name, "missing")
        if isinstance(before, dict) and isinstance(now, dict):
            yield from _differences(before, now, f"{prefix}{name} ")
        elif before != now:
            yield f"{prefix}{name} was {before!r} and is {now!r}"
