"""A frozen network in front of the trained ones: what it must offer, and how images reach it."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lmfcn.compute.moments import correlation_maps, correlations, deviation_maps, mix, mixing, n_correlations

SMALLEST_SIDE = 32
"""Smallest height and width of images for a trunk: less would be blown up to little more than a few blurs."""

_LARGEST_RATIO = 4
"""The longer side of an image becomes at most so many times the input size."""

_USUAL = {"mean": 0.0, "std": 1.0}
"""What pixels are normalised with if a network does not tell."""

_PROTOCOL = "lmfcn.networks.trunk.check_network"


def check_network(network: Any) -> Any:
    """Return the network if it can be a trunk, or say what it lacks.

    It must be a `torch.nn.Module` with

    - `stages(batch)`: the maps (b, c_i, h_i, w_i) of its stages, the first stage first, for normalised pixels
      (b, in_channels, h, w);
    - `in_channels`: the number of channels that it takes.

    It may also have, as attributes,

    - `trained_stage`: the stage, from 0, on whose maps the trained networks learn; by default the last one whose maps
      have at least a sixteenth of the image's height;
    - `input_size` (224): the shorter side, in pixels, to which images are brought;
    - `step` (32): height and width are multiples of it; at most `input_size`;
    - `mean` and `std`: what pixels in [0, 1] are normalised with, a number per channel; by default 0 and 1;
    - `name` and `licence`: for the record of a model.

    Examples
    --------
    >>> check_network(torch.nn.Identity())
    Traceback (most recent call last):
        ...
    ValueError: network must have the method stages(batch) and the attribute in_channels, but Identity has no stages...
    """
    if not isinstance(network, nn.Module):
        raise ValueError(f"network must be the name of one or a torch.nn.Module, got {network!r:.60}.")
    for part in ("stages", "in_channels"):
        if not hasattr(network, part):
            raise ValueError(
                "network must have the method stages(batch) and the attribute in_channels, but"
                f" {type(network).__name__} has no {part}; help({_PROTOCOL}) lists everything."
            )
    for part, usual in (("in_channels", 1), ("input_size", 224), ("step", 32)):
        value = getattr(network, part, usual)
        if type(value) is not int or value < 1:
            raise ValueError(f"{part} of the network must be a positive int, got {value!r}.")
    if getattr(network, "input_size", 224) < getattr(network, "step", 32):
        raise ValueError(
            f"input_size of the network must be at least its step, got {getattr(network, 'input_size', 224)} and"
            f" {getattr(network, 'step', 32)}."
        )
    for part, default in _USUAL.items():
        _per_channel(network, part, default)
    return network


def _per_channel(network: Any, part: str, usual: float) -> Tensor:
    """Return `mean` or `std` of a network (in_channels,), or the usual value for every channel."""
    given = getattr(network, part, None)
    try:
        values = torch.as_tensor((usual,) * network.in_channels if given is None else given, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError):
        values = torch.empty(0)
    sound = values.shape == (network.in_channels,) and bool(values.isfinite().all())
    if not sound or (part == "std" and not bool((values > 0).all())):
        kind = "positive numbers" if part == "std" else "numbers"
        raise ValueError(
            f"{part} of the network must have {network.in_channels} {kind}, one per channel, got {given!r:.60}."
        )
    return values


class Trunk(nn.Module):
    """A frozen network that describes images by the maps of its stages.

    Its features of an image are the means and standard deviations of the maps of all stages, and the correlations of
    mixtures of them. Trained networks learn on the maps of one of them, `trained_stage`, each channel divided by its
    standard deviation.

    Images are brought to the network's input size with their aspect ratio kept. A grey image becomes as many equal
    channels as the network takes. Of images with another number of channels, each goes through the network by itself,
    and the maps are put one behind the other.

    Parameters
    ----------
    network : torch.nn.Module
        As `check_network` describes. It is put into eval mode and its weights are frozen.
    channels : int
        Channels of the images.
    low, high : float
        Pixel values that become 0 and 1. 8-bit pixels need nothing else; others use a part of their range.
    correlations : bool
        Whether the features hold correlations.
    """

    frozen = True
    map_std: Tensor
    stage_std: Tensor
    pixel_mean: Tensor
    pixel_std: Tensor

    def __init__(
        self, network: nn.Module, channels: int, low: float = 0.0, high: float = 1.0, *, correlations: bool = False
    ) -> None:
        super().__init__()
        checked = check_network(network)
        self.network: Any = checked.eval().requires_grad_(False)
        self.channels = channels
        self.low, self.high = low, high
        self.correlations = correlations
        self.in_channels: int = checked.in_channels
        self.input_size: int = getattr(network, "input_size", 224)
        self.step: int = getattr(network, "step", 32)
        self.name = str(getattr(network, "name", type(network).__name__))
        self.licence: str | None = getattr(network, "licence", None)
        mean, std = (_per_channel(network, part, usual)[:, None, None] for part, usual in _USUAL.items())
        self.register_buffer("pixel_mean", mean, persistent=False)
        self.register_buffer("pixel_std", std, persistent=False)
        shapes = self._stage_shapes()
        self.stage_channels = tuple(self.n_parts * shape[1] for shape in shapes)
        self.trained_stage = self._find_trained_stage(shapes)
        self.register_buffer("map_std", torch.ones(self.stage_channels[self.trained_stage]))
        self.register_buffer("stage_std", torch.ones(sum(self.stage_channels)) if correlations else None)

    @property
    def n_parts(self) -> int:
        """How many times an image goes through the network: once, or once per channel."""
        return 1 if self.channels in (1, self.in_channels) else self.channels

    @property
    def n_features(self) -> int:
        """Length of the features of an image."""
        return sum(2 * count + n_correlations(count) * self.correlations for count in self.stage_channels)

    @property
    def encoding_batch(self) -> int:
        """How many images to encode at once: few, so that the processor's caches hold their maps."""
        return max(1, (4 if self.pixel_mean.device.type == "cpu" else 32) // self.n_parts)

    def forward(self, batch: Tensor) -> list[Tensor]:
        """Return the maps (b, c_i, h_i, w_i) of all stages for pixels (b, c, h, w) in [0, 1]."""
        return self.stages_at(batch, self.input_sides(*batch.shape[2:]))

    def stages_at(self, batch: Tensor, sides: tuple[int, int]) -> list[Tensor]:
        """Return the same for pixels that are brought to a given height and width, multiples of `step`."""
        pixels = (batch - self.low) / (self.high - self.low)
        if (self.low, self.high) != (0.0, 1.0):
            pixels = pixels.clamp(0, 1)
        pixels = resize(pixels, sides)
        if self.n_parts > 1:
            pixels = pixels.flatten(0, 1)[:, None]
        pixels = (pixels.expand(-1, self.in_channels, -1, -1) - self.pixel_mean) / self.pixel_std
        maps = self.network.stages(pixels.contiguous(memory_format=torch.channels_last))
        if self.n_parts == 1:
            return list(maps)
        return [stage.unflatten(0, (-1, self.n_parts)).flatten(1, 2) for stage in maps]

    def feature_maps(self, stages: Sequence[Tensor], average: Callable[[Tensor], Tensor]) -> Iterator[Tensor]:
        """Go through maps (b, c, h, w) whose means are the features: for every stage its maps and their moments."""
        for stage, maps in enumerate(stages):
            yield maps
            yield deviation_maps(maps, average)
            if self.correlations:
                yield from correlation_maps(mix(maps, self.mixing(stage)), average)

    def features(self, stages: Sequence[Tensor], average: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the features (b, n_features) of images from the maps of all stages."""
        parts = []
        for stage, maps in enumerate(stages):
            parts += [average(maps), average(deviation_maps(maps, average))]
            if self.correlations:
                parts.append(correlations(mix(maps, self.mixing(stage))))
        return torch.cat(parts, dim=1)

    def mixing(self, stage: int) -> Tensor:
        """Return the matrix (c, k) that mixes the maps of a stage, each in units of its standard deviation."""
        std = self.stage_std.split(self.stage_channels)[stage]
        return mixing(len(std), std) / std[:, None]

    def trained_maps(self, stages: Sequence[Tensor]) -> Tensor:
        """Return the maps (b, c, h, w) that the trained networks see."""
        return stages[self.trained_stage] / self.map_std[:, None, None]

    def input_sides(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width that an image is brought to: the shorter side becomes the input size.

        Examples
        --------
        >>> from lmfcn.networks.efficientnet_lite import EfficientNetLite0
        >>> trunk = Trunk(EfficientNetLite0(), channels=3)
        >>> trunk.input_sides(200, 200), trunk.input_sides(480, 640)
        ((224, 224), (224, 288))
        """
        shorter = torch.sym_min(height, width)
        most = _LARGEST_RATIO * self.input_size // self.step * self.step
        # Whole numbers only, so that exported models compute the same.
        unit = 2 * shorter * self.step
        height, width = (
            torch.sym_min(most, (2 * side * self.input_size + shorter * self.step) // unit * self.step)
            for side in (height, width)
        )
        return height, width

    def _stage_shapes(self) -> list[tuple[int, ...]]:
        """Return the shape of the maps of every stage for one image of the input size; refuse other results."""
        example = torch.zeros(1, self.in_channels, self.input_size, self.input_size)
        if any(parameter.is_meta for parameter in self.network.parameters()):
            example = example.to("meta")
        else:
            example = example.to(next(self.network.parameters(), example).device)
        try:
            with torch.no_grad():
                maps = list(self.network.stages(example))
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ValueError(
                f"{self.name}.stages fails for a batch of the shape {tuple(example.shape)} ({reason}); it must return"
                " the maps of its stages."
            ) from error
        if not maps or not all(isinstance(stage, Tensor) and stage.ndim == 4 and len(stage) == 1 for stage in maps):
            found = [tuple(stage.shape) if isinstance(stage, Tensor) else type(stage).__name__ for stage in maps]
            raise ValueError(
                f"{self.name}.stages must return maps of the shape (b, channels, height, width), got {found!r:.200}."
            )
        return [tuple(stage.shape) for stage in maps]

    def _find_trained_stage(self, shapes: list[tuple[int, ...]]) -> int:
        fine = [number for number, shape in enumerate(shapes) if 16 * shape[2] >= self.input_size]
        found = getattr(self.network, "trained_stage", fine[-1] if fine else 0)
        if type(found) is not int or not 0 <= found < len(shapes):
            raise ValueError(f"trained_stage of the network must be from 0 to {len(shapes) - 1}, got {found!r}.")
        return found


def fingerprint(network: nn.Module) -> str:
    """Return 64 hexadecimal digits that depend on every weight of a network."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().float().contiguous().numpy().tobytes())
    return digest.hexdigest()


def resize(batch: Tensor, sides: tuple[int, int]) -> Tensor:
    """Resize a batch (b, c, h, w) to other sides: linear interpolation, or the mean over a triangle when it shrinks.

    The same as torch's `interpolate(mode="bilinear", antialias=True)`, written as two matrix products: these run on
    every device and in every exported format.

    Examples
    --------
    >>> resize(torch.tensor([[[[0.0, 1.0]]]]), (1, 4))
    tensor([[[[0.0000, 0.2500, 0.7500, 1.0000]]]])
    """
    for axis, side in ((2, sides[0]), (3, sides[1])):
        before = batch.shape[axis]
        if isinstance(before, int) and before == side:
            continue
        weights = _resampling(before, side, batch)
        batch = weights @ batch if axis == 2 else batch @ weights.T
    return batch


def _resampling(n_before: int, n_after: int, like: Tensor) -> Tensor:
    """Return the matrix (n_after, n_before) of a linear interpolation with antialiasing."""
    ratio = n_before / n_after
    places = (torch.arange(n_after, device=like.device, dtype=like.dtype) + 0.5) * ratio
    pixels = torch.arange(n_before, device=like.device, dtype=like.dtype) + 0.5
    weights = (1 - (places[:, None] - pixels).abs() / torch.sym_max(ratio, 1.0)).clamp(min=0)
    return weights / weights.sum(dim=1, keepdim=True)
