import numpy as np
import pytest
import torch
from torch import nn

from lmfcn.compute.encode import fold_batch_norm
from lmfcn.method.network import TextureFCN, reduce_pixels


def test_layers_and_shapes_are_those_of_table_1():
    network = TextureFCN(in_channels=3, latent_dim=16)
    shapes, batch = [], torch.rand(2, 3, 32, 48)
    for layer in network.features:
        batch = layer(batch)
        if isinstance(layer, nn.Conv2d | nn.MaxPool2d):
            shapes.append(tuple(batch.shape[1:]))
    assert shapes == [(64, 32, 48), (64, 16, 24), (128, 16, 24), (128, 8, 12), (16, 8, 12)]
    kinds = [type(layer).__name__ for layer in network.features]
    block = ["Convolution", "BatchNorm2d"]
    assert kinds == [*block, "MaxPool2d", "ReLU", *block, "MaxPool2d", "ReLU", *block, "ReLU"]


def test_pooling_before_relu_gives_what_relu_before_pooling_gives():
    network, batch = TextureFCN(2, 5, (4, 6)), torch.randn(3, 2, 14, 11)
    network(batch)  # moves the statistics away from 0 and 1
    conv1, norm1, pool, relu, conv2, norm2, _, _, conv3, norm3, _ = network.eval().features
    expected = pool(relu(norm1(conv1(batch))))
    expected = pool(relu(norm2(conv2(expected))))
    expected = relu(norm3(conv3(expected))).mean(dim=(2, 3))
    assert torch.equal(network(batch), expected)


def test_number_of_weights_by_hand():
    weights = sum(weight.numel() for weight in TextureFCN(3, 16).parameters())
    convolutions = 9 * (3 * 64 + 64 * 128 + 128 * 16)
    assert weights == convolutions + 2 * (64 + 128 + 16)


def test_output_is_the_mean_of_the_last_maps():
    network, batch = TextureFCN(1, 4).eval(), torch.rand(2, 1, 16, 16)
    torch.testing.assert_close(network(batch), network.features(batch).flatten(2).mean(dim=2))


@pytest.mark.parametrize(("channels", "height", "width"), [(1, 8, 8), (3, 9, 31), (7, 64, 40)])
def test_any_channels_and_any_size_from_8_up(channels, height, width):
    network = TextureFCN(channels, 5, widths=(4, 6))
    assert network(torch.rand(1, channels, height, width)).shape == (1, 5)


def test_widths_set_the_depth():
    network = TextureFCN(1, 5, widths=(4, 6, 8))
    convolutions = [layer.out_channels for layer in network.features if isinstance(layer, nn.Conv2d)]
    assert convolutions == [4, 6, 8, 5]


def test_weights_come_from_the_generator_and_leave_the_global_one_alone():
    before = torch.get_rng_state()
    one, same = (TextureFCN(1, 4, generator=torch.Generator().manual_seed(7)) for _ in range(2))
    other = TextureFCN(1, 4, generator=torch.Generator().manual_seed(8))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.features[0].weight, same.features[0].weight)
    assert not torch.equal(one.features[0].weight, other.features[0].weight)


def test_latents_of_all_layers_are_the_means_of_their_maps(generator, random):
    network = TextureFCN(2, 5, widths=(4, 6), pooling="all", generator=generator).eval()
    batch = torch.from_numpy(random.random((3, 2, 12, 10), dtype=np.float32))
    first = network.features[:4](batch)  # convolution, batch normalisation, pooling, ReLU
    second = network.features[4:8](first)
    expected = torch.cat([maps.mean(dim=(2, 3)) for maps in (first, second, network.features[8:](second))], dim=1)
    latents = network(batch)
    assert latents.shape == (3, network.n_latents) == (3, 15)
    torch.testing.assert_close(latents, expected)
    last = TextureFCN(2, 5, widths=(4, 6)).eval()
    last.load_state_dict(network.state_dict())
    assert torch.equal(last(batch), latents[:, 10:])
    assert last.n_latents == 5


def test_all_layers_learn_from_their_latents(generator):
    network = TextureFCN(1, 3, widths=(4,), pooling="all", generator=generator)
    network(torch.rand(2, 1, 8, 8, generator=generator))[:, :4].square().sum().backward()
    weights = [layer.weight.grad for layer in network.features if isinstance(layer, nn.Conv2d)]
    assert weights[0].abs().sum() > 0
    assert weights[1] is None or weights[1].abs().sum() == 0


@pytest.mark.parametrize("pooling", ["last", "all"])
def test_deviations_follow_the_means_of_their_block(generator, random, pooling):
    """The slow twin: NumPy on the maps of every block."""
    network = TextureFCN(2, 5, widths=(4, 6), pooling=pooling, deviations=True, generator=generator).eval()
    batch = torch.from_numpy(random.random((3, 2, 12, 10), dtype=np.float32))
    with torch.no_grad():
        blocks = [maps.numpy() for maps in network.block_maps(batch)]
        latents = network(batch)
    expected = [part(maps, axis=(2, 3)) for maps in blocks for part in (np.mean, np.std)]
    assert latents.shape == (3, network.n_latents) == (3, 2 * (15 if pooling == "all" else 5))
    np.testing.assert_allclose(latents, np.concatenate(expected, axis=1), atol=2e-3)
    means = network.with_moments(0)(batch).detach()
    np.testing.assert_allclose(latents[:, network.moment_orders() == 0], means)


@pytest.mark.parametrize("pooling", ["last", "all"])
def test_correlations_follow_the_deviations_of_their_block(generator, random, pooling):
    """The slow twin: NumPy on the maps of every block, which are so few that they are not mixed."""
    network = TextureFCN(2, 3, (4, 5), pooling=pooling, deviations=True, correlations=True, generator=generator).eval()
    batch = torch.from_numpy(random.random((3, 2, 16, 12), dtype=np.float32))
    with torch.no_grad():
        blocks = [maps.flatten(2).double().numpy() for maps in network.block_maps(batch)]
        latents = network(batch)
    expected = []
    for maps in blocks:
        covariances = np.stack([np.cov(image, ddof=0) for image in maps])
        std = np.sqrt(covariances.diagonal(axis1=1, axis2=2) + 1e-4)
        pairs = np.triu_indices(maps.shape[1], 1)
        between = covariances[:, *pairs] / (std[:, pairs[0]] * std[:, pairs[1]])
        expected += [maps.mean(axis=2), maps.std(axis=2), std - 1e-4 / std, between]
    assert latents.shape == (3, network.n_latents)
    np.testing.assert_allclose(latents, np.concatenate(expected, axis=1), atol=2e-3)
    from_maps = torch.cat([network.average(maps) for maps in network.maps(batch)], dim=1).detach()
    np.testing.assert_allclose(latents, from_maps, atol=1e-5)
    without = network.with_moments(1)(batch).detach()
    assert torch.equal(latents[:, network.moment_orders() < 2], without)


def test_which_latents_are_means():
    orders = TextureFCN(1, 2, widths=(3,), pooling="all", deviations=True, correlations=True).moment_orders()
    assert orders.tolist() == [0] * 3 + [1] * 3 + [2] * 6 + [0] * 2 + [1] * 2 + [2] * 3
    assert TextureFCN(1, 2, widths=(3,)).moment_orders().tolist() == [0] * 2


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_the_gradient_of_latents_with_deviations(generator, mode):
    options = {"widths": (2,), "pooling": "all", "deviations": True, "reduction": 2}
    network = TextureFCN(1, 2, **options, generator=generator).double()
    network.train(mode == "train")
    batch = torch.rand(2, 1, 8, 10, dtype=torch.float64, generator=generator, requires_grad=True)
    assert torch.autograd.gradcheck(network, batch)


def test_constant_maps_have_a_deviation_of_zero_and_a_finite_gradient(generator):
    network = TextureFCN(1, 3, widths=(), deviations=True, generator=generator).eval()
    with torch.no_grad():
        next(network.blocks())[0].weight.zero_()
    latents = network(torch.full((2, 1, 8, 8), 0.3))
    assert torch.equal(latents[:, 3:], torch.zeros(2, 3))
    latents.sum().backward()
    assert all(bool(weight.grad.isfinite().all()) for weight in network.parameters())


def test_images_are_reduced_by_the_means_of_squares():
    image = torch.tensor([[[[0.0, 2.0, 8.0, 8.0, 1.0], [4.0, 6.0, 0.0, 0.0, 1.0], [9.0, 9.0, 9.0, 9.0, 9.0]]]])
    assert reduce_pixels(image, 2).tolist() == [[[[3.0, 4.0]]]]  # what is left at the far sides does not count
    assert reduce_pixels(image, 1) is image


def test_a_reducing_network_sees_what_another_sees_of_reduced_images(generator):
    plain, reducing = (TextureFCN(1, 3, (4,), pooling="all", reduction=factor).eval() for factor in (1, 4))
    batch = torch.rand(2, 1, 43, 34, generator=generator)
    assert torch.equal(reducing(batch), plain(reduce_pixels(batch, 4)))


def test_a_fixed_first_block_gets_no_gradient_and_keeps_its_statistics(generator):
    network = TextureFCN(1, 3, (4, 5), generator=generator)
    network.fix_first_block()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    optimizer = torch.optim.SGD([weight for weight in network.parameters() if weight.requires_grad], lr=0.1)
    for _ in range(2):
        network.eval()
        network.train()
        network(torch.rand(4, 1, 12, 12, generator=generator)).square().sum().backward()
        optimizer.step()
    first = [name for name in before if name.startswith(("features.0.", "features.1."))]
    assert len(first) == 6
    after = network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in first)
    assert not any(torch.equal(before[name], after[name]) for name in before if name not in first)
    assert all(weight.grad is None for weight in list(network.parameters())[:3])


def test_a_fixed_first_block_has_the_maps_of_its_layers(generator):
    network = TextureFCN(2, 3, (8, 5), generator=generator)
    network(torch.rand(4, 2, 12, 12, generator=generator))  # running statistics that are not 0 and 1
    network.fix_first_block()
    batch = torch.rand(3, 2, 13, 10, generator=generator)
    expected = network.eval().features[:4](batch)
    assert torch.allclose(network.train()._fixed_block(batch), expected, atol=1e-6)
    (maps,) = network.block_maps(batch)
    assert torch.allclose(maps, network.features[4:](expected), atol=1e-5)


def test_a_fixed_first_block_can_be_folded():
    network = TextureFCN(1, 3, (4, 5))
    network.fix_first_block()
    folded = fold_batch_norm(network.eval())
    assert torch.equal(folded.train().eval()(torch.ones(1, 1, 8, 8)), fold_batch_norm(network)(torch.ones(1, 1, 8, 8)))
