import json
from dataclasses import replace

import numpy as np
import pytest

from lmfcn.explain.explanation import Contributions, decompose_decision, explain
from lmfcn.explain.gallery import Gallery
from lmfcn.explain.score_map import support_classes
from small_model import fitted, gallery, quick, three


def test_weights_and_intercept_sum_to_the_decision_value():
    model, X = fitted().model_, three()[0]
    values = model.decision_function(X)
    for latent, row in zip(model.transform(X), values, strict=True):
        for number, label in enumerate(model.classes):
            found = decompose_decision(model, latent, label)
            assert found.value == pytest.approx(row[number], abs=1e-12)
            assert found.weights.sum() + found.intercept == pytest.approx(row[number], abs=1e-12)


def test_two_classes_have_opposite_weights(textures):
    X, y = textures
    model = quick().fit(X, y).model_
    latent = model.transform(X[:1])[0]
    first, second = decompose_decision(model, latent, 0), decompose_decision(model, latent, 1)
    assert second.value == pytest.approx(model.decision_function(X[:1])[0], abs=1e-12)
    assert first.value == -second.value
    assert np.array_equal(first.weights, -second.weights)


def test_weights_agree_with_a_loop_over_support_vectors():
    model = fitted().model_
    latent = model.transform(three()[0][:1])[0]
    support, coefficients = model.support_latents.double().numpy(), model.coefficients.double().numpy()
    found = decompose_decision(model, latent, "fine")
    column = list(model.classes).index("fine")
    for weight, point, row in zip(found.weights, support, coefficients, strict=True):
        squared = sum((float(a) - float(b)) ** 2 for a, b in zip(latent, point, strict=True))
        assert weight == pytest.approx(row[column] * np.exp(-model.gamma * squared), abs=1e-12)


def test_only_images_of_the_class_have_positive_weights():
    model, known = fitted().model_, support_classes(fitted().model_.decision)
    for number, label in enumerate(model.classes):
        found = decompose_decision(model, model.transform(three()[0][:1])[0], label)
        assert set(known[found.supporting(100)]) == {number}
        assert number not in known[found.opposing(100)]


def test_lists_by_hand():
    found = Contributions("wood", 0.35, 0.1, np.array([0.3, -0.2, 0.5, 0.0, -0.35]))
    assert found.supporting(5).tolist() == [2, 0]
    assert found.supporting(1).tolist() == [2]
    assert found.opposing(5).tolist() == [4, 1]
    assert found.rest(1) == pytest.approx(0.1)
    assert found.rest(5) == 0.0
    assert Contributions("wood", 1.0, 0.5, np.array([0.5])).opposing().tolist() == []


def test_everything_sums_to_the_decision_value():
    model, X = fitted().model_, three()[0]
    for image in X[::9]:
        found = explain(model, image, gallery(), top=2)
        listed = sum(entry.weight for entry in found.supporting + found.opposing)
        number = list(model.classes).index(found.explained)
        assert found.value == pytest.approx(model.decision_function(image[None])[0, number], abs=1e-12)
        assert listed + found.rest + found.intercept == pytest.approx(found.value, abs=1e-12)
        assert found.map.values.mean() == pytest.approx(found.value, abs=2e-5)
        assert found.n_rest + len(found.supporting) + len(found.opposing) == len(model.support_latents)


def test_the_explanation_agrees_with_the_model():
    model, X = fitted().model_, three()[0]
    found = explain(model, X[3])
    assert found.label == model.predict(X[3:4])[0] == next(iter(found.probabilities))
    expected = dict(zip(model.classes, model.predict_proba(X[3:4])[0], strict=True))
    assert found.probabilities == pytest.approx(expected, abs=1e-12)
    assert found.prediction_set == model.classes[model.predict_set(X[3:4], 0.9)[0]].tolist()
    assert found.explained == found.label
    assert found.coordinates is None


def test_a_gallery_gives_names_pictures_and_coordinates():
    held, X = gallery(), three()[0]
    found = explain(fitted().model_, X[3], held, label="stripes")
    assert found.explained == "stripes"
    for entry in found.supporting:
        assert entry.label == "stripes"
        assert entry.name.startswith("stripes/")
        assert entry.picture == held.pictures[held.names.index(entry.name)]
    assert {entry.label for entry in found.opposing} <= {"fine", "coarse"}
    assert found.coordinates == pytest.approx(tuple(held.coordinates[3]), abs=1e-3)


def test_without_a_gallery_there_are_classes_but_no_names():
    found = explain(fitted().model_, three()[0][3], label="fine")
    assert {entry.label for entry in found.supporting} == {"fine"}
    assert all(entry.name is None and entry.picture is None for entry in found.supporting + found.opposing)


def test_without_validation_images_there_is_no_set():
    X, y = three()
    found = explain(quick(validation_fraction=0.0).fit(X, y).model_, X[0])
    assert found.prediction_set is None


def test_a_model_of_rows_is_explained_by_images():
    X, y = three()
    classifier = quick(image_shape=(18, 22)).fit(X.reshape(36, -1), y)
    found = explain(classifier.model_, X[0], Gallery.of(classifier, X.reshape(36, -1), y))
    number = list(classifier.classes_).index(found.explained)
    assert found.value == pytest.approx(classifier.decision_function(X[:1].reshape(1, -1))[0, number], abs=1e-6)
    assert found.map.values.mean() == pytest.approx(found.value, abs=2e-5)


def test_an_explanation_as_json():
    found = explain(fitted().model_, three()[0][0], gallery(), top=1)
    values = json.loads(json.dumps(found.as_dict()))
    assert values["for"][0] == {
        "weight": found.supporting[0].weight,
        "label": found.supporting[0].label,
        "name": found.supporting[0].name,
    }
    assert values["rest"]["support_vectors"] == found.n_rest
    assert values["map"]["smallest"] == found.map.values.min()


def test_wrong_use():
    model, image = fitted().model_, three()[0][0]
    with pytest.raises(ValueError, match="top must be at least 1, got 0"):
        explain(model, image, top=0)
    with pytest.raises(ValueError, match="There is no class 'mud'"):
        explain(model, image, label="mud")
    with pytest.raises(ValueError, match="The gallery belongs to another model"):
        explain(quick(random_state=1).fit(*three()).model_, image, gallery())
    with pytest.raises(ValueError, match="X has 3 channels"):
        explain(model, np.zeros((16, 16, 3), dtype=np.uint8))


def test_decision_values_are_those_of_all_classes_and_the_largest_is_predicted():
    model, X = fitted().model_, three()[0]
    for image, row in zip(X[:6], model.decision_function(X[:6]), strict=True):
        found = explain(model, image)
        values = dict(zip(map(str, model.classes), row, strict=True))
        assert found.decision_values == pytest.approx(values, abs=1e-6)
        assert next(iter(found.decision_values)) == found.label
        second = sorted(values, key=values.get)[-2]
        assert found.standing.startswith(f"The largest of all classes; {second} follows with {values[second]:+.3f}.")
        assert ("below 0" in found.standing) == (found.value < 0)
        worst = min(values, key=values.get)
        told = f"Not the largest: {found.label} has {values[found.label]:+.3f}. The class with the largest value is"
        assert explain(model, image, label=worst).standing == f"{told} predicted."


def test_a_negative_value_of_the_predicted_class_is_no_contradiction():
    found = explain(fitted().model_, three()[0][0])
    values = {found.label: -0.2, "other": -0.5}
    weak = replace(found, explained=found.label, value=-0.2, decision_values=values)
    assert weak.standing == (
        "The largest of all classes; other follows with -0.500."
        " A value below 0 is no contradiction: no class stands out, and the largest counts."
    )


def test_two_classes_have_opposite_decision_values(textures):
    X, y = textures
    model = quick().fit(X, y).model_
    value = model.decision_function(X[:1])[0]
    assert explain(model, X[0]).decision_values == pytest.approx({"0": -value, "1": value}, abs=1e-6)
