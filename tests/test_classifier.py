import pickle
import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import lmfcn
from lmfcn import LMFCNClassifier, make_gaussians
from lmfcn.data.collection import ImageCollection
from lmfcn.method.history import TrainingWarning
from lmfcn.recipe import Recipe
from some_training import EachEpoch, classifier_of


def quick(**changes) -> LMFCNClassifier:
    options = {"latent_dim": 4, "widths": (6, 8), "epochs": 2, "passes": 1, "random_state": 0, "device": "cpu"}
    return classifier_of(**{**options, **changes})


@pytest.fixture(scope="module")
def fitted(textures):
    return quick().fit(*textures)


def test_predictions_are_labels_and_follow_the_sign_of_the_decision(textures, fitted):
    images, labels = textures
    predicted, decisions = fitted.predict(images), fitted.decision_function(images)
    assert predicted.shape == decisions.shape == labels.shape
    assert np.array_equal(predicted, (decisions > 0).astype(int))
    assert fitted.classes_.tolist() == [0, 1]


def test_decision_is_the_rbf_sum_over_the_support_vectors(textures, fitted):
    latents = fitted.transform(textures[0])
    support = latents[fitted.support_]
    squared = ((latents[:, None] - support) ** 2).sum(axis=2)
    by_hand = np.exp(-fitted.model_.gamma * squared) @ fitted.dual_coef_[0] + fitted.intercept_[0]
    assert fitted.decision_function(textures[0]) == pytest.approx(by_hand, abs=1e-4)


def test_fitted_attributes(textures, fitted):
    assert fitted.n_iter_ == 2
    assert fitted.history_.column("epoch") == [0, 1]
    assert fitted.refit_history_.column("epoch") == [2, 3]
    assert fitted.history_.column("epoch")[fitted.best_epoch_] == fitted.best_epoch_
    assert fitted.transform(textures[0]).shape == (len(textures[0]), 6 + 8 + 4 + 4)
    assert fitted.n_features_in_ == 1
    assert 0 <= fitted.calibration_error_ <= 1


def test_without_refitting_the_svm_is_that_of_the_selected_epoch(textures):
    fitted = quick(refit=False, keep_untrained=False, whiten=False).fit(*textures)
    selected = fitted.history_[fitted.best_epoch_]
    assert len(fitted.support_) == selected.n_support
    assert fitted.model_.gamma == selected.gamma


def test_support_indices_point_into_x(textures):
    images, labels = textures
    fitted = quick(validation_fraction=0.4).fit(images, labels)
    # A positive coefficient belongs to class 1, a negative one to class 0.
    assert np.array_equal(labels[fitted.support_], (fitted.dual_coef_[0] > 0).astype(int))
    assert len(quick(validation_fraction=0.4, refit=False).fit(images, labels).support_) <= 20


def test_support_vectors_among_given_validation_images_follow_those_of_x(textures):
    images, labels = textures
    fitted = quick().fit(images[:20], labels[:20], validation=(images[20:], labels[20:]))
    assert fitted.support_.max() >= 20
    assert np.array_equal(labels[fitted.support_], (fitted.dual_coef_[0] > 0).astype(int))


def test_string_labels_and_their_order(textures):
    images, labels = textures
    names = np.array(["zinc", "brass"])[labels]
    fitted = quick().fit(images, names)
    assert fitted.classes_.tolist() == ["brass", "zinc"]
    assert set(fitted.predict(images)) <= {"brass", "zinc"}
    assert np.array_equal(fitted.predict(images) == "zinc", fitted.decision_function(images) > 0)


@pytest.mark.parametrize(
    "convert",
    [
        lambda images: images.astype(np.uint16) * 257,
        lambda images: images.astype(np.float32) / 255,
        lambda images: images.astype(np.float64) / 255,
        lambda images: images[..., None],
    ],
    ids=["uint16", "float32", "float64", "one channel"],
)
def test_the_same_pixels_in_another_form_give_the_same_decisions(textures, fitted, convert):
    images, labels = textures
    other = quick().fit(convert(images), labels)
    assert other.decision_function(convert(images)) == pytest.approx(fitted.decision_function(images), abs=1e-2)


def test_colour_and_many_channels():
    for channels in (3, 7):
        images, labels = make_gaussians(6, (10, 14), random_state=0, channels=channels)
        assert quick().fit(images, labels).predict(images).shape == (12,)


def test_prediction_on_another_image_size(fitted):
    larger, _ = make_gaussians(2, 40, random_state=1)
    assert fitted.predict(larger).shape == (4,)


def test_fit_is_repeatable_bit_for_bit_and_touches_no_global_seed(textures, fitted):
    (_, key, place, *_), torch_state = np.random.get_state(), torch.get_rng_state()
    same = quick().fit(*textures)
    assert np.array_equal(np.random.get_state()[1], key)
    assert np.random.get_state()[2] == place
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(same.decision_function(textures[0]), fitted.decision_function(textures[0]))
    assert same.history_.column("support_loss") == fitted.history_.column("support_loss")
    assert not np.array_equal(
        quick(random_state=1).fit(*textures).decision_function(textures[0]), fitted.decision_function(textures[0])
    )


def test_an_image_gets_the_same_decision_beside_an_outlier(textures):
    images = textures[0] / np.float32(255)
    fitted = quick().fit(images, textures[1])
    alone = fitted.decision_function(images[:4])
    beside = fitted.decision_function(np.concatenate([images[:4], images[:1] * 9e5]))
    assert beside[:4] == pytest.approx(alone, abs=1e-5)


def test_refitting_forgets_the_first_fit(textures, fitted):
    images, labels = make_gaussians(5, 12, random_state=3, channels=2)
    twice = quick().fit(images, labels).fit(*textures)
    assert np.array_equal(twice.decision_function(textures[0]), fitted.decision_function(textures[0]))


def test_validation_images_choose_the_epoch_and_x_stays_whole(textures):
    images, labels = textures
    fitted = quick(refit=False, keep_untrained=False).fit(
        images[:20], labels[:20], validation=(images[20:], labels[20:])
    )
    right = fitted.predict(images[20:]) == labels[20:]
    recalls = [right[labels[20:] == label].mean() for label in (0, 1)]
    assert np.mean(recalls) == pytest.approx(fitted.history_[fitted.best_epoch_].validation_balanced_accuracy)


def test_without_validation_the_last_epoch_is_selected(textures):
    fitted = quick(validation_fraction=0).fit(*textures)
    assert fitted.best_epoch_ == 2
    assert fitted.history_[0].validation_balanced_accuracy is None


def test_groups_reach_the_split(textures):
    images, labels = textures
    quick().fit(images, labels, groups=np.arange(32) // 2)
    with pytest.raises(ValueError, match="every class must occur in at least 2 groups"):
        quick().fit(images, labels, groups=labels)


def test_images_and_labels_are_not_changed(textures):
    images, labels = textures[0].copy(), textures[1].copy()
    quick().fit(images, labels).predict(images)
    assert np.array_equal(images, textures[0])
    assert np.array_equal(labels, textures[1])


def test_clone_and_parameters(fitted):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "model_")
    assert copy.set_params(C=3.0).C == 3.0


def test_pickling_keeps_the_decisions(textures, fitted):
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.decision_function(textures[0]), fitted.decision_function(textures[0]))


def test_parameters_left_alone_take_the_default_recipe(textures):
    fitted = LMFCNClassifier(epochs=1, random_state=0, device="cpu").fit(*textures)
    decided = {"deviations": fitted.recipe_.deviations, "correlations": False, "crop_size": None, "passes": 12}
    assert fitted.recipe_ == Recipe(epochs=1, refit_epochs=0, **decided)
    moments = 2 if fitted.recipe_.deviations else 1
    assert fitted.model_.latents(textures[0]).shape[1] == moments * (64 + 128 + 64 + 64)
    assert fitted.transform(textures[0]).shape[1] == 31  # 32 images differ in no more directions


def test_the_paper_recipe_fills_in_what_was_left_alone_and_nothing_else(textures):
    fitted = LMFCNClassifier(recipe="paper", epochs=1, random_state=0, device="cpu").fit(*textures)
    assert fitted.recipe_ == replace(Recipe.paper(), epochs=1, strategy="joint")  # two classes need one network
    assert fitted.transform(textures[0]).shape[1] == Recipe.paper().latent_dim == 16
    # Values of the default recipe, given on purpose, are kept too.
    fitted = quick(recipe="paper", C=10.0, batch_size=32).fit(*textures)
    assert (fitted.recipe_.C, fitted.recipe_.batch_size, fitted.recipe_.optimizer) == (10.0, 32, "adadelta")
    assert fitted.transform(textures[0]).shape[1] == 4


def test_class_weight_by_label(textures):
    images, labels = textures
    names = np.array(["a", "b"])[labels]
    plain, even, heavy = (
        quick(C=0.05, refit=False, class_weight=weight).fit(images, names)
        for weight in (None, {"a": 1.0, "b": 1}, {"b": 30.0})
    )
    assert np.array_equal(plain.dual_coef_, even.dual_coef_)
    assert abs(plain.dual_coef_).max() <= 0.05 < abs(heavy.dual_coef_).max()
    with pytest.raises(ValueError, match=r"class_weight names labels that no image has: \['c'\]"):
        quick(class_weight={"c": 3.0}).fit(images, names)


def test_a_callback_sees_every_epoch(textures):
    seen = []
    watch = EachEpoch(lambda record, space: seen.append((record, len(space.svm.support))))
    fitted = quick().fit(*textures, callbacks=[watch])
    records = [*fitted.history_, *fitted.refit_history_]
    assert [record for record, _ in seen] == records
    assert [n for _, n in seen] == [record.n_support for record in records]


def test_verbose_shows_progress_on_standard_error(textures, capsys):
    quick(verbose=True).fit(*textures)
    shown = capsys.readouterr()
    # One bar over both phases: one round with images held out, one with all.
    assert re.search(r"Training on 2\d images, \d held out: 1/2 epochs, epoch 0: epoch score \d\.\d{3}", shown.err)
    assert re.search(r"Refit on all 32 images: 2/2 epochs, epoch 3: \d+ support vectors", shown.err)
    assert "support vectors" in shown.err
    assert shown.out == ""


def test_quiet_by_default(textures, capsys):
    quick().fit(*textures)
    assert capsys.readouterr() == ("", "")


def test_not_fitted(textures):
    for method in ("predict", "decision_function", "transform"):
        with pytest.raises(NotFittedError):
            getattr(quick(), method)(textures[0])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"latent_dim": 0}, "latent_dim must be at least 1, got 0"),
        ({"latent_dim": 2.5}, "latent_dim must be a whole number, got 2.5"),
        ({"widths": (4, 0)}, "widths must be at least 1, got 0"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"epochs": True}, "epochs must be a whole number, got True"),
        ({"sv_close": -1}, "sv_close must be at least 0, got -1"),
        ({"sv_close": 0, "wr_close": 0, "head_weight": 0}, "at least one term"),
        ({"C": 0}, "C must be greater than 0 and finite, got 0"),
        ({"C": "large"}, "C must be a number greater than 0, got 'large'"),
        ({"C": float("inf")}, "C must be greater than 0 and finite, got inf"),
        ({"gamma": -1.0}, "gamma must be greater than 0"),
        ({"gamma": "auto"}, "gamma must be a number greater than 0, got 'auto'"),
        ({"gamma_factor": 0}, "gamma_factor must be greater than 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"passes": 0}, "passes must be at least 1, got 0"),
        ({"learning_rate": -0.1}, "learning_rate must be greater than 0 and finite, got -0.1"),
        ({"weight_decay": -1}, "weight_decay must be at least 0 and finite, got -1"),
        ({"support_loss": "push"}, "support_loss must be one of 'contrast', 'pull', got 'push'"),
        ({"distance": "cosine"}, "distance must be one of"),
        ({"distance_units": "pixels"}, "distance_units must be one of"),
        ({"correction_class": "other"}, "correction_class must be one of"),
        ({"optimizer": "sgd"}, "optimizer must be one of"),
        ({"class_weight": "heavy"}, "class_weight must be one of"),
        ({"class_weight": {0: 0}}, "class_weight must be greater than 0 and finite, got 0"),
        ({"class_weight": {0: float("nan")}}, "class_weight must be greater than 0"),
        ({"recipe": "papers"}, "recipe must be 'default', 'paper', 'authors-program' or a lmfcn.Recipe, got 'papers'"),
        ({"validation_fraction": 1.0}, "validation_fraction must be less than 1, got 1.0"),
        ({"validation_fraction": -0.1}, "validation_fraction must be at least 0"),
        ({"device": "abacus"}, r"device must be 'auto' or an available device \(cpu.*\), got 'abacus'"),
        ({"random_state": "seed"}, "random_state must be None"),
    ],
)
def test_bad_parameters_are_refused_with_a_reason(textures, parameters, message):
    with pytest.raises(ValueError, match=message):
        quick(**parameters).fit(*textures)


def test_bad_images_and_labels_reach_the_user_as_one_sentence(textures):
    images, labels = textures
    with pytest.raises(ValueError, match="same length, got 32 images and 31 labels"):
        quick().fit(images, labels[:-1])
    with pytest.raises(ValueError, match="at least two classes, got 1"):
        quick().fit(images, np.zeros(32))
    with pytest.raises(ValueError, match="Unknown label type: y must hold names or whole numbers"):
        quick().fit(images, np.linspace(0, 1, 32))
    with pytest.raises(ValueError, match="Class 'rare' has 1 image; at least 3 are needed"):
        quick().fit(images, ["rare"] + ["common"] * 31)


def test_images_unlike_the_training_images_are_refused(textures, fitted):
    images = textures[0]
    with pytest.raises(ValueError, match="X has 3 channels, but the classifier was fitted on images with 1"):
        fitted.predict(np.repeat(images[..., None], 3, axis=3))
    with pytest.raises(ValueError, match="X has float pixels, but the classifier was fitted on uint8 ones"):
        fitted.transform(images / 255)
    with pytest.raises(ValueError, match="at least 8x8 pixels"):
        fitted.predict(images[:, :5])


def test_a_failed_refit_leaves_the_fitted_model(textures):
    fitted = quick().fit(*textures)
    before = fitted.decision_function(textures[0])
    with pytest.raises(ValueError, match="same length"):
        fitted.fit(textures[0], [0, 1])
    assert np.array_equal(fitted.decision_function(textures[0]), before)


def test_two_images_per_class_are_enough_without_validation(textures):
    images, labels = textures
    few = np.concatenate([np.flatnonzero(labels == label)[:2] for label in (0, 1)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingWarning)  # with four images all may be support vectors
        fitted = quick(validation_fraction=0).fit(images[few], labels[few])
    assert fitted.predict(images).shape == labels.shape


@pytest.mark.slow
def test_the_default_recipe_learns_striped_gaussians():
    random = np.random.default_rng(1)
    train, validation, test = (make_gaussians(n, 40, random) for n in (60, 60, 100))
    classifier = LMFCNClassifier(latent_dim=16, epochs=8, recipe=Recipe(refit_epochs=2), random_state=1)
    fitted = classifier.fit(*train, validation=validation)
    right = fitted.predict(test[0]) == test[1]
    history = fitted.history_
    assert right.mean() >= 0.88
    assert min(history.column("n_support")) <= history[0].n_support / 2


@pytest.mark.parametrize("refit", [True, False])
@pytest.mark.parametrize(("strategy", "n_networks", "deviations"), [("joint", 1, True), ("one-vs-all", 3, False)])
def test_the_untrained_network_stays_beside_the_trained_ones(
    textures, tmp_path, strategy, n_networks, deviations, refit
):
    images, names = textures[0], np.array(["a", "b", "c"])[np.arange(32) % 3]
    small = {"latent_dim": 4, "widths": (6, 8), "epochs": 2, "strategy": strategy, "random_state": 0, "device": "cpu"}
    small |= {"deviations": deviations, "passes": 2}
    fitted = classifier_of(refit=refit, **small).fit(images, names)
    n_moments = 2 if deviations else 1
    latents = fitted.model_.latents(images)
    assert latents.shape == (32, n_moments * (6 + 8 + 4 + 4 * n_networks))
    untrained, *trained = fitted.model_.members
    assert (untrained.pooling, [network.pooling for network in trained]) == ("all", ["last"] * n_networks)
    first, second = (untrained.features[block].weight for block in (0, 4))
    assert torch.equal(first, first.half().float())
    assert not torch.equal(second, trained[0].features[4].weight)
    if strategy == "joint":
        assert torch.equal(first, trained[0].features[0].weight)  # the first layer stays as it starts
    fitted.save(tmp_path / "model.lmfcn")
    again = lmfcn.load(tmp_path / "model.lmfcn")
    assert np.array_equal(again.predict_proba(images), fitted.predict_proba(images))
    without = classifier_of(refit=refit, keep_untrained=False, **small).fit(images, names)
    assert without.model_.latents(images).shape == (32, n_moments * 4 * n_networks)


def test_the_untrained_network_is_the_one_that_training_began_with(textures):
    spaces = []
    recipe = Recipe(whiten=False, deviations=True, passes=1, precision="float32")
    classifier = LMFCNClassifier(latent_dim=4, widths=(6, 8), epochs=1, recipe=recipe, random_state=0)
    watch = EachEpoch(lambda _, space: spaces.append(space))
    fitted = classifier.fit(*textures, validation=textures, callbacks=[watch])
    seen = fitted.transform(textures[0])[:, 28:36]  # standardised over training and validation images: the same here
    np.testing.assert_allclose(seen, spaces[0].latents.numpy(), atol=0.02)  # filters are rounded to three digits


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"first_filters": "learnt"}, "first_filters must be one of 'decorrelated', 'random', got 'learnt'"),
        ({"keep_untrained": "yes"}, "keep_untrained must be one of True, False, got 'yes'"),
        ({"whiten": 1.5}, "whiten must be one of True, False, got 1.5"),
        ({"augmentation": "all"}, "augmentation must be one of 'none', 'flips', 'dihedral', got 'all'"),
        ({"epoch_selection": "first"}, "epoch_selection must be one of 'one-se', 'best', 'last', got 'first'"),
        ({"head_weight": -1.0}, "head_weight must be at least 0 and finite, got -1.0"),
        ({"head_weight": 0, "anchor_weight": 0}, "at least one term of the loss must be positive"),
    ],
)
def test_wrong_choices_of_the_recipe_are_refused(textures, wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        classifier_of(**wrong).fit(*textures)


def test_the_record_holds_the_sizes_of_images_before_they_were_resized(tmp_path, random):
    for number in range(12):
        side = 16 + number
        Image.fromarray(random.integers(0, 256, (side, 2 * side), dtype=np.uint8)).save(tmp_path / f"{number:02}.png")
    images = ImageCollection(sorted(tmp_path.glob("*.png")), labels=np.arange(12) % 2).resized(16)
    model = LMFCNClassifier(epochs=1, latent_dim=4, widths=(4, 4), random_state=0, device="cpu").fit(images).model_
    assert model.record["image_sizes"] == {"smallest": [16, 32], "largest": [27, 54]}
