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

from lmfcn.baselines import METHODS as BASELINES
from lmfcn.baselines import check_requirements
from lmfcn.baselines.cnn import CNNClassifier
from lmfcn.baselines.feature_svm import FeatureSVC
from lmfcn.baselines.network_svm import CNNSVC
from lmfcn.baselines.tuning import Tried, Tuned, candidates_for, validation_score
from lmfcn.benchmark.model_summary import prediction_fields, requested_summary
from lmfcn.benchmark.runs import Run, RunKey, former_method, former_parameters
from lmfcn.benchmark.tasks import SplitData, Subset
from lmfcn.classifier import LMFCNClassifier
from lmfcn.data.collection import ImageCollection
from lmfcn.data.training_data import fingerprint
from lmfcn.method.history import History
from lmfcn.networks.registry import EFFICIENTNET_LITE0, TEXTURE_FCN
from lmfcn.training.final_svm import SHRINKAGE, SVMCandidate
from lmfcn.util.packages import machine, versions

AnyHistory = History[Any]


METHODS: dict[str, Callable[..., Any]] = {
    "LMFCN": LMFCNClassifier,
    "LMFCN (paper)": partial(LMFCNClassifier, recipe="paper"),
    "LMFCN, pretrained": partial(LMFCNClassifier, network=EFFICIENTNET_LITE0),
    **BASELINES,
}
NEED_WEIGHTS = ("ResNet18", "InceptionV3")
UNTUNED = ("LMFCN", "LMFCN (paper)", "LMFCN, pretrained")
"""LMFCN is not tuned: the result is that of a user who changes no parameter."""
ON_TOP_OF_CNN = ("CNN + SVM", "FV-CNN")
"""Methods that use the network of "CNN-CE"; they are measured with it, without training it again."""

TUNED_PER_TASK = ("CNN multiclass",)
"""Methods whose network depends on the number of classes, so that they are tuned on every task."""

Changes = Mapping[str, Mapping[str, Any]]
"""Parameters that differ from the defaults, by method."""

CHANGES: Changes = {
    **{method: {"patience": 20} for method in ("CNN-CE", "CNN-H", "CNN multiclass", "CNN + SVM", "FV-CNN")},
    # About as many back-propagated images as LMFCN.
    **{method: {"epochs": 30} for method in ("contrastive", "proxy-anchor", "proxy-NCA", "ranked-list")},
}
"""Changes that keep the time of a whole study within hours."""

_WITHOUT_EFFECT = ("verbose", "n_jobs", "on_epoch", "checkpoint_dir", "cache_dir", "device", "random_state")

WEIGHT_OPTIONS = {"ResNet18": "--resnet18-weights", "InceptionV3": "--inception-weights"}

DEFAULT_METHODS = (
    *("LMFCN", "LMFCN, pretrained", "LMFCN, untrained", "CNN-CE", "CNN + SVM"),
    *("EfficientNet-Lite0 + SVM", "GLCM", "LBP", "PFTAS", "random-fcn"),
)

RUN_ORDER = (
    *("LBP", "PFTAS", "random-fcn", "LMFCN, untrained", "GLCM"),
    *("EfficientNet-Lite0 + SVM", "LMFCN, pretrained"),
    *("ResNet18", "ResNet18, random weights", "InceptionV3", "InceptionV3, random weights"),
    *("LMFCN", "LMFCN (paper)", "contrastive", "proxy-anchor", "proxy-NCA", "ranked-list"),
    *("CNN-CE", "CNN + SVM", "FV-CNN", "CNN-H", "CNN multiclass"),
)
"""All methods in the order in which they run, the cheap ones first."""

_FEW_EPOCHS = {
    **{name: {"epochs": 5} for name in UNTUNED},
    **{name: {"epochs": 20, "patience": 5} for name in ("CNN-CE", "CNN-H", "CNN multiclass", "CNN + SVM", "FV-CNN")},
    **{name: {"epochs": 10} for name in ("contrastive", "proxy-anchor", "proxy-NCA", "ranked-list")},
}
QUICK_CHANGES: Changes = {**CHANGES, **_FEW_EPOCHS}
"""Changes of `lmfcn compare --quick`: too few epochs for a fair comparison of methods that train."""


def is_tuned(method: str) -> bool:
    """Tell whether a method is tuned, that is, whether it has a learning rate and is not LMFCN."""
    return method not in UNTUNED and "learning_rate" in METHODS[method]().get_params(deep=False)


def candidates_of(method: str, changes: Changes) -> list[dict[str, Any]]:
    """Return the parameters that tuning tries for a method."""
    return candidates_for(METHODS[method]().set_params(**changes.get(method, {})))


def digest_of(method: str, changes: Changes, more: Any = None) -> str:
    """Return 32 hexadecimal digits that change with the parameters of a method, and with `more`.

    Methods and parameters enter under the names that they had when the first digests were written.

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
        parameters = _lmfcn_parameters(estimator)
    values = former_parameters({name: value for name, value in parameters.items() if name not in _WITHOUT_EFFECT})
    if isinstance(estimator, FeatureSVC):
        values["rules"] = [_rule_values(rule) for rule in estimator.rules()]
    return fingerprint(None, json.dumps([former_method(method), values, more], sort_keys=True, default=str))


def _rule_values(rule: SVMCandidate) -> dict[str, Any]:
    """Return the values of a rule; the usual shrinkage is left out, as the first digests were made without it."""
    return {name: value for name, value in asdict(rule).items() if (name, value) != ("shrinkage", SHRINKAGE)}


_NEW_CHOICES = {
    "split_duplicates": False,
    "fill_anchors": False,
    "step_per": "batch",
    "batch_statistics": "refreshed",
    "fixed_first": False,
    "deviations": False,
    "correlations": False,
    "scales": 1,
    "crop_size": None,
}
"""Values of a recipe that the first digests were made without, as they then were."""


def _lmfcn_parameters(estimator: LMFCNClassifier) -> dict[str, Any]:
    """Return the parameters that decide about the result, in the form that the first digests were made of."""
    recipe = estimator.recipe_with_overrides()
    values = {**asdict(recipe.for_data(2, n_images=1, has_validation=True)), "passes": recipe.passes}
    # When the first digests were made, "auto" was single precision on every processor.
    if estimator.network == TEXTURE_FCN and recipe.correlations == "auto":
        values["correlations"] = False  # what "auto" comes to
    values["precision"] = {"float32": "auto", "auto": "bfloat16 if fast"}.get(recipe.precision, recipe.precision)
    others = ("class_weight", "validation_fraction", "image_shape")
    return {
        **{name: value for name, value in values.items() if name not in ("balanced", "prior_shift", *_NEW_CHOICES)},
        **{name: getattr(estimator, name) for name in others},
        "strategy": recipe.strategy,
        "preset": "paper" if estimator.recipe == "paper" else None,
        # The first digests were made before there were these choices.
        **{name: values[name] for name, usual in _NEW_CHOICES.items() if values[name] != usual},
        **({} if estimator.network == TEXTURE_FCN else {"network": str(estimator.network)}),
    }


def measure(
    key: RunKey,
    data: SplitData,
    choice: Mapping[str, Any] | None = None,
    changes: Changes = CHANGES,
    on_top_of_cnn: Collection[str] = ON_TOP_OF_CNN,
) -> Iterator[Run]:
    """Tune, fit and test a method; yield its run, and after "CNN-CE" the runs of methods that use its network.

    Parameters
    ----------
    key : RunKey
    data : SplitData
    choice : mapping, optional
        Parameters that tuning chose before; without them all candidates are tried. Methods that have nothing to
        tune are fitted once in any case.
    changes : mapping of mappings
        Parameters that differ from the defaults, by method.
    on_top_of_cnn : collection of str
        The methods to measure on the network of "CNN-CE".
    """
    estimator = METHODS[key.method]().set_params(**changes.get(key.method, {}), random_state=key.seed)
    if not is_tuned(key.method):
        choice = {}
    tuned = Tuned(estimator, candidates=None if choice is None else [choice])
    start = time.process_time()
    tuned.fit(*data.train, validation=data.validation)
    common = {**_tuning_fields(tuned, time.process_time() - start), **_data_fields(data)}
    best, seconds = tuned.best_estimator_, _best_candidate(tuned).seconds
    yield Run(**key._asdict(), **model_fields(best, data, seconds), **common)
    if key.method == "CNN-CE":
        for method in (name for name in ON_TOP_OF_CNN if name in on_top_of_cnn):
            start = time.process_time()
            fitted = _with_parameters_of(best, method, changes).fit_on(best, *data.train, validation=data.validation)
            fields = model_fields(fitted, data, seconds + time.process_time() - start)
            yield Run(**key._replace(method=method)._asdict(), **fields, **common)


def model_fields(fitted: Any, data: SplitData, seconds: float) -> dict[str, Any]:
    """Return the fields of a `Run` that depend on the fitted method: accuracies, cost, and history of training."""
    network = getattr(fitted, "model_", getattr(fitted, "network_", None))
    return {
        "train_balanced_accuracy": _accuracy(fitted, data.train),
        "validation_balanced_accuracy": _validation_accuracy(fitted, data),
        **prediction_fields(fitted, data.test),
        "cpu_seconds": round(seconds, 1),
        "n_weights": 0 if network is None else sum(weights.numel() for weights in network.parameters()),
        "settings": _settings(fitted),
        "n_support_final": _n_support_final(fitted),
        **history_fields(fitted),
        "model_summary": requested_summary(fitted, data),
    }


def _validation_accuracy(fitted: Any, data: SplitData) -> float | None:
    """Return the accuracy on validation images that the model was not fitted on."""
    if isinstance(fitted, LMFCNClassifier) and isinstance(fitted.best_epoch_, list) and not fitted.recipe_.refit:
        return _accuracy(fitted, data.validation)  # of all classes; each network of one-vs-all has only two
    held_out, of_epoch = getattr(fitted, "held_out_score_", None), validation_score(fitted)
    # The history of a CNNSVC has the accuracy of the CNN's linear layer, which it does not use.
    first, second = (held_out, of_epoch) if isinstance(fitted, CNNSVC) else (of_epoch, held_out)
    return second if first is None else first


def _n_support_final(fitted: Any) -> int | None:
    """Return the number of support vectors of the final SVM; None for a method without one."""
    return len(fitted.support_) if isinstance(fitted, LMFCNClassifier) else getattr(fitted, "n_support_", None)


def _with_parameters_of(cnn: CNNClassifier, method: str, changes: Changes) -> CNNSVC:
    """Return an unfitted estimator with the parameters of the CNN whose network it will use."""
    estimator = METHODS[method]().set_params(**changes.get(method, {}))
    own = estimator.get_params(deep=False)
    return estimator.set_params(**{name: value for name, value in cnn.get_params(deep=False).items() if name in own})


def _tuning_fields(tuned: Tuned, seconds: float) -> dict[str, Any]:
    return {
        "cpu_seconds_with_tuning": round(seconds, 1),
        "chosen": tuned.best_params_,
        "tried": [[one.parameters, one.validation_balanced_accuracy] for one in tuned.tried_],
    }


def _best_candidate(tuned: Tuned) -> Tried:
    return next(one for one in tuned.tried_ if one.parameters == tuned.best_params_)


def _data_fields(data: SplitData) -> dict[str, Any]:
    return {
        "n_train": len(data.train.labels),
        "n_validation": len(data.validation.labels),
        "n_test": len(data.test.labels),
        "split": data.fingerprint(),
        "versions": versions(),
        "machine": machine(),
    }


def _accuracy(fitted: Any, subset: Subset) -> float:
    return float(balanced_accuracy_score(subset.labels, fitted.predict(subset.images)))


def _settings(fitted: Any) -> dict[str, Any]:
    """Return the parameters as JSON values; None values of LMFCN are replaced by those of its recipe."""
    parameters = fitted.get_params(deep=False)
    if isinstance(fitted, LMFCNClassifier):
        parameters = {**parameters, **asdict(fitted.recipe_), "recipe": str(fitted.recipe)}
    return json.loads(json.dumps(parameters, default=str))


def history_fields(fitted: Any) -> dict[str, Any]:
    """Return the fields of a `Run` that come from the histories of a fitted method; none if it has no history.

    Validation accuracies end before the refit epochs, which train on validation images; counts include those epochs.
    """
    histories, selected = getattr(fitted, "history_", None), getattr(fitted, "best_epoch_", None)
    if histories is None:
        return {}
    refit = getattr(fitted, "refit_history_", None) or []
    epochs: list[Any] = selected if isinstance(selected, list) else [selected]
    histories = histories if isinstance(selected, list) else [histories]
    refit = refit if isinstance(selected, list) or not refit else [refit]
    curve, seconds = _validation_by_epoch(histories), _seconds_by_epoch(histories)
    return {
        "epochs": fitted.n_iter_,
        "best_epoch": selected,
        "n_backpropagated": sum(sum(history.column("n_backpropagated")) for history in [*histories, *refit]),
        "n_support_first": _n_support(histories, [0] * len(histories)),
        "n_support_kept": _n_support(histories, epochs),
        "n_support_last": _n_support(histories, [-1] * len(histories)),
        "n_support_by_epoch": _n_support_by_epoch(histories),
        "validation_by_epoch": curve,
        "seconds_by_epoch": seconds,
        "seconds_to_best": None if curve is None else seconds[int(np.argmax(curve))],
        "history": [_columns(history) for history in histories],
        "closing_history": [_columns(history) for history in refit] or None,
    }


def _columns(history: AnyHistory) -> dict[str, list[Any]]:
    """Return every quantity over the epochs as lists for JSON; seconds are rounded."""
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
    return [sum(counts) for counts in _align_epochs([history.column("n_support") for history in histories])]


def _validation_by_epoch(histories: Sequence[AnyHistory]) -> list[float] | None:
    columns = [history.column("validation_balanced_accuracy") for history in histories]
    if any(None in column for column in columns):
        return None
    return [float(np.mean(scores)) for scores in _align_epochs(columns)]


def _seconds_by_epoch(histories: Sequence[AnyHistory]) -> list[float]:
    return [
        round(sum(seconds), 3) for seconds in _align_epochs([_seconds_until_measured(history) for history in histories])
    ]


def _seconds_until_measured(history: AnyHistory) -> list[float]:
    """Return the seconds from the start until the accuracies of each epoch were known, before its own updates."""
    whole = [_seconds(record) for record in history]
    updates = history.column("seconds_backpropagation")
    return [until - update for until, update in zip(accumulate(whole), updates, strict=True)]


def _seconds(record: Any) -> float:
    return sum(value for name, value in vars(record).items() if name.startswith("seconds_"))


def _align_epochs(columns: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return one tuple per epoch; a network that ended early repeats its last value."""
    length = max(len(column) for column in columns)
    return list(zip(*([*column, *[column[-1]] * (length - len(column))] for column in columns), strict=True))


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
    for name in split_names(names, known):
        if name == "all":
            wanted |= set(METHODS)
        elif name in known:
            wanted.add(known[name])
        else:
            raise ValueError(f"There is no method {name!r}; there are {'; '.join(METHODS)}; and all.")
    if not wanted:
        raise ValueError("--methods names no method.")
    return [method for method in RUN_ORDER if method in wanted]


def runnable_methods(
    methods: Sequence[str], images: ImageCollection, changes: Changes = CHANGES
) -> tuple[list[str], dict[str, str]]:
    """Return the methods that can run on these images, and the reasons why the others cannot."""
    channels, pixels = images.pixel_format()
    smallest_side, left_out = int(images.sizes().min()), _unusable_methods(methods, images, changes)
    for method in (name for name in methods if name not in left_out):
        estimator = METHODS[method]().set_params(**changes.get(method, {}))
        try:
            check_requirements(estimator, channels, pixels, smallest_side)
        except (ImportError, ValueError, OSError) as error:
            left_out[method] = str(error)
    runnable = [method for method in methods if method not in left_out]
    if not runnable:
        raise ValueError(f"None of the methods can run: {'; '.join(left_out.values())}")
    return runnable, left_out


def _unusable_methods(methods: Sequence[str], images: ImageCollection, changes: Changes) -> dict[str, str]:
    """Return the reasons against methods that lack their weights or are the same as another one."""
    reasons = {
        method: f"its weights were not given ({WEIGHT_OPTIONS[method]} FILE)."
        for method in methods
        if method in WEIGHT_OPTIONS and "weights" not in changes.get(method, {})
    }
    if {"CNN multiclass", "CNN-CE"} <= set(methods) and len(np.unique(np.asarray(images.labels))) == 2:
        reasons["CNN multiclass"] = "with two classes it is the same network as CNN-CE."
    return reasons


def split_names(names: Iterable[str], known: Container[str]) -> list[str]:
    """Split names at commas, except inside a known name, and return them in lower case."""
    pieces: list[str] = []
    for name in names:
        for piece in (part.strip().lower() for part in name.split(",") if part.strip()):
            joined = f"{pieces[-1]}, {piece}" if pieces else ""
            if joined in known:
                pieces[-1] = joined
            else:
                pieces.append(piece)
    return pieces
