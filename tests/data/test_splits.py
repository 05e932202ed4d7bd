import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmfcn.data.leaks import LeakWarning
from lmfcn.data.splits import hold_out, make_folds, repeated_splits, split
from lmfcn.data.training_data import check_training_data


@settings(deadline=None)
@given(st.integers(3, 30), st.integers(3, 30), st.floats(0.05, 0.5), st.integers(0, 1000))
def test_a_fraction_of_every_class_is_held_out(n_first, n_second, fraction, seed):
    numbers = np.repeat([0, 1], [n_first, n_second])
    remaining, held_out = hold_out(numbers, fraction, np.random.default_rng(seed))
    assert sorted([*remaining, *held_out]) == list(range(len(numbers)))
    for number, size in enumerate((n_first, n_second)):
        assert (numbers[held_out] == number).sum() == max(1, round(fraction * size))
    assert list(remaining) == sorted(remaining)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 1000), st.integers(4, 12))
def test_no_group_is_in_both_parts(seed, n_groups):
    random = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), 3)
    numbers = groups % 2
    remaining, held_out = hold_out(numbers, 0.25, random, groups)
    assert set(groups[remaining]).isdisjoint(groups[held_out])
    assert set(numbers[remaining]) == set(numbers[held_out]) == {0, 1}


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


IMAGES = np.random.default_rng(0).integers(0, 255, (8, 8, 8)).astype(np.uint8)
LABELS = np.arange(8) % 2


def checked(validation=None, groups=None, labels=LABELS, fraction=0.25, images=IMAGES):
    return check_training_data(images, labels, groups, validation, fraction, np.random.default_rng(0))


def test_training_and_validation_images_are_those_of_x():
    data = checked()
    assert len(data.train.images) == len(data.train) == 6
    assert data.train.numbers.tolist() == LABELS[data.train.positions].tolist()
    assert sorted([*data.train.positions, *data.validation.positions]) == list(range(8))
    assert np.array_equal(data.validation.images[..., 0], IMAGES[data.validation.positions])


def test_training_and_validation_share_no_group():
    groups = np.array([1, 1, 1, 1, 2, 2, 3, 3])
    data = checked(groups=groups)
    assert data.train.groups.tolist() == groups[data.train.positions].tolist()
    assert set(data.train.groups).isdisjoint(data.validation.groups)


def test_near_identical_images_share_no_part_with_each_other_or_with_given_groups():
    images = IMAGES.copy()
    images[4], images[6] = images[0] // 2 + 10, images[2]
    data = checked(images=images, groups=[0, 1, 2, 3, 4, 5, 6, 4])
    together = data.train.groups if 0 in data.train.positions else data.validation.groups
    assert {0, 4, 7} <= set(data.train.positions) or {0, 4, 7} <= set(data.validation.positions)
    assert {2, 6} <= set(data.train.positions) or {2, 6} <= set(data.validation.positions)
    assert len(set(together.tolist())) < len(together)
    assert checked(images=IMAGES).train.groups is None


def test_near_identical_images_may_be_split():
    same = np.repeat(IMAGES[:1], 8, axis=0)
    with pytest.warns(LeakWarning, match="Near-identical images are on both sides of the split, because a class has"):
        data = checked(images=same)
    assert (len(data.train), len(data.validation)) == (6, 2)
    data = check_training_data(same, LABELS, None, None, 0.25, np.random.default_rng(0), split_duplicates=True)
    assert (len(data.train), len(data.validation), data.train.groups) == (6, 2, None)


def test_given_validation_images_leave_x_whole_and_follow_it():
    data = checked(validation=(IMAGES[:3], LABELS[:3]))
    assert len(data.train) == 8
    assert data.validation.numbers.tolist() == [0, 1, 0]
    assert data.validation.positions.tolist() == [8, 9, 10]


def test_fraction_zero_validates_on_nothing():
    assert checked(fraction=0).validation is None


def test_the_fingerprint_changes_with_pixels_labels_and_split():
    images = IMAGES.copy()
    images[5, 3, 3] += 1
    same = [checked().fingerprint(), checked().fingerprint()]
    others = [
        checked(images=images).fingerprint(),
        checked(labels=1 - LABELS).fingerprint(),
        checked(labels=[str(label) for label in LABELS]).fingerprint(),
        checked(fraction=0.5).fingerprint(),
        checked(fraction=0).fingerprint(),
    ]
    assert same[0] == same[1]
    assert len({same[0], *others}) == 6


def test_folds_spread_classes_and_keep_groups_together(random):
    numbers = random.integers(0, 3, 90)
    folds = make_folds(numbers, 5, random)
    counts = np.stack([np.bincount(numbers[folds == fold], minlength=3) for fold in range(5)])
    assert np.ptp(counts, axis=0).max() <= 1
    assert np.ptp(counts.sum(axis=1)) <= 2
    groups = random.integers(0, 20, 90)
    folds = make_folds(numbers, 5, random, groups)
    assert all(len(set(folds[groups == group])) == 1 for group in set(groups.tolist()))
    assert len(set(folds.tolist())) == 5
    assert len(set(make_folds(np.array([0, 1, 0]), 5, random).tolist())) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"validation": IMAGES}, r"validation must be a tuple \(X, y\) or a collection, got ndarray"),
        ({"validation": (IMAGES, LABELS + 1)}, r"training images, \[0, 1\]; only in one of them: \[0, 2\]"),
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


LABELLED = np.repeat(["a", "b", "c"], [10, 20, 40])


def sizes(indices, labels=LABELLED):
    return [int((labels[indices] == label).sum()) for label in np.unique(labels)]


def test_fractions_of_every_class():
    parts = split(LABELLED, fractions=(0.5, 0.2, 0.3), random_state=0)
    assert sizes(parts.train) == [5, 10, 20]
    assert sizes(parts.validation) == [2, 4, 8]
    assert sizes(parts.test) == [3, 6, 12]
    together = np.concatenate([parts.train, parts.validation, parts.test])
    assert sorted(together) == list(range(70))


def test_fractions_may_leave_something_out():
    parts = split(LABELLED, fractions=(0.2, 0.1, 0.1), random_state=0)
    assert sizes(parts.train) == [2, 4, 8]
    assert len(np.unique(np.concatenate([parts.train, parts.validation, parts.test]))) == 28


def test_counts_per_class_and_the_rest():
    parts = split(LABELLED, counts=(4, 2, None), random_state=0)
    assert sizes(parts.train) == [4, 4, 4]
    assert sizes(parts.validation) == [2, 2, 2]
    assert sizes(parts.test) == [4, 14, 34]
    assert sizes(split(LABELLED, counts=(4, 2, 3)).test) == [3, 3, 3]


def test_repetitions_differ_and_can_be_repeated():
    first, again = (list(repeated_splits(LABELLED, repeats=3, random_state=7)) for _ in range(2))
    assert [part.train.tolist() for part in first] == [part.train.tolist() for part in again]
    assert len({tuple(part.train) for part in first}) == 3


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 1000), st.integers(9, 30))
def test_three_parts_share_no_group(seed, n_groups):
    groups = np.repeat(np.arange(n_groups), 4)
    labels = groups % 3
    parts = split(labels, fractions=(0.4, 0.3, 0.3), groups=groups, random_state=seed)
    group_sets = [set(groups[part]) for part in (parts.train, parts.validation, parts.test)]
    assert sum(map(len, group_sets)) == len(set.union(*group_sets))
    assert all(set(labels[part]) == {0, 1, 2} for part in (parts.train, parts.validation, parts.test))


def test_grouped_counts_come_close(random):
    groups = random.integers(0, 80, 600)
    labels = random.integers(0, 2, 600)
    parts = split(labels, counts=(100, 50, None), groups=groups, random_state=0)
    assert sizes(parts.train, labels) == pytest.approx([100, 100], abs=15)
    assert sizes(parts.validation, labels) == pytest.approx([50, 50], abs=15)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fractions": (0.5, 0.6, 0.1)}, r"three numbers from 0 to 1 with a sum of at most 1, got \(0.5, 0.6, 0.1\)"),
        ({"fractions": (0.5, 0.5)}, "three numbers from 0 to 1"),
        ({"fractions": (0.98, 0.01, 0.01)}, "Class 'a' has 10 images, too few for the fractions"),
        ({"counts": (5, 4, 2)}, "Class 'a' has 10 images, but 11 are needed per class"),
        ({"counts": (5, 5, None)}, "Class 'a' has 10 images, but 11 are needed"),
        ({"counts": (None, None, 3)}, "at most one of them None"),
        ({"groups": LABELLED}, "every class must occur in at least 3 groups"),
        ({"groups": [1, 2]}, r"groups must hold one entry per image, shape \(70,\), got shape \(2,\)"),
    ],
)
def test_impossible_splits_say_what_is_missing(arguments, message):
    with pytest.raises(ValueError, match=message):
        split(LABELLED, **arguments)
