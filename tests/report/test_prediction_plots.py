import numpy as np
import pytest
import torch

from lmfcn.report.prediction_plots import (
    MethodPicture,
    calibration_pictures,
    confusion_counts,
    confusion_matrix,
    confusion_pictures,
    fit_into_bytes,
    frequent_confusions,
    pooled_predictions,
    reliability,
    reliability_diagram,
)
from lmfcn.report.style import as_svg
from lmfcn.training.calibration import expected_calibration_error
from some_comparison import RUNS, run_of


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
    assert axes.get_ylabel() == "true class"


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
        "b predicted as c 5 of 10 times",
        "b predicted as a 3 of 10 times",
    ]
    assert frequent_confusions(np.eye(3, dtype=int), ["a", "b", "c"]) == []


def test_the_error_is_that_of_the_method(random):
    probabilities = random.dirichlet(np.ones(3), 200)
    labels = random.integers(0, 3, 200)
    expected = expected_calibration_error(torch.from_numpy(labels), torch.from_numpy(probabilities))
    found = reliability(probabilities.max(axis=1), probabilities.argmax(axis=1) == labels)
    assert found.error == pytest.approx(expected)
    assert found.counts.sum() == 200


def test_bins_by_hand():
    found = reliability([0.61, 0.65, 0.95, 1.0], [True, False, True, True])
    assert found.counts.tolist() == [0, 0, 0, 0, 0, 0, 2, 0, 0, 2]
    assert found.confidence[[6, 9]] == pytest.approx([0.63, 0.975])
    assert found.accuracy[[6, 9]].tolist() == [0.5, 1.0]
    assert np.isnan(found.accuracy[0])


def test_the_diagram_shows_bins_of_ten_images_and_more():
    confidences, right = [0.35] * 9 + [0.61, 0.65] * 5 + [0.95, 1.0] * 6, [True] * 9 + [True, False] * 5 + [True] * 12
    axes, below = reliability_diagram(confidences, right).axes
    diagonal, dots = axes.lines
    assert list(diagonal.get_xdata()) == [0, 1]
    assert list(dots.get_ydata()) == [0.5, 1.0]
    assert [bar.get_height() for bar in below.patches] == [0, 0, 0, 9, 0, 0, 10, 0, 0, 12]


def test_answers_are_pooled_over_the_repeats():
    answers = pooled_predictions(RUNS, ["LBP", "LMFCN"])
    assert list(answers) == ["LBP", "LMFCN"]
    pooled = answers["LMFCN"]
    assert pooled.classes == ["bark & co", "wood"]
    assert len(pooled.true) == len(pooled.predicted) == len(pooled.confidences) == 3 * 40
    assert int(np.sum(pooled.true != pooled.predicted)) == 15


def test_a_method_with_an_older_run_is_left_out():
    runs = [run_of("LBP", 0, 0.5), run_of("LBP", 1, 0.5, classes=None), run_of("LMFCN", 0, 0.5)]
    assert list(pooled_predictions(runs, ["LBP", "LMFCN"])) == ["LMFCN"]


def test_every_picture_says_what_it_shows():
    answers = pooled_predictions(RUNS, ["LBP"])
    (matrix,), (diagram,) = confusion_pictures(answers), calibration_pictures(answers)
    assert matrix.alt == "Confusion matrix of LBP: 15 of 120 wrong: bark & co predicted as wood 15 of 60 times."
    assert diagram.caption == "ECE 0.025: 90 % sure on average, 88 % right."
    assert matrix.address.startswith("data:image/svg+xml;base64,")


def test_only_what_fits_is_drawn():
    drawn = []

    def pictures():
        for number in range(5):
            drawn.append(number)
            yield MethodPicture(str(number), "x" * 10, "", "")

    assert [picture.method for picture in fit_into_bytes(pictures(), 25)] == ["0", "1"]
    assert drawn == [0, 1, 2]
