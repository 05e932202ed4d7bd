import numpy as np
import pytest

from lmfcn import LMFCNClassifier, Recipe


@pytest.fixture(scope="session")
def model_files(tmp_path_factory):
    """A model of grey and one of RGB textures, both of the three kinds of squares in a patchwork."""
    folder = tmp_path_factory.mktemp("models")
    random, y = np.random.default_rng(0), np.arange(24) % 3
    for name, channels in (("grey", 1), ("rgb", 3)):
        strength = np.array([10, 60, 30])[y][:, None, None, None]
        X = (128 + strength * random.normal(0, 0.5, (24, 24, 24, channels))).clip(0, 255).astype(np.uint8)
        classifier = LMFCNClassifier(
            latent_dim=4, widths=(6, 8), epochs=1, recipe=Recipe(passes=1), random_state=0, device="cpu"
        )
        classifier.fit(X, np.array(["calm", "rough", "uneven"])[y]).save(folder / f"{name}.lmfcn")
    return folder
