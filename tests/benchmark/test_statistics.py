import math

import numpy as np
import pytest
from scipy.stats import ttest_rel

from lmfcn.benchmark.statistics import Difference, Summary, holm, paired_difference, paired_p_value, summarize

T_OF_FOUR = 2.7764451  # 97.5 % point of Student's distribution with 4 degrees of freedom


def test_mean_and_deviation_by_hand():
    assert summarize([2, 4, 4, 6]) == Summary(4.0, pytest.approx(math.sqrt(8 / 3)), 4)
    assert summarize([0.7]) == Summary(0.7, None, 1)
    with pytest.raises(ValueError, match="no value"):
        summarize([])


def test_the_interval_by_hand():
    # Differences 1 to 5: mean 3, variance 2.5, standard error sqrt(2.5 / 5).
    found = paired_difference([11, 12, 13, 14, 15], [10, 10, 10, 10, 10])
    reach = T_OF_FOUR * math.sqrt(0.5)
    assert found == Difference(3.0, pytest.approx(3 - reach), pytest.approx(3 + reach), 5)
    assert found.excludes_zero


def test_the_corrected_interval_by_hand():
    # As above, but the variance of the mean is (1/5 + 300/100) * 2.5.
    found = paired_difference([11, 12, 13, 14, 15], [10, 10, 10, 10, 10], test_to_train=3.0)
    assert (found.low, found.high) == pytest.approx((3 - T_OF_FOUR * math.sqrt(8), 3 + T_OF_FOUR * math.sqrt(8)))
    assert not found.excludes_zero


def test_the_interval_ends_at_zero_where_the_p_value_says_so(random):
    ours, theirs = random.normal(0.3, 1, (2, 12))
    confidence = 1 - ttest_rel(ours, theirs).pvalue
    found = paired_difference(ours, theirs, confidence=confidence)
    assert min(abs(found.low), abs(found.high)) == pytest.approx(0, abs=1e-9)
    assert found.mean == pytest.approx(np.mean(ours - theirs))


def test_one_pair_says_nothing_about_the_spread():
    found = paired_difference([0.9], [0.7])
    assert found.mean == pytest.approx(0.2)
    assert (found.low, found.high, found.n) == (-math.inf, math.inf, 1)
    assert not found.excludes_zero


def test_a_difference_below_zero_excludes_it_too():
    assert paired_difference([0.1, 0.1, 0.2], [0.9, 0.9, 0.9]).excludes_zero


def test_values_that_are_no_pairs_are_refused():
    with pytest.raises(ValueError, match="equally many and at least one, got 2 and 1"):
        paired_difference([1, 2], [1])
    with pytest.raises(ValueError, match="got 0 and 0"):
        paired_difference([], [])
    for wrong in ({"confidence": 1.0}, {"test_to_train": -1}):
        with pytest.raises(ValueError, match="must be inside 0 and 1"):
            paired_difference([1, 2], [1, 2], **wrong)


def test_the_p_value_by_hand_and_by_scipy(random):
    # Differences 1 to 5: mean 3, standard error sqrt(0.5), t = 4.243 with 4 degrees of freedom.
    assert paired_p_value([11, 12, 13, 14, 15], [10] * 5) == pytest.approx(0.01324, abs=1e-5)
    ours, theirs = random.normal(0.3, 1, (2, 12))
    assert paired_p_value(ours, theirs) == pytest.approx(ttest_rel(ours, theirs).pvalue)


def test_the_p_value_says_what_the_interval_says(random):
    ours, theirs = random.normal(0.3, 1, (2, 12))
    p = paired_p_value(ours, theirs, test_to_train=0.25)
    found = paired_difference(ours, theirs, confidence=1 - p, test_to_train=0.25)
    assert min(abs(found.low), abs(found.high)) == pytest.approx(0, abs=1e-9)


def test_p_values_of_differences_that_do_not_vary():
    assert paired_p_value([0.9], [0.1]) == 1.0
    assert paired_p_value([0.5, 0.5], [0.5, 0.5]) == 1.0
    assert paired_p_value([1.0, 1.0], [0.5, 0.5]) == 0.0
    # Taken to vary by 0.5: t = 0.5 / (0.5 sqrt(1/2)) with one degree of freedom, p = 1 - 2 atan(sqrt 2) / pi.
    assert paired_p_value([1.0, 1.0], [0.5, 0.5], resolution=0.5) == pytest.approx(
        1 - 2 * math.atan(math.sqrt(2)) / math.pi
    )


def test_the_interval_of_differences_that_do_not_vary():
    found = paired_difference([1.0, 1.0], [0.5, 0.5], resolution=0.5)
    reach = math.tan(0.475 * math.pi) * 0.5 * math.sqrt(1 / 2)  # Student's point for one degree of freedom
    assert (found.low, found.high) == pytest.approx((0.5 - reach, 0.5 + reach))


def test_equal_means_differ_by_zero():
    ours, theirs = [0.1 + 0.2, 0.9, 0.8], [0.8, 0.3, 0.9]
    assert np.mean(np.subtract(ours, theirs)) != 0
    for found in (paired_difference(ours, theirs), paired_difference(theirs, ours)):
        assert f"{found.mean:.3f}" == "0.000"
    assert paired_p_value(ours, theirs) == 1.0


def test_holm_by_hand():
    # Ascending 0.01, 0.02, 0.03, 0.5: times 4, 3, 2, 1 that is 0.04, 0.06, 0.06, 0.5.
    assert holm([0.5, 0.01, 0.03, 0.02]) == pytest.approx([0.5, 0.04, 0.06, 0.06])
    assert holm([0.02, 0.015]) == pytest.approx([0.03, 0.03])  # never less than what was smaller before
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
