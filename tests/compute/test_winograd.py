import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import conv2d

from lmfcn.compute import winograd as convolution
from lmfcn.compute.encode import convolutions_in
from lmfcn.compute.winograd import Convolution, convolve, winograd
from lmfcn.method.network import TextureFCN


def drawn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.fixture
def products(monkeypatch):
    """Count the batches that Winograd's method computes."""
    calls = []
    monkeypatch.setattr(convolution, "winograd", lambda *given: calls.append(given) or winograd(*given))
    return calls


def test_ones_by_hand():
    corner, side, inside = 4.0, 6.0, 9.0  # so many of the nine pixels lie in the image
    expected = [corner, *[side] * 3, corner], *[[side, *[inside] * 3, side]] * 3, [corner, *[side] * 3, corner]
    counted = winograd(torch.ones(1, 1, 5, 5, dtype=torch.float64), torch.ones(1, 1, 3, 3, dtype=torch.float64))
    torch.testing.assert_close(counted[0, 0], torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("row", range(3))
@pytest.mark.parametrize("column", range(3))
def test_a_filter_with_a_single_one_shifts_the_image(row, column):
    image, filters = drawn(1, 1, 7, 6, dtype=torch.float64), torch.zeros(1, 1, 3, 3, dtype=torch.float64)
    filters[0, 0, row, column] = 1.0
    around = torch.nn.functional.pad(image, (1, 1, 1, 1))
    torch.testing.assert_close(winograd(image, filters), around[:, :, row : row + 7, column : column + 6])


@settings(deadline=None, max_examples=40)
@given(
    sizes=st.tuples(*[st.integers(1, 4)] * 3, st.integers(1, 14), st.integers(1, 14)),
    room=st.sampled_from([1, 20_000, 2**22]),
)
def test_it_is_a_convolution(sizes, room):
    n_images, inputs, outputs, height, width = sizes
    batch, filters = (
        drawn(n_images, inputs, height, width, dtype=torch.float64),
        drawn(outputs, inputs, 3, 3, seed=1, dtype=torch.float64),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convolution, "_PRODUCT_BYTES", room)
        torch.testing.assert_close(winograd(batch, filters), conv2d(batch, filters, padding=1))


@pytest.mark.parametrize("room", [1, 2**22])
@pytest.mark.parametrize(("height", "width"), [(4, 8), (5, 7), (1, 2)])
def test_gradients_are_those_of_differences(height, width, room, monkeypatch):
    monkeypatch.setattr(convolution, "_PRODUCT_BYTES", room)
    batch = drawn(3, 2, height, width, dtype=torch.float64).requires_grad_()
    filters = drawn(3, 2, 3, 3, seed=1, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(winograd, (batch, filters), fast_mode=True)


def test_gradients_of_filters_alone():
    batch, filters = drawn(3, 2, 6, 6), drawn(4, 2, 3, 3, seed=1).requires_grad_()
    (ours,) = torch.autograd.grad(winograd(batch, filters).square().sum(), filters)
    (expected,) = torch.autograd.grad(conv2d(batch, filters, padding=1).square().sum(), filters)
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("side", [8, 9])
def test_what_comes_next_may_work_in_place(side):
    batch, filters = drawn(2, 3, side, side), drawn(4, 3, 3, 3, seed=1).requires_grad_()
    (ours,) = torch.autograd.grad(winograd(batch, filters).relu_().sum(), filters)
    (expected,) = torch.autograd.grad(conv2d(batch, filters, padding=1).relu_().sum(), filters)
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


def test_gradients_keep_their_precision_inside_autocast():
    batch, filters = drawn(2, 64, 8, 8), drawn(64, 64, 3, 3, seed=1).requires_grad_()
    (expected,) = torch.autograd.grad(winograd(batch, filters).sum(), filters)
    with convolutions_in(bfloat16=True, device=batch.device):
        (ours,) = torch.autograd.grad(winograd(batch, filters).sum(), filters)
    assert torch.equal(ours, expected)


def test_a_step_of_the_network_is_the_same_either_way(generator, monkeypatch):
    network = TextureFCN(1, 64, generator=generator).train()
    batch = drawn(6, 1, 20, 24)
    network(batch).square().sum().backward()
    ours = [weight.grad.clone() for weight in network.parameters()]
    monkeypatch.setattr(convolution, "_is_faster", lambda *_: False)
    network.zero_grad()
    network(batch).square().sum().backward()
    for weight, slope in zip(network.parameters(), ours, strict=True):
        torch.testing.assert_close(slope, weight.grad, rtol=1e-3, atol=1e-4 * float(weight.grad.abs().max()))


def test_repeated_calls_agree_to_the_bit():
    batch, filters = drawn(6, 64, 16, 16), drawn(128, 64, 3, 3, seed=1).requires_grad_()
    one, same = winograd(batch, filters), winograd(batch, filters)
    assert torch.equal(one, same)
    assert torch.equal(*(torch.autograd.grad(maps.square().sum(), filters)[0] for maps in (one, same)))


def test_rounding_errors_are_as_small_as_promised():
    batch, filters = drawn(4, 64, 32, 32).relu(), drawn(128, 64, 3, 3, seed=1) / 24
    exact = conv2d(batch.double(), filters.double(), padding=1)
    assert (winograd(batch, filters) - exact).abs().max() < 2e-5 * exact.abs().max()


def test_images_of_zeros_stay_exactly_zero():
    assert (winograd(torch.zeros(2, 64, 9, 9), drawn(64, 64, 3, 3)) == 0).all()


def test_channels_stay_last_in_memory():
    batch = drawn(2, 64, 13, 16).to(memory_format=torch.channels_last).requires_grad_()
    maps = winograd(batch, drawn(64, 64, 3, 3))
    (slope,) = torch.autograd.grad(maps.sum(), batch)
    assert maps.is_contiguous(memory_format=torch.channels_last)
    assert slope.is_contiguous(memory_format=torch.channels_last)


def test_the_order_of_memory_does_not_matter():
    batch, filters = drawn(2, 3, 9, 10), drawn(4, 3, 3, 3)
    turned = batch.transpose(2, 3).contiguous().transpose(2, 3)
    torch.testing.assert_close(winograd(turned, filters), winograd(batch, filters))


@pytest.mark.parametrize(
    ("inputs", "outputs", "side", "is_faster"),
    [
        (64, 128, 32, True),
        (128, 64, 16, True),
        (128, 64, 8, True),
        (128, 16, 32, False),  # the paper's last layer: too few filters
        (3, 64, 64, False),  # pixels
        (64, 128, 5, False),  # four tiles for hardly more than one
        (64, 128, 520, False),  # more memory than it is worth
    ],
)
def test_it_is_used_where_it_costs_less_than_half(products, inputs, outputs, side, is_faster):
    batch, filters = torch.ones(1, inputs, side, side), drawn(outputs, inputs, 3, 3)
    maps = convolve(batch, filters)
    assert len(products) == is_faster
    torch.testing.assert_close(
        maps[..., :5, :5], conv2d(batch[..., :6, :6], filters, padding=1)[..., :5, :5], rtol=1e-4, atol=1e-3
    )


def test_other_precisions_are_left_to_torch(products):
    batch, filters = drawn(1, 64, 16, 16), drawn(128, 64, 3, 3)
    assert torch.equal(convolve(batch.double(), filters.double()), conv2d(batch.double(), filters.double(), padding=1))
    with convolutions_in(bfloat16=True, device=batch.device):
        assert convolve(batch, filters).dtype == torch.bfloat16
    assert not products


def test_only_training_takes_the_fast_way(products):
    layer, batch = Convolution(64, 128), drawn(2, 64, 16, 16)
    slow = layer.eval()(batch)
    assert torch.equal(slow, conv2d(batch, layer.weight, padding=1))
    assert not products
    torch.testing.assert_close(layer.train()(batch), slow, rtol=1e-4, atol=1e-4)
    assert len(products) == 1


def test_a_bias_is_not_forgotten():
    layer, batch = Convolution(64, 128, bias=True), drawn(2, 64, 16, 16)
    torch.testing.assert_close(layer.train()(batch), layer.eval()(batch))


def test_a_copy_and_a_pickle_are_the_same_layer():
    layer, batch = Convolution(64, 64).train(), drawn(1, 64, 8, 8)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert isinstance(other, Convolution)
        assert torch.equal(other(batch), layer(batch))


def test_tracing_leaves_nothing_behind():
    convolution._matrices.cache_clear()
    with FakeTensorMode():
        winograd(torch.empty(1, 2, 4, 4), torch.empty(2, 2, 3, 3))
    batch, filters = drawn(1, 2, 4, 4), drawn(2, 2, 3, 3)
    torch.testing.assert_close(winograd(batch, filters), conv2d(batch, filters, padding=1), rtol=1e-4, atol=1e-4)
