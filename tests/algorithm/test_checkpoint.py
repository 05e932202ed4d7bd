from dataclasses import replace

import pytest
import torch
from test_training import QUICK, measured, problem_of, training_of

from lmfcn.algorithm.checkpoint import restore_training, training_state

PAPER = replace(QUICK, support_loss="pull", units="latent", batch_size="all", optimizer="adadelta")


def stopped(textures, settings, n_epochs):
    """The state of a training that was stopped after some epochs."""
    training = training_of(problem_of(textures), settings)
    for epoch in range(n_epochs):
        training.history.append(training.train_epoch(epoch)[0])
    tensors, values = training_state(training)
    return {name: tensor.clone() for name, tensor in tensors.items()}, values


@pytest.mark.parametrize("settings", [QUICK, PAPER], ids=["adamw", "adadelta"])
@pytest.mark.parametrize("n_epochs", [1, 2, 4])
def test_a_restored_training_ends_as_one_that_was_never_stopped(textures, settings, n_epochs):
    whole = training_of(problem_of(textures), settings)
    whole.run()
    # A new process would start from other weights and another generator.
    resumed = training_of(problem_of(textures), settings, seed=9)
    restore_training(resumed, *stopped(textures, settings, n_epochs))
    assert resumed.finished is (n_epochs == 4)
    resumed.run()
    assert measured(resumed.history) == measured(whole.history)
    assert resumed.kept.epoch == whole.kept.epoch
    for network in ("network", "kept.network"):
        ours, theirs = (training_state(training)[0] for training in (resumed, whole))
        names = [name for name in theirs if name.startswith(network)]
        assert names
        assert all(torch.equal(ours[name], theirs[name]) for name in names)
    ours, theirs = resumed.kept.decision.tensors(), whole.kept.decision.tensors()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_the_state_holds_the_optimisers_memory(textures):
    tensors, values = stopped(textures, QUICK, 1)
    assert any(name.startswith("optimizer.0.exp_avg") for name in tensors)
    assert len(values["history"]) == 1
    assert values["kept"]["epoch"] == 0


def test_an_interrupted_epoch_leaves_no_trace(textures, monkeypatch):
    training = training_of(problem_of(textures))
    training.history.append(training.train_epoch(0)[0])
    kept = training.kept
    monkeypatch.setattr(training.descent, "back_propagate", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        training.run()
    assert training.kept is kept
    assert len(training.history) == 1
