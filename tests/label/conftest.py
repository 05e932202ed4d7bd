import numpy as np
import pytest
import torch

from labelling import write_textures


@pytest.fixture
def folder(tmp_path):
    """Thirty unlabelled images of three textures."""
    images = tmp_path / "images"
    images.mkdir()
    return images, write_textures(images)


@pytest.fixture
def clusters():
    """Coordinates of forty points in two clusters, and their numbers."""
    random = np.random.default_rng(0)
    places = np.concatenate([random.normal(0, 1, (20, 5)), random.normal(4, 1, (20, 5))])
    return torch.from_numpy(places), np.repeat([0, 1], 20)
