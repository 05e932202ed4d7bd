import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmfcn.data.splits import hold_out
from lmfcn.data.training_data import check_training_data


@settings(deadline=None)
@given(st.integers(3, 30), st.integers(3, 30), st.floats(0.05, 0.5), st.integers(0, 1000))
def test_every_class_gives_its_share(n_first, n_second, fraction, seed):
    numbers = np.repeat([0, 1], [n_first, n_second])
    kept, held_out = hold_out(numbers, fraction, np.random.default_rng(seed))
    assert sorted([*kept, *held_out]) == list(range(len(numbers)))
    for number, size in enumerate((n_first, n_second)):
        assert (numbers[held_out] == number).sum() == max(1, round(fraction * size))
    assert list(kept) == sorted(kept)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 1000), st.integers(4, 12))
def test_no_group_is_on_both_sides(seed, n_groups):
    random = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), 3)
    numbers = groups % 2
    kept, held_out = hold_out(numbers, 0.25, random, groups)
    assert set(groups[kept]).isdisjoint(groups[held_out])
    assert set(numbers[kept]) == set(numbers[held_out]) == {0, 1}


def test_groups_that_cannot_be_split_are_explained(random):
    for groups in ([7, 7, 7, 7], [0, 0, 1, 1]):
        with pytest.raises(ValueError, match=r"every class must occur in at least 2 groups\. Give more groups"):
            hold_out(np.array([0, 0, 1, 1]), 0.5, random, np.array(groups))


def test_groups_come_close_to_the_fraction(random):
    groups = random.integers(0, 60, 400)
    numbers = random.integers(0, 3, 400)
    _, held_out = hold_out(numbers, 0.25, random, groups)
    assert np.bincount(numbers[held_out]) / np.bincount(numbers) == pytest.approx([0.25] * 3, abs=0.05)


def test_same_generator_state_same_split():
    numbers = np.repeat([0, 1], 20)
    one, same = (hold_out(numbers, 0.3, np.random.default_rng(5))[1] for _ in range(2))
    assert one.tolist() == same.tolist()


IMAGES, LABELS = np.zeros((8, 8, 8), dtype=np.uint8), np.arange(8) % 2


def checked(validation=None, groups=None, labels=LABELS, fraction=0.25):
    return check_training_data(IMAGES, labels, groups, validation, fraction, np.random.default_rng(0))


def test_training_and_validation_images_are_those_of_x():
    data = checked()
    assert len(data.images) == len(data.numbers) == len(data.chosen) == 6
    assert data.numbers.tolist() == LABELS[data.chosen].tolist()
    assert len(data.validation_images) == 2


def test_training_and_validation_share_no_group():
    groups = np.array([1, 1, 1, 1, 2, 2, 3, 3])
    data = checked(groups=groups)
    assert set(groups[data.chosen]).isdisjoint(groups[np.setdiff1d(np.arange(8), data.chosen)])


def test_given_validation_images_leave_x_whole():
    data = checked(validation=(IMAGES[:3], LABELS[:3]))
    assert data.images.shape[0] == 8
    assert data.validation_numbers.tolist() == [0, 1, 0]


def test_fraction_zero_validates_on_nothing():
    assert checked(fraction=0).validation_images is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"validation": IMAGES}, r"validation must be a tuple \(X, y\) or a collection, got ndarray"),
        ({"validation": (IMAGES, LABELS + 1)}, r"training images, \[0, 1\]; on one side only: \[0, 2\]"),
        ({"validation": (IMAGES[:2].astype(float), [0, 1])}, "float pixels, but the classifier was fitted on uint8"),
        ({"groups": [1, 2]}, r"one entry per image, shape \(8,\), got shape \(2,\)"),
        ({"labels": [0] * 7 + [1]}, "Class 1 has 1 image; at least 3 are needed .one of them for validation"),
        ({"labels": [0] * 7 + [1], "fraction": 0}, "Class 1 has 1 image; at least 2 are needed"),
        ({"labels": [0] * 5 + [1] * 3, "fraction": 0.6}, "at least 2 are needed after the validation images"),
    ],
)
def test_bad_training_data_is_refused_with_a_reason(arguments, message):
    with pytest.raises(ValueError, match=message):
        checked(**arguments)
