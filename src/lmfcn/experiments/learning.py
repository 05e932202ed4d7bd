"""What the histories of a training tell about its course, in a few figures."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from lmfcn.algorithm.history import History

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
