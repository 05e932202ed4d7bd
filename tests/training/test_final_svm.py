from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import oracles
from lmfcn.method.kernel_svm import class_numbers
from lmfcn.model import probabilities
from lmfcn.recipe import Recipe
from lmfcn.training.calibration import fit_inverse_temperature
from lmfcn.training.final_svm import (
    C_FACTORS,
    GAMMA_FACTORS,
    MIRRORED,
    NEVER_HELD_OUT,
    SHRINKAGE,
    SHRINKAGES,
    Mirrored,
    SVMCandidate,
    cross_validate,
    fit_final_svm,
    svm_candidates,
    within_class_covariance,
    within_class_whitening,
)

PLAIN = Recipe(whiten=False)


def drawn(n: int = 60, n_classes: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(seed)
    labels = np.arange(n) % n_classes
    latents = random.normal(size=(n, 4)) + 1.5 * labels[:, None] * np.array([1, -1, 0, 0.5])
    return torch.from_numpy(latents), torch.from_numpy(labels)


def nobody(labels: torch.Tensor) -> torch.Tensor:
    return torch.full_like(labels, NEVER_HELD_OUT)


def fit(latents, labels, folds, recipe, weights=None):
    return fit_final_svm(latents, labels, folds, recipe, svm_candidates(recipe, weights))


def test_without_folds_it_is_the_plain_svm_of_the_settings():
    latents, labels = drawn(n_classes=2)
    final = fit(latents, labels, nobody(labels), replace(PLAIN, C=3.0))
    trusted = SVC(C=3.0, gamma="scale").fit(StandardScaler().fit_transform(latents), labels)
    points = torch.from_numpy(np.random.default_rng(1).normal(size=(30, 4)))
    expected = trusted.decision_function((points - latents.mean(0)) / latents.std(0, correction=0))
    assert final.decision.scores(points)[:, 0].tolist() == pytest.approx(expected.tolist(), abs=1e-3)
    assert final.rule == SVMCandidate(3.0)
    assert len(final.held_out) == len(final.held_out_scores) == 0
    assert final.support.tolist() == sorted(trusted.support_.tolist())


def slow_twin(latents, labels, folds, C, gamma):
    """Scores of held-out images from one scikit-learn SVM per class and fold."""
    held_out = np.flatnonzero(folds != NEVER_HELD_OUT)
    scores = np.zeros((len(labels), labels.max() + 1))
    for fold in set(folds[held_out]):
        for number in range(labels.max() + 1):
            svm = SVC(C=C, gamma=gamma).fit(latents[folds != fold], labels[folds != fold] == number)
            scores[folds == fold, number] = svm.decision_function(latents[folds == fold])
    return scores[held_out]


def test_the_likeliest_candidate_is_chosen_and_its_scores_are_those_of_svms_that_never_saw_the_images():
    latents, labels = drawn()
    folds = torch.where(torch.arange(60) < 30, NEVER_HELD_OUT, torch.arange(60) // 3 % 5)
    final = fit(latents, labels, folds, replace(PLAIN, C=2.0))
    scaled = StandardScaler().fit_transform(latents)
    candidates = {}
    for gamma in (factor / 4 for factor in GAMMA_FACTORS):
        for C in (2.0 * factor for factor in C_FACTORS):
            scores = torch.from_numpy(slow_twin(scaled, labels.numpy(), folds.numpy(), C, gamma))
            candidates[C, gamma] = scores

    def select_most_likely(part):
        def surprise(scores):
            inverse_temperature = fit_inverse_temperature(scores[part], labels[30:][part])
            likelihoods = probabilities(scores[part], inverse_temperature).gather(1, labels[30:][part, None])
            return -float(likelihoods.log().mean())

        return min(candidates, key=lambda key: surprise(candidates[key]))

    C, gamma = select_most_likely(slice(None))
    assert (final.rule.C, final.decision.gamma) == (C, pytest.approx(gamma))
    assert final.held_out.tolist() == list(range(30, 60))
    for fold in range(5):
        mine = folds[30:] == fold
        expected = candidates[select_most_likely(~mine)][mine]
        assert final.held_out_scores[mine].numpy() == pytest.approx(expected.numpy(), abs=1e-3)


def test_without_refit_the_settings_stand_but_folds_are_scored():
    latents, labels = drawn()
    folds = torch.arange(60) // 3 % 5
    final = fit(latents, labels, folds, replace(PLAIN, C=2.0, refit=False, gamma=0.3))
    assert (final.rule.C, final.decision.gamma) == (2.0, 0.3)
    assert final.held_out_scores.shape == (60, 3)


def test_the_decision_learns_from_every_image():
    latents, labels = drawn(seed=2)
    folds = torch.where(torch.arange(60) < 30, NEVER_HELD_OUT, torch.arange(60) % 5)
    final = fit(latents, labels, folds, Recipe())
    assert (final.support >= 30).any()
    assert (final.support < 30).any()
    right = class_numbers(final.decision.scores(latents)) == labels
    assert right.double().mean() > 0.7


def test_weights_and_balance_reach_the_final_svm():
    latents, labels = drawn(n_classes=2)
    recipe = replace(PLAIN, C=0.1, refit=False)
    plain = fit(latents, labels, nobody(labels), recipe)
    weighted = fit(latents, labels, nobody(labels), recipe, weights=1.0 + 9.0 * labels)
    assert plain.decision.coefficients.abs().max() <= 0.1 + 1e-9
    assert weighted.decision.coefficients.abs().max() > 0.1
    rare = (torch.arange(60) < 4).long()
    balanced = fit(latents, rare, nobody(rare), replace(recipe, balanced=True))
    assert balanced.decision.coefficients.max() > 0.1


@pytest.mark.parametrize("recipe", [PLAIN, Recipe()])
def test_coinciding_images_do_not_stop_it(recipe):
    latents, labels = drawn(12, 2)
    doubled = torch.cat([latents, latents])
    final = fit(doubled, labels.repeat(2), torch.arange(24) % 3, recipe)
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
    folds = torch.where(torch.arange(60) < 30, NEVER_HELD_OUT, torch.arange(60) // 3 % 5)
    final = fit(latents, labels, folds, Recipe(C=2.0))
    assert final.rule == SVMCandidate(2.0, whiten=True)
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
    folds, rules = torch.arange(80) // 2 % 5, [SVMCandidate(10.0), SVMCandidate(10.0, whiten=True)]
    arrays = torch.from_numpy(latents), torch.from_numpy(labels)
    final = fit_final_svm(*arrays, folds, Recipe(), rules)
    assert final.rule.whiten
    round_ones = torch.from_numpy(random.normal(size=(80, 2)) + 1.5 * labels[:, None]), arrays[1]
    assert not fit_final_svm(
        *round_ones, folds, Recipe(), [SVMCandidate(0.1), SVMCandidate(1e4, whiten=True)]
    ).rule.whiten


def test_nothing_is_chosen_for_whitened_latents_nor_without_refit():
    assert svm_candidates(Recipe()) == [SVMCandidate(10.0, whiten=True)]
    assert svm_candidates(replace(PLAIN, refit=False)) == [SVMCandidate(10.0)]
    assert len(svm_candidates(PLAIN)) == len(C_FACTORS) * len(GAMMA_FACTORS)
    assert svm_candidates(PLAIN)[0] == SVMCandidate(10.0)


def test_a_part_whose_images_coincide_has_the_scale_of_all():
    latents = torch.zeros(6, 2, dtype=torch.float64)
    latents[5] = 1.0
    labels, folds = (
        torch.tensor([0, 1, 0, 1, 0, 1]),
        torch.tensor([NEVER_HELD_OUT, NEVER_HELD_OUT, NEVER_HELD_OUT, NEVER_HELD_OUT, 0, 1]),
    )
    final = fit(latents, labels, folds, Recipe())
    assert bool(torch.isfinite(final.held_out_scores).all())
    assert final.held_out_scores.shape == (2, 1)


# Two classes of two points each, one above the other; they scatter by 1 along the first axis and by 2 along the second.
POINTS = torch.tensor([[-1.0, -2.0], [1.0, 2.0], [4.0, 3.0], [6.0, -1.0]], dtype=torch.float64)
LABELS = torch.tensor([0, 0, 1, 1])


def test_the_covariance_within_classes_by_hand():
    # Around their means: (-1, -2), (1, 2), (-1, 2), (1, -2), so the axes are uncorrelated.
    expected = torch.tensor([[1.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
    torch.testing.assert_close(within_class_covariance(POINTS, LABELS), expected)


def test_whitening_by_hand():
    # In units of the mean variance 2.5: 0.4 and 1.6; with half of the identity 0.7 and 1.3.
    found = within_class_whitening(POINTS, LABELS, shrinkage=0.5)
    expected = torch.diag(torch.tensor([0.7, 1.3], dtype=torch.float64).rsqrt())
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=0)


def drawn_whitening(n_images: int, n_latents: int, n_classes: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n_images) % n_classes
    mixing = torch.randn(n_latents, n_latents, generator=generator, dtype=torch.float64)
    latents = torch.randn(n_images, n_latents, generator=generator, dtype=torch.float64) @ mixing
    return latents + 3 * labels[:, None], labels


@settings(deadline=None, max_examples=30)
@given(st.integers(4, 20), st.integers(1, 5), st.integers(1, 4), st.integers(0, 10**6))
def test_the_covariance_agrees_with_its_slow_twin(n_images, n_latents, n_classes, seed):
    latents, labels = drawn_whitening(n_images, n_latents, n_classes, seed)
    expected = oracles.within_class_covariance(latents.tolist(), labels.tolist())
    assert within_class_covariance(latents, labels).numpy() == pytest.approx(np.array(expected), abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(st.integers(8, 30), st.integers(1, 6), st.floats(0.1, 1.0), st.integers(0, 10**6))
def test_whitened_latents_scatter_alike_in_all_directions(n_images, n_latents, shrinkage, seed):
    latents, labels = drawn_whitening(n_images, n_latents, 2, seed)
    whitening = within_class_whitening(latents, labels, shrinkage)
    covariance = within_class_covariance(latents, labels)
    shrunk = (1 - shrinkage) * covariance / covariance.diagonal().mean() + shrinkage * torch.eye(n_latents)
    product = whitening @ shrunk @ whitening
    assert product.numpy() == pytest.approx(torch.eye(n_latents).numpy(), abs=5e-2 / shrinkage)  # three digits are kept
    assert torch.equal(whitening, whitening.T)


def test_whitening_with_mirror_images_by_hand():
    # A quarter of 0.4 and 1.6, three quarters of what mirror images differ by, all along the first axis: 2 and 0.
    differences = torch.tensor([[3.0, 0.0], [-3.0, 0.0]], dtype=torch.float64)
    found = within_class_whitening(POINTS, LABELS, shrinkage=0.5, differences=differences)
    expected = torch.diag(torch.tensor([0.5 * 1.6 + 0.5, 0.5 * 0.4 + 0.5], dtype=torch.float64).rsqrt())
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=0)


@settings(deadline=None, max_examples=30)
@given(st.integers(8, 30), st.integers(1, 6), st.integers(1, 9), st.floats(0.3, 1.0), st.integers(0, 10**6))
def test_whitening_with_mirror_images_agrees_with_its_slow_twin(n_images, n_latents, n_turned, shrinkage, seed):
    latents, labels = drawn_whitening(n_images, n_latents, 2, seed)
    differences = drawn_whitening(n_turned, n_latents, 1, seed + 1)[0]
    whitening = within_class_whitening(latents, labels, shrinkage, differences)
    scatter = oracles.scatter_with_mirror_images(latents.tolist(), labels.tolist(), differences.tolist(), MIRRORED)
    shrunk = (1 - shrinkage) * torch.tensor(scatter, dtype=torch.float64) + shrinkage * torch.eye(n_latents)
    product = whitening @ shrunk @ whitening
    assert product.numpy() == pytest.approx(torch.eye(n_latents).numpy(), abs=5e-2 / shrinkage)


@pytest.mark.parametrize("differences", [torch.zeros(3, 2), torch.zeros(0, 2)])
def test_images_that_equal_their_mirror_images_change_nothing(differences):
    plain, mirrored = (within_class_whitening(POINTS, LABELS, 0.5, given) for given in (None, differences))
    torch.testing.assert_close(plain, mirrored, atol=1e-9, rtol=0)


def test_mirror_images_count_alike_for_few_images_and_for_many():
    latents, labels = drawn_whitening(20, 90, 2, 0)
    differences = drawn_whitening(10, 90, 1, 1)[0]
    few = within_class_whitening(latents, labels, 0.5, differences)
    scatter = oracles.scatter_with_mirror_images(latents.tolist(), labels.tolist(), differences.tolist(), MIRRORED)
    values, directions = torch.linalg.eigh(0.5 * torch.tensor(scatter, dtype=torch.float64) + 0.5 * torch.eye(90))
    many = (directions * values.rsqrt()) @ directions.T
    distances = [torch.cdist(found, found) for found in (latents.double() @ few, latents.double() @ many.double())]
    torch.testing.assert_close(*distances, atol=2e-2, rtol=1e-2)


def test_a_fold_is_whitened_without_the_mirror_images_of_its_own_images():
    latents, labels = drawn(60, 3)
    turned = latents[::3] + 0.1
    folds = torch.arange(60) % 5
    mirrored = Mirrored(torch.arange(0, 60, 3), turned)
    recipe = Recipe()
    found = fit_final_svm(latents, labels, folds, recipe, svm_candidates(recipe), mirrored).held_out_scores
    changed = turned.clone()
    changed[0, 0] += 100.0  # the mirror image of image 0, which is in fold 0
    mirrored = Mirrored(torch.arange(0, 60, 3), changed)
    other = fit_final_svm(latents, labels, folds, recipe, svm_candidates(recipe), mirrored).held_out_scores
    assert torch.equal(found[folds == 0], other[folds == 0])
    assert not torch.equal(found[folds == 1], other[folds == 1])


def test_units_do_not_matter():
    latents, labels = drawn_whitening(20, 3, 2, 0)
    once, twice = (within_class_whitening(factor * latents, labels) for factor in (1.0, 1e4))
    torch.testing.assert_close(once, twice, atol=2e-3, rtol=0)


def test_full_shrinkage_changes_nothing():
    latents, labels = drawn_whitening(20, 3, 2, 0)
    assert torch.equal(within_class_whitening(latents, labels, 1.0), torch.eye(3, dtype=torch.float64))


@pytest.mark.parametrize("labels", [[0, 0, 1, 1], [0, 1, 2, 3], [0, 0, 0, 2]])
def test_classes_without_scatter_leave_the_latents_as_they_are(labels):
    latents = torch.tensor(labels, dtype=torch.float32)[:, None] * torch.ones(1, 3)
    assert torch.equal(within_class_whitening(latents, torch.tensor(labels)), torch.eye(3))


@pytest.mark.parametrize(("n_classes", "n_kept"), [(2, 64), (40, 80), (50, 90)])
def test_so_many_directions_are_kept(n_classes, n_kept):
    latents, labels = drawn_whitening(120, 90, n_classes, 0)
    assert within_class_whitening(latents, labels).shape == (90, n_kept)


def test_the_widest_directions_are_kept():
    latents, labels = drawn_whitening(120, 90, 2, 0)
    spreads = (latents @ within_class_whitening(latents, labels)).var(dim=0, correction=0)
    covariance = within_class_covariance(latents, labels)
    shrunk = 0.7 * covariance / covariance.diagonal().mean() + 0.3 * torch.eye(90)
    variances, directions = torch.linalg.eigh(shrunk)
    whole = latents @ directions @ torch.diag(variances.rsqrt()) @ directions.T
    expected = torch.linalg.eigvalsh(torch.cov(whole.T, correction=0)).flip(0)
    assert spreads.numpy() == pytest.approx(expected[:64].numpy(), rel=0.05)


def test_directions_in_which_no_image_differs_are_not_kept():
    latents, labels = drawn_whitening(40, 90, 2, 0)
    whitening = within_class_whitening(latents, labels)
    assert whitening.shape == (90, 39)  # 40 images differ in 39 directions
    new = torch.randn(5, 90, dtype=torch.float64) @ torch.linalg.svd(latents - latents.mean(0)).Vh[39:].T
    outside = new @ torch.linalg.svd(latents - latents.mean(0)).Vh[39:]
    assert (outside @ whitening).abs().max() < 2e-2 * outside.abs().max()


def test_rounding_is_no_scatter():
    images = torch.rand(2, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    latents, labels = images.repeat(3, 1), torch.arange(2).repeat(3)
    assert torch.equal(within_class_whitening(latents, labels), torch.eye(6, dtype=torch.float64))


def test_more_latents_than_images():
    latents, labels = drawn_whitening(6, 40, 2, 0)
    whitening = within_class_whitening(latents.float(), labels)
    assert whitening.dtype == torch.float32
    assert bool(torch.isfinite(whitening).all())
    assert torch.equal(whitening, whitening.half().float())
    # Directions that no image moves in have the identity's share alone.
    assert float(torch.linalg.eigvalsh(whitening).max()) == pytest.approx(SHRINKAGE**-0.5, abs=5e-3)


def test_inputs_stay_as_they_are():
    latents, labels = drawn_whitening(12, 3, 2, 0)
    before = latents.clone(), labels.clone()
    within_class_whitening(latents, labels)
    assert torch.equal(latents, before[0])
    assert torch.equal(labels, before[1])


@pytest.mark.parametrize(("n_images", "n_classes"), [(30, 2), (60, 5), (12, 3)])
@pytest.mark.parametrize("shrinkage", [0.1, 0.3, 0.9])
def test_few_images_of_many_features_are_whitened_as_many_are(n_images, n_classes, shrinkage):
    """The matrices (n, n) give what those (phi, phi) give: the same distances between any images."""
    generator = torch.Generator().manual_seed(n_images)
    n_features = 90
    labels = torch.arange(n_images) % n_classes
    latents = torch.randn(n_images, n_features, generator=generator, dtype=torch.float64)
    latents = latents * torch.linspace(0.2, 3, n_features) + 0.5 * labels[:, None]
    new = torch.randn(7, n_features, generator=generator, dtype=torch.float64)
    covariance = within_class_covariance(latents, labels)
    scaled = (1 - shrinkage) * covariance / covariance.diagonal().mean() + shrinkage * torch.eye(n_features)
    variances, directions = torch.linalg.eigh(scaled)
    root = (directions / variances.sqrt()) @ directions.T
    whitened = latents @ root
    spreads, widest = torch.linalg.eigh(torch.cov(whitened.T, correction=0))
    widest = widest[:, spreads > 1e-9 * spreads[-1]]
    expected = torch.cdist(new @ root @ widest, whitened @ widest)
    found = within_class_whitening(latents, labels, shrinkage).double()
    assert found.shape[1] == min(64, widest.shape[1])
    torch.testing.assert_close(torch.cdist(new @ found, latents @ found), expected, rtol=2e-3, atol=2e-3)


def test_candidates_of_several_shrinkages_share_work_and_change_nothing():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 2
    latents = torch.randn(40, 90, generator=generator) + 0.4 * labels[:, None] * torch.rand(90, generator=generator)
    folds, recipe = torch.arange(40) // 2 % 5, Recipe()
    rules = [rule for value in SHRINKAGES for rule in svm_candidates(recipe, shrinkage=value)]
    alone = [cross_validate(latents, labels, folds, recipe, [rule])[1] for rule in rules]
    chosen, scores = cross_validate(latents, labels, folds, recipe, rules)
    final = fit_final_svm(latents, labels, folds, recipe, rules)
    assert final.rule == chosen
    assert torch.equal(final.held_out_scores, scores)
    # Every fold is scored by one of the candidates, as if there were no others.
    for fold in range(5):
        assert any(torch.equal(scores[folds == fold], of_one[folds == fold]) for of_one in alone)
    refitted = fit_final_svm(latents, labels, nobody(labels), recipe, [chosen])
    assert torch.equal(final.decision.scale.whitening, refitted.decision.scale.whitening)
