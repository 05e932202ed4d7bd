"""What every baseline must do, whatever it computes."""

import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import StratifiedGroupKFold, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from lmfcn import make_gaussians
from lmfcn.baselines import METHODS
from lmfcn.baselines.cnn import CNNClassifier
from lmfcn.baselines.network_svm import CNNSVC
from lmfcn.baselines.pretrained import BACKBONES, Backbone
from lmfcn.baselines.tuning import Tuned
from lmfcn.data.collection import ImageCollection
from lmfcn.method.history import TrainingError

SMALL = {
    "latent_dim": 4,
    "widths": (6,),
    "epochs": 2,
    "patience": None,
    "n_modes": 3,
    "n_components": 3,
    "device": "cpu",
    "random_state": 0,
}
EIGHT_BIT_ONLY = ("GLCM", "LBP", "PFTAS")
NEEDS_WEIGHTS = ("ResNet18", "InceptionV3")
# Tested by themselves: they take larger images, and up to a second for each test here.
TESTED_ELSEWHERE = ("InceptionV3, random weights", "EfficientNet-Lite0 + SVM")
NAMES = [name for name in METHODS if name not in (*NEEDS_WEIGHTS, *TESTED_ELSEWHERE)]


def small(name: str):
    estimator = METHODS[name]()
    known = estimator.get_params()
    return estimator.set_params(**{key: value for key, value in SMALL.items() if key in known})


@pytest.fixture(autouse=True, scope="module")
def cached_features(tmp_path_factory):
    SMALL["cache_dir"] = tmp_path_factory.mktemp("features")


@pytest.fixture(autouse=True, scope="module")
def less_to_compute():
    """Small images for the pretrained, and two candidates instead of 24 for the SVM."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BACKBONES, "resnet18", Backbone("resnet18", "ResNet18_Weights", 32, {}))
        patch.setattr("lmfcn.baselines.feature_svm.C_FACTORS", (1.0,))
        patch.setattr("lmfcn.baselines.feature_svm.GAMMA_FACTORS", (1.0, 0.3))
        yield


@pytest.fixture(scope="module")
def data():
    """Three classes of images with text labels."""
    images, labels = make_gaussians(15, 16, random_state=0, stds=(10, 60))
    third = np.flatnonzero(labels == 0)[:7]
    images[third] //= 3
    numbers = labels.copy()
    numbers[third] = 2
    return images, np.array(["wood", "steel", "bark"])[numbers]


@pytest.fixture(scope="module", params=NAMES)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def fitted(name, data):
    return small(name).fit(data[0], data[1])


def test_shapes_and_order_of_classes(fitted, data):
    n = len(data[1])
    assert fitted.classes_.tolist() == ["bark", "steel", "wood"]
    assert fitted.decision_function(data[0]).shape == fitted.predict_proba(data[0]).shape == (n, 3)
    assert fitted.predict_proba(data[0]).sum(axis=1) == pytest.approx(np.ones(n))
    predicted = fitted.predict(data[0])
    assert np.array_equal(predicted, fitted.classes_[fitted.decision_function(data[0]).argmax(axis=1)])
    assert np.array_equal(predicted, fitted.classes_[fitted.predict_proba(data[0]).argmax(axis=1)])
    assert fitted.n_features_in_ == 1
    assert is_classifier(fitted)


def test_two_classes_have_one_score(name, textures):
    fitted = small(name).fit(*textures)
    scores = fitted.decision_function(textures[0])
    assert scores.shape == (32,)
    assert np.array_equal(fitted.predict(textures[0]), (scores > 0).astype(int))


def test_collections_are_the_same_as_arrays(name, fitted, data):
    images = ImageCollection(data[0], data[1])
    again = small(name).fit(images)
    assert np.array_equal(again.predict_proba(images), fitted.predict_proba(data[0]))


def test_same_seed_same_model_without_touching_global_generators(name, fitted, data):
    before, numpys = torch.get_rng_state(), np.random.get_state()
    parameters = small(name).get_params()
    estimator = small(name)
    assert estimator.fit(data[0], data[1]) is estimator
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], numpys[1])
    assert np.random.get_state()[2] == numpys[2]  # the place in the array, which every draw moves
    assert np.array_equal(estimator.predict_proba(data[0]), fitted.predict_proba(data[0]))
    assert estimator.get_params() == parameters


def test_refitting_forgets(name, fitted, data, textures):
    twice = small(name).fit(*textures).fit(data[0], data[1])
    assert np.array_equal(twice.decision_function(data[0]), fitted.decision_function(data[0]))
    assert vars(twice).keys() == vars(fitted).keys()


def test_unfitted_clone(fitted, data):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    for method in ("predict", "predict_proba", "decision_function"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(copy, method)(data[0])


def test_every_parameter_can_be_set(name):
    estimator = small(name)
    for parameter in estimator.get_params():
        value = object()
        assert estimator.set_params(**{parameter: value}).get_params()[parameter] is value


def test_images_are_judged_alone(fitted, data):
    some = np.array([5, 3, 20, 3])
    expected = fitted.decision_function(data[0])[some]
    assert fitted.decision_function(data[0][some]) == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_pickling_for_workers(fitted, data):
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_proba(data[0]), fitted.predict_proba(data[0]))


def test_groups_and_a_validation_set(name, data):
    images, labels = data
    groups = np.arange(len(labels)) // 2
    thirds = StratifiedGroupKFold(3)
    scores = cross_val_score(small(name), images, labels, groups=groups, params={"groups": groups}, cv=thirds)
    assert np.isfinite(scores).all()
    fitted = small(name).fit(images[::2], labels[::2], validation=(images[1::2], labels[1::2]))
    assert fitted.predict(images).shape == labels.shape
    shared = ImageCollection(images, labels, groups)
    with pytest.raises(ValueError, match="groups have training and validation images"):
        small(name).fit(shared[np.arange(0, 30, 2)], validation=shared[np.arange(1, 30, 2)])


def test_images_of_mixed_size(name, random, tmp_path):
    for i in range(24):
        image = random.integers(0, 256, (16 + 4 * (i % 3), 20, 3), dtype=np.uint8) // (1 + i % 2)
        Image.fromarray(image).save(tmp_path / f"{i:02d}.png")
    collection = ImageCollection(sorted(tmp_path.iterdir()), np.arange(24) % 2)
    fitted = small(name).fit(collection)
    alone = np.array([fitted.decision_function(collection[np.array([i])])[0] for i in range(24)])
    assert fitted.decision_function(collection) == pytest.approx(alone, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize(("channels", "dtype"), [(1, np.uint16), (5, np.uint8), (3, np.float32)])
def test_other_pixels_work_or_are_refused_with_a_reason(name, random, channels, dtype):
    images = random.random((20, 12, 12, channels)) * (1 if dtype == np.float32 else np.iinfo(dtype).max)
    images[10:] /= 3
    images, labels = images.astype(dtype), np.repeat([0, 1], 10)
    if name in EIGHT_BIT_ONLY:
        with pytest.raises(ValueError, match=f"{name} is defined for 8-bit grey or RGB images, got {channels} "):
            small(name).fit(images, labels)
    elif channels == 5 and "ResNet" in name:
        with pytest.raises(ValueError, match="resnet18 takes grey or RGB images, got 5 channels"):
            small(name).fit(images, labels)
    else:
        assert set(small(name).fit(images, labels).predict(images)) <= {0, 1}


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((4, 16, 16), np.uint8), [0, 0, 0, 0], "y must hold at least two classes"),
        (np.full((8, 16, 16), np.nan), [0, 1] * 4, "NaN"),
        (np.zeros((4, 16), np.uint8), [0, 1, 0, 1], "rows of pixels need image_shape"),
        (np.zeros((8, 16, 16), np.uint8), [0, 1, 2], "got 8 images and 3 labels"),
    ],
    ids=["one class", "NaN", "rows", "too few labels"],
)
def test_bad_data(name, images, labels, message):
    with pytest.raises(ValueError, match=message):
        small(name).fit(images, labels)


def test_another_kind_of_image_at_prediction(fitted):
    with pytest.raises(ValueError, match="X has 3 channels, but the classifier was fitted on images with 1"):
        fitted.predict(np.zeros((2, 16, 16, 3), np.uint8))


def test_equal_images_are_refused_or_learnt_without_harm(name):
    images, labels = np.full((20, 16, 16), 100, np.uint8), np.arange(20) % 2
    if hasattr(small(name), "transform"):
        with pytest.raises(TrainingError, match="all 20 images have the same features"):
            small(name).fit(images, labels)
    else:
        assert np.isfinite(small(name).fit(images, labels).predict_proba(images)).all()


def test_a_failed_refit_leaves_nothing_that_predicts(name, data):
    estimator = small(name).fit(*data)
    with pytest.raises((ValueError, TrainingError)):
        estimator.fit(np.full((20, 16, 16), np.nan), np.arange(20) % 2)
    if hasattr(estimator, "transform"):
        with pytest.raises(NotFittedError):
            estimator.predict(data[0])
    else:
        assert estimator.predict(data[0]).shape == data[1].shape  # the whole old model


def test_later_changes_of_parameters_do_not_touch_the_fitted_model(name, data):
    estimator = small(name).fit(*data)
    expected = estimator.decision_function(data[0])
    others = {"descriptor": "glcm", "backbone": "inception_v3", "latent_dim": 99, "n_modes": 99, "loss": "hinge"}
    known = estimator.get_params()
    estimator.set_params(**{key: value for key, value in others.items() if key in known})
    assert np.array_equal(estimator.decision_function(data[0]), expected)


def test_progress_is_shown_when_wanted(name, data, capsys):
    small(name).set_params(verbose=True).fit(data[0], data[1])
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err != "" or name in ("random-fcn", "LMFCN, untrained")


def test_trained_methods_tell_how_it_went(fitted):
    if "epochs" not in fitted.get_params():
        assert not hasattr(fitted, "history_")
        return
    assert fitted.history_.column("epoch") == [0, 1, 2]
    assert fitted.n_iter_ == 2
    assert 0 <= fitted.best_epoch_ <= 2


@pytest.mark.parametrize("name", NEEDS_WEIGHTS)
def test_pretrained_networks_need_weights(name, data):
    with pytest.raises(ValueError, match=r"weights is missing: give a file .* or\s+weights=\"download\""):
        METHODS[name]().fit(*data)


NOT_MEANT_TO_HOLD = {
    # Convolutions in single precision add up in an order that depends on the size of the batch.
    "check_methods_subset_invariance": "scores agree between batches to 1e-5, not to 1e-7",
}
ROWS = {"latent_dim": 8, "widths": (8,), "image_shape": (1, -1), "device": "cpu"}


@parametrize_with_checks(
    [
        CNNClassifier(epochs=15, learning_rate=0.02, **ROWS),
        CNNSVC(epochs=2, **ROWS),
    ],
    expected_failed_checks=lambda _: NOT_MEANT_TO_HOLD,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_tuning_keeps_the_best_candidate(data):
    tuned = Tuned(CNNClassifier(**{key: SMALL[key] for key in ("latent_dim", "widths", "epochs", "random_state")}))
    tuned.set_params(candidates=[{}, {"learning_rate": 0.03}, {"learning_rate": 1e-7}]).fit(*data)
    scores = [one.validation_balanced_accuracy for one in tuned.tried_]
    assert tuned.best_params_ == tuned.tried_[scores.index(max(scores))].parameters
    again = clone(tuned.estimator).set_params(**tuned.best_params_).fit(*data)
    assert np.array_equal(tuned.predict(data[0]), again.predict(data[0]))
    assert np.array_equal(tuned.predict_proba(data[0]), again.predict_proba(data[0]))
    assert all(one.seconds > 0 for one in tuned.tried_)


def test_a_candidate_that_fails_is_out(data):
    tuned = Tuned(small("CNN-CE"), candidates=[{"learning_rate": 1e25}, {}]).fit(*data)
    assert tuned.best_params_ == {}
    assert "The loss became" in tuned.tried_[0].failure
    assert tuned.tried_[0].validation_balanced_accuracy is None
    with pytest.raises(TrainingError, match="Every candidate failed; the first one: The loss became"):
        Tuned(small("CNN-CE"), candidates=[{"learning_rate": 1e25}]).fit(*data)


def test_tuning_has_nothing_to_do_for_descriptors(data):
    tuned = Tuned(small("LBP")).fit(*data)
    assert len(tuned.tried_) == 1
    assert np.array_equal(tuned.predict(data[0]), small("LBP").fit(*data).predict(data[0]))


def test_tuning_without_validation_images_is_refused(data):
    with pytest.raises(ValueError, match="Tuning needs an estimator that measures validation images"):
        Tuned(small("CNN-CE").set_params(validation_fraction=0)).fit(*data)
    for candidates in ([], {"learning_rate": 0.1}, [3]):
        with pytest.raises(ValueError, match="candidates must be a list of at least one dict"):
            Tuned(small("CNN-CE"), candidates=candidates).fit(*data)
    with pytest.raises(ValueError, match="Tuning needs an estimator that measures validation images"):
        Tuned(small("LBP"), candidates=[{}, {"descriptor": "glcm"}]).fit(*data)
    with pytest.raises(NotFittedError):
        Tuned(small("CNN-CE")).predict(data[0])
