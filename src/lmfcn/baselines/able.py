"""Whether a method can run here and on these images, known before any time is spent on it."""

from typing import Any

from lmfcn.baselines.descriptor_svm import DescriptorSVC
from lmfcn.baselines.descriptors import check_describable
from lmfcn.baselines.feature_svm import FeatureSVC
from lmfcn.baselines.pretrained import PretrainedSVC, check_channels


def check_able(estimator: Any, channels: int, pixels: str, smallest_side: int) -> None:
    """Raise the error that `fit` would end with: a package or weights that are missing, images it is not defined for.

    Parameters
    ----------
    estimator : estimator
        LMFCN or a comparator, not fitted.
    channels : int
    pixels : "uint8", "uint16" or "float"
    smallest_side : int
        The least height or width of all images.

    Examples
    --------
    >>> check_able(PretrainedSVC(weights="random"), channels=3, pixels="uint8", smallest_side=32)
    >>> check_able(DescriptorSVC(descriptor="lbp"), channels=3, pixels="uint8", smallest_side=32)
    """
    if isinstance(estimator, FeatureSVC):
        estimator._check_parameters()
    if isinstance(estimator, DescriptorSVC):
        check_describable(estimator.descriptor, channels, pixels, smallest_side)
    if isinstance(estimator, PretrainedSVC):
        check_channels(estimator.backbone, channels)
