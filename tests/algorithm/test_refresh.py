import copy

import numpy as np
import pytest
import torch
from torch import nn

from few_images import TwoSizes, some_images
from lmfcn.algorithm.encode import encode, to_batch
from lmfcn.algorithm.network import TextureFCN
from lmfcn.algorithm.precision import convolutions_in
from lmfcn.algorithm.refresh import _maps_in_memory, refresh_and_encode

CPU = torch.device("cpu")


@pytest.fixture
def network(generator):
    return TextureFCN(2, 5, widths=(4, 6), generator=generator)


def test_refreshed_statistics_by_hand(network, random):
    images = some_images(random, 6)
    refresh_and_encode(network, images, CPU)
    convolved = network.features[0](to_batch(images, CPU))
    norm = network.features[1]
    torch.testing.assert_close(norm.running_mean, convolved.mean(dim=(0, 2, 3)))
    torch.testing.assert_close(norm.running_var, convolved.var(dim=(0, 2, 3), correction=0))


def test_refresh_does_not_depend_on_the_order_of_the_images(network, random):
    images = some_images(random, 96)
    images[:48] //= 4  # sorted by class, the first much darker
    refresh_and_encode(network, images, CPU)
    sorted_by_class = copy.deepcopy(network.features[1])
    convolved = network.features[0](to_batch(images, CPU))
    torch.testing.assert_close(sorted_by_class.running_var, convolved.var(dim=(0, 2, 3), correction=0))
    refresh_and_encode(network, images[random.permutation(96)], CPU)
    torch.testing.assert_close(sorted_by_class.running_var, network.features[1].running_var)


def test_every_image_weighs_the_same_whatever_its_batch(network, random):
    images = TwoSizes(random)
    refresh_and_encode(network, images, CPU)
    means = [network.features[0](to_batch(part, CPU)).mean(dim=(0, 2, 3)) for part in (images.small, images.large)]
    torch.testing.assert_close(network.features[1].running_mean, (40 * means[0] + means[1]) / 41, rtol=1e-3, atol=1e-5)


def test_refresh_forgets_what_was_before(network, random):
    images = some_images(random, 40)
    refresh_and_encode(network, images, CPU)
    expected = copy.deepcopy(network.state_dict())
    refresh_and_encode(network, some_images(random, 9) // 3, CPU)
    refresh_and_encode(network, images, CPU)
    assert all(torch.equal(value, expected[name]) for name, value in network.state_dict().items())


def test_refresh_keeps_weights_momentum_and_gradients(network, random):
    weights = [weight.clone() for weight in network.parameters()]
    refresh_and_encode(network, some_images(random, 4), CPU)
    assert all(torch.equal(a, b) for a, b in zip(weights, network.parameters(), strict=True))
    assert all(layer.momentum == 0.1 for layer in network.modules() if isinstance(layer, nn.BatchNorm2d))
    assert all(weight.grad is None for weight in network.parameters())


def test_refreshed_eval_mode_agrees_with_train_mode(network, random):
    images = some_images(random, 20)
    refresh_and_encode(network, images, CPU)
    latents = encode(network, images, CPU)
    trained = network.train()(to_batch(images, CPU)).detach()
    torch.testing.assert_close(latents, trained, rtol=1e-4, atol=1e-5)


def test_a_refresh_of_many_images_looks_at_some_of_all_of_them(monkeypatch, random):
    monkeypatch.setattr("lmfcn.algorithm.refresh._REFRESH_BYTES", 40 * 4 * (4 * 30))  # first pooled maps of 40 images
    images = some_images(random, 400)
    images[200:] //= 4  # sorted by class, as images often come
    chosen, everyone = (TextureFCN(2, 5, widths=(4, 6)) for _ in range(2))
    latents = refresh_and_encode(chosen, images, CPU)
    monkeypatch.undo()
    assert torch.equal(refresh_and_encode(everyone, images[::10], CPU), latents[::10])
    for name, value in everyone.state_dict().items():
        assert torch.equal(value, chosen.state_dict()[name])
    torch.testing.assert_close(latents, encode(chosen, images, CPU), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pooling", ["last", "all"])
@pytest.mark.parametrize("widths", [(4, 6), (5,), ()])
def test_one_pass_refreshes_and_encodes_like_a_slow_one(widths, pooling, random, generator):
    network = TextureFCN(2, 5, widths=widths, pooling=pooling, generator=generator)
    for _, norm, _ in network.blocks():
        norm.weight.data = torch.randn(len(norm.weight), generator=generator)  # negative factors too
        norm.bias.data = torch.randn(len(norm.bias), generator=generator)
    images = some_images(random, 23)
    slow = copy.deepcopy(network).train()
    for layer in slow.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = 1.0
    expected = slow(to_batch(images, CPU))  # all at once: a batch's statistics are those of all images
    latents = refresh_and_encode(network, images, CPU)
    torch.testing.assert_close(latents, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(encode(network, images, CPU), latents, rtol=1e-4, atol=1e-5)
    for (_, norm, _), (_, slow_norm, _) in zip(network.blocks(), slow.blocks(), strict=True):
        torch.testing.assert_close(norm.running_mean, slow_norm.running_mean, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(norm.running_var, slow_norm.running_var, rtol=0.01, atol=0)  # n - 1 there


def test_large_images_refresh_with_fewer():
    network, small, large = TextureFCN(3), np.zeros((1, 64, 64, 3)), np.zeros((1, 2000, 2000, 3))
    assert _maps_in_memory(network, small) == 1024
    assert _maps_in_memory(network, large) == 1


@pytest.mark.parametrize("images", ["array", "two sizes"])
def test_without_memory_for_the_maps_the_statistics_are_the_same(network, random, monkeypatch, images):
    images = some_images(random, 40) if images == "array" else TwoSizes(random)
    slow = copy.deepcopy(network)
    expected = refresh_and_encode(network, images, CPU)
    monkeypatch.setattr("lmfcn.algorithm.refresh._REFRESH_BYTES", 1)
    monkeypatch.setattr("lmfcn.algorithm.refresh._FEWEST_REFRESHING", 99)
    torch.testing.assert_close(refresh_and_encode(slow, images, CPU), expected, rtol=1e-4, atol=1e-5)
    for name, value in network.state_dict().items():
        torch.testing.assert_close(slow.state_dict()[name], value, rtol=1e-4, atol=1e-6)


def test_double_precision_and_bfloat16(network, random):
    images = some_images(random, 20)
    expected = refresh_and_encode(network, images, CPU)
    double = refresh_and_encode(copy.deepcopy(network).double(), images, CPU)
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), expected, rtol=1e-4, atol=1e-5)
    with convolutions_in(bfloat16=True, device=CPU):
        coarse = refresh_and_encode(network, images, CPU)
    assert coarse.dtype == torch.float32
    assert network.features[1].running_mean.dtype == torch.float32
    torch.testing.assert_close(coarse, expected, rtol=0.1, atol=0.05)


def test_maps_of_a_single_value(generator, random):
    network = TextureFCN(1, 3, (4, 4, 4), generator=generator)
    images = random.integers(0, 256, (1, 8, 8, 1), dtype=np.uint8)
    latents = refresh_and_encode(network, images, CPU)
    assert torch.isfinite(latents).all()
    last = [norm for _, norm, _ in network.blocks()][-1]
    assert (last.running_var == 0).all()
