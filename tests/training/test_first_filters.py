import numpy as np
import pytest
import torch

from lmfcn.method.network import TextureFCN
from lmfcn.training import first_filters
from lmfcn.training.first_filters import decorrelate_first_filters, decorrelation, inverse_root, patch_covariance


@pytest.fixture
def network(generator):
    return TextureFCN(2, 4, (6, 4), generator=generator)


def slow_patches(images: np.ndarray) -> np.ndarray:
    """Every 3x3 patch of 8-bit images as a row, channel by channel."""
    rows = []
    for image in images / 255.0:
        for i in range(image.shape[0] - 2):
            for j in range(image.shape[1] - 2):
                rows.append([image[i + a, j + b, c] for c in range(image.shape[2]) for a in range(3) for b in range(3)])
    return np.array(rows)


def test_the_covariance_is_that_of_all_patches(random):
    images = random.integers(0, 256, (3, 6, 7, 2)).astype(np.uint8)
    expected = np.cov(slow_patches(images).T, bias=True)
    np.testing.assert_allclose(patch_covariance(images, 3).numpy(), expected, atol=1e-7)


def test_the_inverse_root_by_hand():
    found = inverse_root(torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64)), damping=0.5)
    torch.testing.assert_close(found, torch.diag(torch.tensor([0.5, 0.5**0.5], dtype=torch.float64)))


def test_half_of_the_filters_see_decorrelated_patches(network, random):
    smooth = random.normal(128, 40, (20, 4, 4, 2)).repeat(4, axis=1).repeat(4, axis=2)  # neighbours are equal
    images = (smooth + random.normal(0, 4, smooth.shape)).clip(0, 255).astype(np.uint8)
    before = network.features[0].weight.detach().clone()
    decorrelate_first_filters(network, decorrelation(images))
    after = network.features[0].weight.detach()
    assert torch.equal(after[::2], before[::2])
    torch.testing.assert_close(after.flatten(1).norm(dim=1), before.flatten(1).norm(dim=1))
    # The answers of two random filters are nearly the same on smooth patches, those of the new ones are not.
    patches = torch.from_numpy(slow_patches(images)).float()

    def likeness(filters):
        answers = torch.corrcoef(filters[1::2].flatten(1) @ patches.T)
        return float((answers - torch.eye(len(answers))).abs().mean())

    assert likeness(after) < 0.7 * likeness(before)


@pytest.mark.parametrize(
    "images",
    [
        *(np.full((20, 32, 32, 2), value, np.uint8) for value in (0, 7, 77, 255)),
        np.arange(32, dtype=np.uint8).reshape(4, 2, 2, 2),
    ],
    ids=["black", "dark", "grey", "white", "smaller than a filter"],
)
def test_filters_stay_where_images_say_nothing(network, images):
    before = network.features[0].weight.detach().clone()
    assert decorrelation(images) is None
    decorrelate_first_filters(network, None)
    assert torch.equal(network.features[0].weight, before)


def test_large_images_give_some_of_their_patches(random):
    images = random.integers(0, 256, (1, 300, 200, 1)).astype(np.uint8)
    covariance = patch_covariance(images, 3)
    torch.testing.assert_close(covariance, torch.eye(9, dtype=torch.float64) / 12, atol=0.01, rtol=0)


def test_many_channels_take_fewer_patches(random, monkeypatch):
    images = random.integers(0, 256, (4, 40, 40, 3)).astype(np.uint16)
    monkeypatch.setattr(first_filters, "_MOST_WORK", 1.0)  # which leaves 16 patches for each of the 27 values
    seen = sum(len(patches) for patches in first_filters._patches(images, 3))
    assert 16 * 27 / 2 < seen <= 16 * 27
    assert decorrelation(images).shape == (27, 27)


def test_images_of_mixed_sizes_and_depths(random):
    class Lazy:
        def __init__(self, images):
            self.images, self.size_numbers = images, np.arange(len(images))

        def __len__(self):
            return len(self.images)

        def batch(self, positions):
            return np.stack([self.images[position] for position in positions])

    images = [random.integers(0, 65536, (size, size + 1, 1)).astype(np.uint16) for size in (5, 9, 2)]
    expected = np.cov(np.concatenate([slow_patches(image[None] / 257.0) for image in images[:2]]).T, bias=True)
    np.testing.assert_allclose(patch_covariance(Lazy(images), 3).numpy(), expected, atol=1e-6)


def test_very_many_channels_are_not_decorrelated(random):
    images = random.normal(size=(2, 4, 4, 257)).astype(np.float32)
    assert decorrelation(images) is None
