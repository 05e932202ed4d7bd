from dataclasses import asdict

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch.nn.functional import cross_entropy

from lmfcn.baselines import network_training
from lmfcn.baselines.cnn import CNNClassifier, LinearCriterion, _class_weights, matched_filters
from lmfcn.baselines.network_svm import RandomFCN
from lmfcn.baselines.network_training import NetworkRecord, NetworkTraining
from lmfcn.baselines.tuning import candidates_for
from lmfcn.classifier import LMFCNClassifier
from lmfcn.compute.encode import encode
from lmfcn.method.history import TrainingError
from lmfcn.method.network import TextureFCN
from lmfcn.recipe import Recipe


def quick(**changes) -> CNNClassifier:
    options = {"latent_dim": 4, "widths": (6, 8), "epochs": 3, "batch_size": 8, "random_state": 0, "device": "cpu"}
    return CNNClassifier(**{**options, **changes})


@pytest.fixture(scope="module")
def fitted(textures):
    return quick().fit(*textures)


def test_history_and_selected_epoch(fitted):
    scores = fitted.history_.column("validation_balanced_accuracy")
    assert [record.epoch for record in fitted.history_] == [0, 1, 2, 3]
    losses = fitted.history_.column("validation_loss")
    assert fitted.best_epoch_ == max(range(4), key=lambda epoch: (scores[epoch], -losses[epoch]))
    assert fitted.history_.column("n_backpropagated") == [26, 26, 26, 0]


def test_the_selected_network_reproduces_its_recorded_score(textures):
    images, labels = textures
    fitted = quick().fit(images[:20], labels[:20], validation=(images[20:], labels[20:]))
    right = fitted.predict(images[20:]) == labels[20:]
    recalls = [right[labels[20:] == label].mean() for label in (0, 1)]
    assert np.mean(recalls) == pytest.approx(fitted.history_[fitted.best_epoch_].validation_balanced_accuracy)


def test_the_selected_weights_are_a_copy_of_the_best_epoch(textures, monkeypatch):
    # Loss and score in the order in which they are asked for: training and validation of epochs 0 to 3.
    measured = iter([(1.0, 0.5), (1.0, 0.9), *[(1.0, 0.5), (1.0, 0.6)] * 3])
    monkeypatch.setattr(NetworkTraining, "_loss_and_accuracy", lambda *_: next(measured))
    untrained = []

    class Spy(TextureFCN):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            untrained.extend(weight.clone() for weight in self.parameters())

    monkeypatch.setattr("lmfcn.baselines.cnn.TextureFCN", Spy)
    fitted = quick().fit(*textures)
    assert fitted.best_epoch_ == 0
    assert all(torch.equal(a, b) for a, b in zip(untrained, fitted.network_[0].parameters(), strict=True))


def test_equal_scores_are_decided_by_the_loss_and_patience_by_the_loss_alone(textures, monkeypatch):
    # The loss is best in epoch 2, the score in epoch 4; epoch 6 is the second one without any progress.
    validation = [(0.9, 0.5), (0.7, 0.8), (0.5, 0.8), (0.6, 0.8), (0.8, 0.9), (0.7, 0.9), (0.9, 0.9), (0.1, 1.0)]
    measured = iter([pair for entry in validation for pair in ((1.0, 0.5), entry)])
    monkeypatch.setattr(NetworkTraining, "_loss_and_accuracy", lambda *_: next(measured))
    fitted = quick(epochs=30, patience=2).fit(*textures)
    assert fitted.best_epoch_ == 5  # as good as 4 and 6, with a lower loss
    assert fitted.n_iter_ == 6
    assert fitted.history_.column("n_backpropagated")[-2:] == [26, 0]


def test_patience_needs_validation_images(textures):
    with pytest.raises(ValueError, match="patience=3 needs validation images"):
        quick(patience=3, validation_fraction=0).fit(*textures)


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
    assert type(fitted.history_).load(tmp_path / "cnn.jsonl", NetworkRecord) == fitted.history_
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


def test_the_hinge_loss_by_hand(generator):
    criterion = LinearCriterion(1, 2, "hinge", None, generator)
    criterion.linear.weight.data = torch.tensor([[0.0], [1.0]])
    criterion.linear.bias.data.zero_()
    # Differences of the outputs 3, 0.25 and -2, all of class 1: shortfalls 0, 0.75 and 3, halved by the class count.
    loss = criterion(torch.tensor([[3.0], [0.25], [-2.0]]), torch.tensor([1, 1, 1]))
    assert loss.item() == pytest.approx((0 + 0.75 + 3) / 3 / 2)


def test_hinge_learns_too(textures):
    history = quick(loss="hinge", epochs=10, learning_rate=3e-3).fit(*textures).history_
    assert history[-1].loss < 0.7 * history[0].loss


@pytest.mark.parametrize(("n_classes", "channels", "latent_dim", "widths"), [
    (2, 1, 64, (64, 128)), (6, 3, 16, (64, 128)), (9, 3, 64, (64, 128)), (40, 1, 59, (64, 128)), (3, 5, 8, (16,)),
])  # fmt: skip
def test_matched_sizes_have_the_weights_of_all_networks(n_classes, channels, latent_dim, widths):
    matched, last = matched_filters(n_classes, channels, latent_dim, widths)
    big, one = TextureFCN(channels, last, matched), TextureFCN(channels, latent_dim, widths)
    count = sum(weight.numel() for weight in big.parameters()) + (last + 1) * n_classes
    assert count == pytest.approx(n_classes * sum(weight.numel() for weight in one.parameters()), rel=0.01)
    assert matched[0] / widths[0] == pytest.approx(last / latent_dim, rel=0.25)


def test_the_wide_network_is_wider(textures):
    names = np.array(["a", "b", "c"])[np.arange(32) % 3]
    plain, wide = (quick(epochs=1, size=size).fit(textures[0], names) for size in ("same", "one-vs-all"))
    counts = [sum(weight.numel() for weight in one.network_.parameters()) for one in (plain, wide)]
    assert counts[1] > 2 * counts[0]


def test_weight_decay_reaches_the_optimiser(textures, monkeypatch):
    seen = []
    step = torch.optim.AdamW.step

    def spy(self, *arguments):
        seen.extend(group["weight_decay"] for group in self.param_groups)
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.AdamW, "step", spy)
    quick(weight_decay=0.07).fit(*textures)
    assert set(seen) == {0.07}


def test_the_loss_of_unequal_classes_by_hand(generator):
    criterion = LinearCriterion(1, 2, "cross-entropy", torch.tensor([2 / 3, 2.0]), generator)
    criterion.linear.weight.data.zero_()
    criterion.linear.bias.data = torch.tensor([1.0, 0.0])
    # Three images of class 0 and one of class 1, all given the same outputs: both classes count for half.
    right, wrong = np.log1p(np.exp(-1)), np.log1p(np.exp(1))
    assert criterion(torch.zeros(4, 1), torch.tensor([0, 0, 0, 1])).item() == pytest.approx((right + wrong) / 2)


def test_rare_classes_weigh_as_much_as_others():
    assert _class_weights(np.array([0, 0, 0, 1])).tolist() == pytest.approx([2 / 3, 2])


def test_first_filters_and_augmentation_of_lmfcn(textures, monkeypatch):
    used = []
    original = network_training.augment
    monkeypatch.setattr(network_training, "augment", lambda *given: used.append(given[1]) or original(*given))
    small = {"latent_dim": 4, "widths": (6, 8), "epochs": 1, "random_state": 0, "device": "cpu"}
    plain = CNNClassifier(**small, learning_rate=1e-9).fit(*textures)
    assert set(used) == {"none"}
    used.clear()
    ours = CNNClassifier(**small, learning_rate=1e-9, first_filters="decorrelated", augmentation="flips").fit(*textures)
    assert set(used) == {"flips"}
    first, changed = (fitted.network_[0].features[0].weight for fitted in (plain, ours))
    torch.testing.assert_close(changed[::2], first[::2], atol=1e-6, rtol=0)
    assert not torch.allclose(changed[1::2], first[1::2], atol=1e-3)
    with pytest.raises(ValueError, match="augmentation must be one of 'none', 'flips', 'dihedral', got 'all'"):
        CNNClassifier(augmentation="all").fit(*textures)
    quick(epochs=1, augmentation="dihedral").fit(*textures)
    assert set(used) == {"flips", "dihedral"}
    with pytest.raises(ValueError, match="first_filters must be one of"):
        CNNClassifier(first_filters="learnt").fit(*textures)


def test_all_methods_are_tuned_among_the_same_rates():
    ours, theirs = candidates_for(LMFCNClassifier()), candidates_for(CNNClassifier())
    assert ours == [
        {},
        {"recipe__learning_rate": 3e-4},
        {"recipe__weight_decay": 0.1},
    ]  # whose own rate is the other one
    like_ours = {"learning_rate": 1e-3, "first_filters": "decorrelated", "augmentation": "flips"}
    assert theirs == [{}, {"learning_rate": 1e-3}, {"weight_decay": 0.1}, like_ours]
    assert (Recipe().first_filters, Recipe().augmentation) == ("decorrelated", "flips")
    assert candidates_for(LMFCNClassifier(recipe=Recipe(augmentation="none"))) == ours  # the user's choice stays
    assert candidates_for(RandomFCN()) == [{}]
