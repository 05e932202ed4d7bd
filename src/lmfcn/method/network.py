"""The network, *f_fcn*: a short fully convolutional net with global average pooling (Table 1)."""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

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
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.latent_dim = latent_dim
        self.widths = tuple(widths)
        self.pooling = pooling
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
        return torch.cat([self.average(maps) for maps in self.maps(batch)], dim=1)

    def maps(self, batch: Tensor) -> Iterator[Tensor]:
        """Go through the maps (b, c, h, w) whose means are the latents: those of all blocks, or of the last."""
        maps = batch.to(next(self.parameters()).dtype)
        for layer in self.features:
            maps = layer(maps)
            if layer is self.features[-1] or (self.pooling == "all" and isinstance(layer, nn.ReLU)):
                yield maps

    @property
    def n_latents(self) -> int:
        """Length of the latent vector."""
        return self.latent_dim + (sum(self.widths) if self.pooling == "all" else 0)

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

    def join(self, averages: list[Tensor]) -> Tensor:
        """Return latents (b, n_latents) from the averages (b, c) of the blocks, of which only the last may count."""
        return torch.cat(averages, dim=1) if self.pooling == "all" else averages[-1]


def _convolution(inputs: int, outputs: int, generator: torch.Generator) -> list[nn.Module]:
    # skip_init keeps torch from drawing the first weights from its global generator.
    convolution = nn.utils.skip_init(Convolution, inputs, outputs)
    nn.init.kaiming_uniform_(convolution.weight, a=math.sqrt(5), generator=generator)
    return [convolution, nn.BatchNorm2d(outputs)]
