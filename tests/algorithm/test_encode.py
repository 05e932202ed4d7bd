import copy

import numpy as np
import pytest
import torch

from few_images import TwoSizes, some_images
from lmfcn.algorithm.encode import JoinedImages, encode, encoding_batch, fold_batch_norm, to_batch
from lmfcn.algorithm.network import TextureFCN
from lmfcn.algorithm.refresh import refresh_and_encode

CPU = torch.device("cpu")


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
