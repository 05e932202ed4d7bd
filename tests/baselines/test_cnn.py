from dataclasses import asdict

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch.nn.functional import cross_entropy

from lmfcn.algorithm.encode import encode
from lmfcn.algorithm.errors import TrainingError
from lmfcn.baselines.cnn import CNNClassifier, CNNRecord


def quick(**changes) -> CNNClassifier:
    options = {"latent_dim": 4, "widths": (6, 8), "epochs": 3, "batch_size": 8, "random_state": 0, "device": "cpu"}
    return CNNClassifier(**{**options, **changes})


@pytest.fixture(scope="module")
def fitted(textures):
    return quick().fit(*textures)


def test_history_and_kept_epoch(fitted):
    scores = fitted.history_.column("validation_balanced_accuracy")
    assert [record.epoch for record in fitted.history_] == [0, 1, 2, 3]
    assert fitted.best_epoch_ == scores.index(max(scores))
    assert fitted.history_.column("n_backpropagated") == [26, 26, 26, 0]


def test_the_kept_network_reproduces_its_recorded_score(textures):
    images, labels = textures
    fitted = quick().fit(images[:20], labels[:20], validation=(images[20:], labels[20:]))
    right = fitted.predict(images[20:]) == labels[20:]
    recalls = [right[labels[20:] == label].mean() for label in (0, 1)]
    assert np.mean(recalls) == pytest.approx(fitted.history_[fitted.best_epoch_].validation_balanced_accuracy)


def test_the_kept_weights_are_a_copy_of_the_best_epoch(textures, monkeypatch):
    # Scores in the order in which they are asked for: training and validation of epochs 0 to 3.
    scores = iter([0.5, 0.9, 0.5, 0.6, 0.5, 0.6, 0.5, 0.6])
    monkeypatch.setattr("lmfcn.baselines.cnn._evaluate", lambda *_: (1.0, next(scores)))
    untrained = []
    build = CNNClassifier._build

    def spy(self, *arguments):
        network = build(self, *arguments)
        untrained.extend(weight.clone() for weight in network.parameters())
        return network

    monkeypatch.setattr(CNNClassifier, "_build", spy)
    fitted = quick().fit(*textures)
    assert fitted.best_epoch_ == 0
    assert all(torch.equal(a, b) for a, b in zip(untrained, fitted.network_.parameters(), strict=True))


def test_the_optimiser_uses_the_recorded_rate(textures, monkeypatch):
    used = []
    step = torch.optim.AdamW.step

    def spy(self, *arguments):
        used.append(self.param_groups[0]["lr"])
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.AdamW, "step", spy)
    fitted = quick(batch_size=99).fit(*textures)
    assert used == fitted.history_.column("learning_rate")[:-1]


def test_recorded_loss_is_the_cross_entropy_of_the_network(textures):
    images, labels = textures
    fitted = quick(validation_fraction=0).fit(images, labels)
    logits = encode(fitted.network_, images[..., None], torch.device("cpu"))
    expected = cross_entropy(logits, torch.from_numpy(labels.copy())).item()
    assert fitted.history_[-1].loss == pytest.approx(expected, rel=1e-5)


def test_training_lowers_the_loss(textures):
    history = quick(epochs=10, learning_rate=3e-3).fit(*textures).history_
    assert history[-1].loss < 0.7 * history[0].loss
    assert history[-1].train_balanced_accuracy > history[0].train_balanced_accuracy


def test_probabilities_agree_with_predictions(textures, fitted):
    probabilities = fitted.predict_proba(textures[0])
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(32))
    assert np.array_equal(fitted.classes_[probabilities.argmax(axis=1)], fitted.predict(textures[0]))


def test_more_than_two_classes_with_names(textures):
    names = np.array(["a", "b", "c"])[np.arange(32) % 3]
    assert set(quick(epochs=1).fit(textures[0], names).predict(textures[0])) <= {"a", "b", "c"}


def test_repeatable_and_without_touching_global_seeds(textures, fitted):
    before = torch.get_rng_state()
    same = quick().fit(*textures)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(same.predict_proba(textures[0]), fitted.predict_proba(textures[0]))


def test_learning_rate_falls_to_a_tenth(fitted):
    rates = fitted.history_.column("learning_rate")
    assert rates[0] == pytest.approx(3e-4)
    assert rates[-1] == pytest.approx(3e-5)


def test_records_are_plain(fitted, tmp_path):
    fitted.history_.save(tmp_path / "cnn.jsonl")
    assert type(fitted.history_).load(tmp_path / "cnn.jsonl", CNNRecord) == fitted.history_
    assert asdict(fitted.history_[0])["epoch"] == 0


def test_clone_and_not_fitted(textures, fitted):
    with pytest.raises(NotFittedError):
        clone(fitted).predict(textures[0])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_size": -3}, "batch_size must be at least 1, got -3"),
        ({"learning_rate": 0}, "learning_rate must be greater than 0"),
        ({"validation_fraction": 2}, "validation_fraction must be less than 1"),
        ({"widths": (3, -1)}, "widths must be at least 1, got -1"),
    ],
)
def test_bad_parameters_are_refused_with_a_reason(textures, parameters, message):
    with pytest.raises(ValueError, match=message):
        quick(**parameters).fit(*textures)


def test_divergence_names_the_epoch(textures):
    with pytest.raises(TrainingError, match=r"The loss became nan in epoch \d; try a smaller learning_rate"):
        quick(learning_rate=1e25).fit(*textures)
