import numpy as np
import pytest

from lmfcn.explain.class_score import support_classes
from lmfcn.explain.deciding import Deciding, deciding
from small_model import fitted, quick, three


def test_weights_and_intercept_sum_to_the_decision_value():
    model, X = fitted().model_, three()[0]
    values = model.decision_function(X)
    for latent, row in zip(model.transform(X), values, strict=True):
        for number, label in enumerate(model.classes):
            found = deciding(model, latent, label)
            assert found.value == pytest.approx(row[number], abs=1e-12)
            assert found.weights.sum() + found.intercept == pytest.approx(row[number], abs=1e-12)


def test_two_classes_have_opposite_weights(textures):
    X, y = textures
    model = quick().fit(X, y).model_
    latent = model.transform(X[:1])[0]
    first, second = deciding(model, latent, 0), deciding(model, latent, 1)
    assert second.value == pytest.approx(model.decision_function(X[:1])[0], abs=1e-12)
    assert first.value == -second.value
    assert np.array_equal(first.weights, -second.weights)


def test_the_slow_twin_over_support_vectors():
    model = fitted().model_
    latent = model.transform(three()[0][:1])[0]
    support, coefficients = model.support_latents.double().numpy(), model.coefficients.double().numpy()
    found = deciding(model, latent, "fine")
    column = list(model.classes).index("fine")
    for weight, place, row in zip(found.weights, support, coefficients, strict=True):
        squared = sum((float(a) - float(b)) ** 2 for a, b in zip(latent, place, strict=True))
        assert weight == pytest.approx(row[column] * np.exp(-model.gamma * squared), abs=1e-12)


def test_only_images_of_the_class_speak_for_it():
    model, known = fitted().model_, support_classes(fitted().model_.decision)
    for number, label in enumerate(model.classes):
        found = deciding(model, model.transform(three()[0][:1])[0], label)
        assert set(known[found.for_it(100)]) == {number}
        assert number not in known[found.against_it(100)]


def test_lists_by_hand():
    found = Deciding("wood", 0.35, 0.1, np.array([0.3, -0.2, 0.5, 0.0, -0.35]))
    assert found.for_it(5).tolist() == [2, 0]
    assert found.for_it(1).tolist() == [2]
    assert found.against_it(5).tolist() == [4, 1]
    assert found.rest(1) == pytest.approx(0.1)
    assert found.rest(5) == 0.0
    assert Deciding("wood", 1.0, 0.5, np.array([0.5])).against_it().tolist() == []
