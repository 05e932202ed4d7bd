"""Step 5: move the chosen images towards, or away from, their fixed anchors."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from lmfcn.algorithm.anchors import Anchors
from lmfcn.algorithm.encode import Images, equal_size_batches, take, to_batch
from lmfcn.algorithm.errors import TrainingError
from lmfcn.algorithm.latent_space import LatentSpace
from lmfcn.algorithm.loss import Pairs, contrast_loss, correction_loss, separation_loss, support_loss
from lmfcn.algorithm.precision import convolutions_in, uses_bfloat16
from lmfcn.algorithm.settings import Settings


@dataclass(frozen=True)
class Losses:
    """The three terms of the loss; their sum is equation 10."""

    support: Tensor
    correction: Tensor
    separation: Tensor

    @property
    def total(self) -> Tensor:
        """The sum of the terms, *L*."""
        return self.support + self.correction + self.separation


def losses(moved: Tensor, images: Tensor, space: LatentSpace, settings: Settings) -> Losses:
    """Return the three terms for some of the moving images.

    Parameters
    ----------
    moved : Tensor (b, phi)
        Latents of those images under the present weights, in the space of the kernel; they carry the gradient.
    images : Tensor (b,)
        Their indices in the training set.
    space : LatentSpace
        The start of the epoch; anchors are rows of its latents.
    """
    moved, latents = moved * space.loss_unit, space.latents * space.loss_unit
    squared = settings.distance == "squared"
    own = _pairs(space.anchors.support, moved, images, latents)
    if settings.support_loss == "pull":
        support = support_loss(*own, squared=squared)
    else:
        support = contrast_loss(own, _pairs(space.anchors.contrast, moved, images, latents), settings.sharpness)
    correction = correction_loss(*_pairs(space.anchors.correction, moved, images, latents), squared=squared)
    separation = separation_loss(*_pairs(space.anchors.opposite, moved, images, latents))
    return Losses(support, correction, separation)


def _pairs(anchors: Anchors, moved: Tensor, images: Tensor, latents: Tensor) -> Pairs:
    """Return moving latents (m, phi), anchor latents (m, k, phi) and validity (m, k) of one term."""
    places, rows = anchors.match(images)
    return moved[places], latents[anchors.anchor[rows]], anchors.valid[rows]


class Descent:
    """The optimiser of one training, with its learning rate over the epochs and its order of images."""

    def __init__(self, network: nn.Module, settings: Settings, generator: torch.Generator) -> None:
        self.network = network
        self.settings = settings
        self.generator = generator
        self.bfloat16 = uses_bfloat16(settings.precision)
        weights, rate, decay = network.parameters(), settings.learning_rate, settings.weight_decay
        self.optimizer: torch.optim.Optimizer
        if settings.optimizer == "adamw":
            self.optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=decay)
        else:
            self.optimizer = torch.optim.Adadelta(weights, lr=rate, rho=0.65, eps=1e-6, weight_decay=decay)

    def start_epoch(self, epoch: int) -> float:
        """Set the learning rate of an epoch, on half a cosine from first to final rate, and return it."""
        settings = self.settings
        rate = cosine_rate(settings.learning_rate, settings.final_rate, epoch / settings.epochs)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        return rate

    def back_propagate(self, images: Images, space: LatentSpace, epoch: int) -> int:
        """Take the optimiser steps of an epoch; return how many images went through the network."""
        device = space.latents.device
        self.network.train()
        n_images = 0
        for batch in self._batches(images, space.anchors.moved.cpu().numpy()):
            pixels = to_batch(take(images, batch), device)
            with convolutions_in(bfloat16=self.bfloat16, device=device):
                latents = self.network(pixels)
            moved = space.decision.scale.apply(latents)
            loss = losses(moved, torch.from_numpy(batch).to(device), space, self.settings).total
            if not torch.isfinite(loss):
                raise TrainingError(
                    f"The loss became {loss.item()} in epoch {epoch}; try a smaller learning_rate"
                    " (or a smaller sh_close, if it is not 0)."
                )
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            n_images += len(batch)
        return n_images

    def _batches(self, images: Images, moved: np.ndarray) -> Iterator[np.ndarray]:
        size = len(moved) if self.settings.batch_size == "all" else self.settings.batch_size
        for _ in range(self.settings.passes if len(moved) else 0):
            yield from shuffled_batches(images, moved, size, self.generator)


def cosine_rate(first: float, final_share: float, progress: float) -> float:
    """Return the learning rate on half a cosine from `first` to `final_share` of it, at a progress from 0 to 1.

    Examples
    --------
    >>> [round(cosine_rate(1.0, 0.1, progress), 2) for progress in (0, 0.5, 1)]
    [1.0, 0.55, 0.1]
    """
    final = first * final_share
    return final + (first - final) * (1 + math.cos(math.pi * progress)) / 2


def shuffled_batches(
    images: Images, positions: np.ndarray, size: int, generator: torch.Generator
) -> Iterator[np.ndarray]:
    """Divide positions into batches of images of equal size, in random order."""

    def shuffled(count: int) -> np.ndarray:
        return torch.randperm(count, generator=generator).numpy()

    batches = equal_size_batches(images, positions[shuffled(len(positions))], size)
    # Batches of one size come in a row; mixed sizes should not follow in the order of their size.
    yield from batches if isinstance(images, np.ndarray) else (batches[i] for i in shuffled(len(batches)))
