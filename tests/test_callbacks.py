"""Callbacks follow a training: their moments and order, how they stop it, and what happens when they fail."""

import numpy as np
import pytest

from lmfcn import Callback, LMFCNClassifier, make_gaussians
from lmfcn.method.epoch import Training
from lmfcn.method.history import TrainingWarning
from lmfcn.training.checkpoints import Checkpoint
from some_training import QUICK, EachEpoch, classifier_of, measured, problem_of, training_of


def quick(**changes) -> LMFCNClassifier:
    options = {"latent_dim": 4, "widths": (6, 8), "epochs": 4, "passes": 1, "random_state": 0, "device": "cpu"}
    return classifier_of(**{**options, **changes})


class Diary(Callback):
    """Notes every moment in a list that several of them may share."""

    def __init__(self, name: str = "a", moments: list | None = None) -> None:
        self.name = name
        self.moments = [] if moments is None else moments

    def on_training_start(self, training):
        assert isinstance(training, Training)
        self.moments.append((self.name, "start", len(training.history)))

    def on_epoch_end(self, training, record, space):
        assert training.history[-1] is record
        assert len(space.svm.support) == record.n_support
        self.moments.append((self.name, "epoch", record.epoch))

    def on_training_end(self, training, result):
        assert result.history is training.history
        assert result.selected is training.selected
        self.moments.append((self.name, "end", result.selected.epoch))


class StopAfter(Callback):
    """Stops every training after an epoch of this number, or the first training only."""

    def __init__(self, epoch: int, *, once: bool = False) -> None:
        self.epoch = epoch
        self.once = once

    def on_epoch_end(self, training, record, space):  # noqa: ARG002
        if record.epoch >= self.epoch and not (self.once and training.first_epoch):
            training.stop("enough is enough")


class Broken(Exception):  # noqa: N818
    pass


class BreakAfter(Callback):
    """Raises in the epoch after so many."""

    def __init__(self, n_epochs: int) -> None:
        self.n_left = n_epochs

    def on_epoch_end(self, training, record, space):  # noqa: ARG002
        if self.n_left == 0:
            raise Broken
        self.n_left -= 1


def three_classes():
    images, labels = make_gaussians(12, 16, random_state=0)
    return images, np.where(np.arange(24) % 4 == 0, 2, labels)


def same_model(one: LMFCNClassifier, other: LMFCNClassifier) -> bool:
    """Whether two fits ended at the same model, bit for bit, with the same histories."""
    ours, theirs = one.model_.state_dict(), other.model_.state_dict()
    equal = ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)
    return equal and all(
        measured(getattr(one, name) or []) == measured(getattr(other, name) or [])
        for name in ("history_", "refit_history_")
    )


def test_a_callback_may_leave_out_every_moment(textures):
    training = training_of(problem_of(textures), callbacks=[Callback()])
    assert len(training.run().history) == 4


def test_moments_come_in_order_and_callbacks_in_turn(textures):
    moments = []
    training = training_of(problem_of(textures), callbacks=[Diary("a", moments), Diary("b", moments)])
    result = training.run()
    expected = [("start", 0), *[("epoch", epoch) for epoch in range(4)], ("end", result.selected.epoch)]
    assert moments == [(name, *moment) for moment in expected for name in "ab"]


def test_the_moments_of_both_phases(textures):
    diary = Diary()
    fitted = quick().fit(*textures, callbacks=[diary])
    epochs = [("start", 0), ("epoch", 0), ("epoch", 1), ("epoch", 2), ("end", fitted.best_epoch_)]
    refit = [("start", 0), ("epoch", 3), ("epoch", 4), ("epoch", 5), ("end", 5)]
    assert diary.moments == [("a", *moment) for moment in epochs + refit]


def test_the_moments_of_all_networks_come_one_network_after_the_other():
    diary = Diary()
    fitted = quick(strategy="one-vs-all", refit_epochs=0, epochs=2).fit(*three_classes(), callbacks=[diary])
    expected = [
        ("a", *moment)
        for selected in fitted.best_epoch_
        for moment in [("start", 0), ("epoch", 0), ("epoch", 1), ("epoch", 2), ("end", selected)]
    ]
    assert diary.moments == expected


def test_callbacks_change_nothing(textures):
    assert same_model(quick().fit(*textures, callbacks=[Diary(), Diary()]), quick().fit(*textures))


def test_the_checkpoint_comes_before_the_callbacks_of_the_user(textures, tmp_path):
    seen = []

    class Look(Callback):
        def on_training_start(self, training):
            seen.append([type(callback) for callback in training.callbacks])

        def on_epoch_end(self, training, record, space):  # noqa: ARG002
            path = training.callbacks[0].path
            assert path.exists(), "the epoch that a callback sees has been saved"

    quick(checkpoint_dir=tmp_path).fit(*textures, callbacks=[Look()])
    assert len(seen) == 2
    for kinds in seen:
        assert kinds[0] is Checkpoint
        assert kinds[-1] is Look


@pytest.mark.parametrize("stage", ["start", "epoch"])
def test_stop_ends_a_training_after_the_epoch(textures, stage):
    class Stop(Diary):
        def on_training_start(self, training):
            if stage == "start":
                training.stop("at once")

        def on_epoch_end(self, training, record, space):
            super().on_epoch_end(training, record, space)
            if stage == "epoch" and record.epoch == 1:
                training.stop("at once")

    stop, last = Stop(), 0 if stage == "start" else 1
    training = training_of(problem_of(textures), callbacks=[stop])
    result = training.run()
    assert result.message == f"Training was stopped after epoch {last}: at once."
    assert not result.interrupted
    assert result.history.column("epoch") == list(range(last + 1))
    assert stop.moments[-1] == ("a", "end", result.selected.epoch)
    assert training.finished


def test_stop_without_validation_images_selects_the_last_epoch(textures):
    training = training_of(problem_of(textures, validate=False), QUICK, callbacks=[StopAfter(1)])
    assert training.run().selected.epoch == 1


def test_a_stop_in_the_last_epoch_is_no_early_end(textures):
    result = training_of(problem_of(textures), callbacks=[StopAfter(3)]).run()
    assert len(result.history) == 4
    assert result.message is None


def test_a_stopped_fit_warns_with_the_reason_and_still_refits(textures):
    with pytest.warns(TrainingWarning) as caught:
        fitted = quick(epochs=6, refit_epochs=3).fit(*textures, callbacks=[StopAfter(1, once=True)])
    assert [str(warning.message) for warning in caught] == ["Training was stopped after epoch 1: enough is enough."]
    assert caught[0].filename == __file__
    assert fitted.history_.column("epoch") == [0, 1]
    assert fitted.refit_history_.column("epoch") == [2, 3, 4, 5]
    assert fitted.n_iter_ == 1 + 3
    assert fitted.best_epoch_ <= 1
    assert fitted.interrupted_ is fitted.model_.record["interrupted"] is False
    assert fitted.predict(textures[0]).shape == (32,)


def test_refit_epochs_can_be_stopped_too(textures):
    with pytest.warns(TrainingWarning, match=r"^Training was stopped after epoch 5: enough is enough\.$"):
        fitted = quick(epochs=6, refit_epochs=3).fit(*textures, callbacks=[StopAfter(5)])
    assert fitted.history_.column("epoch") == [0, 1, 2, 3]
    assert fitted.refit_history_.column("epoch") == [4, 5]


def test_a_stop_of_one_network_names_its_class():
    with pytest.warns(TrainingWarning) as caught:
        fitted = quick(strategy="one-vs-all", epochs=3, refit_epochs=0).fit(*three_classes(), callbacks=[StopAfter(1)])
    messages = [str(warning.message) for warning in caught]
    for label in range(3):
        assert f"Class {label} against all others: Training was stopped after epoch 1: enough is enough." in messages
    assert [len(history) for history in fitted.history_] == [2, 2, 2]


def test_a_stop_is_remembered_by_the_checkpoint(textures, tmp_path):
    def stop():
        return [StopAfter(1, once=True)]

    with pytest.warns(TrainingWarning, match="stopped after epoch 1"):
        whole = quick(epochs=6).fit(*textures, callbacks=stop())
    # Killed among the refit epochs, the fit goes on with these: the first phase is over.
    with pytest.raises(Broken):
        quick(epochs=6, checkpoint_dir=tmp_path).fit(*textures, callbacks=[*stop(), BreakAfter(3)])
    for _ in range(2):
        epochs = []
        with pytest.warns(TrainingWarning, match=r"^Training was stopped after epoch 1: enough is enough\.$"):
            resumed = quick(epochs=6, checkpoint_dir=tmp_path).fit(
                *textures, callbacks=[EachEpoch(lambda record, _, seen=epochs: seen.append(record.epoch))]
            )
        assert set(epochs) <= {4, 5, 6}
        assert same_model(resumed, whole)
    assert epochs == []


@pytest.mark.parametrize("n_epochs", [0, 1, 4])
def test_an_error_in_a_callback_propagates_and_the_run_goes_on_to_the_same_bits(textures, tmp_path, n_epochs):
    broken = quick(checkpoint_dir=tmp_path)
    with pytest.raises(Broken):
        broken.fit(*textures, callbacks=[BreakAfter(n_epochs)])
    assert not hasattr(broken, "model_")
    diary = Diary()
    resumed = quick(checkpoint_dir=tmp_path).fit(*textures, callbacks=[diary])
    assert same_model(resumed, quick().fit(*textures))
    epochs = [number for _, moment, number in diary.moments if moment == "epoch"]
    assert epochs == [0, 1, 2, 3, 4, 5][n_epochs + 1 :]
    assert diary.moments[0] == ("a", "start", min(n_epochs + 1, 3)), "with the records of the run before"


def test_callbacks_see_nothing_of_other_processes():
    data = three_classes()
    with pytest.raises(ValueError, match=r"^callbacks see nothing of other processes; use n_jobs=1 with them\.$"):
        quick(strategy="one-vs-all", n_jobs=2).fit(*data, callbacks=[Diary()])


def test_callbacks_are_allowed_where_there_is_one_network_only(textures):
    diary = Diary()
    quick(strategy="one-vs-all", n_jobs=2).fit(*textures, callbacks=[diary])  # two classes
    assert len(diary.moments) == 10
    quick(n_jobs=2, epochs=1).fit(*three_classes(), callbacks=[diary])
    assert len(diary.moments) == 10 + 4


@pytest.mark.parametrize(
    "callbacks",
    [5, None, print, [print], Diary(), Diary, [Diary], [Diary(), None], "ab"],
    ids=["number", "none", "function", "functions", "one", "class", "classes", "one and none", "text"],
)
def test_anything_but_callbacks_is_refused(textures, callbacks):
    with pytest.raises(ValueError, match=r"^callbacks must be a sequence of lmfcn\.Callback objects, got "):
        quick().fit(*textures, callbacks=callbacks)


def test_callbacks_may_come_one_by_one(textures):
    diary = Diary()
    quick(epochs=1).fit(*textures, callbacks=iter([diary]))
    assert [moment for _, moment, _ in diary.moments] == ["start", "epoch", "epoch", "end"]


def test_a_term_of_the_users_own_moves_the_network(textures):
    class TowardsZero(Callback):
        def __init__(self, weight):
            self.weight, self.seen = weight, []

        def extra_loss(self, training, latents, labels):
            assert isinstance(training, Training)
            assert len(labels) == len(latents)
            cost = latents.square().sum(dim=1).mean()
            self.seen.append(float(cost.detach()))
            return self.weight * cost

    def lengths(weight):
        term = TowardsZero(weight)
        training = training_of(problem_of(textures), QUICK, callbacks=[term])
        training.run()
        return term.seen

    pulled, left_alone = lengths(10.0), lengths(0.0)
    assert pulled[0] == left_alone[0]
    assert pulled[-1] < left_alone[-1]


def test_callbacks_without_a_term_leave_the_training_as_it_is(textures):
    runs = [training_of(problem_of(textures), QUICK, callbacks=callbacks).run() for callbacks in ([], [Diary()])]
    assert measured(runs[0].history) == measured(runs[1].history)
