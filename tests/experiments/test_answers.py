from types import SimpleNamespace

import numpy as np
import pytest

from lmfcn.experiments.answers import answers_of
from lmfcn.experiments.tasks import Part


def test_answers_by_hand():
    probabilities = np.array([[0.7, 0.3], [0.4, 0.6], [0.123456, 0.876544]])
    fitted = SimpleNamespace(classes_=np.array(["bark", "wood"]), predict_proba=lambda _: probabilities)
    answers = answers_of(fitted, Part(np.zeros((3, 8, 8)), np.array(["bark", "bark", "wood"])))
    assert answers == {
        "test_balanced_accuracy": pytest.approx(0.75),
        "classes": ["bark", "wood"],
        "test_classes": [0, 0, 1],
        "predicted_classes": [0, 1, 1],
        "confidences": [0.7, 0.6, 0.8765],
    }
