import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from few_images import TwoSizes, some_images
from lmfcn.compute.encode import (
    JoinedImages,
    _maps_in_memory,
    convolutions_in,
    encode,
    encoding_batch,
    fold_batch_norm,
    has_bfloat16,
    refresh_and_encode,
    to_batch,
    uses_bfloat16,
)
from lmfcn.method.network import TextureFCN
from some_training import QUICK, problem_of, training_of

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx512_bf16": True}, True),
        ({"amx_bf16": True}, True),
        ({"avx512_bf16": False, "avx2": True}, False),
        ({}, False),
    ],
)
def test_the_hardware_is_asked(monkeypatch, capabilities, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert has_bfloat16(CPU) is expected


@pytest.mark.parametrize("fast", [False, True])
def test_bfloat16_is_used_where_it_is_asked_for_or_fast(monkeypatch, fast):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": fast}, raising=False)
    assert [uses_bfloat16(name, CPU) for name in ("auto", "float32", "bfloat16")] == [fast, False, True]


def test_other_devices_are_asked_too(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *, including_emulation: not including_emulation)
    assert has_bfloat16(torch.device("cuda"))
    assert not has_bfloat16(torch.device("mps"))


def test_only_convolutions_change():
    matrix = torch.rand(1, 1, 4, 4)
    convolve = torch.nn.Conv2d(1, 1, 3)
    with convolutions_in(bfloat16=True, device=CPU):
        assert convolve(matrix).dtype == torch.bfloat16
    with convolutions_in(bfloat16=False, device=CPU):
        assert convolve(matrix).dtype == torch.float32


def test_training_in_bfloat16_learns_and_keeps_float32_weights(textures):
    recipe = replace(QUICK, epochs=6, passes=3, precision="bfloat16")
    training = training_of(problem_of(textures), recipe)
    selected = training.run().selected
    assert training.descent.bfloat16
    assert training.history[-1].train_balanced_accuracy > 0.9
    assert all(weight.dtype == torch.float32 for weight in selected.network.parameters())
    assert selected.decision.support_latents.dtype == torch.float32
    same = training_of(problem_of(textures), recipe)
    same.run()
    assert same.history.column("support_loss") == training.history.column("support_loss")
    plain = training_of(problem_of(textures), replace(recipe, precision="float32"))
    plain.run()
    assert plain.history.column("support_loss") != training.history.column("support_loss")


def test_the_first_epoch_is_nearly_the_same_in_both(textures):
    records = [
        training_of(problem_of(textures), replace(QUICK, precision=name)).train_epoch(0)[0]
        for name in ("float32", "bfloat16")
    ]
    assert records[0].support_loss == pytest.approx(records[1].support_loss, rel=0.1)


@pytest.fixture
def network(generator):
    return TextureFCN(2, 5, widths=(4, 6), generator=generator)


@pytest.mark.parametrize(("dtype", "largest"), [(np.uint8, 255), (np.uint16, 65535), (np.float64, 1), (np.float32, 1)])
def test_pixels_are_scaled_by_the_range_of_their_type(dtype, largest):
    images = np.full((1, 8, 8, 3), largest, dtype=dtype)
    images[0, 2, 5, 1] = 0
    batch = to_batch(images, CPU)
    assert batch.dtype == torch.float32
    assert batch.shape == (1, 3, 8, 8)
    assert batch[0, 1, 2, 5] == 0
    assert batch.sum() == 3 * 64 - 1


def test_arrays_that_run_backwards_can_be_read(random):
    images = some_images(random, 3)
    assert torch.equal(to_batch(images[:, ::-1], CPU), to_batch(images, CPU).flip(2))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_read_only_images_are_left_alone(random, dtype):
    images = some_images(random, 3, dtype)
    images.setflags(write=False)
    before = images.copy()
    to_batch(images, CPU).mul_(0)
    assert np.array_equal(images, before)


def test_encoding_many_is_encoding_each(network, random):
    images = some_images(random, 70)
    network.eval()
    one_by_one = torch.cat([network(to_batch(image[None], CPU)) for image in images]).detach()
    latents = encode(network, images, CPU)
    torch.testing.assert_close(latents, one_by_one)
    assert not latents.requires_grad


def test_encoding_ends_in_eval_mode_and_changes_nothing(network, random):
    state = copy.deepcopy(network.state_dict())
    network.train()
    encode(network, some_images(random, 5), CPU)
    assert not network.training
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())


def test_images_of_two_sizes_are_encoded_in_their_order(network, random):
    images = TwoSizes(random)
    latents = encode(network, images, CPU)
    torch.testing.assert_close(latents[:40], encode(network, images.small, CPU))
    torch.testing.assert_close(latents[40:], encode(network, images.large, CPU))


def test_folding_batch_norm_changes_nothing_but_the_last_digits(generator):
    network = TextureFCN(3, 5, (6, 7), generator=generator)
    images = np.random.default_rng(0).integers(0, 255, (9, 20, 17, 3), dtype=np.uint8)
    refresh_and_encode(network, images, CPU)
    folded = fold_batch_norm(network)
    assert not any(isinstance(layer, torch.nn.BatchNorm2d) for layer in folded.modules())
    assert sum(isinstance(layer, torch.nn.BatchNorm2d) for layer in network.modules()) == 3
    batch = to_batch(images, CPU)
    with torch.no_grad():
        torch.testing.assert_close(folded(batch), network(batch), rtol=1e-5, atol=1e-6)
    # Inside other modules too.
    head = torch.nn.Sequential(network, torch.nn.Linear(5, 2))
    torch.testing.assert_close(fold_batch_norm(head)(batch), head(batch), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("side", "expected"), [(8, 256), (64, 8), (128, 2), (200, 1), (1000, 1)])
def test_large_images_are_encoded_in_small_batches(side, expected):
    images = np.broadcast_to(np.uint8(0), (300, side, side, 1))
    assert encoding_batch(TextureFCN(1), images, CPU) == expected
    assert encoding_batch(TextureFCN(1), images, torch.device("cuda")) == min(256, max(1, 2**28 // 256 // side**2))


def test_joined_images_are_encoded_as_their_parts_are(network, random):
    parts = some_images(random, 7), TwoSizes(random), some_images(random, 5)
    joined = JoinedImages(JoinedImages(*parts[:2]), parts[2])
    assert len(joined) == 7 + 41 + 5
    assert joined.sizes()[[0, 7, 47, 48]].tolist() == [[12, 10], [12, 12], [20, 20], [12, 10]]
    torch.testing.assert_close(encode(network, joined, CPU), torch.cat([encode(network, part, CPU) for part in parts]))


def test_joined_images_come_in_the_order_that_is_asked_for(random):
    first, second = some_images(random, 6), some_images(random, 4)
    joined, order = JoinedImages(first, second), random.permutation(10)
    assert np.array_equal(joined.batch(order), np.concatenate([first, second])[order])
    assert np.array_equal(joined.batch(np.array([9])), second[3:])


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
    monkeypatch.setattr("lmfcn.compute.encode._REFRESH_BYTES", 40 * 4 * (4 * 30))  # first pooled maps of 40 images
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
    monkeypatch.setattr("lmfcn.compute.encode._REFRESH_BYTES", 1)
    monkeypatch.setattr("lmfcn.compute.encode._FEWEST_REFRESHING", 99)
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
