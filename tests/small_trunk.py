"""A tiny network with random weights that can be a trunk, and a model with it; tests must not change it."""

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from lmfcn import LMFCNClassifier
from small_model import quick, textures


class SmallTrunk(nn.Module):
    """Two stages: maps of a half and of an eighth of the sides, the first one for the trained networks."""

    in_channels = 3
    input_size = 32
    step = 8
    trained_stage = 0

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.first = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.second = nn.Conv2d(6, 8, 5, stride=4, padding=2)
        with torch.no_grad():
            for weights in self.parameters():
                weights.copy_(0.3 * torch.randn(weights.shape, generator=generator))

    def stages(self, batch: Tensor) -> list[Tensor]:
        first = self.first(batch).relu()
        return [first, self.second(first).relu()]


@cache
def trunk_images() -> tuple[np.ndarray, np.ndarray]:
    """Images of 36x44 pixels."""
    images, labels = textures(10, 36, 44)
    images.setflags(write=False)
    return images, labels


def with_channels(images: np.ndarray, channels: int, pixels: str) -> np.ndarray:
    """Return grey 8-bit images with other channels, which differ, and other pixels, of which not all values occur."""
    images = np.stack([np.roll(images, channel, axis=2) for channel in range(channels)], axis=3)
    if pixels == "uint8":
        return images
    return images.astype(np.uint16) * 100 + 300 if pixels == "uint16" else (images / 300).astype(np.float32)


@cache
def trunk_classifier() -> LMFCNClassifier:
    """Three classes of 8-bit grey images."""
    return quick(network=SmallTrunk()).fit(*trunk_images())
