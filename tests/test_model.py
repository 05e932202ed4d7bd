import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from lmfcn import LMFCNClassifier, load, make_gaussians
from lmfcn.data.collection import ImageCollection
from lmfcn.data.framing import Preprocessing
from lmfcn.data.image_form import ImageForm
from lmfcn.data.sources import open_collection
from lmfcn.predict.evaluation import evaluate
from random_models import random_model
from some_training import classifier_of


def quick(**changes) -> LMFCNClassifier:
    options = {"latent_dim": 4, "widths": (6, 8), "epochs": 2, "passes": 1, "random_state": 0, "device": "cpu"}
    return classifier_of(**{**options, **changes})


@pytest.fixture(scope="module")
def three():
    images, labels = make_gaussians(30, 16, random_state=0, stds=(10, 60))
    names = np.array(["coarse", "fine", "odd"])[np.where(np.arange(60) % 5 == 0, 2, labels)]
    return images, names


@pytest.fixture(scope="module", params=["two", "joint", "one-vs-all", "paper"])
def fitted(request, textures, three):
    options = {
        "two": {},
        "joint": {"strategy": "joint"},
        "one-vs-all": {"strategy": "one-vs-all"},
        "paper": {"recipe": "paper"},
    }
    X, y = textures if request.param == "two" else three
    return quick(**options[request.param]).fit(X, y), X, y


def test_probabilities_sum_to_one_and_agree_with_predict(fitted):
    classifier, X, _ = fitted
    probabilities = classifier.predict_proba(X)
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(len(X)))
    assert np.array_equal(classifier.classes_[probabilities.argmax(axis=1)], classifier.predict(X))
    noise = np.random.default_rng(0).integers(0, 255, (500, 12, 12), dtype=np.uint8)
    assert np.array_equal(
        classifier.classes_[classifier.predict_proba(noise).argmax(axis=1)], classifier.predict(noise)
    )


def test_scores_agree_with_predict(fitted):
    classifier, X, _ = fitted
    scores = classifier.decision_function(X)
    numbers = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
    assert np.array_equal(classifier.classes_[numbers], classifier.predict(X))


def test_forward_takes_plain_tensors(fitted):
    classifier, X, _ = fitted
    with torch.no_grad():
        scores = classifier.model_(torch.from_numpy(X[:5, ..., None].copy())).numpy()
    expected = classifier.decision_function(X[:5])
    assert scores == pytest.approx(expected.reshape(5, -1), abs=1e-4)


def test_sets_grow_with_coverage_and_hold_the_prediction(fitted):
    classifier, X, _ = fitted
    narrow, wide = classifier.predict_set(X, 0.5), classifier.predict_set(X, 0.9)
    numbers = np.searchsorted(classifier.classes_, classifier.predict(X))
    assert narrow.dtype == bool
    assert narrow.shape == (len(X), len(classifier.classes_))
    assert narrow[np.arange(len(X)), numbers].all()
    assert (wide >= narrow).all()
    # Too few validation images for such a promise: nothing is ruled out.
    assert classifier.predict_set(X, 0.999).all()


@pytest.mark.parametrize("coverage", [0, 1, -1, 1.5, float("nan")])
def test_bad_coverage(fitted, coverage):
    with pytest.raises(ValueError, match="coverage must be between 0 and 1, got"):
        fitted[0].predict_set(fitted[1], coverage)


def test_doubtful_images_can_be_rejected(fitted):
    classifier, X, _ = fitted
    confidence = classifier.predict_proba(X).max(axis=1)
    threshold = float(np.median(confidence))
    labels = classifier.predict_or_reject(X, threshold, rejected="?")
    assert np.array_equal(labels == "?", confidence < threshold)
    accepted = confidence >= threshold
    assert np.array_equal(labels[accepted], classifier.predict(X)[accepted])
    assert not (classifier.predict_or_reject(X, 0.0) == None).any()  # noqa: E711
    with pytest.raises(ValueError, match="confidence must be between 0 and 1"):
        classifier.predict_or_reject(X, 2.0)


def test_without_validation_images_there_are_no_sets(textures):
    classifier = quick(validation_fraction=0).fit(*textures)
    assert classifier.predict_proba(textures[0]).shape == (32, 2)
    with pytest.raises(
        ValueError, match="Prediction sets need validation images, but the model was fitted without any"
    ):
        classifier.predict_set(textures[0])


@pytest.mark.slow
def test_promised_coverage_and_calibration_on_fresh_images():
    # Hard to tell apart and few to choose by, so that any flattery in the held-out scores would show.
    covered: dict[float, list[float]] = {0.7: [], 0.9: []}
    gaps = []
    n_seeds = 12
    for seed in range(n_seeds):
        random = np.random.default_rng(seed)
        train, fresh = (make_gaussians(n, 16, random, stds=(30, 35)) for n in (40, 150))
        classifier = quick(random_state=seed, epochs=3, passes=4).fit(*train)
        predicted = torch.from_numpy(classifier.predict_proba(fresh[0]))
        gaps.append(
            float(predicted.max(dim=1).values.mean()) - float((predicted.argmax(dim=1).numpy() == fresh[1]).mean())
        )
        for coverage, found in covered.items():
            found.append(classifier.predict_set(fresh[0], coverage)[np.arange(300), fresh[1]].mean())
    for coverage, found in covered.items():
        assert np.mean(found) > coverage - 3 * np.std(found) / np.sqrt(n_seeds)
    assert abs(np.mean(gaps)) < 0.08


def test_what_a_collection_went_through_is_done_to_files_at_prediction(tmp_path, random):
    for number in range(16):
        path = tmp_path / ("bright" if number % 2 else "dark") / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        pixels = random.integers(0, 100, (24, 20, 3)) + 100 * (number % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    collection = open_collection(tmp_path, color="grey").resized(12)
    model = quick().fit(collection).model_
    assert (model.form.channels, model.form.preprocessing.size) == (1, (12, 12))
    expected = model.decision_function(collection)
    assert np.array_equal(model.decision_function(open_collection(tmp_path)), expected)
    assert np.array_equal(model.decision_function(str(tmp_path)), expected)
    assert np.array_equal(model.decision_function(collection.paths), expected)
    assert model.decision_function(collection.paths[0]) == pytest.approx(expected[:1], abs=1e-5)
    # What a collection leaves open is taken from the model.
    assert np.array_equal(model.decision_function(open_collection(tmp_path, color="grey")), expected)
    assert np.array_equal(model.decision_function(open_collection(tmp_path).resized(12)), expected)


@pytest.fixture
def resized_model():
    return random_model(["x", "y"], ImageForm(3, "uint8", Preprocessing("rgb", "resize", (16, 16))), ("last",))


@pytest.fixture
def images(random):
    return random.integers(0, 256, (3, 32, 48, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda images: ImageCollection(images, color="grey"),
            "has images converted to grey, but the model was trained on images converted to rgb and resized to 16x16",
        ),
        (lambda images: ImageCollection(images).resized(20), "has images resized to 20x20 pixels, but the model was"),
        (lambda images: ImageCollection(images).cropped(16), "has images cropped to 16x16 pixels, but the model was"),
        (
            lambda images: ImageCollection(images).tiled(24),
            "has tiles or crops of 24x24 pixels, but the model was trained on images converted to rgb and resized to"
            " 16x16 pixels; cut them in that size, or give whole images",
        ),
        (lambda images: ImageCollection(images).cropped(24, random_state=0), "has tiles or crops of 24x24 pixels, but"),
        (lambda images: ImageCollection(images).resized(32).tiled(16), "has images resized to 32x32 pixels, but the"),
    ],
)
def test_a_collection_that_contradicts_the_training_is_refused(resized_model, images, change, sentence):
    collection = change(images)
    collection.labels = np.array(["x"] * len(collection))
    calls = (resized_model.predict, resized_model.transform, resized_model.form.load)
    for call in (*calls, lambda X: evaluate(resized_model, X)):
        with pytest.raises(ValueError, match=sentence):
            call(collection)


def test_what_a_collection_leaves_open_is_completed_from_the_training(resized_model, images):
    expected = resized_model.decision_function(ImageCollection(images).resized(16))
    for completed in (ImageCollection(images), ImageCollection(images, color="rgb")):
        assert np.array_equal(resized_model.decision_function(completed), expected)
    grey = ImageCollection(images[..., :1])
    tiles = grey.tiled(16)
    loaded = resized_model.form.load(tiles)
    assert loaded.shape == (18, 16, 16, 3)  # only their colour was left open
    assert np.array_equal(loaded, np.repeat(tiles.to_array(), 3, axis=3))
    assert resized_model.form.load(ImageCollection(images).resized(16).tiled(8)).shape == (12, 8, 8, 3)


def test_a_model_that_was_trained_on_tiles_of_resized_images_takes_such_tiles(random):
    pixels = random.integers(0, 100, (12, 40, 40)) + 100 * (np.arange(12) % 2)[:, None, None]
    tiles = ImageCollection(pixels.astype(np.uint8), np.arange(12) % 2).resized(32).tiled(16)
    classifier = quick().fit(tiles)
    assert classifier.predict(tiles).shape == (48,)
    assert np.array_equal(classifier.predict_proba(tiles), classifier.predict_proba(tiles.to_array()))


def test_validation_images_must_be_brought_to_the_form_of_the_training_images(random):
    pixels, labels = random.integers(0, 256, (12, 32, 32), dtype=np.uint8), np.arange(12) % 2
    collection = ImageCollection(pixels, labels)
    sentence = "In the validation images: The collection has images resized to 24x24 pixels, but the model was trained"
    with pytest.raises(ValueError, match=sentence):
        quick().fit(collection.resized(16), validation=collection.resized(24))


def test_a_folder_is_enough_to_fit(tmp_path, random):
    for number in range(12):
        path = tmp_path / ("bright" if number % 2 else "dark") / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray((random.integers(0, 100, (12, 12)) + 100 * (number % 2)).astype(np.uint8)).save(path)
    assert quick().fit(tmp_path).classes_.tolist() == ["bright", "dark"]


def test_a_loaded_model_predicts_without_scikit_learn(textures, tmp_path):
    classifier = quick().fit(*textures)
    classifier.save(tmp_path / "model.lmfcn")
    np.save(tmp_path / "images.npy", textures[0])
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import numpy as np, lmfcn\n"
        "model = lmfcn.load('model.lmfcn')\n"
        "np.save('scores.npy', model.decision_function(np.load('images.npy')))\n"
        "model.predict(np.load('images.npy')), model.predict_proba(np.load('images.npy'))\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert np.array_equal(np.load(tmp_path / "scores.npy"), classifier.decision_function(textures[0]))


def test_images_unlike_those_of_the_training_are_refused(fitted, tmp_path):
    fitted[0].save(tmp_path / "m")
    with pytest.raises(ValueError, match="X has 3 channels, but the classifier was fitted on images with 1"):
        load(tmp_path / "m").predict(np.zeros((1, 16, 16, 3), dtype=np.uint8))
