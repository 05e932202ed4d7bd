import numpy as np
import torch

from lmfcn.compute.moments import deviation_maps, standard_deviation
from lmfcn.method.network import TextureFCN


def test_deviations_by_hand():
    # Means 2 and 5; variances (1 + 1 + 4 + 4) / 4 = 2.5 and 0.
    maps = torch.tensor([[[[1.0, 3.0], [0.0, 4.0]], [[5.0, 5.0], [5.0, 5.0]]]])
    found = deviation_maps(maps, TextureFCN.average)
    torch.testing.assert_close(found[0, 0], torch.tensor([[1.0, 1.0], [4.0, 4.0]]) / 2.5**0.5)
    assert torch.equal(found[0, 1], torch.zeros(2, 2))


def test_means_of_deviation_maps_are_standard_deviations(random):
    """The slow twin: NumPy."""
    values = random.normal(size=(3, 4, 9, 7))
    found = deviation_maps(torch.from_numpy(values), TextureFCN.average).mean(dim=(2, 3))
    np.testing.assert_allclose(found, values.std(axis=(2, 3)), rtol=1e-5)


def test_nothing_is_divided_by_zero():
    found = standard_deviation(torch.tensor([0.0, -1e-9, 4.0]))
    assert bool((found > 0).all())
    assert abs(float(found[2]) - 2) < 1e-5
