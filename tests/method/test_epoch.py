import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from lmfcn.compute.encode import encode
from lmfcn.method.epoch import Problem, Training
from lmfcn.method.history import TrainingError
from lmfcn.method.kernel_svm import balanced_accuracy, class_numbers
from lmfcn.method.losses import loss_terms
from lmfcn.training.final_svm import NEVER_HELD_OUT, SVMCandidate, fit_final_svm
from lmfcn.training.phases import _JudgeByFinalSVM
from some_training import QUICK, EachEpoch, measured, problem_of, training_of

CPU = torch.device("cpu")


def test_history_has_the_untrained_network_and_every_round(textures):
    training = training_of(problem_of(textures))
    training.run()
    records = list(training.history)
    assert [record.epoch for record in records] == [0, 1, 2, 3]
    assert records[-1].n_backpropagated == 0
    assert all(record.n_backpropagated > 0 for record in records[:-1])
    for record in records:
        assert record.n_support + record.n_settled == 20
        assert record.n_misclassified <= record.n_support
        assert record.seconds_encoding > 0
        assert record.latent_spread > 0


def test_the_first_record_describes_the_untrained_network(textures):
    problem = problem_of(textures)
    training = training_of(problem)
    record, space = training_of(problem).train_epoch(0)
    training.run()
    assert measured([record]) == measured([training.history[0]])
    assert record.n_support == len(space.svm.support)
    assert record.gamma == space.decision.gamma


def test_the_record_tells_what_the_latent_space_shows(textures):
    # Half the labels are wrong, so some images stay misclassified.
    images, labels = textures[0][:20, ..., None], torch.arange(20) % 2
    training = training_of(Problem(images, labels), replace(QUICK, C=0.1))
    record, space = training.train_epoch(1)
    wrong = space.svm.misclassified
    recalls = [1 - (labels[wrong] == label).sum().item() / 10 for label in (0, 1)]
    assert 0 < len(wrong) == record.n_misclassified
    assert record.train_balanced_accuracy == pytest.approx(sum(recalls) / 2)
    terms = loss_terms(space.latents, torch.arange(20), space, training.recipe)
    assert (record.support_loss, record.correction_loss) == (terms.support.item(), terms.correction.item())
    assert record.correction_loss > 0
    assert record.learning_rate == training.descent.optimizer.param_groups[0]["lr"] < training.recipe.learning_rate
    features = space.latents * space.decision.scale.std + space.decision.scale.mean
    assert record.latent_spread == pytest.approx(features.var(dim=0, correction=0).mean().sqrt().item(), rel=1e-4)


def test_the_selected_network_and_svm_reproduce_the_selected_score(textures):
    problem = problem_of(textures)
    training = training_of(problem)
    training.run()
    selected = training.selected
    scores = selected.decision.scores(encode(selected.network, problem.validation_images, CPU))
    score = balanced_accuracy(problem.validation_labels, class_numbers(scores))
    assert score == selected.score == training.history[selected.epoch].validation_balanced_accuracy
    assert len(selected.support) == training.history[selected.epoch].n_support


def test_epochs_are_judged_by_an_svm_like_the_final_one(textures):
    # The labels are drawn, so only the features of the untrained network can predict them.
    images, labels = textures[0][..., None], torch.from_numpy(np.random.default_rng(0).permutation(textures[1]))
    noise = torch.rand(len(labels), 3, generator=torch.Generator().manual_seed(0))
    untrained = labels[:, None] + noise
    problem = Problem(images[:20], labels[:20], images[20:], labels[20:])
    recipe = replace(QUICK, whiten=True)
    rule = SVMCandidate(recipe.C, whiten=True)
    judge = _JudgeByFinalSVM(recipe, problem.labels, rule, untrained[:20], untrained[20:])
    training = training_of(problem, recipe, judge=judge)
    training.run()
    network, selected = training.selected.network, training.selected
    seen = torch.cat([untrained[:20], encode(network, images[:20], CPU)], dim=1)
    in_no_fold = torch.full_like(problem.labels, NEVER_HELD_OUT)
    final = fit_final_svm(seen, problem.labels, in_no_fold, recipe, [rule]).decision
    found = encode(network, images[20:], CPU)
    score, own_score = (
        balanced_accuracy(labels[20:], class_numbers(decision.scores(latents)))
        for decision, latents in ((final, torch.cat([untrained[20:], found], dim=1)), (selected.decision, found))
    )
    assert score == selected.score == training.history[selected.epoch].validation_balanced_accuracy
    assert score > own_score + 0.2


def test_the_selected_decision_gives_the_training_decisions_of_its_epoch(textures):
    problem, spaces = problem_of(textures), []
    training = training_of(problem, callbacks=[EachEpoch(lambda _, space: spaces.append(space))])
    training.run()
    selected, space = training.selected, spaces[training.selected.epoch]
    wrong = class_numbers(selected.decision.scores(encode(selected.network, problem.images, CPU))) != problem.labels
    assert wrong.nonzero()[:, 0].tolist() == space.svm.misclassified.tolist()


def test_selected_weights_are_a_copy(textures):
    training = training_of(problem_of(textures))
    training.train_epoch(0)
    selected, trained = training.selected.network, training.network
    assert selected is not trained
    first = selected.features[0].weight, trained.features[0].weight
    assert not torch.equal(*first)
    untrained = training_of(problem_of(textures)).network.features[0].weight
    assert torch.equal(first[0], untrained)


@pytest.mark.parametrize(
    ("scores", "selected"), [([0.6, 0.8, 0.8, 0.7], 1), ([0.9, 0.8, 0.9, 0.9], 0), ([0.5, 0.6, 0.7, 0.8], 3)]
)
def test_best_validation_epoch_is_selected_the_earlier_on_a_tie(textures, monkeypatch, scores, selected):
    given = iter(scores)
    monkeypatch.setattr(Training, "_validation_score", lambda *_: next(given))
    training = training_of(problem_of(textures), replace(QUICK, epoch_selection="best"))
    training.run()
    assert training.selected.epoch == selected


@pytest.mark.parametrize(
    ("scores", "selected"),
    # One standard error of 0.8 among 16 images is 0.1, and none of 1.0 at all.
    [([0.6, 0.8, 0.8, 0.71], 3), ([0.6, 0.8, 0.71, 0.69], 2), ([0.9, 0.99, 1.0, 0.99], 2), ([1.0, 1.0, 1.0, 1.0], 3)],
)
def test_the_latest_epoch_that_is_about_as_good_as_the_best_is_selected(textures, monkeypatch, scores, selected):
    given = iter(scores)
    monkeypatch.setattr(Training, "_validation_score", lambda *_: next(given))
    problem = replace(problem_of(textures), validation_labels=torch.arange(16) % 2)
    training = training_of(problem, replace(QUICK, epoch_selection="one-se"))
    training.run()
    assert training.selected.epoch == selected


def test_the_standard_error_of_unequal_classes(textures):
    problem = replace(problem_of(textures), validation_labels=torch.tensor([0] * 9 + [1]))
    error = training_of(problem)._standard_error(0.8)
    assert error == pytest.approx((0.2 * 0.8 / 9 + 0.2 * 0.8 / 1) ** 0.5 / 2)  # of the mean of two recalls


def test_without_validation_images_the_last_epoch_is_selected(textures):
    training = training_of(problem_of(textures, validate=False))
    training.run()
    assert training.selected.epoch == 3
    assert training.history.column("validation_balanced_accuracy") == [None] * 4


@pytest.mark.parametrize(
    "recipe",
    [
        QUICK,
        replace(
            QUICK,
            support_loss="pull",
            distance_units="latent",
            standardize=False,
            batch_size="all",
            optimizer="adadelta",
        ),
    ],
    ids=["default", "paper"],
)
def test_same_seed_same_history_and_same_weights_bit_for_bit(textures, recipe):
    one, same, other = (training_of(problem_of(textures), recipe, seed) for seed in (1, 1, 2))
    for training in (one, same, other):
        training.run()
    assert measured(one.history) == measured(same.history)
    assert all(
        torch.equal(a, b)
        for a, b in zip(
            one.selected.network.state_dict().values(), same.selected.network.state_dict().values(), strict=True
        )
    )
    assert torch.equal(one.selected.decision.coefficients, same.selected.decision.coefficients)
    assert measured(one.history) != measured(other.history)


def test_training_separates_what_it_is_shown(textures):
    recipe = replace(QUICK, epochs=8, passes=3)
    training = training_of(problem_of(textures), recipe)
    training.run()
    first, last = training.history[0], training.history[-1]
    assert last.train_balanced_accuracy == 1.0
    assert last.support_loss < first.support_loss / 10


def test_all_three_terms_can_be_on(textures):
    training = training_of(problem_of(textures), replace(QUICK, sh_close=2))
    training.run()
    assert training.history[0].separation_loss > 0
    assert training.history[0].n_backpropagated == 20


def test_images_are_not_changed_and_stay_bytes(textures):
    problem = problem_of(textures)
    before = problem.images.copy()
    training_of(problem).run()
    assert problem.images.dtype == np.uint8
    assert np.array_equal(problem.images, before)


def test_identical_images_are_named_before_training(textures):
    images = np.repeat(textures[0][:1, ..., None], 8, axis=0)
    with pytest.raises(
        TrainingError, match=r"All 8 images have the same latents.*epoch 0.*check that the images differ"
    ):
        training_of(Problem(images, torch.arange(8) % 2)).run()


def test_constant_images_of_different_brightness_are_learnt():
    levels = np.array([10, 12, 14, 16, 200, 210, 220, 230], dtype=np.uint8)
    images = np.broadcast_to(levels[:, None, None, None], (8, 12, 12, 1)).copy()
    training = training_of(Problem(images, torch.arange(8) // 4))
    training.run()
    assert training.history[-1].train_balanced_accuracy == 1.0


def test_collapse_after_training_names_the_epoch_and_a_cure(textures):
    training = training_of(problem_of(textures))
    training.train_epoch(0)
    for weight in training.network.parameters():
        torch.nn.init.zeros_(weight)
    with pytest.raises(TrainingError, match=r"collapsed to one point in epoch 1; try a smaller learning_rate"):
        training.train_epoch(1)


def test_latents_that_are_not_finite_name_the_epoch(textures):
    training = training_of(problem_of(textures))
    torch.nn.init.constant_(training.network.features[0].weight, float("nan"))
    with pytest.raises(TrainingError, match=r"latents are no longer finite in epoch 2; try a smaller learning_rate"):
        training.train_epoch(2)


def test_a_loss_that_is_not_finite_names_the_epoch(textures, monkeypatch):
    training = training_of(problem_of(textures))
    monkeypatch.setattr("lmfcn.method.losses.contrast_loss", lambda own, *_: own[0].sum() * float("inf"))
    with pytest.raises(TrainingError, match=r"The loss became -?(inf|nan) in epoch 0; try a smaller learning_rate"):
        training.train_epoch(0)


def test_no_anchor_for_anyone_ends_training_with_a_warning(textures):
    # So small a C makes every image a bounded support vector.
    recipe = replace(QUICK, C=1e-6, wr_close=0, fallback_anchors=False, head_weight=0.0)
    training = training_of(problem_of(textures), recipe)
    message = training.run().message
    assert re.search(r"ended in epoch 0: none of the 20 images .* allowed anchor .*larger C", message)
    assert len(training.history) == 1
    assert training.history[0].n_without_anchor == 20
    assert training.selected.epoch == 0


def test_nothing_left_to_correct_ends_training_with_a_warning(textures):
    recipe = replace(QUICK, C=1e6, sv_close=0, head_weight=0.0)
    training = training_of(problem_of(textures), recipe)
    assert "there is nothing left to learn" in training.run().message
    assert training.history[-1].n_misclassified == 0
