import numpy as np
import pytest

from lmfcn import LMFCNClassifier, make_gaussians


@pytest.fixture(scope="session")
def model_files(tmp_path_factory):
    """A model of grey and one of RGB textures, both of three classes."""
    folder = tmp_path_factory.mktemp("models")
    for name, channels in (("grey", None), ("rgb", 3)):
        X, y = make_gaussians(8, 24, random_state=0, channels=channels, means=(128,) * 3, stds=(10, 60, 30))
        classifier = LMFCNClassifier(latent_dim=4, widths=(6, 8), epochs=1, passes=1, random_state=0, device="cpu")
        classifier.fit(X, np.array(["calm", "rough", "uneven"])[y]).save(folder / f"{name}.lmfcn")
    return folder
