import json
from dataclasses import asdict, dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

from lmfcn import make_gaussians
from lmfcn.baselines import METHODS as BASELINES
from lmfcn.benchmark.measure import (
    CHANGES,
    METHODS,
    ON_TOP_OF_CNN,
    digest_of,
    history_fields,
    is_tuned,
    measure,
    model_fields,
)
from lmfcn.benchmark.runs import RunKey
from lmfcn.benchmark.tasks import SplitData, Subset
from lmfcn.method.history import History
from lmfcn.util.packages import versions


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
    assert history_fields(SimpleNamespace(history_=FIRST, best_epoch_=1, n_iter_=2)) == {
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


def test_refit_epochs_add_to_the_counts_and_leave_the_curves():
    plain = history_fields(SimpleNamespace(history_=FIRST, best_epoch_=1, n_iter_=2))
    closed = history_fields(SimpleNamespace(history_=FIRST, best_epoch_=1, n_iter_=4, refit_history_=SECOND))
    added = sum(SECOND.column("n_backpropagated"))
    assert closed["n_backpropagated"] == plain["n_backpropagated"] + added
    assert closed["closing_history"][0]["n_support"] == SECOND.column("n_support")
    assert closed["closing_history"][0]["n_backpropagated"] == SECOND.column("n_backpropagated")
    same = set(plain) - {"epochs", "n_backpropagated", "closing_history"}
    assert {name: closed[name] for name in same} == {name: plain[name] for name in same}


def test_several_networks_of_unequal_length_by_hand():
    figures = history_fields(SimpleNamespace(history_=[FIRST, SECOND], best_epoch_=[2, 0], n_iter_=2))
    assert figures["n_backpropagated"] == 170
    assert (figures["n_support_first"], figures["n_support_kept"], figures["n_support_last"]) == (50, 30, 28)
    assert figures["n_support_by_epoch"] == [50, 38, 28]
    assert figures["validation_by_epoch"] == [0.75, 0.75, 0.75]
    assert figures["seconds_by_epoch"] == pytest.approx([1.5, 18.0, 41.0])
    assert figures["seconds_to_best"] == 1.5


def test_what_is_unknown_is_none():
    assert history_fields(SimpleNamespace()) == {}
    history = History([WithoutSupport(None, 5, 1.0), WithoutSupport(None, 0, 0.0)])
    figures = history_fields(SimpleNamespace(history_=history, best_epoch_=1, n_iter_=1))
    assert figures["n_support_first"] is figures["validation_by_epoch"] is figures["seconds_to_best"] is None
    assert figures["seconds_by_epoch"] == [0.0, 1.0]


QUICK = {"epochs": 2, "latent_dim": 4, "widths": (6,), "device": "cpu"}
QUICKLY = {**dict.fromkeys(("LMFCN", "LMFCN (paper)", "CNN-CE", "CNN + SVM"), QUICK), "FV-CNN": {"n_modes": 2}}


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    return SplitData(*(Subset(*make_gaussians(count, 16, random, stds=(10, 60))) for count in (10, 8, 6)))


@pytest.fixture(autouse=True, scope="module")
def few_candidates_for_the_svm():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lmfcn.baselines.feature_svm.C_FACTORS", (1.0,))
        patch.setattr("lmfcn.baselines.feature_svm.GAMMA_FACTORS", (1.0, 0.3))
        yield


@pytest.fixture(scope="module")
def on_the_cnn(data):
    return {run.method: run for run in measure(RunKey("tiny", "CNN-CE", 0), data, {"weight_decay": 0.1}, QUICKLY)}


def test_everything_about_a_run_of_lmfcn(data):
    (run,) = measure(RunKey("tiny", "LMFCN", 0), data, changes=QUICKLY)
    assert run.key == ("tiny", "LMFCN", 0)
    assert (run.n_train, run.n_validation, run.n_test) == (20, 16, 12)
    assert all(0 <= score <= 1 for score in (run.train_balanced_accuracy, run.test_balanced_accuracy))
    assert (run.chosen, [parameters for parameters, _ in run.tried]) == ({}, [{}])  # it runs as it comes
    assert run.validation_balanced_accuracy == run.validation_by_epoch[run.best_epoch]
    assert run.epochs == 2
    assert len(run.validation_by_epoch) == len(run.seconds_by_epoch) == 2  # epochs 0 and 1; then it learns from all
    assert run.closing_history[0]["epoch"] == [2, 3]
    assert run.seconds_by_epoch == sorted(run.seconds_by_epoch)
    assert run.seconds_to_best in run.seconds_by_epoch
    assert 0 < run.n_support_first <= 20
    assert run.n_backpropagated > 0
    assert 2 <= run.n_support_final <= 20 + 16  # the last SVM learns from validation images too
    assert 0 <= run.cpu_seconds <= run.cpu_seconds_with_tuning
    assert run.n_weights == 2 * (6 * 9 + 2 * 6 + 4 * 6 * 9 + 2 * 4)
    assert run.split == data.fingerprint()
    assert run.versions == versions()


def test_settings_are_those_that_the_choice_left(data):
    run, *_ = measure(RunKey("tiny", "CNN-CE", 3), data, {"weight_decay": 0.5}, QUICKLY)
    assert len(run.tried) == 1
    assert run.chosen == {"weight_decay": 0.5}
    assert (run.settings["weight_decay"], run.settings["loss"], run.settings["widths"]) == (0.5, "cross-entropy", [6])
    assert run.settings["random_state"] == 3


def test_the_same_cell_gives_the_same_run(data):
    twice = [next(measure(RunKey("tiny", "LMFCN", 1), data, {}, QUICKLY)) for _ in range(2)]
    assert twice[0].validation_by_epoch == twice[1].validation_by_epoch
    assert twice[0].test_balanced_accuracy == twice[1].test_balanced_accuracy


def test_two_methods_come_with_the_cnn(on_the_cnn):
    assert set(on_the_cnn) == {"CNN-CE", *ON_TOP_OF_CNN}
    cnn, svm, fisher = on_the_cnn.values()
    assert cnn.validation_by_epoch == svm.validation_by_epoch == fisher.validation_by_epoch
    assert cnn.chosen == svm.chosen == fisher.chosen == {"weight_decay": 0.1}
    assert cnn.n_support_first is cnn.n_support_final is None
    assert svm.n_support_first is None
    assert 2 <= svm.n_support_final <= 20 + 16
    assert fisher.settings["n_modes"] == 2
    assert svm.settings["weight_decay"] == 0.1
    assert cnn.n_weights - svm.n_weights == 2 * 4 + 2  # the linear layer
    assert cnn.cpu_seconds <= svm.cpu_seconds


def test_on_top_is_what_the_method_gives_by_itself(on_the_cnn, data):
    (alone,) = measure(RunKey("tiny", "CNN + SVM", 0), data, {"weight_decay": 0.1}, QUICKLY)
    beside = on_the_cnn["CNN + SVM"]
    for name in ("test_balanced_accuracy", "train_balanced_accuracy", "validation_by_epoch", "best_epoch", "settings"):
        assert getattr(alone, name) == getattr(beside, name), name


def test_validation_of_what_is_on_top_is_not_that_of_the_cnn(data):
    runs = list(measure(RunKey("tiny", "CNN-CE", 0), data, {}, QUICKLY, on_top_of_cnn=["CNN + SVM"]))
    cnn, svm = (run.validation_balanced_accuracy for run in runs)
    assert cnn == runs[0].validation_by_epoch[runs[0].best_epoch]
    fitted = METHODS["CNN + SVM"](**QUICK, random_state=0).fit(*data.train, validation=data.validation)
    assert svm == fitted.held_out_score_


def test_only_what_is_wanted_beside_the_cnn(data):
    runs = measure(RunKey("tiny", "CNN-CE", 0), data, {}, QUICKLY, on_top_of_cnn=["CNN + SVM"])
    assert [run.method for run in runs] == ["CNN-CE", "CNN + SVM"]


@pytest.mark.parametrize("method", ["LBP", "random-fcn"])
def test_methods_that_do_not_train(data, method):
    (run,) = measure(RunKey("tiny", method, 0), data)
    assert run.tried == [[{}, None]]
    assert run.epochs is run.best_epoch is run.n_backpropagated is run.validation_by_epoch is None
    assert 0 <= run.validation_balanced_accuracy <= 1
    assert (run.n_weights == 0) == (method == "LBP")


def test_the_papers_method_is_not_tuned(data):
    (run,) = measure(RunKey("tiny", "LMFCN (paper)", 0), data, {"learning_rate": 1.0}, QUICKLY)
    assert run.chosen == {}
    assert run.settings["optimizer"] == "adadelta"


def test_which_methods_are_tuned():
    assert set(METHODS) == {"LMFCN", "LMFCN (paper)", "LMFCN, pretrained", *BASELINES}
    tuned = {method for method in METHODS if is_tuned(method)}
    assert tuned == set(CHANGES)


def test_paths_among_the_settings_are_written_as_text(data, tmp_path):
    (run,) = measure(RunKey("tiny", "LBP", 0), data, changes={"LBP": {"cache_dir": tmp_path}})
    assert run.settings["cache_dir"] == str(tmp_path)


def test_one_network_per_class(random):
    options = {"means": (128, 128, 128), "stds": (10, 35, 60)}
    three = SplitData(*(Subset(*make_gaussians(6, 16, random, **options)) for _ in range(3)))
    quick = {"LMFCN": {**QUICK, "strategy": "one-vs-all"}}
    (run,) = measure(RunKey("tiny", "LMFCN", 0), three, {}, quick)
    assert len(run.best_epoch) == 3
    assert len(run.validation_by_epoch) == len(run.seconds_by_epoch) == 2
    assert [network["epoch"] for network in run.closing_history] == [[2, 3]] * 3
    assert run.seconds_by_epoch == sorted(run.seconds_by_epoch)
    assert 3 <= run.n_support_first <= 3 * 18
    json.dumps(asdict(run), allow_nan=False)


@pytest.mark.filterwarnings("ignore:Training ended")
def test_validation_of_one_vs_all_is_that_of_all_classes_where_the_last_svm_has_not_seen_them():
    random = np.random.default_rng(0)
    draw = {"means": (128, 128, 128), "stds": (5, 40, 90)}
    three = SplitData(*(Subset(*make_gaussians(6, 16, random, **draw)) for _ in range(3)))
    fitted = METHODS["LMFCN (paper)"](**{**QUICK, "epochs": 1}, random_state=0)
    fitted.fit(*three.train, validation=three.validation)
    found = model_fields(fitted, three, 1.0)
    expected = balanced_accuracy_score(three.validation.labels, fitted.predict(three.validation.images))
    assert found["validation_balanced_accuracy"] == expected
    assert len(found["history"]) == len(found["best_epoch"]) == 3


def test_digests_are_those_of_earlier_versions():
    # Computed before parameters and the paper's method were renamed; benchmarks/study.jsonl holds such digests.
    assert digest_of("CNN-CE", CHANGES) == "482f53c34f1a1121605cab40aa84bd77"
    assert digest_of("CNN-H", CHANGES) == "f03f6e932b2153dbfaba1e582f50c5a5"
    assert digest_of("LMFCN (paper)", CHANGES) == "efd5e3c0375a290031148bf342374b8a"
    assert digest_of("CNN-CE", {"CNN-CE": {"augmentation": "dihedral"}}) == "481b5dd072c695d55040e72a22d0a8ce"


def test_digests_of_feature_methods_are_those_before_shrinkage_was_a_value_of_their_rules(monkeypatch):
    monkeypatch.setattr("lmfcn.baselines.feature_svm.C_FACTORS", (1.0, 0.1, 10.0, 100.0))  # less in this module
    monkeypatch.setattr("lmfcn.baselines.feature_svm.GAMMA_FACTORS", (1.0, 0.3, 0.1, 0.03, 3.0, 10.0))
    assert digest_of("LBP", CHANGES) == "b012fba67420850f890f7be04a9dd0d0"
    assert digest_of("CNN + SVM", CHANGES) == "16dd8913d8d5ce7f454f2c2f96824b8c"
    assert digest_of("random-fcn", CHANGES) == "3f93806e6e5482e0b199274431c648b0"
    assert digest_of("LMFCN (paper)", CHANGES) == "efd5e3c0375a290031148bf342374b8a"


def test_the_digest_of_a_pretrained_network_names_it():
    of_name = digest_of("LMFCN, pretrained", {})
    assert of_name != digest_of("LMFCN, pretrained", {"LMFCN, pretrained": {"network": "texture-fcn"}})


def test_digests_change_with_what_cross_validation_tries(monkeypatch):
    before = {method: digest_of(method, {}) for method in ("LBP", "FV-CNN", "LMFCN")}
    monkeypatch.setattr("lmfcn.baselines.feature_svm.C_FACTORS", (1.0, 7.0))
    changed = {method for method, digest in before.items() if digest_of(method, {}) != digest}
    assert changed == {"LBP"}
