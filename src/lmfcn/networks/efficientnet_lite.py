"""EfficientNet-Lite0 in plain torch: EfficientNet without squeeze-and-excite and with ReLU6 (Liu, 2020).

Batch normalisations are folded into the convolutions before them when the weights are loaded: the network is used with
fixed statistics only.
"""

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

_STEM_FILTERS, _HEAD_FILTERS, _N_IMAGENET_CLASSES = 32, 1280, 1000
_BATCH_NORM_EPSILON = 1e-3
_ONEDNN: Any = torch.ops.mkldnn if torch.backends.mkldnn.is_available() else None
"""Functions that torch calls in compiled models; nobody has promised that it will keep them."""


class _Stage(NamedTuple):
    n_blocks: int
    kernel: int
    stride: int
    expansion: int
    filters: int


STAGES = (
    _Stage(1, 3, 1, 1, 16),
    _Stage(2, 3, 2, 6, 24),
    _Stage(2, 5, 2, 6, 40),
    _Stage(3, 3, 2, 6, 80),
    _Stage(3, 5, 1, 6, 112),
    _Stage(4, 5, 2, 6, 192),
    _Stage(1, 3, 1, 6, 320),
)


class SameConvolution(nn.Conv2d):
    """A convolution with a bias whose output is the input's size divided by the stride, padded as TensorFlow does.

    A stride of 2 needs an odd number of zeros, of which the larger half goes below and to the right. Height and width
    must be even then.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        before, after = (kernel - stride) // 2, (kernel - stride + 1) // 2
        even = before == after  # then the convolution pads by itself, which is faster
        super().__init__(inputs, outputs, kernel, stride, before if even else 0, groups=groups, device="meta")
        self.zeros = None if even else [before, after, before, after]

    def forward(self, maps: Tensor) -> Tensor:
        """Return maps (b, outputs, h / stride, w / stride) of maps (b, inputs, h, w)."""
        return super().forward(maps if self.zeros is None else pad(maps, self.zeros))

    def fused(self, maps: Tensor, *, relu6: bool) -> Tensor:
        """Return the same, by a function of torch that also applies a ReLU6 while the values are at hand."""
        activation, bounds = ("hardtanh", [0.0, 6.0]) if relu6 else ("none", [])
        maps = maps if self.zeros is None else pad(maps, self.zeros)
        shape = list(self.padding), list(self.stride), list(self.dilation), self.groups
        found: Tensor = _ONEDNN._convolution_pointwise(maps, self.weight, self.bias, *shape, activation, bounds, "")
        return found


class Layers(nn.Sequential):
    """Convolutions, some followed by a ReLU6; both are one step where that is possible, in two thirds of the time."""

    def forward(self, maps: Tensor) -> Tensor:
        """Return the maps (b, outputs, h, w) of the last layer."""
        if not _can_be_fused(maps):
            return super().forward(maps)
        for layer, behind in zip_longest(self, list(self)[1:]):
            if isinstance(layer, SameConvolution):
                maps = layer.fused(maps, relu6=isinstance(behind, nn.ReLU6))
        return maps


def _can_be_fused(maps: Tensor) -> bool:
    """Tell whether torch can fuse the steps: on a CPU, in single precision, for numbers alone (no graph, no export)."""
    plain = type(maps) is Tensor and not torch.compiler.is_compiling()
    single = maps.device.type == "cpu" and maps.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return plain and single and not torch.is_grad_enabled() and hasattr(_ONEDNN, "_convolution_pointwise")


class InvertedResidual(nn.Module):
    """Expand the channels, filter each of them, project them to a few; add the input if the shape allows it."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        layers: list[nn.Module] = []
        if expansion > 1:
            layers += [SameConvolution(inputs, hidden, 1), nn.ReLU6(inplace=True)]
        layers += [SameConvolution(hidden, hidden, kernel, stride, groups=hidden), nn.ReLU6(inplace=True)]
        layers += [SameConvolution(hidden, outputs, 1)]
        self.layers = Layers(*layers)
        self.adds_input = stride == 1 and inputs == outputs

    def forward(self, maps: Tensor) -> Tensor:
        """Return maps (b, outputs, h / stride, w / stride)."""
        found: Tensor = self.layers(maps)
        return maps + found if self.adds_input else found


class EfficientNetLite0(nn.Module):
    """The convolutional part of EfficientNet-Lite0: RGB pixels to the maps of its seven stages.

    New instances have no weights; `load_efficientnet_lite0` gives them some.
    """

    name: Final = "efficientnet-lite0"
    in_channels = 3
    input_size = 224
    step = 32
    mean = (127 / 255,) * 3
    std = (128 / 255,) * 3
    stage_channels = tuple(stage.filters for stage in STAGES)
    trained_stage = 4
    licence: str | None = None

    def __init__(self) -> None:
        super().__init__()
        self.stem = Layers(SameConvolution(3, _STEM_FILTERS, 3, 2), nn.ReLU6(inplace=True))
        blocks, inputs = [], _STEM_FILTERS
        for n_blocks, kernel, stride, expansion, filters in STAGES:
            layers = []
            for number in range(n_blocks):
                layers.append(InvertedResidual(inputs, filters, kernel, stride if number == 0 else 1, expansion))
                inputs = filters
            blocks.append(nn.Sequential(*layers))
        self.blocks = nn.ModuleList(blocks)

    def stages(self, batch: Tensor) -> list[Tensor]:
        """Return the maps of the seven stages for normalised pixels (b, 3, h, w); h and w are multiples of 32."""
        maps, found = self.stem(batch), []
        for stage in self.blocks:
            maps = stage(maps)
            found.append(maps)
        return found


class ImageNetHead(nn.Module):
    """The last layers of EfficientNet-Lite0: 1280 features, and the logits of the thousand classes of ImageNet."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = Layers(SameConvolution(STAGES[-1].filters, _HEAD_FILTERS, 1), nn.ReLU6(inplace=True))
        self.linear = nn.Linear(_HEAD_FILTERS, _N_IMAGENET_CLASSES, device="meta")

    def features(self, maps: Tensor) -> Tensor:
        """Return the features (b, 1280) of the maps of the last stage."""
        found: Tensor = self.convolution(maps).mean(dim=(2, 3))
        return found

    def forward(self, maps: Tensor) -> Tensor:
        """Return the logits (b, 1000) of the maps of the last stage."""
        logits: Tensor = self.linear(self.features(maps))
        return logits


def network_of(state: Mapping[str, Tensor]) -> EfficientNetLite0:
    """Return the network with the weights of a published state dict, batch normalisations folded."""
    network = EfficientNetLite0()
    weights: dict[str, Tensor] = {}
    names = iter(_published_names())
    for name, module in network.named_modules():
        if isinstance(module, SameConvolution):
            weights |= _folded(state, name, *next(names))
    network.load_state_dict(weights, assign=True)
    return network.eval().requires_grad_(False).to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def head_of(state: Mapping[str, Tensor]) -> ImageNetHead:
    """Return the last layers with the weights of a published state dict."""
    head = ImageNetHead()
    weights = _folded(state, "convolution.0", "_conv_head", "_bn1")
    weights |= {"linear.weight": state["_fc.weight"], "linear.bias": state["_fc.bias"]}
    head.load_state_dict(weights, assign=True)
    return head.eval().requires_grad_(False)


def _published_names() -> list[tuple[str, str]]:
    """Return the names of the convolutions and of their batch normalisations, in the order of the network."""
    names, number = [("_conv_stem", "_bn0")], 0
    for stage in STAGES:
        for _ in range(stage.n_blocks):
            block = f"_blocks.{number}."
            if stage.expansion > 1:
                names.append((f"{block}_expand_conv", f"{block}_bn0"))
            names += [(f"{block}_depthwise_conv", f"{block}_bn1"), (f"{block}_project_conv", f"{block}_bn2")]
            number += 1
    return names


def _folded(state: Mapping[str, Tensor], name: str, convolution: str, norm: str) -> dict[str, Tensor]:
    """Return weight and bias of a convolution that does what the published one and its batch normalisation do."""
    scale, shift, mean, variance = (
        state[f"{norm}.{part}"].double() for part in ("weight", "bias", "running_mean", "running_var")
    )
    factor = scale / (variance + _BATCH_NORM_EPSILON).sqrt()
    weight = state[f"{convolution}.weight"].double() * factor[:, None, None, None]
    return {f"{name}.weight": weight.float(), f"{name}.bias": (shift - mean * factor).float()}
