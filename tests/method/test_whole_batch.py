"""A batch in pieces against the same batch at once."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from few_images import TwoSizes, some_images
from lmfcn import make_gaussians
from lmfcn.compute.encode import convolutions_in, encode, to_batch
from lmfcn.method.anchors import analyse_latents
from lmfcn.method.backpropagation import Augmentation, Descent
from lmfcn.method.epoch import Problem, Training
from lmfcn.method.history import Stopwatch
from lmfcn.method.network import TextureFCN
from lmfcn.method.whole_batch import bytes_per_image, latents_in_pieces
from lmfcn.recipe import Recipe

CPU = torch.device("cpu")
PAPER = Recipe(
    epochs=3,
    refit_epochs=0,
    sh_close=1,
    standardize=False,
    support_loss="pull",
    distance_units="latent",
    batch_size="all",
    passes=1,
    anchor_weight=1.0,
    head_weight=0.0,
    augmentation="none",
    precision="float32",
)


def drawn_network(widths=(4, 6), pooling="last", *, deviations=False):
    """A network in double precision whose normalisations have factors of both signs."""
    generator = torch.Generator().manual_seed(0)
    network = TextureFCN(2, 5, widths, pooling=pooling, deviations=deviations, generator=generator)
    for _, norm, _ in network.blocks():
        norm.weight.data = torch.randn(len(norm.weight), generator=generator)
        norm.bias.data = torch.randn(len(norm.bias), generator=generator)
    return network.double().train()


def some_loss(latents):
    """Not linear, and no sum over images."""
    return (latents @ latents.T).square().mean() + latents[:, 0].exp().sum()


def gradients(network, latents):
    network.zero_grad()
    some_loss(latents).backward()
    return [weight.grad.clone() for weight in network.parameters()]


@pytest.mark.parametrize("pooling", ["last", "all"])
@pytest.mark.parametrize("widths", [(4, 6), (5,), (), (3, 4, 5)])
@pytest.mark.parametrize("deviations", [False, True])
@pytest.mark.parametrize("size", [1, 3, 5, 12, 13])
def test_pieces_have_the_latents_and_gradients_of_the_whole(size, widths, pooling, deviations, random):
    network, batch = (
        drawn_network(widths, pooling, deviations=deviations),
        to_batch(some_images(random, 13), CPU).double(),
    )
    whole, pieces = network(batch), latents_in_pieces(network, lambda part: batch[part], 13, size)
    torch.testing.assert_close(pieces, whole, rtol=0, atol=1e-11)
    expected = gradients(network, whole)
    for found, gradient in zip(gradients(network, pieces), expected, strict=True):
        assert float((found - gradient).abs().max()) <= 1e-9 * max(1.0, float(gradient.abs().max()))
        assert float(gradient.abs().max()) > 1e-6


def test_gradients_agree_with_finite_differences(random):
    network, batch = drawn_network((3,)), to_batch(some_images(random, 5), CPU).double()
    found = gradients(network, latents_in_pieces(network, lambda part: batch[part], 5, 2))
    for weight, gradient in zip(network.parameters(), found, strict=True):
        values, place = [], (1,) * weight.ndim
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                weight[place] += step
                values.append(float(some_loss(network(batch))))
                weight[place] -= step
        assert float(gradient[place]) == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-4, abs=1e-5)


def test_one_piece_is_in_memory_at_a_time(random):
    network, batch, seen = drawn_network(), to_batch(some_images(random, 13), CPU), []

    def pixels(part):
        seen.append(part.stop - part.start)
        return batch[part]

    some_loss(latents_in_pieces(network, pixels, 13, 4)).backward()
    assert set(seen) == {3, 4}
    assert sum(seen) == 13 * (3 + 1 + 2 + 1 + 1)  # statistics, latents, their gradients, all weights, the first filters


def test_running_averages_are_left_alone(random):
    network, batch = drawn_network(), to_batch(some_images(random, 6), CPU)
    before = copy.deepcopy(dict(network.named_buffers()))
    some_loss(latents_in_pieces(network, lambda part: batch[part], 6, 2)).backward()
    assert all(torch.equal(value, before[name]) for name, value in network.named_buffers())


def test_bfloat16_stays_bfloat16_when_gradients_are_computed_later(random):
    network, batch = drawn_network().float(), to_batch(some_images(random, 12), CPU)
    with convolutions_in(bfloat16=True, device=CPU):
        whole = network(batch)
        pieces = latents_in_pieces(network, lambda part: batch[part], 12, 5)
    torch.testing.assert_close(pieces, whole, rtol=0.05, atol=0.05)
    expected = gradients(network, whole)
    for found, gradient in zip(gradients(network, pieces), expected, strict=True):
        assert float((found - gradient).norm()) <= 0.1 * float(gradient.norm())


def test_augmented_parts_are_parts_of_the_augmented_batch(generator):
    batch = torch.rand(11, 2, 4, 4)
    augmentation = Augmentation(11, "dihedral", generator, square=True)
    parts = [slice(0, 5), slice(5, 6), slice(6, 11)]
    in_parts = torch.cat([augmentation.apply(batch[part], part) for part in parts])
    assert torch.equal(in_parts, augmentation.apply(batch))


def test_memory_of_an_image_by_hand():
    network = TextureFCN(3, 16, (64, 128))
    # 19 bytes for each value in front of a pooling, 16 behind: 200 images of 128x128 take 6 GB.
    assert bytes_per_image(network, 128, 128) == 19 * (64 * 128**2 + 128 * 64**2) + 16 * 16 * 32**2
    assert bytes_per_image(TextureFCN(1, 2, (4,)), 5, 7) == 19 * 4 * 35 + 16 * 2 * 12


def descended(images, labels, recipe, map_bytes):
    """The gradients of every step of an epoch, and the number of images."""
    generator, steps = torch.Generator().manual_seed(0), []
    network = TextureFCN(2, 5, (4, 6), generator=generator).double()
    space = analyse_latents(encode(network, images, CPU), labels, recipe, Stopwatch())
    descent = Descent(network, labels, recipe, generator, map_bytes)
    if descent.head is not None:
        torch.nn.init.uniform_(descent.head.double().linear.weight, generator=torch.Generator().manual_seed(2))
    descent.optimizer.register_step_pre_hook(lambda *_: steps.append([w.grad.clone() for w in network.parameters()]))
    return descent.back_propagate(images, space, epoch=0), steps


@pytest.mark.parametrize("n_fitting", [1, 7, 39])
@pytest.mark.parametrize(
    "recipe", [PAPER, replace(PAPER, augmentation="dihedral", head_weight=1.0)], ids=["paper", "dihedral"]
)
@pytest.mark.parametrize("sizes", ["one size", "two sizes"])
def test_an_epoch_takes_the_same_steps_within_less_memory(sizes, recipe, n_fitting, random):
    images = TwoSizes(random) if sizes == "two sizes" else some_images(random, 41)
    labels = torch.arange(41) % 2
    n_whole, whole = descended(images, labels, recipe, map_bytes=2**40)
    memory = n_fitting * bytes_per_image(TextureFCN(2, 5, (4, 6)), 12, 12 if sizes == "two sizes" else 10)
    n_pieces, pieces = descended(images, labels, recipe, memory)
    assert n_whole == n_pieces > 10
    assert len(whole) == len(pieces) == (2 if sizes == "two sizes" else 1)
    for one, other in zip(whole, pieces, strict=True):
        for expected, found in zip(one, other, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_a_mini_batch_is_never_cut(random):
    images, labels = some_images(random, 40), torch.arange(40) % 2
    recipe = replace(PAPER, batch_size=16)
    whole, cut = (descended(images, labels, recipe, memory)[1] for memory in (2**40, 1))
    assert all(
        torch.equal(a, b) for one, other in zip(whole, cut, strict=True) for a, b in zip(one, other, strict=True)
    )


def trained(map_bytes):
    images, labels = make_gaussians(20, 16, random_state=0, stds=(20, 30))
    problem = Problem(images[..., None], torch.from_numpy(labels))
    generator = torch.Generator().manual_seed(1)
    network = TextureFCN(1, 4, (6, 8), generator=generator)
    recipe = replace(PAPER, optimizer="adadelta", learning_rate=0.1, weight_decay=0.1, fallback_anchors=True)
    return Training(network, problem, recipe, generator, map_bytes=map_bytes).run()


def test_a_training_in_pieces_ends_where_the_other_one_does():
    whole, pieces = trained(2**40), trained(4 * bytes_per_image(TextureFCN(1, 4, (6, 8)), 16, 16))
    for name in ("n_backpropagated", "n_support", "n_misclassified"):
        assert whole.history.column(name) == pieces.history.column(name)
    np.testing.assert_allclose(pieces.history.column("support_loss"), whole.history.column("support_loss"), rtol=1e-3)
    for name, value in whole.selected.network.state_dict().items():
        torch.testing.assert_close(pieces.selected.network.state_dict()[name], value, rtol=1e-3, atol=1e-4)


def test_pieces_give_the_same_bits_every_time():
    one, other = (trained(10**4).selected.network.state_dict() for _ in range(2))
    assert all(torch.equal(value, other[name]) for name, value in one.items())
