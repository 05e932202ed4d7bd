import math

import numpy as np
import pytest
import torch

from lmfcn import make_gaussians
from lmfcn.baselines.fisher import C_VALUES, FisherSVC, LinearDecision, local_features
from lmfcn.baselines.metric_learning import LOSSES, MetricCriterion, MetricSVC
from lmfcn.baselines.network_svm import RandomFCN
from lmfcn.method.anchors import analyse_latents
from lmfcn.method.history import Stopwatch
from lmfcn.recipe import Recipe

QUICK = {"latent_dim": 4, "widths": (6,), "epochs": 8, "learning_rate": 3e-3, "random_state": 0, "device": "cpu"}


def test_contrastive_loss_by_hand(generator):
    criterion = MetricCriterion("contrastive", 2, 2, generator)
    # Unit vectors at 0, 60 and 90 degrees; chords of 2 sin(angle / 2). One pair of a class, two pairs of two.
    latents = torch.tensor([[1.0, 0.0], [math.cos(math.pi / 3), math.sin(math.pi / 3)], [0.0, 2.0]])
    near, other = 2 * math.sin(math.pi / 6), 2 * math.sin(math.pi / 12)
    loss = criterion(latents, torch.tensor([0, 0, 1]))
    assert loss.item() == pytest.approx(near + (1 - other), abs=1e-5)  # the third pair is further than the margin 1


@pytest.mark.parametrize("loss", LOSSES)
def test_training_lowers_the_loss(textures, loss):
    fitted = MetricSVC(loss=loss, **QUICK).fit(*textures)
    assert fitted.history_[-1].loss < fitted.history_[0].loss
    assert fitted.history_[-1].train_balanced_accuracy >= 0.9


@pytest.mark.parametrize(("loss", "n_proxies"), [("proxy-anchor", 3), ("proxy-NCA", 3), ("contrastive", 0)])
def test_proxies_come_from_the_generator_and_learn_fast(loss, n_proxies):
    before = torch.get_rng_state()
    one, same = (MetricCriterion(loss, 3, 5, torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert sum(len(proxies) for proxies in one.parameters()) == n_proxies
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert one.rate_factor == 100


def test_epochs_are_judged_by_the_svm_of_lmfcn(generator, random):
    latents = torch.from_numpy(random.normal(size=(30, 4))).float()
    labels = torch.from_numpy(random.integers(0, 3, 30))
    scores = MetricCriterion("contrastive", 3, 4, generator).scores(latents[:5], latents, labels)
    expected = analyse_latents(latents, labels, Recipe(), Stopwatch()).decision.scores(latents[:5])
    torch.testing.assert_close(scores, expected)


def test_an_unknown_loss_is_refused(textures):
    with pytest.raises(ValueError, match="loss must be one of 'contrastive', 'proxy-anchor', 'proxy-NCA'"):
        MetricSVC(loss="triplet").fit(*textures)


def test_latents_are_the_mean_of_local_features(textures):
    fitted = RandomFCN(latent_dim=4, widths=(6,), random_state=0, device="cpu").fit(*textures)
    local = dict(local_features(fitted.network_, textures[0][..., None]))
    assert sorted(local) == list(range(32))
    means = np.stack([local[position].mean(axis=0) for position in range(32)])
    assert means == pytest.approx(fitted.transform(textures[0]), abs=1e-5)


def test_fisher_vectors_have_length_one_and_the_documented_size():
    images, labels = make_gaussians(20, 16, random_state=0, stds=(20, 60))
    fitted = FisherSVC(n_modes=3, n_components=2, **{**QUICK, "epochs": 2}).fit(images, labels)
    vectors = fitted.transform(images)
    assert vectors.shape == (40, 2 * 3 * 2 + 3)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(40))
    assert fitted.score(images, labels) > 0.8
    assert fitted.C_ in C_VALUES


def test_a_linear_decision_by_hand():
    decision = LinearDecision(torch.tensor([[1.0], [-2.0]]), torch.tensor([0.5]))
    assert decision.scores(torch.tensor([[3.0, 1.0]])).tolist() == [[1.5]]
