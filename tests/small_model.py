"""A tiny model of three easy textures, fitted once for all tests that explain it; tests must not change it."""

from functools import cache

import numpy as np

from lmfcn import LMFCNClassifier
from lmfcn.explain.gallery import Gallery
from some_training import classifier_of


def quick(**changes) -> LMFCNClassifier:
    options = {"latent_dim": 4, "widths": (6, 8), "epochs": 1, "passes": 1, "random_state": 0, "device": "cpu"}
    return classifier_of(**{**options, **changes})


def textures(n: int, height: int, width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Fine noise, coarse noise and stripes, n of each; height must be divisible by 3, width by 2."""
    random = np.random.default_rng(seed)
    fine = random.integers(0, 256, (n, height, width))
    coarse = np.kron(random.integers(0, 256, (n, height // 3, width // 2)), np.ones((1, 3, 2)))
    stripes = np.tile(np.where(np.arange(width) % 4 < 2, 60, 190), (n, height, 1))
    stripes = stripes + random.integers(-40, 40, stripes.shape)
    images = np.concatenate([fine, coarse, stripes]).astype(np.uint8)
    return images, np.repeat(["fine", "coarse", "stripes"], n)


@cache
def three() -> tuple[np.ndarray, np.ndarray]:
    """Images of 18x22 pixels, which the poolings do not divide evenly."""
    images, labels = textures(12, 18, 22)
    images.setflags(write=False)
    return images, labels


@cache
def fitted() -> LMFCNClassifier:
    return quick().fit(*three())


@cache
def gallery() -> Gallery:
    images, labels = three()
    return Gallery.of(fitted(), images, labels, [f"{label}/{i}.png" for i, label in enumerate(labels)])
