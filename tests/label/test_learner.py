import numpy as np
import torch

from lmfcn.label.learner import Judgement, describe_progress, fit, judge, predict, what_is_missing
from lmfcn.predict.evaluation import Estimate


def judgement(n, value, probabilities, numbers, expected):
    accuracy, positions = Estimate(value, 0.5, 1.0, n), np.arange(len(numbers))
    return Judgement(n, accuracy, positions, np.array(probabilities), np.array(numbers), 1.0, expected)


def test_a_few_labels_tell_clusters_apart(clusters):
    coordinates, numbers = clusters
    known = np.array([0, 1, 2, 3, 20, 21, 22, 23])
    found = predict(fit(coordinates, known, numbers[known]), coordinates, None)
    assert found.shape == (40, 2)
    assert (found.argmax(axis=1) == numbers).mean() > 0.9
    assert judge(coordinates, known[:5], numbers[known[:5]]) is None  # the second class has only one
    assert judge(coordinates, known, numbers[known]).accuracy.value == 1.0


def test_a_wrong_label_is_doubted_first(clusters):
    coordinates, numbers = clusters
    numbers = numbers.copy()
    numbers[3] = 1
    found = judge(coordinates, np.arange(40), numbers)
    assert found.doubtful()[0] == 3
    assert found.confusions()[0][:2] == (0, 1)


def test_groups_are_held_out_together(random):
    # Pairs at one place, whose classes are random: only the twin in the training part could tell the class.
    places = torch.from_numpy(np.repeat(random.normal(size=(20, 30)), 2, axis=0))
    numbers = np.repeat(np.tile([0, 1], 10), 2)
    alone = judge(places, np.arange(40), numbers)
    together = judge(places, np.arange(40), numbers, np.arange(40) // 2)
    assert together.accuracy.value < 0.7 < alone.accuracy.value


def test_sentences():
    early = judgement(20, 0.8, [[0.9, 0.1], [0.8, 0.2]], [0, 1], 0.9)
    late = judgement(40, 0.9, [[0.9, 0.1], [0.8, 0.2]], [0, 1], 0.9)
    same = judgement(40, 0.8, [[0.9, 0.1]], [0], 0.9)
    sure = judgement(40, 0.8, [[0.9, 0.1]], [0], 0.99)
    classes = ["wood", "stone"]
    assert describe_progress(classes, [early]) == (
        "About 90 % of the suggestions should be right. Balanced accuracy by cross-validation on 20 labels: 0.80 (0.50"
        " to 1.00); these are the harder images. Most mixed up: wood and stone (1 image). More labels will help."
    )
    assert describe_progress(classes, [early, late]).endswith("since 20 labels: more labels will help.")
    assert "No classes are mixed up. It has hardly changed since 20 labels" in describe_progress(classes, [early, same])
    assert "You can stop" in describe_progress(classes, [early, sure])
    assert describe_progress(classes, [judgement(9, 0.9, [[0.9, 0.1]], [0], None)]).endswith("then finish.")
    assert "cannot be estimated yet" in what_is_missing(classes, [3, 3])


def test_fitting_twice_gives_the_same(clusters):
    coordinates, numbers = clusters
    known = np.arange(40)
    one, other = (predict(fit(coordinates, known, numbers), coordinates, None) for _ in range(2))
    assert (one == other).all()
