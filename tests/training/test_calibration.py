import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from lmfcn.model import least_probability, probabilities
from lmfcn.training.calibration import calibrate, equal_prior_shift, expected_calibration_error, fit_inverse_temperature


def drawn(n: int, n_scores: int, seed: int = 0, truth: float = 1.7) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores, and classes that follow their softmax under a known factor."""
    random = np.random.default_rng(seed)
    scores = torch.from_numpy(random.normal(size=(n, n_scores), scale=2))
    cumulated = probabilities(scores, truth).cumsum(dim=1)
    return scores, (torch.from_numpy(random.random((n, 1))) > cumulated).sum(dim=1)


def test_probabilities_by_hand():
    two = probabilities(torch.tensor([[0.0], [math.log(3)]]), 1.0)
    assert two.tolist() == [pytest.approx([0.5, 0.5]), pytest.approx([0.25, 0.75])]
    three = probabilities(torch.tensor([[0.0, math.log(2), 0.0]]), 2.0)
    assert three.tolist() == [pytest.approx([1 / 6, 4 / 6, 1 / 6])]


@pytest.mark.parametrize("n_scores", [1, 4])
def test_the_true_factor_is_found(n_scores):
    assert fit_inverse_temperature(*drawn(20_000, n_scores)) == pytest.approx(1.7, rel=0.05)


@pytest.mark.parametrize("n_scores", [1, 3])
def test_the_factor_is_where_a_general_optimiser_finds_it(n_scores):
    scores, labels = drawn(40, n_scores, seed=3)
    n_classes = max(2, n_scores)

    def surprise(log_factor):
        logs = probabilities(scores, math.exp(log_factor)).log().numpy()
        targets = np.full((40, n_classes), 1 / 42 / (n_classes - 1))
        targets[np.arange(40), labels.numpy()] = 41 / 42
        return -(targets * logs).sum()

    best = minimize_scalar(surprise, bounds=(-5, 5), method="bounded", options={"xatol": 1e-9}).x
    assert math.log(fit_inverse_temperature(scores, labels)) == pytest.approx(best, abs=1e-5)


def test_a_set_on_which_all_is_right_gets_a_finite_factor():
    scores = torch.tensor([[-1.0], [1.0]] * 10)
    labels = torch.tensor([0, 1] * 10)
    # Twenty images, all right: the smoothed target is 21/22, so exp(a) = 21.
    assert fit_inverse_temperature(scores, labels) == pytest.approx(math.log(21), rel=1e-6)
    more = fit_inverse_temperature(scores.repeat(10, 1), labels.repeat(10))
    assert more == pytest.approx(math.log(201), rel=1e-6)


def test_scores_that_say_nothing_or_the_opposite_give_even_probabilities():
    labels = torch.tensor([0, 1] * 10)
    backwards = torch.tensor([[1.0], [-1.0]] * 10)
    assert probabilities(backwards, fit_inverse_temperature(backwards, labels))[:, 0].tolist() == pytest.approx(
        [0.5] * 20, abs=1e-3
    )
    equal = torch.zeros(20, 1)
    assert math.isfinite(fit_inverse_temperature(equal, labels))


@settings(deadline=None, max_examples=100)
@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3), min_size=1, max_size=5), st.floats(1e-3, 1e3))
def test_the_order_of_scores_survives(rows, factor):
    scores = torch.tensor(rows, dtype=torch.float64)
    predicted = probabilities(scores, factor)
    assert torch.allclose(predicted.sum(dim=1), torch.ones(len(rows), dtype=torch.float64))
    best = predicted.argmax(dim=1, keepdim=True)
    # Where two scores are equal to the last digit, either may come first.
    assert (scores.gather(1, best) >= scores.max(dim=1, keepdim=True).values - 1e-12 / factor).all()


def test_calibration_error_by_hand():
    # Bin 0.6-0.7: confidence 0.65 twice, one right: |1 - 1.3| = 0.3.
    # Bin 0.9-1: confidence 0.95 and 1, both right: |2 - 1.95| = 0.05.
    predicted = torch.tensor([[0.65, 0.35], [0.65, 0.35], [0.05, 0.95], [0.0, 1.0]], dtype=torch.float64)
    assert expected_calibration_error(torch.tensor([0, 1, 1, 1]), predicted) == pytest.approx(0.35 / 4)


def test_the_error_is_that_of_the_probabilities_that_the_model_gives():
    scores, labels = drawn(60, 3)
    calibration = calibrate(scores, labels, held_out=True)
    given = probabilities(scores, calibration.inverse_temperature)
    assert calibration.error == pytest.approx(expected_calibration_error(labels, given))


def test_calibrated_probabilities_are_right_as_often_as_they_say():
    scores, labels = drawn(4000, 3)
    calibration = calibrate(scores[:1000], labels[:1000], held_out=True)
    fresh = probabilities(scores[1000:], calibration.inverse_temperature)
    assert calibration.error < 0.05
    assert expected_calibration_error(labels[1000:], fresh) < 0.03
    overconfident = probabilities(scores[1000:], 10 * calibration.inverse_temperature)
    assert expected_calibration_error(labels[1000:], overconfident) > 0.1


def test_true_probabilities_are_sorted_and_belong_to_the_labels():
    scores, labels = drawn(30, 3)
    calibration = calibrate(scores, labels, held_out=True)
    by_hand = sorted(probabilities(scores, calibration.inverse_temperature)[range(30), labels].tolist())
    assert calibration.true_probabilities.tolist() == by_hand


def test_one_held_out_image_is_enough_to_go_on():
    calibration = calibrate(torch.tensor([[2.0]]), torch.tensor([1]), held_out=True)
    assert math.isfinite(calibration.inverse_temperature)


def test_least_probability_by_hand():
    values = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], dtype=torch.float64)
    # (9 + 1) * 0.9 = 9 exactly: the smallest of nine.
    assert least_probability(values, 0.9) == pytest.approx(0.1)
    assert least_probability(values, 0.8) == pytest.approx(0.2)
    assert least_probability(values, 0.5) == pytest.approx(0.5)
    assert least_probability(values, 0.91) == 0.0


def test_promised_coverage_on_fresh_data():
    promises, n_repeats, n_held_out = (0.5, 0.8, 0.9, 0.95), 120, 50
    covered: dict[float, list[bool]] = {coverage: [] for coverage in promises}
    for seed in range(n_repeats):
        scores, labels = drawn(250, 4, seed=seed)
        calibration = calibrate(scores[:n_held_out], labels[:n_held_out], held_out=True)
        true = probabilities(scores[n_held_out:], calibration.inverse_temperature).gather(1, labels[n_held_out:, None])
        for coverage in promises:
            covered[coverage] += (true >= least_probability(calibration.true_probabilities, coverage))[:, 0].tolist()
    for coverage in promises:
        # At least the promise and at most 1 / (m + 1) more, within three standard errors over the calibrations.
        noise = 3 * math.sqrt(coverage * (1 - coverage) / n_held_out / n_repeats)
        assert coverage - noise < np.mean(covered[coverage]) < coverage + 1 / (n_held_out + 1) + noise


def test_equal_priors_by_hand():
    # Three of four images are of class 0: with equal frequencies the odds of class 1 are three times as high.
    labels = torch.tensor([0, 0, 0, 1])
    shift = equal_prior_shift(labels, inverse_temperature=2.0, scores=torch.empty(0, 1))
    before, after = (probabilities(torch.tensor([[0.3]]) + s, 2.0)[0] for s in (0.0, shift))
    assert (after[1] / after[0]) / (before[1] / before[0]) == pytest.approx(3.0)
    labels = torch.tensor([0, 1, 1, 2, 2, 2, 2])
    shift = equal_prior_shift(labels, inverse_temperature=0.5, scores=torch.empty(0, 3))
    scores = torch.tensor([[0.1, 0.5, -0.2]], dtype=torch.float64)
    before, after = (probabilities(scores + s, 0.5)[0] for s in (0.0, shift))
    odds = after / before
    assert (odds / odds[2]).tolist() == pytest.approx([4.0, 2.0, 1.0])
    assert equal_prior_shift(torch.tensor([0, 1, 2]), 1.0, torch.rand(5, 3)).tolist() == [0.0, 0.0, 0.0]


def share_of_rare(scores: torch.Tensor, labels: torch.Tensor) -> float:
    """How many images get the rarest class, 1 or the last one, after half of the shift, as by default."""
    shift = 0.5 * equal_prior_shift(labels, fit_inverse_temperature(scores, labels), scores)
    numbers = probabilities(scores + shift, 1.0).argmax(dim=1)
    return float((numbers == max(1, scores.shape[1] - 1)).double().mean())


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("size", [0.01, 1.0])
def test_scores_that_tell_nothing_are_not_shifted_to_the_rare_class(seed, size):
    random = np.random.default_rng(seed)
    labels = torch.arange(200) % 10 // 9  # 90 and 10 percent
    assert share_of_rare(torch.from_numpy(random.normal(size=(200, 1), scale=size)), labels) < 0.7
    labels = (torch.arange(200) % 20).clamp(min=17) - 17  # 90, 5 and 5 percent
    assert share_of_rare(torch.from_numpy(random.normal(size=(200, 3), scale=size)), labels) < 0.6


def test_scores_that_tell_the_opposite_are_hardly_shifted():
    labels = torch.arange(200) % 10 // 9
    backwards = torch.where(labels == 1, -1.0, 1.0).double()[:, None]
    assert abs(float(equal_prior_shift(labels, fit_inverse_temperature(backwards, labels), backwards))) < 1e-3


@pytest.mark.parametrize("n_rare", [2, 5, 20])
def test_the_shift_of_informative_scores_is_that_of_bayes_rule(n_rare):
    random = np.random.default_rng(0)
    for n_classes in (2, 5):
        labels = torch.from_numpy(np.r_[np.zeros(200), np.repeat(np.arange(1, n_classes), n_rare)]).long()
        signs = torch.where(torch.nn.functional.one_hot(labels) == 1, 1.0, -1.0).double()
        scores = signs[:, 1:] if n_classes == 2 else signs
        scores = scores + torch.from_numpy(random.normal(scale=0.5, size=scores.shape))
        inverse_temperature = fit_inverse_temperature(scores, labels)
        logs = labels.bincount().double().log()
        expected = (logs[:1] - logs[1:] if n_classes == 2 else logs.mean() - logs) / inverse_temperature
        assert torch.equal(equal_prior_shift(labels, inverse_temperature, scores), expected)


def test_a_shift_beyond_two_typical_scores_falls_back():
    labels = torch.tensor([0] * 9 + [1])
    scores = torch.tensor([[0.5], [-1.5]])  # 1 in the mean, so the shift may reach 2
    sizes = [float(equal_prior_shift(labels, math.log(9) / size, scores)) for size in (1.9, 2.0, 4.0, 8.0)]
    assert sizes == pytest.approx([1.9, 2.0, 1.0, 0.5])


def test_with_nothing_held_out_calibration_is_neutral():
    calibration = calibrate(torch.empty(0, 1), torch.empty(0, dtype=torch.int64), held_out=False)
    assert (calibration.inverse_temperature, calibration.error, calibration.held_out) == (1.0, None, False)
