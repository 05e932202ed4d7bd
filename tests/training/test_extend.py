import numpy as np
import pytest

from lmfcn import load
from lmfcn.method.history import TrainingWarning
from lmfcn.model_file import save
from small_model import fitted, quick, textures, three


@pytest.fixture(scope="module")
def two_classes():
    """A model that has never seen stripes, and the images that it was trained on."""
    images, labels = three()
    known = labels != "stripes"
    return quick().fit(images[known], labels[known]).model_, images[known], labels[known]


def test_a_new_class_is_learnt_without_training(two_classes, tmp_path):
    model, X, y = two_classes
    X_new, y_new = textures(8, 18, 22, seed=5)
    before = [weights.clone() for weights in model.networks.parameters()]
    with pytest.warns(TrainingWarning, match="A full training is due: the networks have never seen the class stripes"):
        extended = model.extend(X_new, y_new, X, y)
    assert extended.classes.tolist() == ["coarse", "fine", "stripes"]
    images, labels = textures(10, 18, 22, seed=6)
    assert (extended.predict(images) == labels).mean() > 0.9
    assert model.classes.tolist() == ["coarse", "fine"]
    assert all((one == other).all() for one, other in zip(before, extended.networks.parameters(), strict=True))
    told = extended.record["extended"]
    assert (told["n_images"], told["n_new"], told["new_classes"]) == (48, 24, ["stripes"])
    save(extended, tmp_path / "m.lmfcn")
    again = load(tmp_path / "m.lmfcn", "cpu")
    assert (again.predict(images) == extended.predict(images)).all()
    assert again.record["extended"] == told


def test_a_few_images_of_known_classes_change_no_calibration_and_need_no_training():
    images, labels = three()
    X_new, y_new = textures(2, 18, 22, seed=5)
    model = fitted().model_
    extended = model.extend(X_new, y_new, images, labels)
    assert extended.calibration is model.calibration
    assert extended.record["extended"]["training_due"] == ""
    assert extended.record["extended"]["held_out_new"]["n_images"] == 6
    assert (extended.predict(X_new) == y_new).all()


def test_many_new_images_calibrate_and_ask_for_a_training():
    images, labels = three()
    X_new, y_new = textures(12, 18, 22, seed=5)
    with pytest.warns(TrainingWarning, match="they were trained on 36 images, and 36 have come since"):
        extended = fitted().model_.extend(X_new, y_new, images, labels)
    assert len(extended.calibration.true_probabilities) == 36
    assert extended.record["extended"]["held_out_new"]["balanced_accuracy"] > 0.9


def test_what_cannot_be_extended():
    images, labels = three()
    X_new, y_new = textures(2, 18, 22, seed=5)
    model = fitted().model_
    with pytest.raises(ValueError, match="no image of the class 'stripes'; give all of them"):
        model.extend(X_new, y_new, images[labels != "stripes"], labels[labels != "stripes"])
    with pytest.raises(ValueError, match="y_new must hold labels like 'fine', those of the model, got 0"):
        model.extend(X_new, np.arange(6) % 2, images, labels)
    with pytest.raises(ValueError, match="6 new images with 5 labels"):
        model.extend(X_new, y_new[:5], images, labels)
    with pytest.raises(ValueError, match="Labels are missing"):
        model.extend(X_new, None, images, labels)
