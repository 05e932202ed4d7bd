"""Features of a network that was pretrained on ImageNet, reduced to 16 principal components, with an RBF SVM."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA
from torch import Tensor, nn
from torch.nn.functional import interpolate

from lmfcn.baselines.feature_svm import FeatureSVC
from lmfcn.compute.encode import equal_size_batches, take, to_batch
from lmfcn.compute.resources import check_device
from lmfcn.data.arrays import RandomState
from lmfcn.data.image_form import LoadedImages
from lmfcn.data.training_data import TrainingData
from lmfcn.util.checks import check_choice, check_integer
from lmfcn.util.packages import needs
from lmfcn.util.progress import item_progress

# Mean and deviation of ImageNet, which both networks were trained on.
_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)
_BATCH_SIZE = 4
"""Images per batch: with channels last, nearly twice as fast as 16, as the caches hold more of it."""
DOWNLOAD, RANDOM = "download", "random"


@dataclass(frozen=True)
class Backbone:
    """A network of torchvision.

    Attributes
    ----------
    builder, weights : str
        Names in `torchvision.models`.
    side : int
        Height and width of the images that it was trained on.
    options : dict
        For the builder.
    """

    builder: str
    weights: str
    side: int
    options: dict[str, Any]


BACKBONES = {
    "resnet18": Backbone("resnet18", "ResNet18_Weights", 224, {}),
    # With `transform_input`, Inception converts this normalisation to its own.
    "inception_v3": Backbone("inception_v3", "Inception_V3_Weights", 299, {"transform_input": True}),
}


class PretrainedSVC(FeatureSVC):
    """ResNet18 or InceptionV3 without its last layer, principal components, and an RBF SVM.

    Images are enlarged (or reduced) to the side that the network was trained on and normalised as it expects; grey
    images become RGB. The components are those of the training images.

    Parameters
    ----------
    backbone : {"resnet18", "inception_v3"}, default="resnet18"
        512 or 2048 features before the reduction.
    weights : path, "download" or "random"
        A file with the state dict of torchvision's network (.pth, .pt or .safetensors); "download" fetches the
        ImageNet weights from torchvision's server; "random" leaves the network untrained.
    n_components : int, default=16
        Principal components, or as many as there are training images if those are fewer.
    validation_fraction : float, default=0
        Nothing needs to be held out; a given validation set joins the training images.
    image_shape : tuple of int, optional
    device : str, default="auto"
    random_state : None, int or NumPy generator, default=None
    verbose : bool, default=False

    Attributes
    ----------
    network_ : torch.nn.Module
    pca_ : sklearn.decomposition.PCA

    Examples
    --------
    >>> PretrainedSVC(weights="resnet18-f37072fd.pth").get_params()["n_components"]
    16
    """

    def __init__(
        self,
        *,
        backbone: str = "resnet18",
        weights: str | Path | None = None,
        n_components: int = 16,
        validation_fraction: float = 0.0,
        image_shape: tuple[int, ...] | None = None,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.backbone = backbone
        self.weights = weights
        self.n_components = n_components
        self.validation_fraction = validation_fraction
        self.image_shape = image_shape
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        check_choice("backbone", self.backbone, BACKBONES)
        check_integer("n_components", self.n_components, smallest=1)
        needs("torchvision.models", "torchvision")
        if self.weights is None:
            raise ValueError(
                f"weights is missing: give a file with the state dict of torchvision's {self.backbone}, or"
                ' weights="download" to fetch the ImageNet weights (needs the internet). Untrained weights must be'
                ' asked for by weights="random".'
            )

    def _learn(self, data: TrainingData, random: np.random.Generator) -> Tensor:
        check_channels(self.backbone, data.form.channels)
        seed, self._side = int(random.integers(2**31)), BACKBONES[self.backbone].side
        self.network_ = load_backbone(self.backbone, str(self.weights), seed).to(check_device(self.device))
        features = self._features(data.train.images).cpu().numpy()
        n_components = min(self.n_components, *features.shape)
        self.pca_ = PCA(n_components, svd_solver="full").fit(features)
        return torch.from_numpy(self.pca_.transform(features))

    def _describe(self, images: LoadedImages) -> Tensor:
        return torch.from_numpy(self.pca_.transform(self._features(images).cpu().numpy()))

    def _features(self, images: LoadedImages) -> Tensor:
        device = next(self.network_.parameters()).device
        batches = equal_size_batches(images, np.arange(len(images)), _BATCH_SIZE)
        features = []
        with item_progress(self.backbone, len(images), visible=self.verbose) as advance, torch.no_grad():
            for indices in batches:
                batch = preprocess(to_batch(take(images, indices), device), self._side)
                features.append(self.network_(batch.contiguous(memory_format=torch.channels_last)))
                for _ in indices:
                    advance()
        order = np.argsort(np.concatenate(batches))
        return torch.cat(features)[torch.from_numpy(order).to(device)]


def check_channels(backbone: str, channels: int) -> None:
    """Raise ValueError for images that are neither grey nor RGB."""
    if channels not in (1, 3):
        raise ValueError(f"{backbone} takes grey or RGB images, got {channels} channels.")


def preprocess(batch: Tensor, side: int) -> Tensor:
    """Resize and normalise pixels (b, 1 or 3, h, w) in [0, 1]; return a batch (b, 3, side, side)."""
    batch = batch.expand(-1, 3, -1, -1) if batch.shape[1] == 1 else batch
    batch = interpolate(batch, size=(side, side), mode="bilinear", antialias=True)
    mean, std = batch.new_tensor(_MEAN)[:, None, None], batch.new_tensor(_STD)[:, None, None]
    return (batch - mean) / std


def load_backbone(name: str, weights: str, seed: int = 0) -> nn.Module:
    """Return a network without its last layer, in eval mode.

    `seed` is for random weights; torch's global generator is left as it was.
    """
    backbone, models = BACKBONES[name], needs("torchvision.models", "torchvision")
    build: Callable[..., nn.Module] = getattr(models, backbone.builder)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if weights == DOWNLOAD:
            network = _download(build, getattr(models, backbone.weights).IMAGENET1K_V1)
        else:
            # Drawing Inception's first weights takes seconds; a file replaces them anyway.
            options = {"init_weights": weights == RANDOM} if name == "inception_v3" else {}
            network = build(weights=None, **backbone.options, **options)
    if weights not in (DOWNLOAD, RANDOM):
        _load_state(network, Path(weights), name)
    network.fc = nn.Identity()
    return network.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _download(build: Callable[..., nn.Module], weights: Any) -> nn.Module:
    try:
        return build(weights=weights)
    except OSError as error:
        raise OSError(
            f"The weights could not be fetched from {weights.url} ({error}); download that file elsewhere and give its"
            " path as weights."
        ) from error


def _load_state(network: nn.Module, path: Path, name: str) -> None:
    """Load weights from a file; no code in it is run."""
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path}: no such file; weights must be a file, 'download' or 'random'.") from error
    except Exception as error:  # torch and safetensors raise many kinds
        raise ValueError(f"{path}: expected a state dict of {name}, but the file cannot be read ({error}).") from error
    try:
        network.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as error:
        reason = str(error).splitlines()[-1].strip()
        raise ValueError(f"{path}: the weights do not fit torchvision's {name}: {reason}") from error
