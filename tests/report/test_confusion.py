import numpy as np
import pytest

from lmfcn.report.confusion import confusion_counts, confusion_matrix, frequent_confusions
from lmfcn.report.style import as_svg


def test_counts_are_those_of_scikit_learn(random):
    from sklearn.metrics import confusion_matrix as counted

    true, predicted = random.integers(0, 4, (2, 50))
    assert np.array_equal(confusion_counts(true, predicted, 4), counted(true, predicted, labels=range(4)))


def test_cells_have_their_numbers_and_axes_the_classes():
    axes = confusion_matrix(np.array([[5, 0], [2, 3]]), ["bark", "树"]).axes[0]
    assert {text.get_text(): text.get_position() for text in axes.texts} == {
        "5": (0.5, 0.5),
        "2": (0.5, 1.5),
        "3": (1.5, 1.5),
    }
    assert axes.images[0].get_array().tolist() == [[1.0, 0.0], [0.4, 0.6]]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["bark", "class 2"]
    assert axes.get_ylabel() == "class"


@pytest.mark.parametrize("n_classes", [13, 41])
def test_many_classes_have_no_numbers(n_classes):
    figure = confusion_matrix(np.eye(n_classes, dtype=int), [f"class {number}" for number in range(n_classes)])
    assert len(figure.axes[0].texts) == 0
    assert len(figure.axes[0].get_yticklabels()) == (13 if n_classes == 13 else 0)
    assert len(as_svg(figure)) < 120_000


def test_an_empty_class_and_names_with_dollars_can_be_drawn():
    assert as_svg(confusion_matrix(np.array([[0, 0], [1, 1]]), ["$a", "b$"])).startswith("data:")


def test_the_most_frequent_confusions_come_first():
    counts = np.array([[4, 1, 0], [3, 2, 5], [0, 0, 7]])
    assert frequent_confusions(counts, ["a", "b", "c"], most=2) == [
        "b taken for c 5 of 10 times",
        "b taken for a 3 of 10 times",
    ]
    assert frequent_confusions(np.eye(3, dtype=int), ["a", "b", "c"]) == []
