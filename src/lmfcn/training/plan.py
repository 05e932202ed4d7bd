"""From the parameters of an estimator to the plan of a fit, and to the record that stays with the model."""

from collections.abc import Mapping
from dataclasses import fields, replace
from numbers import Integral
from typing import Any

import numpy as np
import torch

from lmfcn.compute.parallel import Workers, workers_of
from lmfcn.compute.resources import ThreadCounts, check_device
from lmfcn.data.training_data import TrainingData
from lmfcn.recipe import PRESETS, Settings
from lmfcn.training.first_filters import FIRST_FILTERS
from lmfcn.training.phases import Plan
from lmfcn.util.checks import (
    check_choice,
    check_class_weight,
    check_closing,
    check_fraction,
    check_integer,
    check_jobs,
    check_settings,
    check_widths,
)
from lmfcn.util.packages import versions

Parameters = Mapping[str, Any]

STRATEGIES = ("joint", "one-vs-all")
EPOCHS_PER_CLASS = 10
_NETWORKS = {"latent_dim": 64, "strategy": "joint", "first_filters": "decorrelated", "keep_untrained": True}
_FROM_CLASS_WEIGHT = ("balanced", "prior_shift")
_NO_PART_OF_THE_RESULT = ("verbose", "n_jobs", "on_epoch", "checkpoint_dir", "random_state")


def settings_of(parameters: Parameters) -> Settings:
    """Check all parameters and return the settings that they and the preset make."""
    check_choice("preset", parameters["preset"], (None, *PRESETS))
    check_choice("strategy", _value(parameters, "strategy"), STRATEGIES)
    check_integer("latent_dim", _value(parameters, "latent_dim"), smallest=1)
    check_widths(parameters["widths"])
    check_choice("first_filters", _value(parameters, "first_filters"), FIRST_FILTERS)
    check_choice("keep_untrained", _value(parameters, "keep_untrained"), (True, False))
    check_fraction("validation_fraction", parameters["validation_fraction"])
    check_class_weight(parameters["class_weight"])
    check_jobs(parameters["n_jobs"])
    if parameters["on_epoch"] is not None and not callable(parameters["on_epoch"]):
        raise ValueError(f"on_epoch must be callable, got {parameters['on_epoch']!r}.")
    names = [field.name for field in fields(Settings) if field.name not in _FROM_CLASS_WEIGHT]
    settings = Settings(
        **{name: _value(parameters, name) for name in names},
        balanced=parameters["class_weight"] == "balanced",
        prior_shift=_recipe(parameters)["prior_shift"] if parameters["class_weight"] == "auto" else 0.0,
    )
    check_settings(settings)
    return settings


def plan_of(parameters: Parameters, settings: Settings, data: TrainingData, seed: int) -> Plan:
    """Return the plan for these data, without checkpoints."""
    classes = data.classes
    one_vs_all = _value(parameters, "strategy") == "one-vs-all" and len(classes) > 2
    if one_vs_all and parameters["epochs"] is None:
        of_all = {**parameters, "epochs": EPOCHS_PER_CLASS}
        settings = replace(settings, epochs=EPOCHS_PER_CLASS, closing_epochs=_value(of_all, "closing_epochs"))
        check_closing(settings)
    if data.validation is None:
        settings = replace(settings, closing_epochs=0)
    workers = workers_of(parameters["n_jobs"])
    if parameters["on_epoch"] is not None and one_vs_all and not workers.serial:
        raise ValueError("on_epoch sees nothing of other processes; use n_jobs=1 with it.")
    return Plan(
        latent_dim=_value(parameters, "latent_dim"),
        widths=tuple(parameters["widths"]),
        first_filters=_value(parameters, "first_filters"),
        keep_untrained=_value(parameters, "keep_untrained"),
        settings=settings,
        one_vs_all=one_vs_all,
        class_weights=_by_number(parameters["class_weight"], classes),
        seed=seed,
        device=check_device(parameters["device"]),
        n_jobs=parameters["n_jobs"],
        threads=_threads(workers, len(classes) if one_vs_all else 1),
        checkpoints=None,
        observe=parameters["on_epoch"],
        verbose=parameters["verbose"],
    )


def _threads(workers: Workers, n_networks: int) -> ThreadCounts:
    """Return the threads of this process, and those of each network: its worker's share, or one on a cluster."""
    process = torch.get_num_threads()
    if workers.scheduler is not None and n_networks > 1:
        return ThreadCounts(process, 1)
    return ThreadCounts(process, max(1, process // min(workers.jobs, n_networks)))


def record_of(parameters: Parameters, data: TrainingData, plan: Plan) -> dict[str, Any]:
    """Return what a model comes from, as JSON can hold it."""
    counts = {"epochs": plan.settings.epochs, "closing_epochs": plan.settings.closing_epochs}
    all_of_them = {**resolved(parameters), **counts}
    told = {name: value for name, value in all_of_them.items() if name not in _NO_PART_OF_THE_RESULT}
    return {
        "parameters": {name: _plain(value) for name, value in {**told, "device": str(plan.device)}.items()},
        "seed": plan.seed,
        "data": {
            "fingerprint": data.fingerprint(),
            "n_train": len(data.train),
            "n_validation": 0 if data.validation is None else len(data.validation),
            "classes": {str(label): int((data.train.numbers == i).sum()) for i, label in enumerate(data.classes)},
        },
        "versions": versions(),
    }


def resolved(parameters: Parameters) -> dict[str, Any]:
    """Return all parameters, those that the user left open with the value that they get."""
    recipe = _recipe(parameters)
    return {name: recipe.get(name) if value is None else value for name, value in parameters.items()}


def _recipe(parameters: Parameters) -> dict[str, Any]:
    """Return the values of everything that a user may leave open."""
    recipe = {**_NETWORKS, **vars(Settings())}
    refit, epochs = parameters["refit"], parameters["epochs"]
    # Nothing may learn from validation images without a refit; of fewer or more epochs the same share does.
    recipe["closing_epochs"] = 0 if refit is False else _closing_share(recipe["epochs"] if epochs is None else epochs)
    return {**recipe, **PRESETS.get(parameters["preset"] or "", {})}


def _closing_share(epochs: Any) -> int:
    settings = Settings()
    known = isinstance(epochs, Integral)  # whatever else it may be is refused later, with a sentence
    return round(int(epochs) * settings.closing_epochs / settings.epochs) if known else settings.closing_epochs


def _value(parameters: Parameters, name: str) -> Any:
    """Return a parameter; where the user left it at None, that of the preset or of the default recipe."""
    return _recipe(parameters)[name] if parameters[name] is None else parameters[name]


def _by_number(class_weight: Any, classes: np.ndarray) -> np.ndarray | None:
    """Translate weights by label into weights in the order of the classes."""
    if not isinstance(class_weight, Mapping):
        return None
    unknown = set(class_weight) - set(classes.tolist())
    if unknown:
        raise ValueError(f"class_weight names labels that are not in y: {sorted(unknown, key=str)}.")
    return np.array([float(class_weight.get(label, 1.0)) for label in classes.tolist()])


def _plain(value: Any) -> Any:
    """Return a parameter as JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)
