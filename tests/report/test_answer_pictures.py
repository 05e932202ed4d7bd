import numpy as np

from lmfcn.report.answers import MethodPicture, calibration_pictures, confusion_pictures, pooled_answers, within
from some_comparison import RUNS, run_of


def test_answers_are_pooled_over_the_repeats():
    answers = pooled_answers(RUNS, ["LBP", "LMFCN"])
    assert list(answers) == ["LBP", "LMFCN"]
    pooled = answers["LMFCN"]
    assert pooled.classes == ["bark & co", "wood"]
    assert len(pooled.true) == len(pooled.predicted) == len(pooled.confidences) == 3 * 8
    assert int(np.sum(pooled.true != pooled.predicted)) == 3


def test_a_method_with_an_older_run_is_left_out():
    runs = [run_of("LBP", 0, 0.5), run_of("LBP", 1, 0.5, classes=None), run_of("LMFCN", 0, 0.5)]
    assert list(pooled_answers(runs, ["LBP", "LMFCN"])) == ["LMFCN"]


def test_every_picture_says_what_it_shows():
    answers = pooled_answers(RUNS, ["LBP"])
    (matrix,), (diagram,) = confusion_pictures(answers), calibration_pictures(answers)
    assert matrix.alt == "Confusion matrix of LBP: 3 of 24 wrong: bark & co taken for wood 3 of 12 times."
    assert diagram.caption == "ECE 0.025: 90 % sure on average, 88 % right."
    assert matrix.address.startswith("data:image/svg+xml;base64,")


def test_only_what_fits_is_drawn():
    drawn = []

    def pictures():
        for number in range(5):
            drawn.append(number)
            yield MethodPicture(str(number), "x" * 10, "", "")

    assert [picture.method for picture in within(pictures(), 25)] == ["0", "1"]
    assert drawn == [0, 1, 2]
