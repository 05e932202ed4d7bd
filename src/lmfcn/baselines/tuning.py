"""A small search for learning rate and weight decay, the same for every method that trains."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import Tags, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from lmfcn.data.seeds import as_generator

CANDIDATES: tuple[Mapping[str, float], ...] = ({}, {"learning_rate": 1e-3}, {"weight_decay": 0.1})
"""What is tried: the defaults (which all methods share: 0.0003 and 0.01), a larger rate, more decay."""


@dataclass(frozen=True)
class Tried:
    """One candidate: its parameters, its best validation balanced accuracy, and its seconds of computing time."""

    parameters: dict[str, Any]
    validation_balanced_accuracy: float
    seconds: float


def _delegate(name: str) -> Any:
    """Offer a method if the estimator has it."""

    def check(self: "Tuned") -> bool:
        return hasattr(getattr(self, "best_estimator_", self.estimator), name)

    def method(self: "Tuned", X: Any) -> np.ndarray:
        check_is_fitted(self, "best_estimator_")
        return getattr(self.best_estimator_, name)(X)

    method.__name__, method.__doc__ = name, f"Return what `{name}` of the best estimator returns."
    return available_if(check)(method)


class Tuned(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Fit an estimator once per candidate and keep the one with the best validation balanced accuracy.

    The validation images are those by which a training chooses its epoch anyway; a candidate's score is that of its
    kept epoch, and the earlier candidate wins a tie. All candidates see the same split and the same seed. An
    estimator without `learning_rate` has nothing to tune here and is fitted once.

    Parameters
    ----------
    estimator : estimator
        LMFCN or a comparator.
    candidates : sequence of dict, optional
        Parameters to try; `CANDIDATES` by default.

    Attributes
    ----------
    best_estimator_ : estimator
    best_params_ : dict
        The parameters of the winner that differ from those of `estimator`.
    tried_ : list of Tried
        Every candidate in order: the budget, and what it brought.
    classes_ : array (n_classes,)

    Examples
    --------
    >>> from lmfcn import make_gaussians
    >>> from lmfcn.baselines.cnn import CNNClassifier
    >>> X, y = make_gaussians(n_per_class=20, size=16, random_state=0)
    >>> tuned = Tuned(CNNClassifier(epochs=2, latent_dim=4, random_state=0)).fit(X, y)
    >>> len(tuned.tried_)
    3
    """

    def __init__(self, estimator: Any, *, candidates: Sequence[Mapping[str, Any]] | None = None) -> None:
        self.estimator = estimator
        self.candidates = candidates

    def fit(self, X: Any, y: Any = None, groups: Any = None, validation: Any = None) -> "Tuned":
        """Try all candidates; the arguments are those of `LMFCNClassifier.fit`."""
        known = self.estimator.get_params(deep=False)
        candidates = CANDIDATES if self.candidates is None else self.candidates
        if not candidates:
            raise ValueError("candidates must hold at least one set of parameters, got none.")
        if "learning_rate" not in known:
            candidates = [{}]
        # One seed for all, so that they differ in nothing else.
        seed = known.get("random_state")
        if not isinstance(seed, int | np.integer):
            seed = int(as_generator(seed).integers(2**31))
        self.tried_, best = [], -1.0
        for candidate in candidates:
            start = time.process_time()
            estimator = clone(self.estimator).set_params(**candidate, random_state=seed)
            estimator.fit(X, y, groups=groups, validation=validation)
            score = validation_score(estimator)
            self.tried_.append(Tried(dict(candidate), score, time.process_time() - start))
            if score > best:
                best, self.best_estimator_, self.best_params_ = score, estimator, dict(candidate)
        self.classes_ = self.best_estimator_.classes_
        return self

    predict = _delegate("predict")
    predict_proba = _delegate("predict_proba")
    decision_function = _delegate("decision_function")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags


def validation_score(estimator: Any) -> float:
    """Return the validation balanced accuracy of the kept epoch, averaged over the networks of one-vs-all.

    0 for an estimator that has nothing to say about it.
    """
    histories = getattr(estimator, "history_", None)
    if histories is None:
        return 0.0
    epochs = estimator.best_epoch_
    if not isinstance(epochs, list):
        histories, epochs = [histories], [epochs]
    scores = [history[epoch].validation_balanced_accuracy for history, epoch in zip(histories, epochs, strict=True)]
    if None in scores:
        raise ValueError(
            "Tuning needs validation images; give some to fit, or a validation_fraction above 0 to the estimator."
        )
    return float(np.mean(scores))
