import copy

import numpy as np
import pytest
import torch
from torch import nn

import lmfcn
from lmfcn import make_gaussians
from lmfcn.maps.texture_map import Box, MapGrid, scale_note
from small_trunk import trunk_classifier
from some_training import classifier_of

TINY = {"latent_dim": 4, "epochs": 1, "passes": 1, "random_state": 0, "device": "cpu"}


def fitted(channels=None, dtype=np.uint8, n_classes=2, **changes):
    images, labels = make_gaussians(
        8, 24, random_state=0, channels=channels, means=(128,) * n_classes, stds=(10, 60, 30)[:n_classes]
    )
    images = images.astype(dtype) * (257 if dtype == np.uint16 else 1)
    images = images / np.float32(255) if dtype == np.float32 else images
    return classifier_of(**{**TINY, "widths": (6, 8), **changes}).fit(images, labels).model_


@pytest.fixture(scope="module")
def model():
    return fitted(n_classes=3)


def some_image(height, width, channels=1, dtype=np.uint8):
    random = np.random.default_rng(3)
    steps = random.normal(0, 9, (height, width, channels)).cumsum(axis=1)
    image = (128 + 40 * np.sin(steps / 5) + random.normal(0, 30, steps.shape)).clip(0, 255).astype(dtype)
    image = image * dtype(257) if dtype == np.uint16 else image
    return image / np.float32(255) if dtype == np.float32 else image


def window_by_window(model, image, window, stride):
    """The slow twin: every window is cut out and predicted as an image of its own."""
    rows = []
    for top in range(0, image.shape[0] - window + 1, stride):
        tiles = [
            image[top : top + window, left : left + window] for left in range(0, image.shape[1] - window + 1, stride)
        ]
        rows.append([model.predict_proba(tile[None])[0] for tile in tiles])
    return np.array(rows)


def check_twin(model, image, window, stride):
    found = model.map(image, window, stride)
    expected = window_by_window(model, image, window, stride)
    assert found.probabilities.shape == expected.shape
    assert found.probabilities == pytest.approx(expected, abs=1e-5)
    assert np.array_equal(found.labels, model.classes[expected.argmax(axis=2)])


@pytest.mark.parametrize(
    ("size", "window", "stride"),
    [((61, 90), 24, 8), ((45, 47), 20, 4), ((70, 64), 36, 24), ((32, 80), 32, 32), ((24, 24), 24, 4)],
)
def test_a_map_says_of_every_window_what_the_model_says_of_it_cut_out(model, size, window, stride):
    check_twin(model, some_image(*size), window, stride)


@pytest.mark.parametrize(
    "changes",
    [
        {"widths": (6,)},
        {"widths": (4, 5, 6)},
        {"strategy": "one-vs-all", "n_classes": 3},
        {"keep_untrained": False},
        {"recipe": "paper"},
        {"widths": (20, 18), "correlations": True},
    ],
    ids=["one hidden layer", "three", "one-vs-all", "trained alone", "paper", "mixtures"],
)
def test_networks_of_all_forms(changes):
    check_twin(fitted(**changes), some_image(72, 66), 48, 8)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("pooling", ["last", "all"])
@pytest.mark.parametrize(("reductions", "size"), [((1, 2), (110, 97)), ((4, 2), (181, 170))])
def test_networks_that_reduce_their_images(order, pooling, reductions, size):
    model = fitted(deviations=order > 0)
    model.networks.members = nn.ModuleList(network.with_moments(order) for network in model.members)
    for network, reduction in zip(model.members, reductions, strict=True):
        network.reduction, network.pooling = reduction, "all" if network is model.members[0] else pooling
    n_latents = model.networks.n_latents
    model.mean, model.std = torch.zeros(n_latents), torch.full((n_latents,), 0.2)
    model.whitening = torch.randn(n_latents, model.n_features, generator=torch.Generator().manual_seed(0))
    step = 4 * max(reductions)
    check_twin(model, some_image(*size), 20 * max(reductions) + step, 2 * step)
    assert model.mapper().default_window(None) == (80 if 4 in reductions else 64)
    assert model.mapper().default_stride() == 16
    model.members[0].reduction = 8
    assert model.mapper().default_stride() == 32
    assert model.map(some_image(200, 230)).grid.window == 160
    model.members[0].reduction = reductions[0]
    with pytest.raises(ValueError, match=f"window must be a multiple of {step} pixels"):
        model.map(some_image(*size), 20 * max(reductions) - step, step)


@pytest.mark.parametrize(("channels", "dtype"), [(3, np.uint8), (6, np.uint16), (2, np.float32)])
def test_images_of_all_forms(channels, dtype):
    check_twin(fitted(channels, dtype), some_image(50, 41, channels, dtype), 24, 16)


@pytest.mark.parametrize(("window", "stride"), [(24, 4), (40, 12), (64, 32)])
def test_patches_make_no_difference(model, monkeypatch, window, stride):
    image = some_image(110, 130)
    whole = model.map(image, window, stride).probabilities
    monkeypatch.setattr("lmfcn.maps.texture_map._PATCH", 32)
    assert model.map(image, window, stride).probabilities == pytest.approx(whole, abs=1e-6)


@pytest.mark.parametrize(("window", "stride"), [(24, 4), (40, 12), (64, 32)])
def test_blocks_are_the_same_as_one_pass_bit_for_bit(model, monkeypatch, window, stride):
    monkeypatch.setattr("lmfcn.maps.texture_map._PATCH", 48)
    monkeypatch.setattr("lmfcn.maps.texture_map._GROUP", 2)
    image = some_image(110, 130)
    one_pass = model.map(image, window, stride)
    mapper, grid = model.mapper(), one_pass.grid
    blocks = grid.blocks(mapper.n_latents, side=50)
    assert len(blocks) >= 2
    for block in blocks:
        found = mapper.map_block(image[grid.region(block).slices], grid, block)
        assert np.array_equal(found, one_pass.probabilities[block.slices])


def test_windows_that_are_not_wanted_change_nothing_for_the_others(model):
    image = some_image(80, 90)
    one_pass = model.map(image, 24, 8)
    wanted = np.zeros(one_pass.probabilities.shape[:2], dtype=bool)
    wanted[2, 3] = wanted[5, 6] = True
    grid = one_pass.grid
    found = model.mapper().map_block(image[grid.region(grid.all_windows).slices], grid, grid.all_windows, wanted)
    assert np.array_equal(found[wanted], one_pass.probabilities[wanted])
    assert np.isnan(found[~wanted]).all()


def test_every_pixel_gets_the_label_of_the_nearest_window(model):
    found = model.map(some_image(61, 83), 24, 12)
    centres = [np.arange(count) * 12 + 12 for count in (found.grid.rows, found.grid.columns)]
    rows, columns = (
        np.abs(np.arange(length)[:, None] + 0.5 - centre).argmin(axis=1)
        for length, centre in zip((61, 83), centres, strict=True)
    )
    assert np.array_equal(found.at_pixels(), found.labels[rows[:, None], columns])
    assert np.array_equal(found.grid.extents(found.grid.rows, 61), np.bincount(rows))
    assert np.array_equal(found.grid.extents(found.grid.columns, 83), np.bincount(columns))


def test_default_window(model):
    assert model.map(some_image(100, 70)).grid.window == 64
    assert model.mapper().default_window((50, 60)) == 48


def test_windows_that_touch_pixels():
    grid = MapGrid(100, 100, window=24, stride=8, step=4, reach=10)
    for pixels in (Box(0, 0, 1, 1), Box(40, 23, 47, 60), Box(99, 99, 100, 100)):
        touching = grid.touching(pixels)
        for row in range(grid.rows):
            under = row * 8 < pixels.bottom and row * 8 + 24 > pixels.top
            assert (touching.top <= row < touching.bottom) == under


@pytest.mark.parametrize(
    ("window", "stride", "sentence"),
    [
        (
            32,
            0,
            "stride must be a multiple of 4 pixels, the step of the networks' coarsest maps, and at least 4; got 0",
        ),
        (32, 6, "stride must be a multiple of 4 pixels.* got 6"),
        (30, 8, "window must be a multiple of 4 pixels.* and at least 20; got 30"),
        (16, 8, "window must be a multiple of 4 pixels.* and at least 20; got 16"),
        (128, 8, "The window must fit into the image, got a window of 128 and an image of 100x90 pixels"),
        (32, 64, "stride must not be larger than the window, which would leave gaps"),
        (32.0, 8, "window must be a multiple of 4"),
    ],
)
def test_bad_windows_and_strides(model, window, stride, sentence):
    with pytest.raises(ValueError, match=sentence):
        model.map(some_image(100, 90), window, stride)


def test_images_unlike_those_of_the_training(model):
    with pytest.raises(ValueError, match="X has 3 channels, but the classifier was fitted on images with 1"):
        model.map(some_image(40, 40, 3), 24, 8)
    with pytest.raises(ValueError, match="X has float pixels, but the classifier was fitted on uint8 ones"):
        model.map(some_image(40, 40, 1, np.float32), 24, 8)


@pytest.mark.parametrize(
    ("image", "got"),
    [("file.png", "'file.png'"), (np.zeros((1, 64, 64, 1), np.uint8), r"\(1, 64, 64, 1\)"), (np.zeros(64), r"\(64,\)")],
)
def test_what_is_no_single_image_is_refused_in_words_about_maps(model, image, got):
    with pytest.raises(ValueError, match=rf"image must be one array of .*, got {got}; for files there is `lmfcn map`"):
        model.map(image)


def test_a_model_of_many_scales_warns_in_python(model_files):
    model, image = lmfcn.load(model_files / "grey.lmfcn"), some_image(48, 48)
    assert model.record["image_sizes"] == {"smallest": [24, 24], "largest": [24, 24]}
    assert scale_note(model) is None
    model.record["image_sizes"] = {"smallest": [40, 40], "largest": [80, 90]}
    with pytest.warns(
        UserWarning, match="images of 40x40 to 80x90 pixels .*: it knows textures at many scales, if each"
    ):
        model.map(image, window=24)
    model.record["image_sizes"] = {"smallest": [40, 40], "largest": [44, 48]}  # nearly equal
    assert scale_note(model) is None
    del model.record["image_sizes"]  # a file of an earlier version
    assert scale_note(model) is None


def test_behind_a_trunk_images_of_different_sizes_have_different_scales():
    model = copy.deepcopy(trunk_classifier().model_)
    model.record["image_sizes"] = {"smallest": [40, 40], "largest": [80, 90]}
    told = "each brought to the 32 pixels of its frozen network: it knows textures at many scales, but"
    assert told in scale_note(model)
