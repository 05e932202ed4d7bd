"""Maps of models behind a frozen network."""

import pickle
from functools import cache

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image
from torch import Tensor, nn

from lmfcn import LMFCNClassifier, Recipe
from lmfcn.__main__ import main
from lmfcn.maps import trunk_map
from lmfcn.maps.blocks import BlockMapper, MapSettings
from lmfcn.maps.readers import View
from lmfcn.maps.texture_map import Box, FCNMapper, central_moments
from lmfcn.maps.trunk_map import TrunkGrid, TrunkMapper, overlaps
from lmfcn.networks.registry import has_weights
from small_model import fitted, quick, textures


class Tiny(nn.Module):
    """Two stages: maps of a half and of an eighth of the sides. Beyond its border an image goes on as it ends."""

    in_channels = 1
    input_size = 32
    step = 8
    trained_stage = 0

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, stride=2, padding=1, padding_mode="replicate")
        self.second = nn.Conv2d(4, 5, 5, stride=4, padding=2, padding_mode="replicate")
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for weights in self.parameters():
                weights.copy_(0.3 * torch.randn(weights.shape, generator=generator))

    def stages(self, batch: Tensor) -> list[Tensor]:
        first = self.first(batch).relu()
        return [first, self.second(first).relu()]


@cache
def model_with_trunk(channels=1, **changes):
    images, labels = textures(8, 36, 36)
    pixels = images if channels == 1 else np.stack([images, *[images[:, ::-1]] * (channels - 1)], axis=3)
    return quick(network=Tiny(), **changes).fit(pixels, labels).model_


@pytest.fixture
def model():
    return model_with_trunk()


@pytest.fixture
def small_pieces(monkeypatch):
    """Several patches and groups in a small image."""
    monkeypatch.setattr(trunk_map, "_MOST_WINDOWS", 1)
    monkeypatch.setattr("lmfcn.maps.texture_map._GROUP", 1)


def some_image(height, width, channels=1):
    parts, _ = textures(channels, height, width, seed=3)
    return parts[:channels].transpose(1, 2, 0)


def grid_of(size, window, stride, halo=0.5, side=32, multiple=8):
    return TrunkGrid(*size, window, stride, 1, int(halo * window / 2), side, multiple)


def test_the_mapper_fits_the_model(model):
    assert isinstance(model.mapper(), TrunkMapper)
    assert isinstance(fitted().model_.mapper(), FCNMapper)


@pytest.mark.parametrize(("window", "stride"), [(32, 8), (36, 12), (41, 7), (56, 56)])
@pytest.mark.parametrize("size", [(150, 132), (111, 202)])
@pytest.mark.usefixtures("small_pieces")
def test_blocks_are_the_same_as_one_pass_bit_for_bit(model, size, window, stride):
    image = some_image(*size)
    one_pass = model.map(image, window, stride)
    mapper, grid = model.mapper(), one_pass.grid
    blocks = grid.blocks(mapper.n_latents, side=50)
    assert len(blocks) >= 2
    for block in blocks:
        found = mapper.map_block(image[grid.region(block).slices], grid, block)
        assert np.array_equal(found, one_pass.probabilities[block.slices])


def test_windows_that_are_not_wanted_change_nothing_for_the_others(model, small_pieces):  # noqa: ARG001
    image = some_image(90, 150)
    one_pass = model.map(image, 32, 16)
    wanted = np.zeros(one_pass.probabilities.shape[:2], dtype=bool)
    wanted[1, 4] = wanted[3, 0] = True
    grid = one_pass.grid
    found = model.mapper().map_block(image[grid.region(grid.all_windows).slices], grid, grid.all_windows, wanted)
    assert np.array_equal(found[wanted], one_pass.probabilities[wanted])
    assert np.isnan(found[~wanted]).all()


@pytest.mark.parametrize("side", [32, 36, 50, 100])
@pytest.mark.parametrize(
    ("channels", "changes"), [(1, {}), (2, {}), (1, {"keep_untrained": False}), (1, {"strategy": "one-vs-all"})]
)
def test_a_window_that_is_the_whole_image_gets_what_the_model_predicts(side, channels, changes):
    model = model_with_trunk(channels, **changes)
    image = textures(channels, 108, 100)[0][:channels].transpose(1, 2, 0)[:side, :side]
    found = model.map(image, side, 16).probabilities
    assert found == pytest.approx(model.predict_proba(image[None])[:, None], abs=1e-5)


@pytest.mark.parametrize("window", [32, 48])
def test_constant_image(model, window, monkeypatch):
    monkeypatch.setattr(trunk_map, "_MOST_WINDOWS", 2)
    image = np.full((6 * window, 6 * window, 1), 90, dtype=np.uint8)
    mapper = model.mapper()
    grid = mapper.grid(image.shape[:2], window, window // 2)
    with torch.no_grad():
        means = mapper._latents(image, grid, grid.all_windows, np.ones((grid.rows, grid.columns), dtype=bool))
    latents = central_moments(means, mapper._moment_parts(means))
    expected = model.latents(image[None, :window, :window])[0]
    n_frozen = model.trunk.n_features
    assert np.allclose(latents[..., :n_frozen], expected[:n_frozen], atol=1e-3)
    # The trained networks see zeros around a window that is cut out, and no zeros here but at the sides of the image.
    inside = latents[2:-2, 2:-2, n_frozen:]
    assert np.allclose(inside, inside[0, 0], atol=1e-5)
    found, cut_out = mapper.map(image, grid), model.predict_proba(image[None, :window, :window])
    assert np.abs(found[2:-2, 2:-2] - cut_out[0]).max() < 0.1


def moments(cells, trunk, stage):
    """Return means, deviations and correlations of maps (c, n), by NumPy."""
    covariances = np.cov(trunk.mixing(stage).T.numpy() @ cells, ddof=0)
    std = np.sqrt(covariances.diagonal() + 1e-4)
    units = np.outer(std, std)[np.triu_indices(len(std), 1)]
    between = covariances[np.triu_indices(len(std), 1)] / units
    return np.concatenate([cells.mean(axis=1), cells.std(axis=1), covariances.diagonal() / std, between])


def test_frozen_features_are_statistics_of_the_maps_of_the_whole_image(model):
    """By hand: one patch, windows that consist of whole cells."""
    image, mapper = some_image(96, 96), model.mapper()
    grid = mapper.grid((96, 96), 32, 16)
    assert grid.patches(grid.all_windows) == [Box(0, 0, 96, 96)]
    with torch.no_grad():
        means = mapper._latents(image, grid, grid.all_windows, np.ones((5, 5), dtype=bool))
        found = central_moments(means, mapper._moment_parts(means))
        maps = model.trunk.stages_at(torch.from_numpy(image / np.float32(255))[None, None, ..., 0], (96, 96))
    assert [stage.shape[2] for stage in maps] == [48, 12]
    for row, column in np.ndindex(5, 5):
        half = maps[0][0, :, 8 * row : 8 * row + 16, 8 * column : 8 * column + 16].flatten(1).numpy()
        eighth = maps[1][0, :, 2 * row : 2 * row + 4, 2 * column : 2 * column + 4].flatten(1).numpy()
        expected = np.concatenate([moments(cells, model.trunk, stage) for stage, cells in enumerate((half, eighth))])
        assert np.allclose(found[row, column, : len(expected)], expected, atol=1e-3)


def test_overlaps_by_hand():
    # Cells of 10 pixels from pixel 30 on; the patch is from 40 to 75. Windows 1 to 3 are 20-60, 40-80, 60-100.
    grid = grid_of((200, 200), 40, 20)
    found = overlaps(grid, windows=(1, 4), patch=(40, 75), around=(30, 80), n_cells=5)
    expected = [[0, 10, 10, 0, 0], [0, 10, 10, 10, 5], [0, 0, 0, 10, 5]]
    assert np.allclose(40 * found, expected)


def test_overlaps_with_parts_of_cells():
    # Two cells of 24 pixels; the patch has all of them, the window the pixels from 5 to 37.
    grid = grid_of((48, 48), 32, 5)
    assert np.allclose(32 * overlaps(grid, (1, 2), (0, 48), (0, 48), 2), [[19, 13]])


@pytest.mark.usefixtures("small_pieces")
def test_weights_of_a_window_sum_to_one_over_all_patches():
    grid = grid_of((150, 133), 37, 11)
    sums = np.zeros((grid.rows, grid.columns))
    for patch in grid.patches(grid.all_windows):
        windows, around = grid.touching(patch), grid.around(patch)
        rows = overlaps(grid, windows.row_ends, patch.row_ends, around.row_ends, 9).sum(dim=1)
        columns = overlaps(grid, windows.column_ends, patch.column_ends, around.column_ends, 7).sum(dim=1)
        sums[windows.slices] += np.outer(rows, columns)
    assert sums == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("window", "side", "multiple"), [(64, 224, 32), (50, 224, 32), (56, 224, 32), (37, 32, 8)])
@pytest.mark.usefixtures("small_pieces")
def test_surroundings_keep_the_resolution_and_contain_the_patch(window, side, multiple):
    grid = grid_of((7 * window + 9, 6 * window), window, 10, side=side, multiple=multiple)
    image = Box(0, 0, grid.height, grid.width)
    for patch in grid.patches(grid.all_windows):
        around, halo = grid.around(patch), 2 * grid.reach
        wide = Box(patch.top - halo, patch.left - halo, patch.bottom + halo, patch.right + halo).overlap(image)
        assert around.overlap(wide) == wide
        assert around.overlap(image) == around
        for length, seen in zip(around.shape, grid.network_sides(around), strict=True):
            assert seen % multiple == 0
            assert seen * window == length * side


def test_an_image_that_is_smaller_than_the_surroundings_is_stretched_a_little():
    grid = grid_of((70, 100), 64, 16, side=224, multiple=32)
    around = grid.around(Box(0, 0, 64, 96))
    assert around == Box(0, 0, 70, 100)
    assert grid.network_sides(around) == (256, 352)  # 245 and 350 without rounding


def test_default_window(model):
    assert model.map(some_image(99, 70)).grid.window == 64
    assert model.mapper().default_window((50, 60)) == 50


@pytest.mark.parametrize(
    ("window", "stride", "sentence"),
    [
        (31, 8, "window must be a whole number of pixels and at least 32 for a model with a pretrained net.*; got 31"),
        (40.0, 8, "window must be a whole number of pixels.*; got 40.0"),
        (True, 8, "window must be a whole number of pixels.*; got True"),
        (40, 0, "stride must be a whole number of pixels and at least 1 .*; got 0"),
        (40, "8", "stride must be a whole number of pixels.*; got '8'"),
        (40, 41, "stride must not be larger than the window, which would leave gaps"),
        (128, 8, "The window must fit into the image, got a window of 128 and an image of 99x90 pixels"),
    ],
)
def test_bad_windows_and_strides(model, window, stride, sentence):
    with pytest.raises(ValueError, match=sentence):
        model.map(some_image(99, 90), window, stride)


def test_a_mapper_of_blocks_can_be_sent_to_workers(model, tmp_path):
    image = some_image(72, 90)
    Image.fromarray(image[..., 0]).save(tmp_path / "image.png")
    sent = pickle.loads(pickle.dumps(BlockMapper(model, tmp_path / "image.png", MapSettings(32, 16, View()), "cpu")))
    expected = model.map(image, 32, 16).probabilities
    assert np.array_equal(sent(Box(1, 1, 3, 4)).probabilities, expected[1:3, 1:4])


@pytest.mark.skipif(not has_weights(), reason="the weights of EfficientNet-Lite0 are not installed")
def test_command(tmp_path, monkeypatch, capsys):
    images, labels = textures(4, 36, 36)
    classifier = LMFCNClassifier(
        network="efficientnet-lite0", latent_dim=4, widths=(6,), epochs=1, recipe=Recipe(passes=1), random_state=0
    )
    classifier.fit(images, labels).save(tmp_path / "model.lmfcn")
    image = np.concatenate([np.concatenate(images[i : i + 3], axis=1) for i in (0, 4, 8)])
    Image.fromarray(image).save(tmp_path / "image.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "sys.argv", ["lmfcn", "map", "model.lmfcn", "image.png", "--window", "36", "--stride", "18", "-o", "out"]
    )
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    assert "overlay.png" in capsys.readouterr().out
    expected = classifier.model_.map(image, 36, 18).probabilities
    assert expected.shape == (5, 5, 3)
    assert tifffile.imread(tmp_path / "out" / "probabilities.tif") == pytest.approx(expected, abs=1e-4)
