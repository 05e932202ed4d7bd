"""The comparators by the names that the paper and its tables use."""

from collections.abc import Callable
from functools import partial
from typing import Any

from lmfcn.baselines.cnn import CNNClassifier
from lmfcn.baselines.descriptor_svm import DescriptorSVC
from lmfcn.baselines.fisher import FisherSVC
from lmfcn.baselines.metric_learning import MetricSVC
from lmfcn.baselines.network_svm import CNNSVC, RandomFCN
from lmfcn.baselines.pretrained import RANDOM, PretrainedSVC

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
    "random-fcn": RandomFCN,
    "LMFCN, untrained": partial(RandomFCN, pooling="all", first_filters="decorrelated"),
    "contrastive": partial(MetricSVC, loss="contrastive"),
    "proxy-anchor": partial(MetricSVC, loss="proxy-anchor"),
    "proxy-NCA": partial(MetricSVC, loss="proxy-NCA"),
    "ranked-list": partial(MetricSVC, loss="ranked-list"),
    "FV-CNN": FisherSVC,
}
"""Each makes an estimator, with parameters as keywords. The two pretrained networks need `weights`."""
