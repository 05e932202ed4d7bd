"""A model on devices that are not here; `pretend_device` refuses what they would."""

import pickle

import numpy as np
import pytest
import torch
from PIL import Image

import lmfcn
from lmfcn.compute.encode import to_batch
from lmfcn.data.image_form import ImageForm
from lmfcn.explain.explanation import explain
from lmfcn.explain.gallery import fingerprint_of
from lmfcn.export.graph import to_exportable
from lmfcn.maps.blocks import BlockMapper, MapSettings
from lmfcn.maps.readers import View
from lmfcn.predict.evaluation import evaluate_predictions
from lmfcn.predict.stream import FilePredictor
from lmfcn.training import frozen
from pretend_device import DeviceMistakeError, pretended
from random_models import random_images, random_model
from small_model import fitted, gallery, quick, textures, three
from small_trunk import SmallTrunk, trunk_classifier, trunk_images, with_channels

CPU = torch.device("cpu")
FORMS = [ImageForm(1, "uint8"), ImageForm(3, "uint16"), ImageForm(2, "float")]
DEVICES = [("mps:0", 1e-4), ("cuda:0", 1e-9)]
"""With how near answers must be to the CPU's: in single precision, and with the same numbers."""

on_devices = pytest.mark.parametrize(("name", "near"), DEVICES)


@on_devices
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.pixels)
@pytest.mark.parametrize("classes", [["a", "b"], ["a", "b", "c"]], ids=len)
def test_predictions_are_those_of_the_cpu(name, near, form, classes):
    model, images = random_model(classes, form), random_images(5, (24, 20), form)
    with pretended(name) as device:
        moved = model.copied_to(device)
        assert (moved.device, model.device) == (device, CPU)
        for method in ("transform", "decision_function", "predict_proba"):
            found, expected = getattr(moved, method)(images), getattr(model, method)(images)
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=near, atol=near)
        np.testing.assert_array_equal(moved.predict(images), model.predict(images))
        np.testing.assert_array_equal(moved.predict_set(images), model.predict_set(images))
        mine = moved(torch.from_numpy(images[:1].astype(np.float32)).to(device))
        assert mine.device == device


@on_devices
def test_maps_are_those_of_the_cpu(name, near):
    model, (image,) = random_model(["a", "b", "c"], FORMS[0]), random_images(1, (80, 64), FORMS[0])
    expected = model.map(image, window=32, stride=16).probabilities
    with pretended(name) as device:
        found = model.copied_to(device).map(image, window=32, stride=16).probabilities
    np.testing.assert_allclose(found, expected, rtol=near, atol=max(near, 1e-6))


@on_devices
def test_explanations_are_those_of_the_cpu(name, near):
    model, (image, *_) = fitted().model_, three()[0]
    expected = explain(model, image, gallery())
    with pretended(name) as device:
        found = explain(model.copied_to(device), image, gallery())
    assert [entry.name for entry in found.supporting] == [entry.name for entry in expected.supporting]
    assert found.value == pytest.approx(expected.value, abs=near)
    assert found.map.values.mean() == pytest.approx(found.value, abs=1e-4)
    np.testing.assert_allclose(found.map.values, expected.map.values, atol=10 * near)


@on_devices
def test_a_model_that_comes_back_or_is_saved_is_the_same(name, near, tmp_path):
    model = fitted().model_
    fitted().save(tmp_path / "before.lmfcn")
    before = (tmp_path / "before.lmfcn").read_bytes()
    with pretended(name) as device:
        loaded = lmfcn.load(tmp_path / "before.lmfcn", device)
        assert loaded.device == device
        assert fingerprint_of(loaded) == fingerprint_of(model)
        lmfcn.model_file.save(loaded, tmp_path / "after.lmfcn")
        back = loaded.to("cpu")
    assert (tmp_path / "after.lmfcn").read_bytes() == before
    np.testing.assert_array_equal(back.predict_proba(three()[0]), model.predict_proba(three()[0]))
    assert near < 1


def test_a_device_that_is_not_there_is_told_before_the_file_is_read(tmp_path):
    with pytest.raises(ValueError, match=r"an available device \(cpu.*\), got 'cuda:77'"):
        lmfcn.load(tmp_path / "nothing.lmfcn", device="cuda:77")


@pytest.mark.slow
@on_devices
@pytest.mark.parametrize(
    "changes",
    [{}, {"whiten": False, "class_weight": "balanced"}, {"strategy": "one-vs-all"}, {"recipe": "paper", "epochs": 1}],
    ids=str,
)
def test_training_goes_on_there_from_beginning_to_end(name, near, changes, tmp_path):
    images, labels = textures(8, 18, 22)
    with pretended(name) as device:
        there = quick(device=device, **changes).fit(images, labels)
        assert there.model_.device == device
        found = there.predict_proba(images)
        np.testing.assert_allclose(there.model_.copied_to(CPU).predict_proba(images), found, atol=near)
        evaluate_predictions(there.model_, np.repeat([1, 0, 2], 8), found)
        there.save(tmp_path / "model.lmfcn")
    np.testing.assert_allclose(lmfcn.load(tmp_path / "model.lmfcn", "cpu").predict_proba(images), found, atol=near)


@on_devices
def test_predictors_travel_on_the_cpu_and_compute_where_they_are_told(name, near, tmp_path):
    model, image = fitted().model_, three()[0][0]
    Image.fromarray(image).save(tmp_path / "a.png")
    (expected,) = model.predict_proba(image[None])
    with pretended(name) as device:
        for sent in (FilePredictor(model, str(tmp_path), name), FilePredictor(model.copied_to(device), str(tmp_path))):
            arrived = pickle.loads(pickle.dumps(sent))
            (row,) = arrived(["a.png"])
            assert (arrived.model.device, arrived.device) == (CPU, name)
            np.testing.assert_allclose(row.probabilities, expected, atol=near)
            pickle.dumps(arrived)  # also after it has computed, as workers pass it on


@on_devices
def test_block_mappers_do_too(name, near, tmp_path):
    model, (image,) = random_model(["a", "b", "c"], FORMS[0]), random_images(1, (64, 64), FORMS[0])
    Image.fromarray(image[:, :, 0]).save(tmp_path / "a.png")
    expected = model.map(image, window=32, stride=16)
    with pretended(name) as device:
        settings = MapSettings(32, 16, View())
        for sent in (
            BlockMapper(model, tmp_path / "a.png", settings, name),
            BlockMapper(model.copied_to(device), tmp_path / "a.png", settings),
        ):
            arrived = pickle.loads(pickle.dumps(sent))
            result = arrived(expected.grid.all_windows)
            assert (arrived.model.device, arrived.device) == (CPU, name)
            np.testing.assert_allclose(result.probabilities, expected.probabilities, atol=max(near, 1e-6))
            pickle.dumps(arrived)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [(torch.Tensor.double, "float64, which MPS does not have"), (torch.Tensor.cpu, "mixes cpu and mps:0")],
    ids=["double precision", "another device"],
)
@pytest.mark.parametrize("ask", [lambda model, image: model.predict(image[None]), explain], ids=["predict", "explain"])
def test_a_planted_mistake_is_found(mistake, message, ask):
    model, (image,) = random_model(["a", "b"], FORMS[0]), random_images(1, (24, 20), FORMS[0])
    with pretended("mps:0") as device:
        moved = model.copied_to(device)
        moved.networks.register_forward_hook(lambda *found: mistake(found[-1]))
        with pytest.raises(DeviceMistakeError, match=message):
            ask(moved, image)


@pytest.mark.slow
@on_devices
@pytest.mark.parametrize("pixels", ["uint8", "uint16"])
def test_training_behind_a_frozen_network_goes_on_there(name, near, pixels, tmp_path):
    images, labels = trunk_images()
    images, labels = with_channels(images, 1, pixels), labels
    with pretended(name) as device:
        there = quick(network=SmallTrunk(), device=device).fit(images, labels)
        found = there.predict_proba(images)
        np.testing.assert_allclose(there.model_.copied_to(CPU).predict_proba(images), found, atol=near)
        there.save(tmp_path / "model.lmfcn")
        loaded = lmfcn.load(tmp_path / "model.lmfcn", device, network=SmallTrunk())
        np.testing.assert_allclose(loaded.predict_proba(images), found, atol=near)


@on_devices
def test_a_frozen_network_predicts_maps_and_knows_typicality_there(name, near):
    model, images = trunk_classifier().model_, trunk_images()[0][:4]
    image = np.tile(images[0], (3, 3))
    expected = model.map(image, window=32, stride=16).probabilities
    with pretended(name) as device:
        moved = model.copied_to(device)
        for found, wanted in zip(
            moved.predict_with_typicality(images), model.predict_with_typicality(images), strict=True
        ):
            np.testing.assert_allclose(found, wanted, atol=near)
        mapped = moved.map(image, window=32, stride=16).probabilities
    np.testing.assert_allclose(mapped, expected, atol=max(near, 1e-6))


@on_devices
def test_a_model_there_is_exported_from_the_cpu(name, near):
    """Not further: the translators pretend devices of their own."""
    model, images = trunk_classifier().model_, trunk_images()[0][:4]
    with pretended(name) as device:
        exported = to_exportable(model.copied_to(device))
    assert {tensor.device for tensor in exported.state_dict().values()} == {CPU}
    np.testing.assert_allclose(exported.predict_proba(images), model.predict_proba(images), atol=near)


PLANTED = {
    "a forgotten move to the CPU": ("to_cpu_double", lambda tensor: tensor, r"\.numpy\(\) is not supported"),
    "double precision": ("to_cpu_double", torch.Tensor.double, "float64, which MPS does not have"),
    "images that stay here": ("to_batch", lambda images, _: to_batch(images, CPU), "mixes cpu and mps:0"),
}


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED)
def test_a_mistake_planted_in_training_is_found(planted, monkeypatch):
    function, mistake, message = PLANTED[planted]
    images, labels = trunk_images()
    images = with_channels(images, 1, "uint16")
    monkeypatch.setattr(frozen, function, mistake)
    with pretended("mps:0") as device, pytest.raises((DeviceMistakeError, RuntimeError), match=message):
        quick(network=SmallTrunk(), device=device).fit(images, labels)
