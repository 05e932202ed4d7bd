"""Training with validation images held out, then from all images."""

from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image

from lmfcn import LMFCNClassifier, make_gaussians
from lmfcn.compute.encode import encode
from lmfcn.data.sources import open_collection
from lmfcn.recipe import Recipe, override
from lmfcn.training import fit as fitting
from lmfcn.training import phases
from lmfcn.training.final_svm import SHRINKAGES, svm_candidates
from some_training import classifier_of


def quick(**changes) -> LMFCNClassifier:
    options = {"latent_dim": 4, "widths": (6, 8), "epochs": 4, "passes": 2, "random_state": 0, "device": "cpu"}
    return classifier_of(**{**options, **changes})


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(3)
    return make_gaussians(14, 16, random), make_gaussians(8, 16, random)


@pytest.fixture(scope="module")
def fitted(data):
    train, validation = data
    return quick().fit(*train, validation=validation)


def test_refit_epochs_are_a_part_of_the_epochs(fitted):
    assert (fitted.recipe_.epochs, fitted.recipe_.refit_epochs) == (4, 2)
    assert fitted.history_.column("epoch") == [0, 1, 2]
    assert fitted.refit_history_.column("epoch") == [3, 4, 5]
    assert fitted.n_iter_ == 4
    assert fitted.best_epoch_ <= 2


def test_records_name_their_phase_and_count_on(fitted):
    records = [*fitted.history_, *fitted.refit_history_]
    assert [record.epoch for record in records] == [0, 1, 2, 3, 4, 5]
    assert [record.phase for record in records] == ["training"] * 3 + ["refit"] * 3
    in_file = fitted.model_.record["histories"][0] + fitted.model_.record["closing_histories"][0]
    assert [(entry["epoch"], entry["phase"]) for entry in in_file] == [(r.epoch, r.phase) for r in records]


def test_only_the_refit_epochs_see_validation_images(fitted):
    def n_images(record):
        return record.n_support + record.n_settled

    assert {n_images(record) for record in fitted.history_} == {28}
    assert {n_images(record) for record in fitted.refit_history_} == {28 + 16}
    assert None not in fitted.history_.column("validation_balanced_accuracy")
    assert fitted.refit_history_.column("validation_balanced_accuracy") == [None] * 3


def test_the_first_phase_is_that_of_a_training_without_refit_epochs(data, fitted):
    """What validation images tell is told by networks and SVMs that have not learnt from them."""
    train, validation = data
    plain = quick(epochs=2, refit_epochs=0).fit(*train, validation=validation)
    assert [record.n_support for record in plain.history_] == fitted.history_.column("n_support")
    assert np.array_equal(plain.held_out_.probabilities, fitted.held_out_.probabilities)
    assert plain.calibration_error_ == fitted.calibration_error_
    assert not np.array_equal(plain.transform(train[0]), fitted.transform(train[0]))


def test_changed_validation_images_change_the_networks_only_in_the_refit_epochs(data, fitted):
    (images, labels), (others, other_labels) = data
    mirrored = quick().fit(images, labels, validation=(255 - others, other_labels))
    for name in ("n_support", "n_misclassified", "learning_rate"):
        assert mirrored.history_.column(name) == fitted.history_.column(name)
    assert mirrored.refit_history_.column("n_support") != fitted.refit_history_.column("n_support")


def test_the_svm_is_that_of_all_images_on_the_last_latents(data, fitted):
    (images, labels), (others, other_labels) = data
    everything, numbers = np.concatenate([images, others]), np.concatenate([labels, other_labels])
    latents = fitted.transform(everything)
    of_support = latents[fitted.support_]
    squared = ((latents[:, None] - of_support) ** 2).sum(axis=2)
    by_hand = np.exp(-fitted.model_.gamma * squared) @ fitted.dual_coef_[0] + fitted.intercept_[0]
    assert fitted.decision_function(everything) == pytest.approx(by_hand, abs=1e-4)
    assert np.array_equal(numbers[fitted.support_], (fitted.dual_coef_[0] > 0).astype(int))
    assert fitted.support_.max() >= len(labels)


def test_without_validation_images_all_epochs_are_of_one_kind(data):
    fitted = quick(validation_fraction=0).fit(*data[0])
    assert fitted.history_.column("epoch") == [0, 1, 2, 3, 4]
    assert fitted.refit_history_ is None
    assert fitted.n_iter_ == 4
    assert fitted.recipe_.refit_epochs == fitted.model_.record["parameters"]["refit_epochs"] == 0


def test_without_refitting_nothing_learns_from_validation_images(data):
    train, validation = data
    fitted = quick(refit=False).fit(*train, validation=validation)
    assert fitted.recipe_.refit_epochs == 0
    assert fitted.history_.column("epoch") == [0, 1, 2, 3, 4]
    assert fitted.support_.max() < len(train[1])
    with pytest.raises(
        ValueError, match=r"refit_epochs=2 learn from validation images, which refit=False excludes; set refit"
    ):
        quick(refit=False, refit_epochs=2).fit(*train, validation=validation)


@pytest.mark.parametrize("refit_epochs", [4, 7])
def test_some_epochs_must_be_left_for_the_first_phase(data, refit_epochs):
    with pytest.raises(ValueError, match=rf"refit_epochs must be less than epochs, 4, .* got {refit_epochs}"):
        quick(refit_epochs=refit_epochs).fit(*data[0])


@pytest.mark.parametrize(("epochs", "n_refit"), [(1, 0), (2, 1), (10, 5), (15, 7), (30, 14)])
def test_the_share_of_the_refit_epochs_stays(epochs, n_refit):
    for recipe, expected in (("default", n_refit), ("paper", 0)):
        resolved = override(recipe, {"epochs": epochs}).for_data(2, 100, has_validation=True)
        assert resolved.n_refit_epochs == expected


def test_one_network_per_class_is_refitted_too(data):
    images, names = data[0][0], np.array(["a", "b", "c"])[np.arange(28) % 3]
    fitted = quick(strategy="one-vs-all").fit(images, names)
    assert [len(history) for history in fitted.history_] == [3] * 3
    assert [history.column("epoch") for history in fitted.refit_history_] == [[3, 4, 5]] * 3
    assert fitted.n_iter_ == 4


def test_images_of_several_sizes_are_refitted_together(data):
    (images, labels), (others, other_labels) = data
    fitted = quick().fit(images, labels, validation=(others[:, :12], other_labels))
    assert fitted.refit_history_.column("epoch") == [3, 4, 5]
    assert fitted.predict(others[:, :10]).shape == other_labels.shape


def test_refit_epochs_must_fit_into_those_of_each_class(data):
    images, names = data[0][0], np.array(["a", "b", "c"])[np.arange(28) % 3]
    with pytest.raises(ValueError, match="refit_epochs must be less than epochs, 10, of which they are a part, got 12"):
        quick(strategy="one-vs-all", epochs=None, batch_size="all", refit_epochs=12).fit(images, names)


@pytest.mark.parametrize("number", [np.int8(20), np.uint8(40), np.int64(15)])
def test_numbers_of_numpy_are_numbers(number):
    resolved = Recipe(epochs=number).for_data(2, 100, has_validation=True)
    assert resolved.n_refit_epochs == round(int(number) * 7 / 15)


def watched(monkeypatch):
    """The labels and candidates of every SVM outside of the epochs: those that choose a description come first."""
    asked = []
    for name in ("cross_validate", "fit_final_svm"):

        def watch(whole, latents, labels, folds, recipe, rules, mirrored):
            asked.append((labels, rules))
            return whole(latents, labels, folds, recipe, rules, mirrored)

        monkeypatch.setattr(fitting, name, partial(watch, getattr(fitting, name)))
    return asked


@pytest.mark.parametrize("whiten", [True, False])
def test_the_last_svm_has_the_rule_that_held_out_images_chose(data, monkeypatch, whiten):
    asked = watched(monkeypatch)
    train, validation = data
    fitted = quick(whiten=whiten).fit(*train, validation=validation)
    *before_training, (_, first), (labels, last) = asked
    assert len(before_training) == (2 if whiten else 0)  # descriptions with and without standard deviations
    assert len(labels) == 44
    assert first in [svm_candidates(fitted.recipe_, shrinkage=value) for value in SHRINKAGES]
    assert last[0] in first
    assert [rule.C for rule in last] == [fitted.model_.record["C"]]


def test_class_weights_reach_all_fits_of_the_last_svm(data, monkeypatch):
    seen = watched(monkeypatch)
    train, validation = data
    quick(class_weight={1: 5.0}).fit(*train, validation=validation)
    assert len(seen) == 2 + 2  # two to choose how images are described, and the last SVM of both phases
    for labels, (rule, *_) in seen:
        assert rule.weights.tolist() == [5.0 if label else 1.0 for label in labels.tolist()]


@pytest.mark.parametrize("validate", [True, False])
def test_epochs_are_judged_beside_the_untrained_network(data, monkeypatch, validate):
    judges = []
    training = phases.Training

    def watch(*others, judge, **options):
        judges.append(judge)
        return training(*others, judge=judge, **options)

    monkeypatch.setattr(phases, "Training", watch)
    train, validation = data
    fitted = quick(epochs=2, refit_epochs=0, **({} if validate else {"validation_fraction": 0})).fit(
        *train, **({"validation": validation} if validate else {})
    )
    (judge,) = judges
    if not validate:
        assert judge.validation_untrained is None
        return
    untrained = fitted.model_.members[0]
    for features, (images, _) in ((judge.untrained, train), (judge.validation_untrained, validation)):
        expected = encode(untrained, images[..., None], torch.device("cpu"))
        torch.testing.assert_close(features, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("class_weight", ["auto", "balanced", {1: 5.0}])
def test_unequal_classes_in_groups_are_refitted_too(data, class_weight):
    images, labels = data[0]
    chosen = np.sort(np.concatenate([np.flatnonzero(labels == 0), np.flatnonzero(labels == 1)[:6]]))
    groups = np.arange(len(chosen)) // 2
    fitted = quick(class_weight=class_weight).fit(images[chosen], labels[chosen], groups=groups)
    assert fitted.refit_history_.column("epoch") == [3, 4, 5]
    assert np.array_equal(labels[chosen][fitted.support_], (fitted.dual_coef_[0] > 0).astype(int))
    assert fitted.predict_proba(images).sum(axis=1) == pytest.approx(1)


def test_files_are_read_in_batches_in_both_phases(data, tmp_path):
    for number, (image, label) in enumerate(zip(*data[0], strict=True)):
        path = tmp_path / str(label) / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(image).save(path)
    files = open_collection(tmp_path)
    lazy, in_memory = quick().fit(files), quick().fit(np.stack([np.asarray(image) for image in files]), files.labels)
    for phase in ("history_", "refit_history_"):
        for name in ("epoch", "n_support", "support_loss"):
            assert getattr(lazy, phase).column(name) == getattr(in_memory, phase).column(name)
