import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from lmfcn import make_gaussians

sys.path.insert(0, str(Path(__file__).parent))

from browser import chromium
from running_cluster import RunningCluster

collect_ignore_glob = ["conftest.py", "*/conftest.py"]  # doctests: several modules of one name cannot be imported

# A torchvision that was built for CUDA cannot load its operators beside a torch for CPUs, and its import then fails for
# want of their names. The networks do without them.
try:
    import torchvision  # noqa: F401
except RuntimeError:
    for name in [name for name in sys.modules if name.startswith("torchvision")]:
        del sys.modules[name]
    OPERATORS = torch.library.Library("torchvision", "DEF")
    OPERATORS.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    OPERATORS.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


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


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """A dask scheduler, and as many workers as a test lets it grow to."""
    pytest.importorskip("distributed")
    with RunningCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


# Not for the whole session: as long as it is open, its event loop runs, and no test can start another.
@pytest.fixture(scope="module")
def browser():
    """Debian's Chromium, or a skip with the reason."""
    with chromium() as started:
        yield started
