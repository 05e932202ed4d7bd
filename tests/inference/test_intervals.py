import numpy as np

from lmfcn.inference.intervals import balanced_recall


def test_same_input_same_interval_and_more_images_are_surer():
    few = balanced_recall(np.repeat([0, 1], 10), np.arange(20) % 5 > 0)[0]
    many = balanced_recall(np.repeat([0, 1], 1000), np.arange(2000) % 5 > 0)[0]
    assert few == balanced_recall(np.repeat([0, 1], 10), np.arange(20) % 5 > 0)[0]
    assert few.value == many.value == 0.8
    assert few.low < many.low < 0.8 < many.high < few.high


def test_a_class_without_errors_is_not_certain():
    estimate, recalls = balanced_recall(np.repeat([0, 1], 16), np.full(32, True))
    assert (estimate.value, estimate.high) == (1.0, 1.0)
    assert 0.8 < recalls[0].low < 0.9  # Jeffreys' interval of 16 of 16 begins at 0.857
    assert 0.85 < estimate.low < 0.97


def test_groups_that_stand_and_fall_together_are_less_sure():
    numbers, right = np.repeat([0, 1], 100), np.tile(np.repeat([True, True, True, True, False], 20), 2)
    alone = balanced_recall(numbers, right)[0]
    every_image = balanced_recall(numbers, right, np.arange(200))[0]
    together = balanced_recall(numbers, right, np.arange(200) // 20)[0]
    assert together.value == alone.value
    assert together.high - together.low > 2 * (alone.high - alone.low)
    assert abs(every_image.low - alone.low) < 0.01
    assert abs(every_image.high - alone.high) < 0.01


def test_intervals_hold_the_truth_as_often_as_they_say():
    random = np.random.default_rng(0)
    numbers = np.repeat([0, 1], 40)
    held = []
    for _ in range(200):
        right = random.random(80) < np.where(numbers == 0, 0.95, 0.7)
        found = balanced_recall(numbers, right)[0]
        held.append(found.low <= 0.825 <= found.high)
    assert 0.9 <= np.mean(held) <= 0.99
