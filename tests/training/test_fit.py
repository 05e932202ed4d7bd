import numpy as np

from lmfcn.training.final_svm import NEVER_HELD_OUT
from lmfcn.training.fit import keep_every_class


def test_a_class_in_one_fold_stays_in_every_part_together_with_its_groups():
    numbers = np.array([0] * 4 + [1] * 12)
    groups = np.array([0] * 7 + [1] * 3 + [2] * 3 + [3] * 3)
    folds = np.array([0] * 7 + [1] * 3 + [2] * 3 + [3] * 3)
    left = keep_every_class(folds, numbers, groups)
    assert left.tolist() == [NEVER_HELD_OUT] * 7 + [1] * 3 + [2] * 3 + [3] * 3
    assert folds[0] == 0


def test_folds_without_groups_are_left_alone_if_no_class_would_vanish():
    folds, numbers = np.array([0, 1, 0, 1, 0]), np.array([0, 0, 1, 1, 2])
    assert keep_every_class(folds, numbers, None).tolist() == [0, 1, 0, 1, NEVER_HELD_OUT]
