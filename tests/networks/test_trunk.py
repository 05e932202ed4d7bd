"""The trunk: how images reach a frozen network, and networks that cannot be one."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import interpolate

from lmfcn.compute.moments import correlations, mix, mixing
from lmfcn.method.network import TextureFCN
from lmfcn.networks.trunk import Trunk, check_network, fingerprint, resize
from small_trunk import SmallTrunk


class Echo(nn.Module):
    """Its only stage is what it is given."""

    in_channels, input_size, step = 3, 16, 8
    mean, std = (0.5, 0.25, 0.0), (0.5, 1.0, 2.0)

    def stages(self, batch):
        return [batch]


@pytest.mark.parametrize("sides", [(8, 8), (13, 40), (40, 21), (5, 7)])
def test_resize_agrees_with_torch(sides):
    batch = torch.rand(2, 3, 20, 21, generator=torch.Generator().manual_seed(0))
    expected = interpolate(batch, size=sides, mode="bilinear", antialias=True)
    torch.testing.assert_close(resize(batch, sides), expected, rtol=1e-4, atol=1e-5)


def test_pixels_are_normalised_channel_by_channel():
    pixels = torch.tensor([1.0, 0.5, 0.25])[None, :, None, None].expand(1, 3, 16, 16)
    (maps,) = Trunk(Echo(), channels=3)(pixels)
    assert maps[0, :, 0, 0].tolist() == [(1 - 0.5) / 0.5, (0.5 - 0.25) / 1, 0.25 / 2]


def test_mean_and_std_may_be_arrays_or_tensors():
    pixels = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    other = _with(mean=np.array(Echo.mean), std=torch.tensor(Echo.std))
    assert torch.equal(Trunk(other, channels=3)(pixels)[0], Trunk(Echo(), channels=3)(pixels)[0])


def test_many_channels_are_encoded_in_smaller_batches():
    batches = [Trunk(SmallTrunk(), channels).encoding_batch for channels in (1, 2, 3, 4, 9)]
    assert batches == [4, 2, 4, 1, 1]  # of images: as many passes through the network at once


def test_grey_images_become_equal_channels():
    (maps,) = Trunk(Echo(), channels=1)(torch.full((2, 1, 16, 16), 0.5))
    assert maps[1, :, 3, 3].tolist() == [0.0, 0.25, 0.25]


def test_other_channels_go_through_one_by_one():
    pixels = torch.rand(2, 4, 16, 16, generator=torch.Generator().manual_seed(0))
    many, grey = Trunk(SmallTrunk(), channels=4), Trunk(SmallTrunk(), channels=1)
    assert many.stage_channels == (24, 32)
    assert many.n_features == 2 * 56
    with torch.no_grad():
        found, parts = many(pixels), [grey(pixels[:, [channel]]) for channel in range(4)]
    for stage in range(2):
        expected = torch.cat([part[stage] for part in parts], dim=1)
        torch.testing.assert_close(found[stage], expected)


def test_pixels_are_scaled_to_the_range_of_the_training_images():
    (maps,) = Trunk(Echo(), channels=1, low=0.2, high=0.4)(torch.full((1, 1, 16, 16), 0.1))
    assert maps[0, 2, 0, 0].item() == 0.0  # below the range
    (middle,) = Trunk(Echo(), channels=1, low=0.2, high=0.4)(torch.full((1, 1, 16, 16), 0.3))
    assert middle[0, 2, 0, 0].item() == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [(16, 16, (16, 16)), (200, 200, (16, 16)), (10, 20, (16, 32)), (100, 149, (16, 24)), (10, 1000, (16, 64))],
)
def test_the_shorter_side_becomes_the_input_size(height, width, expected):
    assert Trunk(Echo(), channels=3).input_sides(height, width) == expected


def _with(**attributes):
    return type("Other", (Echo,), attributes)()


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (nn.Identity(), "Identity has no stages"),
        ("text", "got 'text'"),
        (type("Bare", (nn.Module,), {"stages": lambda _, batch: [batch]})(), "Bare has no in_channels"),
        (_with(in_channels=0), "in_channels of the network must be a positive int, got 0"),
        (_with(step=2.5), "step of the network must be a positive int, got 2.5"),
        (_with(input_size=16, step=32), "input_size of the network must be at least its step, got 16 and 32"),
        (_with(mean=(0.5,)), r"mean of the network must have 3 numbers, one per channel, got \(0.5,\)"),
        (_with(mean=0.5), "mean of the network must have 3 numbers, one per channel, got 0.5"),
        (_with(std=(1, 0, 1)), r"std of the network must have 3 positive numbers, .* got \(1, 0, 1\)"),
        (_with(std="abc"), "std of the network must have 3 positive numbers"),
    ],
)
def test_what_a_network_lacks_is_named(network, message):
    with pytest.raises(ValueError, match=message):
        check_network(network)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (lambda _, batch: [batch.mean()], r"must return maps of the shape .* got \[\(\)\]"),
        (lambda *_: [], r"got \[\]"),
        (lambda _, batch: batch.nothing, "stages fails for a batch of the shape"),
    ],
)
def test_stages_that_are_no_maps_are_refused(stages, message):
    with pytest.raises(ValueError, match=message):
        Trunk(_with(stages=stages), channels=3)


def test_a_trained_stage_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="trained_stage of the network must be from 0 to 0, got 3"):
        Trunk(_with(trained_stage=3), channels=3)


def test_the_trained_stage_is_the_last_fine_one_by_default():
    network = _with(
        input_size=64, stages=lambda _, batch: [torch.ones(len(batch), 2, side, side) for side in (16, 4, 2)]
    )
    assert Trunk(network, channels=3).trained_stage == 1


def test_features_by_hand():
    stage = torch.tensor([[[[1.0, 3.0]], [[5.0, 5.0]]]])
    trunk = Trunk(SmallTrunk(), channels=3)
    maps, deviations = trunk.feature_maps([stage], lambda maps: maps.mean(dim=(2, 3)))
    assert maps is stage
    # The first channel has the mean 2 and the standard deviation 1, to which both pixels contribute the same.
    torch.testing.assert_close(deviations, torch.tensor([[[[1.0, 1.0]], [[0.0, 0.0]]]]))


def test_correlations_are_those_of_maps_in_units_of_their_deviations(generator):
    trunk = Trunk(SmallTrunk(), channels=3, correlations=True)
    trunk.stage_std.copy_(torch.linspace(0.5, 2.0, len(trunk.stage_std)))
    stages = trunk(torch.rand(2, 3, 64, 64, generator=generator))
    features = trunk.features(stages, TextureFCN.average)
    assert features.shape == (2, trunk.n_features)
    from_maps = torch.cat([TextureFCN.average(maps) for maps in trunk.feature_maps(stages, TextureFCN.average)], dim=1)
    torch.testing.assert_close(features, from_maps, atol=1e-5, rtol=1e-4)
    first, start = trunk.stage_channels[0], 2 * trunk.stage_channels[0]
    scaled = stages[0] / trunk.stage_std[:first, None, None]
    expected = correlations(mix(scaled, mixing(first, scaled)))
    torch.testing.assert_close(features[:, start : start + expected.shape[1]], expected)
    assert Trunk(SmallTrunk(), channels=3).n_features == 2 * sum(trunk.stage_channels)


def test_the_fingerprint_depends_on_every_weight():
    one, same, other = SmallTrunk(0), SmallTrunk(0), SmallTrunk(1)
    assert fingerprint(one) == fingerprint(same) != fingerprint(other)


def test_weights_are_frozen():
    trunk = Trunk(SmallTrunk(), channels=3)
    assert not any(weights.requires_grad for weights in trunk.parameters())
    assert np.isfinite(trunk(torch.rand(1, 3, 32, 32))[0].numpy()).all()
