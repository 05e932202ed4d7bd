"""The network, *f_fcn*: a short fully convolutional net with global average pooling (Table 1)."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d
from torch.nn.utils.fusion import fuse_conv_bn_eval

from lmfcn.compute.moments import correlation_maps, correlations, deviation_maps, mix, mixing, n_correlations
from lmfcn.compute.winograd import Convolution

POOLING = ("last", "all")


class TextureFCN(nn.Module):
    """Turn a batch of images into latent vectors of `n_latents` values.

    Each 3x3 convolution is followed by batch normalisation and ReLU; every hidden one also by a max
    pooling that halves height and width. Global average pooling makes the output independent of the
    image size. The convolutions have no bias: the batch normalisation behind them would cancel it. Pooling
    comes before ReLU, which gives the same values (the larger of two numbers stays the larger) for a
    quarter of the work and half of the memory.

    Parameters
    ----------
    in_channels : int
        Channels of the input images, *c*.
    latent_dim : int, default=64
        Filters of the last convolution and, unless all layers are pooled, length of the latent vector, *phi*.
    widths : sequence of int, default=(64, 128)
        Filters of the hidden convolutions; its length sets the depth. The default is the paper's.
    pooling : {"last", "all"}, default="last"
        Whether the latent vector holds the means of the last layer's maps, as in the paper, or those of all layers,
        the first one's first.
    generator : torch.Generator, optional
        Source of the initial weights. The global generator of torch is left alone either way.

    Examples
    --------
    >>> import torch
    >>> network = TextureFCN(in_channels=3, latent_dim=16)
    >>> network(torch.rand(2, 3, 40, 64)).shape
    torch.Size([2, 16])
    """

    def __init__(
        self,
        in_channels: int,
        latent_dim: int = 64,
        widths: Sequence[int] = (64, 128),
        *,
        pooling: str = "last",
        deviations: bool = False,
        correlations: bool = False,
        reduction: int = 1,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.latent_dim = latent_dim
        self.widths = tuple(widths)
        self.pooling = pooling
        self.deviations = deviations
        self.correlations = correlations
        self.reduction = reduction
        self.first_is_fixed = False
        generator = generator if generator is not None else torch.Generator().manual_seed(0)
        layers: list[nn.Module] = []
        channels = in_channels
        for width in self.widths:
            layers += [*_convolution(channels, width, generator), nn.MaxPool2d(3, stride=2, padding=1)]
            layers += [nn.ReLU(inplace=True)]
            channels = width
        layers += [*_convolution(channels, latent_dim, generator), nn.ReLU(inplace=True)]
        self.features = nn.Sequential(*layers)
        # Convolutions over interleaved channels are about twice as fast on a CPU, and images come that way.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, batch: Tensor) -> Tensor:
        """Return latents (b, n_latents) of a batch (b, c, h, w) of pixels in [0, 1]."""
        return torch.cat([self.block_latents(maps) for maps in self.block_maps(self.reduce(batch))], dim=1)

    def maps(self, batch: Tensor, average: Callable[[Tensor], Tensor] | None = None) -> Iterator[Tensor]:
        """Go through the maps (b, c, h, w) whose means are the latents: those of all blocks, or of the last.

        Every block's maps are followed by maps whose means are their standard deviations and their correlations, if the
        latents hold these.
        """
        for maps in self.block_maps(self.reduce(batch)):
            yield from self.pooled_maps(maps, average or self.average)

    def block_maps(self, pixels: Tensor) -> Iterator[Tensor]:
        """Go through the maps (b, c, h, w) of the blocks that are averaged, for images at the network's scale."""
        maps, layers = pixels.to(next(self.parameters()).dtype), list(self.features)
        if self.training and self.first_is_fixed and self.pooling == "last":
            maps, layers = self._fixed_block(maps), layers[4:]
        for layer in layers:
            maps = layer(maps)
            if layer is self.features[-1] or (self.pooling == "all" and isinstance(layer, nn.ReLU)):
                yield maps

    def _fixed_block(self, pixels: Tensor) -> Tensor:
        """Return the maps of the first block: with nothing to learn, its batch norm is part of the convolution."""
        convolution, norm, pool = next(self.blocks())
        with torch.no_grad():
            maps: Tensor = pool(fuse_conv_bn_eval(convolution, norm)(pixels)).relu_()
        return maps

    def pooled_maps(self, maps: Tensor, average: Callable[[Tensor], Tensor]) -> Iterator[Tensor]:
        """Go through the maps (b, c, h, w) of one block that are averaged: itself, its deviations, its correlations."""
        yield maps
        if self.deviations:
            precise = maps.float() if maps.dtype == torch.bfloat16 else maps
            yield deviation_maps(precise, average)
            if self.correlations:
                yield from correlation_maps(mix(precise, mixing(maps.shape[1], precise)), average)

    def reduce(self, batch: Tensor) -> Tensor:
        """Return the images (b, c, h, w) at the scale at which the network sees them."""
        return reduce_pixels(batch, self.reduction)

    @property
    def averaged_widths(self) -> list[int]:
        """Numbers of maps of the blocks that are averaged."""
        return [*self.widths, self.latent_dim] if self.pooling == "all" else [self.latent_dim]

    @property
    def n_latents(self) -> int:
        """Length of the latent vector."""
        return len(self.moment_orders())

    def moment_orders(self) -> Tensor:
        """Return what each latent (n_latents,) is: 0 for a mean, 1 for a standard deviation, 2 for a correlation."""
        orders = []
        for width in self.averaged_widths:
            counts = (width, width * self.deviations, n_correlations(width) * self.correlations)
            orders += [torch.full((count,), order) for order, count in enumerate(counts)]
        return torch.cat(orders)

    def with_moments(self, order: int) -> "TextureFCN":
        """Return a copy whose latents are means alone (0), with standard deviations (1), or with correlations (2)."""
        other = copy.deepcopy(self)
        other.deviations, other.correlations = order > 0, order > 1
        return other

    def blocks(self) -> Iterator[tuple[nn.Conv2d, nn.BatchNorm2d, nn.Module]]:
        """Go through the convolutions, each with its batch normalisation and its pooling."""
        layers = list(self.features)
        for layer, norm, behind in zip(layers, layers[1:], layers[2:], strict=False):
            if isinstance(layer, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                yield layer, norm, behind if isinstance(behind, nn.MaxPool2d) else nn.Identity()

    def round_filters(self) -> None:
        """Round all filters to numbers that half precision holds, three digits; batch norm has to be refreshed."""
        with torch.no_grad():
            for convolution, _, _ in self.blocks():
                rounded = convolution.weight.half().to(convolution.weight.dtype)
                convolution.weight.copy_(torch.where(rounded.isfinite(), rounded, convolution.weight))

    @staticmethod
    def average(maps: Tensor) -> Tensor:
        """Return the mean (b, c) of every map (b, c, h, w): global average pooling."""
        # Images differ by little in the mean of thousands of pixels, less than bfloat16 can tell.
        return maps.mean(dim=(2, 3), dtype=torch.float32 if maps.dtype == torch.bfloat16 else None)

    def block_latents(self, maps: Tensor) -> Tensor:
        """Return what one block with the maps (b, c, h, w) adds to the latents: the means of its `pooled_maps`."""
        parts = [self.average(maps)]
        precise = maps.float() if maps.dtype == torch.bfloat16 else maps
        if self.deviations:
            parts.append(self.average(deviation_maps(precise, self.average)))
        if self.correlations:
            parts.append(correlations(mix(precise, mixing(maps.shape[1], precise))))
        return torch.cat(parts, dim=1)

    def join(self, parts: list[Tensor]) -> Tensor:
        """Return latents (b, n_latents) from the `block_latents` of all blocks, of which only the last may count."""
        return torch.cat(parts, dim=1) if self.pooling == "all" else parts[-1]

    def fix_first_block(self) -> None:
        """Keep the first convolution and its batch normalisation as they are: training then takes half of the time."""
        convolution, norm, _ = next(self.blocks())
        for part in (convolution, norm):
            part.requires_grad_(False)
        self.first_is_fixed = True

    def train(self, mode: bool = True) -> "TextureFCN":
        """Set train or eval mode; a fixed first block stays in eval mode, as its statistics are fixed too."""
        super().train(mode)
        if self.first_is_fixed:
            for convolution, norm, _ in islice(self.blocks(), 1):  # none if they are folded into one already
                convolution.eval()
                norm.eval()
        return self


def reduce_pixels(batch: Tensor, factor: int) -> Tensor:
    """Return images (b, c, h, w) reduced by a factor: the means of squares, without what is left at the far sides.

    Examples
    --------
    >>> reduce_pixels(torch.tensor([[[[1.0, 3.0, 5.0], [1.0, 3.0, 7.0]]]]), 2)
    tensor([[[[2.]]]])
    """
    return batch if factor == 1 else avg_pool2d(batch, factor)


def _convolution(inputs: int, outputs: int, generator: torch.Generator) -> list[nn.Module]:
    # skip_init keeps torch from drawing the first weights from its global generator.
    convolution = nn.utils.skip_init(Convolution, inputs, outputs)
    nn.init.kaiming_uniform_(convolution.weight, a=math.sqrt(5), generator=generator)
    return [convolution, nn.BatchNorm2d(outputs)]
