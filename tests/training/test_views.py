"""At which scales images are described, and what a trained network sees of them."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lmfcn
from lmfcn import Callback
from lmfcn.compute.encode import image_sizes, take
from lmfcn.compute.image_buffer import ImageBuffer
from lmfcn.data.training_data import check_training_data
from lmfcn.explain.score_map import score_map
from lmfcn.method.backpropagation import random_crops
from lmfcn.method.history import TrainingError
from lmfcn.recipe import Recipe
from lmfcn.training.fit import _choose_description, make_options
from lmfcn.training.frozen import Beside
from lmfcn.training.views import (
    SMALLEST_REDUCED_SIDE,
    View,
    central_crops,
    description_scales,
    reduce_array,
    reduced_images,
    shown_data,
    whole_view,
)
from some_training import classifier_of

SIDES = st.integers(8, 5000)
SIZES = st.lists(st.tuples(SIDES, SIDES), min_size=1, max_size=6).map(np.array)


def buffer_of(images) -> ImageBuffer:
    """Images of different sizes, as `fit` holds them."""
    buffer = ImageBuffer(np.array([image.shape[:2] for image in images]), images[0].dtype)
    for number, image in enumerate(images):
        buffer.put(np.array([number]), image[None])
    return buffer


@pytest.mark.parametrize(
    ("sizes", "factors"),
    [
        ([(16, 16)], (1,)),
        ([(63, 200)], (1,)),
        ([(64, 64)], (1, 2)),
        ([(128, 128)], (1, 2, 4)),
        ([(512, 512)], (1, 2, 4)),
        ([(513, 513)], (2, 4, 8)),
        ([(128, 128)] * 2 + [(15, 200)], (1, 2)),  # 15 // 4 pixels are too few
        ([(128, 128)] * 2 + [(8, 8)], (1, 2)),
        ([(20, 20), (30, 30), (1000, 1000)], (1,)),
        ([(2000, 2000), (2000, 2000), (10, 2000)], (2,)),  # 4 would leave 2 pixels of the smallest image
    ],
)
def test_scales_by_hand(sizes, factors):
    assert description_scales(np.array(sizes), 3) == factors


@given(SIZES, st.integers(1, 4))
@settings(deadline=None, max_examples=60)
def test_scales_are_powers_of_2_that_leave_enough_of_every_image(sizes, n_scales):
    factors = description_scales(sizes, n_scales)
    assert 1 <= len(factors) <= n_scales
    assert [later // earlier for earlier, later in pairwise(factors)] == [2] * (len(factors) - 1)
    assert all(factor & (factor - 1) == 0 for factor in (*factors, whole_view(sizes).reduction))
    assert sizes.min() >= SMALLEST_REDUCED_SIDE * max(*factors, whole_view(sizes).reduction) or factors == (1,)


@pytest.mark.parametrize(
    ("size", "reduction"),
    [((8, 8), 1), ((90, 90), 1), ((91, 91), 2), ((180, 180), 2), ((182, 182), 4), ((64, 1024), 4), ((3000, 4000), 64)],
)
def test_whole_images_come_near_to_64_pixels(size, reduction):
    assert whole_view(np.array([size])) == View(reduction, None)


def test_the_smallest_image_limits_the_reduction():
    assert whole_view(np.array([(500, 500), (500, 500), (9, 20)])).reduction == 2


def test_views_in_words():
    assert View().describe() == "whole images"
    assert View(4).describe() == "whole images, reduced by a factor of 4"
    assert View(1, 64).describe() == "random crops of 64x64 pixels"


def test_images_are_reduced_by_hand():
    image = np.array([[0, 1, 250, 251, 7], [1, 1, 252, 254, 7], [9, 9, 9, 9, 9]], dtype=np.uint8)[None, ..., None]
    assert reduce_array(image, 2)[0, :, :, 0].tolist() == [[1, 252]]  # 0.75 and 251.75
    assert reduce_array(image.astype(np.float64), 2)[0, :, :, 0].tolist() == [[0.75, 251.75]]
    assert reduce_array(image, 3)[0, :, :, 0].tolist() == [[round((0 + 1 + 250 + 1 + 1 + 252 + 27) / 9)]]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
def test_reduced_images_keep_their_kind_their_order_and_the_originals(random, dtype):
    images = [random.integers(0, 200, (*size, 2)).astype(dtype) for size in ((9, 12), (8, 8), (9, 13), (8, 8), (16, 9))]
    copies, buffer = [image.copy() for image in images], buffer_of(images)
    reduced = reduced_images(buffer, 4)
    assert image_sizes(reduced).tolist() == [[2, 3], [2, 2], [2, 3], [2, 2], [4, 2]]
    for number, image in enumerate(images):
        (found,) = take(reduced, np.array([number]))
        assert found.dtype == dtype
        assert np.array_equal(found, reduce_array(image[None], 4)[0])
        assert np.array_equal(image, copies[number])
    assert reduced_images(buffer, 1) is buffer
    array = np.stack([images[1], images[3]])
    assert np.array_equal(reduced_images(array, 2), reduce_array(array, 2))


def test_central_crops_by_hand():
    images = [np.arange(35).reshape(5, 7, 1), np.arange(4).reshape(2, 2, 1)]
    crops = central_crops(buffer_of(images), 3)
    assert take(crops, np.array([0]))[0, :, :, 0].tolist() == [[9, 10, 11], [16, 17, 18], [23, 24, 25]]
    assert np.array_equal(take(crops, np.array([1]))[0], images[1])  # a smaller image stays as it is
    array = np.stack(images[:1] * 2)
    assert central_crops(array, 7) is array


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 12), st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_random_crops_are_parts_of_their_image_or_of_its_mirror_images(height, width, side, seed):
    image = np.arange(height * width).reshape(height, width, 1)
    crops = random_crops([image] * 3, side, torch.Generator().manual_seed(seed))
    assert crops.shape == (3, side, side, 1)
    for crop in crops[..., 0]:
        rows, columns = np.divmod(crop, width)
        assert bool((rows == rows[:, :1]).all())
        assert bool((columns == columns[:1]).all())
        # From row to row it goes on by one, or stays where the image is mirrored.
        assert np.abs(np.diff(rows[:, 0])).max(initial=0) <= 1
        assert np.abs(np.diff(columns[0])).max(initial=0) <= 1
        if height >= side:
            assert np.diff(rows[:, 0]).tolist() == [1] * (side - 1)


def test_random_crops_come_from_everywhere():
    image = np.arange(9).reshape(3, 3, 1)
    crops = random_crops([image] * 200, 2, torch.Generator().manual_seed(0))
    assert set(crops[:, 0, 0, 0].tolist()) == {0, 1, 3, 4}


def test_images_smaller_than_two_mirrors_of_a_crop_are_repeated():
    crops = random_crops([np.array([[[1], [2]]])], 5, torch.Generator().manual_seed(0))
    assert crops[0, 0, :, 0].tolist() == [1, 2, 2, 1, 1]


def test_crops_are_shown_in_training_and_the_middle_of_images_is_encoded(random):
    images = random.integers(0, 256, (20, 50, 40), dtype=np.uint8)
    data = check_training_data(images, np.arange(20) % 2, None, None, 0.2, random)
    of_crops, reduced = shown_data(data, View(1, 16)), shown_data(data, View(2))
    for name in ("train", "validation"):
        part = getattr(data, name)
        assert np.array_equal(getattr(of_crops, name).images, part.images[:, 9:41, 4:36])
        assert getattr(of_crops, name).whole is part.images
        assert np.array_equal(getattr(reduced, name).images, reduce_array(part.images, 2))
        assert getattr(reduced, name).whole is None


def two_directions(random, n, side=200):
    """Noise whose neighbouring pixels are a little alike in one of two directions: fine, and the same everywhere."""
    noise = random.integers(0, 200, (2 * n, side, side + 1))
    images = 0.8 * noise[:, :, 1:] + 0.2 * noise[:, :, :-1]
    images[::2] = images[::2].transpose(0, 2, 1)
    return images.astype(np.uint8)[..., None], np.arange(2 * n) % 2


def with_or_without_a_spot(random, n, side=128):
    """A bright spot in a corner of every other image, which a crop of the middle does not show."""
    images = random.integers(100, 140, (2 * n, side, side, 1)).astype(np.uint8)
    images[::2, 4:24, 4:24] = 255
    return images, np.arange(2 * n) % 2


def classifier(**changes):
    options = {"latent_dim": 4, "widths": (6, 8), "epochs": 2, "passes": 1, "random_state": 0, "device": "cpu"}
    return classifier_of(**{**options, **changes})


def test_fine_texture_is_shown_in_crops_and_a_spot_in_whole_images(random):
    fitted = classifier(epochs=1).fit(*two_directions(random, 8))
    assert fitted.recipe_.crop_size == 64
    assert fitted.model_.record["shown"] == "random crops of 64x64 pixels"
    fitted = classifier(epochs=1).fit(*with_or_without_a_spot(random, 10))
    assert fitted.recipe_.crop_size is None
    assert fitted.model_.record["shown"] == "whole images, reduced by a factor of 2"
    assert fitted.model_.members[-1].reduction == 2


def test_the_recipe_can_decide_what_is_shown(random):
    images, labels = two_directions(random, 6)
    assert classifier(epochs=1, crop_size=None).fit(images, labels).model_.members[-1].reduction == 4
    fitted = classifier(epochs=1, crop_size=None, scales=1).fit(images, labels)
    assert [network.reduction for network in fitted.model_.members] == [1, 1]
    assert fitted.model_.record["shown"] == "whole images"


def clustered(random, n, side=32):
    """As many dark pixels in both classes: in one block, or spread over the image."""
    images = np.full((2 * n, side * side), 128, dtype=np.uint8)
    for number, image in enumerate(images):
        if number % 2:
            image[random.choice(side * side, 64, replace=False)] = 40
        else:
            top, left = random.integers(0, side - 8, 2)
            image.reshape(side, side)[top : top + 8, left : left + 8] = 40
    return images.reshape(-1, side, side, 1), np.arange(2 * n) % 2


def test_the_choice_of_moments_is_carried_through(random):
    images, labels = clustered(random, 14)
    kinds = ({}, {"deviations": False}, {"deviations": True, "correlations": False}, {"correlations": True})
    chosen, *others = (classifier(epochs=1, **kind).fit(images, labels) for kind in kinds)
    counts = [fitted.model_.networks.n_latents for fitted in others]
    assert counts[1] == 2 * counts[0]
    assert counts[2] > counts[1]
    assert [fitted.recipe_.moment_orders for fitted in others] == [[0], [1], [2]]
    same = others[chosen.recipe_.moment_orders[0]]
    assert chosen.model_.networks.n_latents == same.model_.networks.n_latents
    assert np.array_equal(chosen.predict_proba(images), same.predict_proba(images))


@pytest.mark.parametrize("told_by", [0, 1])
def test_the_description_that_tells_the_classes_apart_is_chosen(random, told_by):
    images = random.integers(0, 256, (40, 16, 16), dtype=np.uint8)
    labels = np.arange(40) % 2
    data = check_training_data(images, labels, None, None, 0.0, random)
    noise, told = random.normal(size=(40, 3)), random.normal(size=(40, 3)) + 3 * data.train.numbers[:, None]
    candidates = [Beside(torch.from_numpy(told if number == told_by else noise).float(), None) for number in range(2)]
    options = make_options(Recipe(), data, None, seed=0, device="cpu", n_jobs=1, callbacks=(), verbose=False)
    assert _choose_description(candidates, data, options)[0] == told_by


def mixed(random, n=24):
    """Two textures in images of 20x30 to 90x70 pixels."""
    images = []
    for number in range(n):
        size = ((20, 30), (90, 70), (33, 64), (41, 40))[number // 2 % 4]
        image = random.normal(128, 30, size)
        images.append((image if number % 2 else (image + np.roll(image, 1, axis=0)) / 2).clip(0, 255).astype(np.uint8))
    return images, np.arange(n) % 2


class StopLater(Callback):
    """Raises in the second epoch of which it hears."""

    n_epochs = 0

    def on_epoch_end(self, training, record, space):  # noqa: ARG002
        self.n_epochs += 1
        if self.n_epochs == 2:
            raise KeyError("stopped")


@pytest.mark.parametrize("changes", [{}, {"batch_size": "all"}, {"strategy": "one-vs-all"}, {"refit": False}])
def test_crops_of_images_of_many_sizes(random, tmp_path, changes):
    images, labels = mixed(random)
    names = np.array(["a", "b", "c"])[np.where(np.arange(24) % 6 == 0, 2, labels)]
    options = {"crop_size": 16, "deviations": True, "epochs": 3, **changes}
    fitted = classifier(**options).fit(images, names)
    assert fitted.model_.record["shown"] == "random crops of 16x16 pixels"
    with pytest.raises(KeyError):
        classifier(**options, checkpoint_dir=tmp_path).fit(images, names, callbacks=[StopLater()])
    resumed = classifier(**options, checkpoint_dir=tmp_path).fit(images, names)
    predicted = fitted.predict_proba(images)
    assert np.array_equal(resumed.predict_proba(images), predicted)
    fitted.save(tmp_path / "model.lmfcn")
    assert np.array_equal(lmfcn.load(tmp_path / "model.lmfcn").predict_proba(images), predicted)


def test_scores_of_a_model_that_reduces_images_are_explained(random):
    images, labels = with_or_without_a_spot(random, 10)
    fitted = classifier(deviations=True, crop_size=None).fit(images, labels)
    assert [network.reduction for network in fitted.model_.members] == [1, 2, 4, 2]
    (value,) = fitted.decision_function(images[:1, :, :110])
    found = score_map(fitted.model_, images[0, :, :110], 1)
    assert found.values.shape == (128, 110)
    assert found.values.mean() == pytest.approx(value, abs=1e-3)
    spot, rest = found.values[4:24, 4:24].mean(), found.values[40:, 40:].mean()
    assert spot < rest  # it speaks for the other class


def test_a_small_validation_image_limits_the_reduction_too(random):
    images, labels = with_or_without_a_spot(random, 6, side=520)
    small = images[:4, :16, :16]
    fitted = classifier(epochs=1).fit(images, labels, validation=(small, labels[:4]))
    assert max(network.reduction for network in fitted.model_.members) <= 4
    assert fitted.predict(small).shape == (4,)
    assert fitted.model_.form.smallest_side == 8


def test_images_that_a_model_would_reduce_to_nothing_are_refused(random):
    images, labels = with_or_without_a_spot(random, 5, side=600)
    fitted = classifier(epochs=1, crop_size=None).fit(images, labels)
    assert max(network.reduction for network in fitted.model_.members) == 8
    assert fitted.model_.form.smallest_side == 16
    with pytest.raises(ValueError, match="16x16"):
        fitted.predict(images[:1, :15])


@pytest.mark.parametrize("changes", [{}, {"deviations": True}, {"keep_untrained": False}, {"whiten": False}])
@pytest.mark.parametrize("value", [0, 130])
def test_identical_images_are_refused_with_a_sentence(changes, value):
    images = np.full((20, 16, 16), value, dtype=np.uint8)
    with pytest.raises(TrainingError, match="All 16 images have the same latents before any training"):
        classifier(split_duplicates=True, **changes).fit(images, np.arange(20) % 2)


def test_constant_images_of_two_colours_are_told_apart():
    images = np.repeat(np.array([60, 180], dtype=np.uint8), 10)[:, None, None, None] * np.ones((1, 16, 16, 1), np.uint8)
    images = images + np.arange(20, dtype=np.uint8)[:, None, None, None] % 10
    labels = np.repeat([0, 1], 10)
    assert np.array_equal(classifier().fit(images, labels).predict(images), labels)
