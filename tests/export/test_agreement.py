import numpy as np
import pytest

from lmfcn.data.form import ImageForm
from lmfcn.export import DisagreementError
from lmfcn.export.agreement import compare
from random_models import random_images, random_model


@pytest.fixture(scope="module")
def model():
    return random_model(["x", "y", "z"], ImageForm(1, "uint8"), ("last",))


def runner(model, change):
    def run(images):
        answers = [model.predict(images), model.decision_function(images), model.predict_proba(images)]
        change(answers)
        return tuple(answers)

    return run


def batches(model):
    return [random_images(5, (10, 10), model.form), random_images(2, (12, 10), model.form)]


def test_it_counts_and_measures(model):
    def shift(answers):
        answers[1] = answers[1] + 3e-5

    found = compare(model, runner(model, shift), batches(model))
    assert (found.n_images, found.n_sizes) == (7, 2)
    assert found.largest_difference == pytest.approx(3e-5)
    assert found.n_labels == len({*model.predict(batches(model)[0]), *model.predict(batches(model)[1])})


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, np.array(["none"] * 5, dtype=object), "other labels than the model to 5 of 5 images"),
        (1, np.full((5, 3), np.nan), "disagrees with the model by nan"),
        (2, np.full((5, 3), 1 / 3), "disagrees with the model by"),
        (2, np.ones((5, 2)), "does not give one row of numbers per image"),
    ],
    ids=["labels", "nan", "probabilities", "shape"],
)
def test_every_kind_of_disagreement_is_told(model, place, value, message):
    def change(answers):
        answers[place] = value

    with pytest.raises(DisagreementError, match=message):
        compare(model, runner(model, change), batches(model))
