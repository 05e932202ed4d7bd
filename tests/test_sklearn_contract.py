"""What scikit-learn, and code written for it, expects of an estimator."""

import pickle
from dataclasses import fields, replace

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import StackingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from lmfcn import LMFCNClassifier, Recipe, make_gaussians
from lmfcn.data.collection import ImageCollection
from lmfcn.method.history import TrainingWarning
from lmfcn.recipe import find_recipe
from some_training import classifier_of

NOT_MEANT_TO_HOLD = {
    # Convolutions in single precision add up in an order that depends on the size of the batch, so the last digits
    # of a score do too; scikit-learn's check allows 1e-7.
    "check_methods_subset_invariance": "scores agree between batches to 1e-5, not to 1e-7",
}


@parametrize_with_checks(
    [LMFCNClassifier(latent_dim=8, widths=(8,), epochs=1, recipe=Recipe(passes=2), image_shape=(1, -1), device="cpu")],
    expected_failed_checks=lambda _: NOT_MEANT_TO_HOLD,
)
@pytest.mark.filterwarnings("ignore::lmfcn.method.history.TrainingWarning")  # a handful of points may all be settled
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def quick(**changes) -> LMFCNClassifier:
    options = {"latent_dim": 4, "widths": (6,), "epochs": 1, "passes": 1, "random_state": 0, "device": "cpu"}
    return classifier_of(**{**options, **changes})


@pytest.fixture(scope="module")
def data():
    """Three classes of images with text labels."""
    images, labels = make_gaussians(21, 16, random_state=0, stds=(10, 60))
    images[np.flatnonzero(labels == 0)[:10]] //= 3
    numbers = labels.copy()
    numbers[np.flatnonzero(labels == 0)[:10]] = 2
    return images, np.array(["wood", "steel", "bark"])[numbers]


@pytest.fixture(params=["array", "collection"])
def X(request, data):  # noqa: N802
    return data[0][..., None] if request.param == "array" else ImageCollection(data[0])


@pytest.fixture(params=["joint", "one-vs-all"])
def estimator(request):
    return quick(strategy=request.param)


def test_shapes_and_order_of_classes(estimator, X, data):
    fitted = estimator.fit(X, data[1])
    n = len(data[1])
    assert fitted.classes_.tolist() == ["bark", "steel", "wood"]
    assert fitted.decision_function(X).shape == fitted.predict_proba(X).shape == (n, 3)
    assert set(fitted.predict(X)) <= set(fitted.classes_)
    assert fitted.dual_coef_.shape == (3, len(fitted.support_))
    assert fitted.intercept_.shape == (3,)
    assert fitted.n_features_in_ == 1
    n_maps = 6 + 4 + 4 * (1 if fitted.strategy == "joint" else 3)
    assert fitted.model_.latents(X).shape == (n, n_maps * (2 if fitted.recipe_.deviations else 1))
    assert fitted.transform(X).shape == (n, fitted.model_.n_features)
    assert is_classifier(fitted)


def test_fitting_returns_self_and_changes_neither_parameters_nor_x(estimator, X, data):
    before, parameters = np.array([np.array(image) for image in X]), dict(estimator.get_params())
    assert estimator.fit(X, data[1]) is estimator
    estimator.predict(X)
    assert np.array_equal(before, np.array([np.array(image) for image in X]))
    assert estimator.get_params() == parameters


def test_clone_is_unfitted_with_the_same_parameters(estimator, X, data):
    copy = clone(estimator.fit(X, data[1]))
    assert copy.get_params() == estimator.get_params()
    for method in ("predict", "predict_proba", "decision_function", "transform", "predict_set", "predict_or_reject"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(copy, method)(X)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        copy.save("never.lmfcn")


def test_every_parameter_can_be_set(estimator):
    for name in estimator.get_params(deep=False):
        value = object()
        assert estimator.set_params(**{name: value}).get_params()[name] is value
        assert getattr(estimator, name) is value


def test_the_constructor_has_few_parameters_and_the_recipe_all_others(estimator):
    own, every = estimator.get_params(deep=False), estimator.get_params(deep=True)
    assert len(own) == 20
    assert set(every) - set(own) == {f"recipe__{field.name}" for field in fields(Recipe)}
    assert every["recipe__passes"] == 1
    assert every["recipe__head_weight"] == 1.0
    assert LMFCNClassifier(recipe="paper").get_params()["recipe__head_weight"] == 0.0


@pytest.mark.parametrize("recipe", ["default", "paper", Recipe(passes=3)], ids=["default", "paper", "own"])
def test_values_of_the_recipe_can_be_set(recipe):
    before = find_recipe(recipe)
    estimator = LMFCNClassifier(recipe=recipe)
    assert estimator.set_params(recipe__head_weight=0.5) is estimator
    assert estimator.recipe == replace(before, head_weight=0.5)
    assert estimator.get_params()["recipe__head_weight"] == 0.5
    assert find_recipe(recipe) == before


def test_parameters_and_values_of_the_recipe_are_set_together():
    estimator = LMFCNClassifier()
    # A value goes into the recipe that is set with it, whatever comes first; values that only fit together may come so.
    estimator.set_params(recipe__refit=True, recipe__refit_epochs=3, recipe="paper", epochs=7)
    assert estimator.recipe == replace(Recipe.paper(), refit=True, refit_epochs=3)
    assert estimator.epochs == 7


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"recipe__weight": 1.0}, r"A Recipe has no value 'weight'; see lmfcn\.Recipe"),
        ({"recipe__head_weight": -1.0}, "head_weight must be at least 0 and finite, got -1.0"),
        (
            {"recipe": "papers", "recipe__head_weight": 1.0},
            "recipe must be 'default', 'paper', 'auth",
        ),
        ({"receipt__head_weight": 1.0}, "Invalid parameter 'receipt'"),
        ({"head_weight": 1.0}, "Invalid parameter 'head_weight'"),
    ],
    ids=str,
)
def test_what_cannot_be_set_is_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        LMFCNClassifier().set_params(**parameters)


@pytest.mark.parametrize("recipe", ["papers", None, {"passes": 3}], ids=str)
def test_a_wrong_recipe_shows_until_it_is_refused(recipe, textures):
    estimator = LMFCNClassifier(recipe=recipe)
    assert estimator.get_params(deep=True) == estimator.get_params(deep=False)
    assert "recipe=" in repr(estimator)
    with pytest.raises(ValueError, match=r"recipe must be .* or a lmfcn\.Recipe, got"):
        estimator.fit(*textures)


def test_clones_have_a_recipe_of_their_own():
    estimator = LMFCNClassifier(recipe=Recipe(head_weight=0.5))
    copy = clone(estimator).set_params(recipe__head_weight=2.0)
    assert (estimator.recipe, copy.recipe) == (Recipe(head_weight=0.5), Recipe(head_weight=2.0))
    assert clone(estimator).get_params() == estimator.get_params()


def test_overrides_win_over_the_recipe(textures):
    recipe = Recipe(epochs=3, C=2.0, latent_dim=4, widths=(6,), passes=1, deviations=True, crop_size=None)
    fitted = LMFCNClassifier(epochs=1, recipe=recipe, random_state=0, device="cpu").fit(*textures)
    assert fitted.recipe_ == replace(recipe, epochs=1, refit_epochs=0, correlations=False)
    assert fitted.recipe is recipe


def test_refitting_forgets(estimator, X, data):
    fresh = clone(estimator).fit(X, data[1])
    images = np.repeat(data[0][..., None], 2, axis=3)
    twice = estimator.fit(images, data[1] == "wood").fit(X, data[1])
    assert np.array_equal(twice.decision_function(X), fresh.decision_function(X))
    assert vars(twice).keys() == vars(fresh).keys()


def test_the_order_of_images_at_prediction_does_not_matter(estimator, X, data, random):
    fitted = estimator.fit(X, data[1])
    order = random.permutation(len(data[1]))
    assert fitted.decision_function(X[order]) == pytest.approx(fitted.decision_function(X)[order], abs=1e-5)
    assert fitted.decision_function(X[:3]) == pytest.approx(fitted.decision_function(X)[:3], abs=1e-5)


def test_pickling_for_workers(estimator, X, data):
    fitted = estimator.fit(X, data[1])
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))


def test_tags_tell_what_goes_in():
    for images, tags in ((True, quick().__sklearn_tags__()), (False, quick(image_shape=(8, 8)).__sklearn_tags__())):
        assert tags.input_tags.three_d_array is images
        assert tags.input_tags.two_d_array is not images
        assert tags.classifier_tags.multi_class
        assert tags.target_tags.required


def test_rows_are_the_same_as_images(data):
    images, labels = data
    by_rows = quick(image_shape=(16, 16)).fit(images.reshape(len(images), -1), labels)
    by_images = quick().fit(images, labels)
    assert np.array_equal(by_rows.predict_proba(images.reshape(len(images), -1)), by_images.predict_proba(images))
    assert by_rows.n_features_in_ == 256
    with pytest.raises(ValueError, match="X has 100 features, but LMFCNClassifier is expecting 256"):
        by_rows.predict(np.zeros((2, 100)))


def test_rows_bring_their_own_validation_rows(data):
    rows, labels = data[0].reshape(len(data[0]), -1), data[1]
    fitted = quick(image_shape=(16, 16)).fit(rows[::2], labels[::2], validation=(rows[1::2], labels[1::2]))
    assert fitted.predict(rows).shape == labels.shape


@pytest.mark.parametrize("shape", [(16,), "16x16", (16, -1, -1), (0, 16), (1.5, 2)])
def test_bad_image_shape(data, shape):
    with pytest.raises(ValueError, match=r"image_shape must be \(height, width\) or"):
        quick(image_shape=shape).fit(data[0].reshape(len(data[0]), -1), data[1])


def test_an_image_shape_that_does_not_fit(data):
    with pytest.raises(ValueError, match=r"image_shape \(7, 16\) does not fit X with 256 columns"):
        quick(image_shape=(7, 16)).fit(data[0].reshape(len(data[0]), -1), data[1])


def test_rows_without_image_shape_are_explained(data):
    with pytest.raises(ValueError, match="rows of pixels need image_shape"):
        quick().fit(data[0].reshape(len(data[0]), -1), data[1])


def test_pipeline(X, data):
    pipeline = make_pipeline(FunctionTransformer(), quick()).fit(X, data[1])
    assert np.array_equal(pipeline.predict(X), quick().fit(X, data[1]).predict(X))


@pytest.mark.filterwarnings("ignore::lmfcn.method.history.TrainingWarning")  # folds may leave two images of a class
def test_cross_validation_with_groups(X, data):
    groups = np.arange(len(data[1])) // 2
    scores = cross_val_score(quick(), X, data[1], groups=groups, params={"groups": groups}, cv=GroupKFold(2))
    assert scores.shape == (2,)
    assert np.isfinite(scores).all()


def test_grid_search(X, data):
    search = GridSearchCV(quick(), {"C": [1.0, 10.0]}, cv=2).fit(X, data[1])
    assert search.best_params_["C"] in (1.0, 10.0)
    assert search.predict(X).shape == data[1].shape


def test_grid_search_over_the_recipe(data):
    grid = {"recipe__head_weight": [0.5, 1.0], "recipe__augmentation": ["none"]}
    search = GridSearchCV(quick(), grid, cv=2).fit(*data)
    best = search.best_estimator_
    assert search.best_params_["recipe__head_weight"] in (0.5, 1.0)
    assert best.recipe_.head_weight == search.best_params_["recipe__head_weight"]
    assert (best.recipe_.augmentation, best.recipe_.passes) == ("none", 1)
    pipeline = make_pipeline(FunctionTransformer(), quick())
    pipeline.set_params(lmfcnclassifier__recipe__head_weight=0.5)
    assert pipeline[-1].recipe == Recipe(passes=1, head_weight=0.5)


def test_calibration_by_scikit_learn(X, data):
    probabilities = CalibratedClassifierCV(quick(), cv=2).fit(X, data[1]).predict_proba(X)
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(len(data[1])))
    frozen = CalibratedClassifierCV(FrozenEstimator(quick().fit(X, data[1])), method="temperature").fit(X, data[1])
    assert frozen.predict(X).shape == data[1].shape


def test_stacking(data):
    stacked = StackingClassifier([("texture", quick())], LogisticRegression(), cv=2).fit(data[0], data[1])
    assert stacked.predict(data[0]).shape == data[1].shape


def test_names_of_the_latents_and_data_frames(data):
    fitted = quick().set_output(transform="pandas").fit(*data)
    frame = fitted.transform(data[0])
    assert frame.columns.tolist() == fitted.get_feature_names_out().tolist()
    assert frame.columns.tolist() == [f"lmfcnclassifier{number}" for number in range(28)]
    assert frame.shape == (len(data[1]), 28)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_jobs": 0}, "n_jobs must be None or a whole number other than 0, got 0"),
        ({"n_jobs": "2"}, "n_jobs must be None or a whole number"),
        ({"strategy": "all"}, "strategy must be one of 'joint', 'one-vs-all', got 'all'"),
        ({"refit": "yes"}, "refit must be one of True, False"),
        ({"class_weight": "heavy"}, "class_weight must be one of 'auto', 'balanced', None"),
    ],
)
def test_bad_parameters(data, options, message):
    with pytest.raises(ValueError, match=message):
        quick(**options).fit(*data)


def test_both_strategies_are_one_network_for_two_classes(textures):
    joint, paper = (quick(strategy=strategy, epochs=None).fit(*textures) for strategy in ("joint", "one-vs-all"))
    assert joint.n_iter_ == paper.n_iter_ == 6
    assert np.array_equal(joint.decision_function(textures[0]), paper.decision_function(textures[0]))


def test_one_vs_all_has_six_epochs_per_class(data):
    fitted = quick(strategy="one-vs-all", epochs=None, widths=(3,), latent_dim=2).fit(*data)
    assert [history.column("epoch") for history in fitted.history_] == [list(range(4))] * 3
    assert [history.column("epoch") for history in fitted.refit_history_] == [list(range(4, 8))] * 3
    assert len(fitted.best_epoch_) == 3


def test_workers_change_nothing_but_the_last_digits(data):
    alone, beside = (quick(strategy="one-vs-all", n_jobs=n_jobs).fit(*data) for n_jobs in (1, 2))
    assert alone.predict_proba(data[0]) == pytest.approx(beside.predict_proba(data[0]), abs=1e-3)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([None] + ["a", "b"] * 10 + ["a"], "entries of one type, got a mixture or missing ones"),
        (np.linspace(0, 1, 22), "Unknown label type: .*got fractions such as 0.0476"),
        (np.array(["2020", "2021"] * 11, dtype="datetime64[Y]"), "y must hold text or numbers, got datetime64"),
        (np.array([b"a", b"b"] * 11), "y must hold text or numbers, got"),
        (np.array([(1,), (2,)] * 11 + [None], dtype=object)[:22], "y must hold text or numbers, got tuple"),
    ],
    ids=["missing", "fractions", "dates", "bytes", "tuples"],
)
def test_labels_that_cannot_be_learnt(data, labels, message):
    for X, y in ((data[0][:22], labels), (ImageCollection(data[0][:22], labels), None)):
        with pytest.raises(ValueError, match=message):
            quick().fit(X, y)


@pytest.mark.parametrize("kind", [bool, np.int8, np.float32, object, str], ids=str)
def test_labels_of_many_types(textures, kind):
    labels = textures[1].astype(kind)
    fitted = quick().fit(textures[0], labels)
    assert set(fitted.predict(textures[0]).tolist()) <= set(labels.tolist())


def test_groups_on_both_sides_of_a_given_validation_set_are_refused(data):
    images, labels = data
    groups = np.arange(len(labels)) // 2
    train, validation = (
        ImageCollection(images[::2], labels[::2], groups[::2]),
        ImageCollection(images[1::2], labels[1::2], groups[1::2]),
    )
    for given in (validation, (validation, labels[1::2])):
        with pytest.raises(ValueError, match=r"21 groups have training and validation images, among them \[0, "):
            quick().fit(train, validation=given)


def test_groups_that_cannot_be_divided_leave_nothing_to_calibrate_on(textures):
    images, labels = textures
    fitted = quick(validation_fraction=0).fit(images, labels, groups=labels)
    assert fitted.calibration_error_ is None
    assert np.array_equal(fitted.predict(images), (fitted.decision_function(images) > 0).astype(int))


def test_small_classes_are_reported(textures):
    images, labels = textures
    names = np.where(np.arange(32) < 3, "rare", np.array(["a", "b"])[labels])
    with pytest.warns(TrainingWarning, match="Class 'rare' has only 2 training images") as caught:
        quick().fit(images, names)
    assert caught[0].filename == __file__


def test_rare_classes_are_found_more_often_when_the_decision_leans_towards_them():
    random = np.random.default_rng(0)
    images, labels = make_gaussians(100, 16, random, stds=(20, 60))
    few = np.concatenate([np.flatnonzero(labels == 0), np.flatnonzero(labels == 1)[:8]])
    fresh, truth = make_gaussians(150, 16, random, stds=(20, 60))
    shares = {
        weight: quick(class_weight=weight, latent_dim=8, epochs=2).fit(images[few], labels[few]).predict(fresh).mean()
        for weight in (None, "auto")
    }
    assert truth.mean() == 0.5
    assert shares[None] < shares["auto"]
