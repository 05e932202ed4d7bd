from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from lmfcn.algorithm.calibration import fit_sharpness, probabilities
from lmfcn.algorithm.final_svm import ALWAYS, C_FACTORS, GAMMA_FACTORS, Rule, fit_final_svm, rules_of
from lmfcn.algorithm.score import class_numbers
from lmfcn.algorithm.settings import Settings
from lmfcn.algorithm.whitening import within_class_whitening

PLAIN = Settings(whiten=False)


def drawn(n: int = 60, n_classes: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(seed)
    labels = np.arange(n) % n_classes
    latents = random.normal(size=(n, 4)) + 1.5 * labels[:, None] * np.array([1, -1, 0, 0.5])
    return torch.from_numpy(latents), torch.from_numpy(labels)


def nobody(labels: torch.Tensor) -> torch.Tensor:
    return torch.full_like(labels, ALWAYS)


def fit(latents, labels, folds, settings, weights=None):
    return fit_final_svm(latents, labels, folds, settings, rules_of(settings, weights))


def test_without_folds_it_is_the_plain_svm_of_the_settings():
    latents, labels = drawn(n_classes=2)
    final = fit(latents, labels, nobody(labels), replace(PLAIN, C=3.0))
    trusted = SVC(C=3.0, gamma="scale").fit(StandardScaler().fit_transform(latents), labels)
    points = torch.from_numpy(np.random.default_rng(1).normal(size=(30, 4)))
    expected = trusted.decision_function((points - latents.mean(0)) / latents.std(0, correction=0))
    assert final.decision.scores(points)[:, 0].tolist() == pytest.approx(expected.tolist(), abs=1e-3)
    assert final.rule == Rule(3.0)
    assert len(final.held_out) == len(final.held_out_scores) == 0
    assert final.support.tolist() == sorted(trusted.support_.tolist())


def slow_twin(latents, labels, folds, C, gamma):
    """Scores of held-out images from one scikit-learn SVM per class and fold."""
    held_out = np.flatnonzero(folds != ALWAYS)
    scores = np.zeros((len(labels), labels.max() + 1))
    for fold in set(folds[held_out]):
        for number in range(labels.max() + 1):
            svm = SVC(C=C, gamma=gamma).fit(latents[folds != fold], labels[folds != fold] == number)
            scores[folds == fold, number] = svm.decision_function(latents[folds == fold])
    return scores[held_out]


def test_the_likeliest_candidate_is_chosen_and_its_scores_are_those_of_svms_that_never_saw_the_images():
    latents, labels = drawn()
    folds = torch.where(torch.arange(60) < 30, ALWAYS, torch.arange(60) // 3 % 5)
    final = fit(latents, labels, folds, replace(PLAIN, C=2.0))
    scaled = StandardScaler().fit_transform(latents)
    candidates = {}
    for gamma in (factor / 4 for factor in GAMMA_FACTORS):
        for C in (2.0 * factor for factor in C_FACTORS):
            scores = torch.from_numpy(slow_twin(scaled, labels.numpy(), folds.numpy(), C, gamma))
            candidates[C, gamma] = scores

    def likeliest(part):
        def surprise(scores):
            sharpness = fit_sharpness(scores[part], labels[30:][part])
            likelihoods = probabilities(scores[part], sharpness).gather(1, labels[30:][part, None])
            return -float(likelihoods.log().mean())

        return min(candidates, key=lambda key: surprise(candidates[key]))

    C, gamma = likeliest(slice(None))
    assert (final.rule.C, final.decision.gamma) == (C, pytest.approx(gamma))
    assert final.held_out.tolist() == list(range(30, 60))
    for fold in range(5):
        mine = folds[30:] == fold
        expected = candidates[likeliest(~mine)][mine]
        assert final.held_out_scores[mine].numpy() == pytest.approx(expected.numpy(), abs=1e-3)


def test_without_refit_the_settings_stand_but_folds_are_scored():
    latents, labels = drawn()
    folds = torch.arange(60) // 3 % 5
    final = fit(latents, labels, folds, replace(PLAIN, C=2.0, refit=False, gamma=0.3))
    assert (final.rule.C, final.decision.gamma) == (2.0, 0.3)
    assert final.held_out_scores.shape == (60, 3)


def test_the_decision_learns_from_every_image():
    latents, labels = drawn(seed=2)
    folds = torch.where(torch.arange(60) < 30, ALWAYS, torch.arange(60) % 5)
    final = fit(latents, labels, folds, Settings())
    assert (final.support >= 30).any()
    assert (final.support < 30).any()
    right = class_numbers(final.decision.scores(latents)) == labels
    assert right.double().mean() > 0.7


def test_weights_and_balance_reach_the_final_svm():
    latents, labels = drawn(n_classes=2)
    settings = replace(PLAIN, C=0.1, refit=False)
    plain = fit(latents, labels, nobody(labels), settings)
    weighted = fit(latents, labels, nobody(labels), settings, weights=1.0 + 9.0 * labels)
    assert plain.decision.coefficients.abs().max() <= 0.1 + 1e-9
    assert weighted.decision.coefficients.abs().max() > 0.1
    rare = (torch.arange(60) < 4).long()
    balanced = fit(latents, rare, nobody(rare), replace(settings, balanced=True))
    assert balanced.decision.coefficients.max() > 0.1


@pytest.mark.parametrize("settings", [PLAIN, Settings()])
def test_coinciding_images_do_not_stop_it(settings):
    latents, labels = drawn(12, 2)
    doubled = torch.cat([latents, latents])
    final = fit(doubled, labels.repeat(2), torch.arange(24) % 3, settings)
    assert bool(torch.isfinite(final.held_out_scores).all())


def whitened_twin(known, classes, others, C):
    """Scores of `others` from scikit-learn's SVMs on latents that are standardised and whitened by `known` alone."""
    scaler = StandardScaler().fit(known)
    whitening = within_class_whitening(torch.from_numpy(scaler.transform(known)), classes).numpy()
    there, points = scaler.transform(known) @ whitening, scaler.transform(others) @ whitening
    svms = [SVC(C=C, gamma="scale").fit(there, classes == number) for number in range(int(classes.max()) + 1)]
    return np.stack([svm.decision_function(points) for svm in svms], axis=1)


def test_whitened_latents_are_measured_without_the_labels_of_the_images_that_judge():
    latents, labels = drawn()
    folds = torch.where(torch.arange(60) < 30, ALWAYS, torch.arange(60) // 3 % 5)
    final = fit(latents, labels, folds, Settings(C=2.0))
    assert final.rule == Rule(2.0, whiten=True)
    for fold in range(5):
        others = folds != fold
        expected = whitened_twin(latents[others], labels[others], latents[folds == fold], 2.0)
        assert final.held_out_scores[folds[30:] == fold].numpy() == pytest.approx(expected, abs=1e-3)
    points = torch.from_numpy(np.random.default_rng(1).normal(size=(30, 4)))
    expected = whitened_twin(latents, labels, points, 2.0)
    assert final.decision.scores(points).numpy() == pytest.approx(expected, abs=1e-3)


def test_of_plain_and_whitened_rules_the_likeliest_is_chosen():
    # Classes differ along a direction of little scatter, which only whitening finds among many others.
    random = np.random.default_rng(0)
    labels = np.arange(80) % 2
    common = 5 * random.normal(size=(80, 1)) * np.ones((1, 12))
    latents = common + 0.3 * random.normal(size=(80, 12))
    latents[:, 0] += 0.8 * labels
    folds, rules = torch.arange(80) // 2 % 5, [Rule(10.0), Rule(10.0, whiten=True)]
    arrays = torch.from_numpy(latents), torch.from_numpy(labels)
    final = fit_final_svm(*arrays, folds, Settings(), rules)
    assert final.rule.whiten
    round_ones = torch.from_numpy(random.normal(size=(80, 2)) + 1.5 * labels[:, None]), arrays[1]
    assert not fit_final_svm(*round_ones, folds, Settings(), [Rule(0.1), Rule(1e4, whiten=True)]).rule.whiten


def test_nothing_is_chosen_for_whitened_latents_nor_without_refit():
    assert rules_of(Settings()) == [Rule(10.0, whiten=True)]
    assert rules_of(replace(PLAIN, refit=False)) == [Rule(10.0)]
    assert len(rules_of(PLAIN)) == len(C_FACTORS) * len(GAMMA_FACTORS)
    assert rules_of(PLAIN)[0] == Rule(10.0)


def test_a_part_whose_images_coincide_has_the_scale_of_all():
    latents = torch.zeros(6, 2, dtype=torch.float64)
    latents[5] = 1.0
    labels, folds = torch.tensor([0, 1, 0, 1, 0, 1]), torch.tensor([ALWAYS, ALWAYS, ALWAYS, ALWAYS, 0, 1])
    final = fit(latents, labels, folds, Settings())
    assert bool(torch.isfinite(final.held_out_scores).all())
    assert final.held_out_scores.shape == (2, 1)
