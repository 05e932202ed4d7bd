"""The whole state of a training as named tensors and plain values, and back: bit for bit the same future."""

import copy
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from lmfcn.algorithm.decision import Decision
from lmfcn.algorithm.history import EpochRecord, History
from lmfcn.algorithm.training import KeptEpoch, Training

Tensors = dict[str, Tensor]
Values = dict[str, Any]


def training_state(training: Training) -> tuple[Tensors, Values]:
    """Return everything that the next epoch depends on."""
    kept = training.kept
    tensors = {
        **_prefixed("network", training.network.state_dict()),
        **_prefixed("head", _head_state(training)),
        **_prefixed("optimizer", _optimizer_tensors(training.descent.optimizer)),
        "generator": training.descent.generator.get_state(),
        **_prefixed("kept.network", kept.network.state_dict()),
        **_prefixed("kept.decision", kept.decision.tensors()),
        "kept.support": kept.support,
    }
    values = {
        "history": [asdict(record) for record in training.history],
        "kept": {"epoch": kept.epoch, "score": kept.score, "gamma": kept.decision.gamma},
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
    training.kept = KeptEpoch(
        kept["epoch"], kept["score"], network.eval(), decision, tensors["kept.support"].to(device)
    )
    training.history = History(EpochRecord(**record) for record in values["history"])


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
