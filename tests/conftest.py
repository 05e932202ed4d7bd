import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from lmfcn import make_gaussians

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def textures() -> tuple[np.ndarray, np.ndarray]:
    """Two easy classes of small images; tests must not change them."""
    images, labels = make_gaussians(16, 16, random_state=0, stds=(10, 60))
    images.setflags(write=False)
    labels.setflags(write=False)
    return images, labels
