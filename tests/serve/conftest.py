from collections.abc import Iterator
from types import SimpleNamespace

import httpx
import numpy as np
import pytest

from lmfcn import LMFCNClassifier, Recipe, make_gaussians
from lmfcn.explain.gallery import Gallery, save_gallery
from lmfcn.serve.app import make_app
from serving import running

CLASSES = np.array(["rough", "smooth"])


@pytest.fixture(scope="session")
def fitted(tmp_path_factory):
    """A small model of two kinds of noise with its gallery, both also as files, and some new images."""
    images, numbers = make_gaussians(16, 32, random_state=0, stds=(60, 10))
    labels = CLASSES[numbers]
    classifier = LMFCNClassifier(epochs=1, recipe=Recipe(passes=1), latent_dim=4, widths=(6, 8), random_state=0).fit(
        images, labels
    )
    names = [f"{label}/{i}.png" for i, label in enumerate(labels)]
    gallery = Gallery.of(classifier, images, labels, names)
    path = tmp_path_factory.mktemp("model") / "noise.lmfcn"
    classifier.save(path)
    save_gallery(gallery, path.with_suffix(".gallery"))
    new, new_numbers = make_gaussians(8, 32, random_state=1, stds=(60, 10))
    return SimpleNamespace(
        model=classifier.model_, gallery=gallery, path=path, images=new, labels=CLASSES[new_numbers].tolist()
    )


@pytest.fixture(scope="session")
def other(tmp_path_factory):
    """Another model of the same images, as a file with a gallery."""
    images, numbers = make_gaussians(16, 32, random_state=0, stds=(60, 10))
    recipe = Recipe(passes=1)
    classifier = LMFCNClassifier(epochs=1, recipe=recipe, latent_dim=4, widths=(6, 8), random_state=9)
    classifier.fit(images, CLASSES[numbers])
    path = tmp_path_factory.mktemp("other") / "other.lmfcn"
    classifier.save(path)
    save_gallery(Gallery.of(classifier, images, CLASSES[numbers]), path.with_suffix(".gallery"))
    return SimpleNamespace(model=classifier.model_, path=path)


@pytest.fixture(scope="session")
def address(fitted) -> Iterator[str]:
    with running(make_app(fitted.model, fitted.gallery, name="noise.lmfcn")) as found:
        yield found


@pytest.fixture(scope="session")
def client(address) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=60) as found:
        yield found
