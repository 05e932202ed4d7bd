from types import SimpleNamespace

import numpy as np
import torch

from lmfcn.data.collection import ImageCollection
from lmfcn.report.training_page import audit_training_images, doubtful_labels


class Straight:
    """A classifier whose model takes the first pixels for latents; whitened ones would know the labels."""

    @property
    def model_(self):
        return self

    def latents(self, images):
        return torch.from_numpy(np.stack([np.asarray(image, dtype=float)[0, :2, 0] for image in images]))


def collection(values, labels, groups=None):
    # Different below the first row, so that no two images are near-identical.
    pixels = np.random.default_rng(len(values)).integers(0, 256, (len(values), 8, 8, 1)).astype(np.uint8)
    pixels[:, 0, :2, 0] = np.asarray(values)
    return ImageCollection(pixels, labels, groups)


def test_the_planted_label_comes_first(random):
    low, high = random.integers(0, 40, (10, 2)), random.integers(200, 240, (11, 2))
    train = collection([*low, *high], ["low"] * 10 + ["high"] * 10 + ["low"])
    validation = collection(low[:4] + 1, ["low"] * 4)
    trained = SimpleNamespace(classifier=Straight(), parts=SimpleNamespace(train=train, validation=validation))
    name, label, looks_like, reason = doubtful_labels(audit_training_images(trained))[0]
    assert (name, label, looks_like) == (train.paths[20], "low", "high")
    assert reason.startswith("looks like high (0.")


def test_groups_count_only_if_all_images_have_them(random):
    from lmfcn.report.training_page import _groups

    some = collection(random.integers(0, 9, (3, 2)), list("aab"), list("xyz"))
    without = collection(random.integers(0, 9, (2, 2)), list("ab"))
    assert _groups([some]).tolist() == ["x", "y", "z"]
    assert _groups([some, without]) is None
