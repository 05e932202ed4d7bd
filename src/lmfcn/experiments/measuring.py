"""Fit one method on one division of a task, tuned as all others are, and put down what came of it."""

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from sklearn.metrics import balanced_accuracy_score

from lmfcn.baselines.cnn import CNNClassifier
from lmfcn.baselines.feature_svm import FeatureSVC
from lmfcn.baselines.methods import METHODS as COMPARATORS
from lmfcn.baselines.network_svm import CNNSVC
from lmfcn.baselines.tuning import Tried, Tuned, candidates_for, validation_score
from lmfcn.classifier import LMFCNClassifier
from lmfcn.data.fingerprint import fingerprint
from lmfcn.experiments.answers import answers_of
from lmfcn.experiments.exhibiting import exhibit_of
from lmfcn.experiments.learning import learning_figures
from lmfcn.experiments.runs import Cell, Run
from lmfcn.experiments.tasks import Part, Parts
from lmfcn.plans import resolved
from lmfcn.versions import machine, versions

METHODS: dict[str, Callable[..., Any]] = {
    "LMFCN": LMFCNClassifier,
    "LMFCN, paper's preset": partial(LMFCNClassifier, preset="paper"),
    **COMPARATORS,
}
NEED_WEIGHTS = ("ResNet18", "InceptionV3")
UNTUNED = ("LMFCN", "LMFCN, paper's preset")
"""Ours run as they come: what is measured is what somebody gets who changes no parameter."""
ON_TOP_OF_CNN = ("CNN + SVM", "FV-CNN")
"""Methods that build on the network of "CNN-CE" and are measured with it, without training it again."""

TUNED_FOR_ITSELF = ("CNN multiclass",)
"""Methods that another number of classes makes another network of: they take over no other task's choice."""

Changes = Mapping[str, Mapping[str, Any]]
"""Parameters that differ from the defaults, by method."""

CHANGES: Changes = {
    **{method: {"patience": 20} for method in ("CNN-CE", "CNN-H", "CNN multiclass", "CNN + SVM", "FV-CNN")},
    # About as many back-propagated images as LMFCN.
    **{method: {"epochs": 30} for method in ("contrastive", "proxy-anchor", "proxy-NCA", "ranked-list")},
}
"""What keeps the time of a whole study within hours."""

_NO_PART_OF_THE_RESULT = ("verbose", "n_jobs", "on_epoch", "checkpoint_dir", "cache_dir", "device", "random_state")


def is_tuned(method: str) -> bool:
    """Tell whether a method has a learning rate that is chosen for each task."""
    return method not in UNTUNED and "learning_rate" in METHODS[method]().get_params(deep=False)


def candidates_of(method: str, changes: Changes) -> list[dict[str, Any]]:
    """Return what tuning tries for a method."""
    return candidates_for(METHODS[method]().set_params(**changes.get(method, {})))


def digest_of(method: str, changes: Changes, more: Any = None) -> str:
    """Return 32 hexadecimal digits that change with the parameters of a method, and with `more`.

    Examples
    --------
    >>> digest_of("LMFCN", {}) == digest_of("LMFCN", {"LMFCN": {"C": 1.0}})
    False
    >>> digest_of("LMFCN", {}) == digest_of("LMFCN", {"LMFCN": {"verbose": True}, "LBP": {}})
    True
    """
    estimator = METHODS[method]().set_params(**changes.get(method, {}))
    parameters = estimator.get_params(deep=False)
    if isinstance(estimator, LMFCNClassifier):
        parameters = resolved(parameters)
    told = {name: value for name, value in parameters.items() if name not in _NO_PART_OF_THE_RESULT}
    if isinstance(estimator, FeatureSVC):
        told["rules"] = [asdict(rule) for rule in estimator.rules()]
    return fingerprint(None, json.dumps([method, told, more], sort_keys=True, default=str))


def measure(
    cell: Cell,
    parts: Parts,
    choice: Mapping[str, Any] | None = None,
    changes: Changes = CHANGES,
    beside: Collection[str] = ON_TOP_OF_CNN,
) -> Iterator[Run]:
    """Yield the run of a cell, and beside that of "CNN-CE" those of the methods that build on its network.

    Parameters
    ----------
    cell : Cell
    parts : Parts
    choice : mapping, optional
        Parameters that tuning chose before; without them all candidates are tried. Methods that have nothing to
        tune are fitted once in any case.
    changes : mapping of mappings
        What differs from the defaults of each method.
    beside : collection of str
        The methods on top of "CNN-CE" that are wanted.
    """
    estimator = METHODS[cell.method]().set_params(**changes.get(cell.method, {}), random_state=cell.seed)
    if not is_tuned(cell.method):
        choice = {}
    tuned = Tuned(estimator, candidates=None if choice is None else [choice])
    start = time.process_time()
    tuned.fit(*parts.train, validation=parts.validation)
    figures = {**_tuning_figures(tuned, time.process_time() - start), **_figures_of_data(parts)}
    best, seconds = tuned.best_estimator_, _winner(tuned).seconds
    yield Run(**cell._asdict(), **describe(best, parts, seconds), **figures)
    if cell.method == "CNN-CE":
        for method in (name for name in ON_TOP_OF_CNN if name in beside):
            start = time.process_time()
            fitted = _on_top_of(best, method, changes).fit_on(best, *parts.train, validation=parts.validation)
            fields = describe(fitted, parts, seconds + time.process_time() - start)
            yield Run(**cell._replace(method=method)._asdict(), **fields, **figures)


def describe(fitted: Any, parts: Parts, seconds: float) -> dict[str, Any]:
    """Return the fields of a `Run` that a fitted method gives: accuracies, cost, and its course of learning."""
    network = getattr(fitted, "model_", getattr(fitted, "network_", None))
    return {
        "train_balanced_accuracy": _accuracy(fitted, parts.train),
        "validation_balanced_accuracy": _held_out(fitted, parts),
        **answers_of(fitted, parts.test),
        "cpu_seconds": round(seconds, 1),
        "n_weights": 0 if network is None else sum(weights.numel() for weights in network.parameters()),
        "settings": _settings(fitted),
        "n_support_final": _n_support_final(fitted),
        **learning_figures(fitted),
        "exhibit": exhibit_of(fitted, parts),
    }


def _held_out(fitted: Any, parts: Parts) -> float | None:
    """Return the accuracy on validation images that the last SVM has not learnt from."""
    if isinstance(fitted, LMFCNClassifier) and isinstance(fitted.best_epoch_, list) and not fitted.settings_.refit:
        return _accuracy(fitted, parts.validation)  # of all classes, which the networks of one-vs-all know nothing of
    held_out, of_epoch = getattr(fitted, "held_out_score_", None), validation_score(fitted)
    # What the history of these tells is the accuracy of the CNN's linear layer, which they do without.
    first, second = (held_out, of_epoch) if isinstance(fitted, CNNSVC) else (of_epoch, held_out)
    return second if first is None else first


def _n_support_final(fitted: Any) -> int | None:
    """Return the number of support vectors of the SVM that predicts; None for a method that has none."""
    return len(fitted.support_) if isinstance(fitted, LMFCNClassifier) else getattr(fitted, "n_support_", None)


def _on_top_of(cnn: CNNClassifier, method: str, changes: Changes) -> CNNSVC:
    """Return an estimator with the parameters of the CNN that it is to be fitted on."""
    estimator = METHODS[method]().set_params(**changes.get(method, {}))
    own = estimator.get_params(deep=False)
    return estimator.set_params(**{name: value for name, value in cnn.get_params(deep=False).items() if name in own})


def _tuning_figures(tuned: Tuned, seconds: float) -> dict[str, Any]:
    return {
        "cpu_seconds_with_tuning": round(seconds, 1),
        "chosen": tuned.best_params_,
        "tried": [[one.parameters, one.validation_balanced_accuracy] for one in tuned.tried_],
    }


def _winner(tuned: Tuned) -> Tried:
    return next(one for one in tuned.tried_ if one.parameters == tuned.best_params_)


def _figures_of_data(parts: Parts) -> dict[str, Any]:
    return {
        "n_train": len(parts.train.labels),
        "n_validation": len(parts.validation.labels),
        "n_test": len(parts.test.labels),
        "split": parts.fingerprint(),
        "versions": versions(),
        "machine": machine(),
    }


def _accuracy(fitted: Any, part: Part) -> float:
    return float(balanced_accuracy_score(part.labels, fitted.predict(part.images)))


def _settings(fitted: Any) -> dict[str, Any]:
    """Return the parameters as JSON knows them; those that LMFCN left to its recipe with the value they got."""
    parameters = fitted.get_params(deep=False)
    if isinstance(fitted, LMFCNClassifier):
        parameters = {**resolved(parameters), **asdict(fitted.settings_)}
    return json.loads(json.dumps(parameters, default=str))
