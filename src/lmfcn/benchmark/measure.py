"""Fit one method on one split of a task, tuned like all others, and record the results."""

import json
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from sklearn.metrics import balanced_accuracy_score

from lmfcn.baselines.cnn import CNNClassifier
from lmfcn.baselines.feature_svm import FeatureSVC
from lmfcn.baselines.network_svm import CNNSVC
from lmfcn.baselines.registry import METHODS as COMPARATORS
from lmfcn.baselines.registry import check_able
from lmfcn.baselines.tuning import Tried, Tuned, candidates_for, validation_score
from lmfcn.benchmark.exhibit import answers_of, exhibit_of
from lmfcn.benchmark.runs import Cell, Run
from lmfcn.benchmark.tasks import Part, Parts
from lmfcn.classifier import LMFCNClassifier
from lmfcn.data.collection import ImageCollection
from lmfcn.data.training_data import fingerprint
from lmfcn.method.history import History
from lmfcn.training.plan import resolved
from lmfcn.util.packages import machine, versions

AnyHistory = History[Any]


def learning_figures(fitted: Any) -> dict[str, Any]:
    """Return the fields of a `Run` that come from the histories of a fitted method; none if it has no history.

    What validation images tell is known before the closing epochs; only counts go on over those.
    """
    histories, kept = getattr(fitted, "history_", None), getattr(fitted, "best_epoch_", None)
    if histories is None:
        return {}
    closing = getattr(fitted, "closing_history_", None) or []
    epochs: list[Any] = kept if isinstance(kept, list) else [kept]
    histories = histories if isinstance(kept, list) else [histories]
    closing = closing if isinstance(kept, list) or not closing else [closing]
    curve, seconds = _validation_by_epoch(histories), _seconds_by_epoch(histories)
    return {
        "epochs": fitted.n_iter_,
        "best_epoch": kept,
        "n_backpropagated": sum(sum(history.column("n_backpropagated")) for history in [*histories, *closing]),
        "n_support_first": _n_support(histories, [0] * len(histories)),
        "n_support_kept": _n_support(histories, epochs),
        "n_support_last": _n_support(histories, [-1] * len(histories)),
        "n_support_by_epoch": _n_support_by_epoch(histories),
        "validation_by_epoch": curve,
        "seconds_by_epoch": seconds,
        "seconds_to_best": None if curve is None else seconds[int(np.argmax(curve))],
        "history": [_columns(history) for history in histories],
        "closing_history": [_columns(history) for history in closing] or None,
    }


def _columns(history: AnyHistory) -> dict[str, list[Any]]:
    """Return every quantity over the epochs, as JSON can hold it; seconds without digits that mean nothing."""
    names = vars(history[0])
    return {
        name: [round(value, 4) for value in history.column(name)]
        if name.startswith("seconds")
        else history.column(name)
        for name in names
    }


def _n_support(histories: Sequence[AnyHistory], epochs: Sequence[int]) -> int | None:
    records = [history[epoch] for history, epoch in zip(histories, epochs, strict=True)]
    return sum(record.n_support for record in records) if hasattr(records[0], "n_support") else None


def _n_support_by_epoch(histories: Sequence[AnyHistory]) -> list[int] | None:
    if not hasattr(histories[0][0], "n_support"):
        return None
    return [sum(counts) for counts in _side_by_side([history.column("n_support") for history in histories])]


def _validation_by_epoch(histories: Sequence[AnyHistory]) -> list[float] | None:
    columns = [history.column("validation_balanced_accuracy") for history in histories]
    if any(None in column for column in columns):
        return None
    return [float(np.mean(scores)) for scores in _side_by_side(columns)]


def _seconds_by_epoch(histories: Sequence[AnyHistory]) -> list[float]:
    return [round(sum(seconds), 3) for seconds in _side_by_side([_until_measured(history) for history in histories])]


def _until_measured(history: AnyHistory) -> list[float]:
    """Return the seconds from the start until each epoch's accuracies were known: before that epoch's own updates."""
    whole = [_seconds(record) for record in history]
    updates = history.column("seconds_backpropagation")
    return [until - update for until, update in zip(accumulate(whole), updates, strict=True)]


def _seconds(record: Any) -> float:
    return sum(value for name, value in vars(record).items() if name.startswith("seconds_"))


def _side_by_side(columns: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return one tuple per epoch; a network that ended early stays what it was."""
    length = max(len(column) for column in columns)
    return list(zip(*([*column, *[column[-1]] * (length - len(column))] for column in columns), strict=True))


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


WEIGHT_OPTIONS = {"ResNet18": "--resnet18-weights", "InceptionV3": "--inception-weights"}

DEFAULT_METHODS = ("LMFCN", "LMFCN, untrained", "CNN-CE", "CNN + SVM", "GLCM", "LBP", "PFTAS", "random-fcn")

CHEAP_FIRST = (
    *("LBP", "PFTAS", "random-fcn", "LMFCN, untrained", "GLCM"),
    *("ResNet18", "ResNet18, random weights", "InceptionV3", "InceptionV3, random weights"),
    *("LMFCN", "LMFCN, paper's preset", "contrastive", "proxy-anchor", "proxy-NCA", "ranked-list"),
    *("CNN-CE", "CNN + SVM", "FV-CNN", "CNN-H", "CNN multiclass"),
)
"""All methods in the order in which they are run: those that take seconds are not kept waiting by others."""

_FEW_EPOCHS = {
    **{name: {"epochs": 5} for name in ("LMFCN", "LMFCN, paper's preset")},
    **{name: {"epochs": 20, "patience": 5} for name in ("CNN-CE", "CNN-H", "CNN multiclass", "CNN + SVM", "FV-CNN")},
    **{name: {"epochs": 10} for name in ("contrastive", "proxy-anchor", "proxy-NCA", "ranked-list")},
}
QUICK_CHANGES: Changes = {**CHANGES, **_FEW_EPOCHS}
"""What a quick look changes: too few epochs for a fair verdict on methods that train."""


def choose_methods(names: Iterable[str]) -> list[str]:
    """Return the methods by these names in the order to run them; "all" stands for every one.

    Upper and lower case do not matter, and several names may be joined by commas.

    Examples
    --------
    >>> choose_methods(["lmfcn, untrained,LBP", "LMFCN"])
    ['LBP', 'LMFCN, untrained', 'LMFCN']
    """
    known = {method.lower(): method for method in METHODS}
    wanted: set[str] = set()
    for name in divided_at_commas(names, known):
        if name == "all":
            wanted |= set(METHODS)
        elif name in known:
            wanted.add(known[name])
        else:
            raise ValueError(f"There is no method {name!r}; there are {'; '.join(METHODS)}; and all.")
    if not wanted:
        raise ValueError("--methods names no method.")
    return [method for method in CHEAP_FIRST if method in wanted]


def able_methods(
    methods: Sequence[str], images: ImageCollection, changes: Changes = CHANGES
) -> tuple[list[str], dict[str, str]]:
    """Return the methods that can run here on these images, and for each of the others the reason why not."""
    channels, pixels = images.pixel_format()
    smallest_side, left_out = int(images.sizes().min()), _idle_methods(methods, images, changes)
    for method in (name for name in methods if name not in left_out):
        estimator = METHODS[method]().set_params(**changes.get(method, {}))
        try:
            check_able(estimator, channels, pixels, smallest_side)
        except (ImportError, ValueError, OSError) as error:
            left_out[method] = str(error)
    able = [method for method in methods if method not in left_out]
    if not able:
        raise ValueError(f"None of the methods can run: {'; '.join(left_out.values())}")
    return able, left_out


def _idle_methods(methods: Sequence[str], images: ImageCollection, changes: Changes) -> dict[str, str]:
    """Return the reasons of those that lack their weights, or would be the same as another."""
    reasons = {
        method: f"its weights were not given ({WEIGHT_OPTIONS[method]} FILE)."
        for method in methods
        if method in WEIGHT_OPTIONS and "weights" not in changes.get(method, {})
    }
    if {"CNN multiclass", "CNN-CE"} <= set(methods) and len(np.unique(np.asarray(images.labels))) == 2:
        reasons["CNN multiclass"] = "with two classes it is the same network as CNN-CE."
    return reasons


def divided_at_commas(names: Iterable[str], known: Container[str]) -> list[str]:
    """Return names in lower case, divided at commas, but not where a comma is part of a known name."""
    pieces: list[str] = []
    for name in names:
        for piece in (part.strip().lower() for part in name.split(",") if part.strip()):
            joined = f"{pieces[-1]}, {piece}" if pieces else ""
            if joined in known:
                pieces[-1] = joined
            else:
                pieces.append(piece)
    return pieces
