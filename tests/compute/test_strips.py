"""Images in strips against the same images at once."""

import numpy as np
import pytest
import torch

from lmfcn.compute import strips
from lmfcn.compute.encode import encode
from lmfcn.compute.strips import in_strips, latents_in_strips, whole_block_maps
from lmfcn.method.network import TextureFCN
from lmfcn.model import Networks


def drawn_network(generator, **options):
    """A network in double precision with statistics other than 0 and 1."""
    network = TextureFCN(2, 3, **{"widths": (4, 5), **options}, generator=generator).double()
    with torch.no_grad():
        network(torch.rand(4, 2, 24, 24, generator=generator, dtype=torch.float64))
    return network.eval()


@pytest.mark.parametrize("pooling", ["last", "all"])
@pytest.mark.parametrize("moments", [{}, {"deviations": True}, {"deviations": True, "correlations": True}])
@pytest.mark.parametrize(("reduction", "size"), [(1, (61, 37)), (2, (121, 66)), (4, (203, 90))])
@pytest.mark.parametrize("strip_pixels", [1, 700])
def test_strips_give_the_latents_of_the_whole_image(generator, pooling, moments, reduction, size, strip_pixels):
    network = drawn_network(generator, pooling=pooling, reduction=reduction, **moments)
    batch = torch.rand(2, 2, *size, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(latents_in_strips(network, batch, strip_pixels), network(batch))


@pytest.mark.parametrize("widths", [(), (3,), (3, 4, 5)])
def test_networks_of_any_depth(generator, widths):
    network = drawn_network(generator, widths=widths, pooling="all", deviations=True)
    batch = torch.rand(1, 2, 75, 20, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(latents_in_strips(network, batch, 300), network(batch))


def test_several_networks_give_their_latents_in_a_row(generator):
    networks = Networks([drawn_network(generator), drawn_network(generator, pooling="all", reduction=2)])
    batch = torch.rand(1, 2, 50, 31, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(latents_in_strips(networks, batch, 100), networks(batch))


def test_what_is_large_is_what_a_network_sees():
    assert in_strips(TextureFCN(1), 2**20 + 1)
    assert not in_strips(TextureFCN(1), 2**20)
    assert not in_strips(TextureFCN(1, reduction=2), 2**21)
    assert in_strips(Networks([TextureFCN(1, reduction=8), TextureFCN(1)]), 2**21)


def test_large_images_are_encoded_in_strips(generator, random, monkeypatch):
    network = TextureFCN(1, 3, (4, 5), pooling="all", deviations=True, generator=generator)
    images = random.integers(0, 256, (2, 70, 45, 1), dtype=np.uint8)
    whole = encode(network, images, torch.device("cpu"))
    monkeypatch.setattr(strips, "LARGEST_WHOLE", 1000)
    assert in_strips(network, 70 * 45)
    torch.testing.assert_close(encode(network, images, torch.device("cpu")), whole)


@pytest.mark.parametrize("pooling", ["last", "all"])
@pytest.mark.parametrize("reduction", [1, 2])
def test_maps_in_strips_are_those_of_the_whole_image(generator, monkeypatch, pooling, reduction):
    network = drawn_network(generator, pooling=pooling, reduction=reduction)
    batch = torch.rand(1, 2, 90, 37, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        expected = list(network.block_maps(network.reduce(batch)))
        monkeypatch.setattr(strips, "LARGEST_WHOLE", 100)
        monkeypatch.setattr(strips, "_STRIP_PIXELS", 300)
        found = list(whole_block_maps(network, batch))
    assert len(found) == len(expected)
    for maps, whole in zip(found, expected, strict=True):
        torch.testing.assert_close(maps, whole)
