"""Models with a frozen network in front become files that take images of any size from 32x32."""

import json

import numpy as np
import onnxruntime
import pytest
import torch

from lmfcn.export import export_onnx, export_torch
from lmfcn.export.agreement import compare, sample_batches
from lmfcn.export.exported_files import DESCRIPTION, fingerprint, load_onnx_file, load_torch_file
from lmfcn.export.graph import silence_translator
from lmfcn.networks.registry import EFFICIENTNET_LITE0, has_weights
from random_models import random_images
from small_model import quick
from small_trunk import SmallTrunk, trunk_classifier, trunk_images, with_channels

SIZES = ((32, 32), (36, 44), (50, 33), (40, 400), (224, 224))


def fit(channels, pixels, network):
    X, y = trunk_images()
    return quick(network=network).fit(with_channels(X, channels, pixels), y).model_


def new_batches(model, sizes=SIZES):
    """Noise, and textures of the training images of other sizes."""
    X = with_channels(trunk_images()[0][::10], model.form.channels, model.form.pixels)
    textures = [np.resize(image, (*size, image.shape[2]))[None] for image in X for size in sizes]
    return [*textures, *(random_images(2, size, model.form) for size in sizes)]


@pytest.mark.parametrize(("channels", "pixels"), [(1, "uint8"), (3, "uint8"), (2, "uint16"), (5, "float")])
def test_onnx_files_take_any_batch_and_size(tmp_path, channels, pixels):
    model = fit(channels, pixels, SmallTrunk())
    agreement = export_onnx(model, tmp_path / "model.onnx")
    assert (agreement.n_images, agreement.n_sizes) == (46, 6)
    assert agreement.n_labels > 1
    found = compare(model, load_onnx_file((tmp_path / "model.onnx").read_bytes()), new_batches(model), tolerance=1e-5)
    assert (found.n_sizes, found.n_labels) == (5, 3)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["batch", "height", "width", channels]
    assert json.loads(session.get_modelmeta().custom_metadata_map["preprocessing"])["smallest_side"] == 32


@pytest.mark.parametrize(("channels", "pixels"), [(1, "uint8"), (2, "uint16")])
def test_programs_take_any_batch_and_size(tmp_path, channels, pixels):
    model, path = fit(channels, pixels, SmallTrunk()), tmp_path / "model.pt2"
    export_torch(model, path)
    found = compare(model, load_torch_file(path.read_bytes(), model.classes), new_batches(model), tolerance=1e-5)
    assert (found.n_sizes, found.n_labels) == (5, 3)
    extra = {DESCRIPTION: ""}
    with silence_translator():
        torch.export.load(path, extra_files=extra)
    assert json.loads(extra[DESCRIPTION])["preprocessing"]["smallest_side"] == 32


def test_generated_textures_use_the_range_of_pixels_that_the_trunk_uses():
    model = fit(2, "uint16", SmallTrunk())
    batches = sample_batches(model)
    assert [batch.shape[1:] for batch in batches[:2]] == [(32, 32, 2), (33, 50, 2)]
    lowest, highest = min(batch.min() for batch in batches), max(batch.max() for batch in batches)
    assert 65535 * model.trunk.low - 1 <= lowest < highest <= 65535 * model.trunk.high + 1
    assert len(set(model.predict(batches[0]))) > 1


def test_rows_of_a_fixed_shape(tmp_path):
    X, y = trunk_images()
    model = quick(network=SmallTrunk(), image_shape=(36, 44)).fit(X.reshape(30, -1), y).model_
    assert export_torch(model, tmp_path / "model.pt2").n_sizes == 1


def test_the_fingerprint_depends_on_how_pixels_reach_the_trunk():
    model = trunk_classifier().model_
    other = model.copied_to(torch.device("cpu"))
    assert fingerprint(other) == fingerprint(model)
    other.trunk.low = 0.25
    assert fingerprint(other) != fingerprint(model)


@pytest.mark.slow
@pytest.mark.skipif(not has_weights(), reason="needs the extra pretrained")
def test_efficientnet_in_an_onnx_file(tmp_path):
    model = fit(1, "uint8", EFFICIENTNET_LITE0)
    export_onnx(model, tmp_path / "model.onnx")
    batches = new_batches(model, sizes=((32, 32), (50, 33), (64, 64)))
    found = compare(model, load_onnx_file((tmp_path / "model.onnx").read_bytes()), batches, tolerance=1e-5)
    assert found.n_sizes == 3
    assert found.n_labels > 1
