from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from lmfcn.algorithm.history import History
from lmfcn.experiments.learning import learning_figures


@dataclass(frozen=True)
class Measured:
    validation_balanced_accuracy: float | None
    n_support: int
    n_backpropagated: int
    seconds_encoding: float
    seconds_backpropagation: float


@dataclass(frozen=True)
class WithoutSupport:
    validation_balanced_accuracy: float | None
    n_backpropagated: int
    seconds_backpropagation: float


FIRST = History([Measured(0.5, 40, 80, 1.0, 10.0), Measured(0.75, 30, 60, 2.0, 20.0), Measured(0.75, 20, 0, 3.0, 0.0)])
SECOND = History([Measured(1.0, 10, 30, 0.5, 4.0), Measured(0.75, 8, 0, 0.5, 0.0)])


def test_one_network_by_hand():
    assert learning_figures(SimpleNamespace(history_=FIRST, best_epoch_=1, n_iter_=2)) == {
        "epochs": 2,
        "best_epoch": 1,
        "n_backpropagated": 140,
        "n_support_first": 40,
        "n_support_kept": 30,
        "n_support_last": 20,
        "n_support_by_epoch": [40, 30, 20],
        "validation_by_epoch": [0.5, 0.75, 0.75],
        "seconds_by_epoch": [1.0, 13.0, 36.0],
        "seconds_to_best": 13.0,
        "history": [
            {
                "n_backpropagated": [80, 60, 0],
                "n_support": [40, 30, 20],
                "seconds_backpropagation": [10.0, 20.0, 0.0],
                "seconds_encoding": [1.0, 2.0, 3.0],
                "validation_balanced_accuracy": [0.5, 0.75, 0.75],
            }
        ],
        "closing_history": None,
    }


def test_closing_epochs_add_to_the_counts_and_leave_the_curves():
    plain = learning_figures(SimpleNamespace(history_=FIRST, best_epoch_=1, n_iter_=2))
    closed = learning_figures(SimpleNamespace(history_=FIRST, best_epoch_=1, n_iter_=4, closing_history_=SECOND))
    added = sum(SECOND.column("n_backpropagated"))
    assert closed["n_backpropagated"] == plain["n_backpropagated"] + added
    assert closed["closing_history"][0]["n_support"] == SECOND.column("n_support")
    assert closed["closing_history"][0]["n_backpropagated"] == SECOND.column("n_backpropagated")
    same = set(plain) - {"epochs", "n_backpropagated", "closing_history"}
    assert {name: closed[name] for name in same} == {name: plain[name] for name in same}


def test_several_networks_of_unequal_length_by_hand():
    figures = learning_figures(SimpleNamespace(history_=[FIRST, SECOND], best_epoch_=[2, 0], n_iter_=2))
    assert figures["n_backpropagated"] == 170
    assert (figures["n_support_first"], figures["n_support_kept"], figures["n_support_last"]) == (50, 30, 28)
    assert figures["n_support_by_epoch"] == [50, 38, 28]
    assert figures["validation_by_epoch"] == [0.75, 0.75, 0.75]
    assert figures["seconds_by_epoch"] == pytest.approx([1.5, 18.0, 41.0])
    assert figures["seconds_to_best"] == 1.5


def test_what_is_unknown_is_none():
    assert learning_figures(SimpleNamespace()) == {}
    history = History([WithoutSupport(None, 5, 1.0), WithoutSupport(None, 0, 0.0)])
    figures = learning_figures(SimpleNamespace(history_=history, best_epoch_=1, n_iter_=1))
    assert figures["n_support_first"] is figures["validation_by_epoch"] is figures["seconds_to_best"] is None
    assert figures["seconds_by_epoch"] == [0.0, 1.0]
