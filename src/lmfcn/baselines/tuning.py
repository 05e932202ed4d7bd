"""Tune learning rate, weight decay, first filters and augmentation, in the same way for every trained method."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import Tags, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from lmfcn.data.arrays import as_generator
from lmfcn.method.history import TrainingError

RATES = (3e-4, 1e-3)
MORE_DECAY = 0.1


def candidates_for(estimator: Any) -> list[dict[str, Any]]:
    """Return the candidates: no change, the other one of two learning rates, and more weight decay.

    Baselines with the same parameters also try LMFCN's learning rate, first filters and augmentation together. An
    estimator without a learning rate has nothing to tune.
    """
    parameters = estimator.get_params()
    inner = "" if "learning_rate" in parameters else "recipe__"  # where LMFCN has these values
    if f"{inner}learning_rate" not in parameters:
        return [{}]
    rate = parameters[f"{inner}learning_rate"]
    other = RATES[0] if rate > RATES[0] else RATES[1]
    candidates: list[dict[str, Any]] = [{}, {f"{inner}learning_rate": other}, {f"{inner}weight_decay": MORE_DECAY}]
    if (parameters.get("first_filters"), parameters.get("augmentation")) == ("random", "none"):
        candidates.append({"learning_rate": RATES[1], "first_filters": "decorrelated", "augmentation": "flips"})
    return candidates


@dataclass(frozen=True)
class Tried:
    """One candidate: its parameters, its validation balanced accuracy, and its seconds of computing time.

    The accuracy is None for a method that has nothing to tune. It is also None if training failed; `failure` then
    holds the reason.
    """

    parameters: dict[str, Any]
    validation_balanced_accuracy: float | None
    seconds: float
    failure: str | None = None


def _delegate(name: str) -> Any:
    """Return a method that calls the method of that name of the best estimator; it exists only if that does."""

    def check(self: "Tuned") -> bool:
        return hasattr(getattr(self, "best_estimator_", self.estimator), name)

    def method(self: "Tuned", X: Any) -> np.ndarray:
        check_is_fitted(self, "best_estimator_")
        return getattr(self.best_estimator_, name)(X)

    method.__name__, method.__doc__ = name, f"Return what `{name}` of the best estimator returns."
    return available_if(check)(method)


class Tuned(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Fit an estimator once per candidate and select the one with the best validation balanced accuracy.

    The validation images are the ones that select the epoch of a training anyway. The score of a candidate is that of
    its selected epoch; the earlier candidate wins a tie. All candidates have the same split and the same seed. A
    candidate whose training fails is dropped. An estimator without `learning_rate` has nothing to tune by default and
    is fitted once.

    Parameters
    ----------
    estimator : estimator
        LMFCN or a baseline.
    candidates : sequence of dict, optional
        Parameters to try; those of `candidates_for` by default.

    Attributes
    ----------
    best_estimator_ : estimator
    best_params_ : dict
        The parameters of the winner that differ from those of `estimator`.
    tried_ : list of Tried
        Every candidate with its score and its time, in order.
    classes_ : array (n_classes,)

    Examples
    --------
    >>> from lmfcn import make_gaussians
    >>> from lmfcn.baselines.cnn import CNNClassifier
    >>> X, y = make_gaussians(n_per_class=20, size=16, random_state=0)
    >>> tuned = Tuned(CNNClassifier(epochs=2, latent_dim=4, random_state=0)).fit(X, y)
    >>> len(tuned.tried_)
    4
    """

    def __init__(self, estimator: Any, *, candidates: Sequence[Mapping[str, Any]] | None = None) -> None:
        self.estimator = estimator
        self.candidates = candidates

    def fit(self, X: Any, y: Any = None, groups: Any = None, validation: Any = None) -> "Tuned":
        """Fit all candidates and select the best; the arguments are those of `LMFCNClassifier.fit`."""
        candidates, seed = self._candidates(), self._seed()
        self.tried_, best = [], None
        for candidate in candidates:
            start = time.process_time()
            estimator = clone(self.estimator).set_params(**candidate, random_state=seed)
            score, failure = None, None
            try:
                estimator.fit(X, y, groups=groups, validation=validation)
                score = validation_score(estimator)
            except TrainingError as error:
                failure = str(error)
            self.tried_.append(Tried(dict(candidate), score, time.process_time() - start, failure))
            if failure is None and len(candidates) > 1 and score is None:
                raise ValueError(_NO_VALIDATION_SCORE)
            if failure is None and (best is None or (score or 0.0) > best):
                best, self.best_estimator_, self.best_params_ = score or 0.0, estimator, dict(candidate)
        if best is None:
            raise TrainingError(f"Every candidate failed; the first one: {self.tried_[0].failure}")
        self.classes_ = self.best_estimator_.classes_
        return self

    def _candidates(self) -> list[Mapping[str, Any]]:
        if self.candidates is None:
            return list(candidates_for(self.estimator))
        valid = isinstance(self.candidates, Sequence) and all(isinstance(one, Mapping) for one in self.candidates)
        if not valid or not self.candidates:
            raise ValueError(f"candidates must be a list of at least one dict of parameters, got {self.candidates!r}.")
        return list(self.candidates)

    def _seed(self) -> int:
        """Return one seed for all candidates, so that they differ in nothing else."""
        seed = self.estimator.get_params(deep=False).get("random_state")
        return int(seed) if isinstance(seed, int | np.integer) else int(as_generator(seed).integers(2**31))

    predict = _delegate("predict")
    predict_proba = _delegate("predict_proba")
    decision_function = _delegate("decision_function")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags


_NO_VALIDATION_SCORE = (
    "Tuning needs an estimator that measures validation images while it trains; give some to fit, or a"
    " validation_fraction above 0 to the estimator."
)


def validation_score(estimator: Any) -> float | None:
    """Return the validation balanced accuracy of the selected epoch, averaged over the networks of one-vs-all.

    None for an estimator that does not train, or trained without validation images.
    """
    histories, epochs = getattr(estimator, "history_", None), getattr(estimator, "best_epoch_", None)
    if histories is None:
        return None
    if not isinstance(epochs, list):
        histories, epochs = [histories], [epochs]
    scores = [history[epoch].validation_balanced_accuracy for history, epoch in zip(histories, epochs, strict=True)]
    return None if None in scores else float(np.mean(scores))
