import numpy as np
import pytest
import torch

from lmfcn.algorithm.calibration import expected_calibration_error
from lmfcn.report.reliability import reliability, reliability_diagram


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


def test_the_diagram_shows_filled_bins_only():
    axes, below = reliability_diagram([0.61, 0.65, 0.95, 1.0], [True, False, True, True]).axes
    diagonal, dots = axes.lines
    assert list(diagonal.get_xdata()) == [0, 1]
    assert list(dots.get_ydata()) == [0.5, 1.0]
    assert [bar.get_height() for bar in below.patches] == [0, 0, 0, 0, 0, 0, 2, 0, 0, 2]
