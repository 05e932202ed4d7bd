"""Step 5: move the chosen images towards, or away from, their fixed anchors."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lmfcn.compute.encode import Images, convolutions_in, equal_size_batches, take, to_batch, uses_bfloat16
from lmfcn.method.anchors import LatentSpace
from lmfcn.method.history import TrainingError
from lmfcn.method.losses import loss_terms
from lmfcn.method.network import TextureFCN
from lmfcn.method.whole_batch import bytes_per_image, latents_in_pieces
from lmfcn.recipe import Recipe

MAP_BYTES = 2**28
"""Memory for the maps of a batch of all images; a larger batch is computed in pieces."""


class Head(nn.Module):
    """A linear layer that tells the classes apart, and what its mistakes cost: cross-entropy, all classes alike.

    It sees the latents as the network gives them. They differ little from image to image at first, so the layer
    cannot do the work alone and the network has to learn; on standardised latents it would have nothing to do.

    Parameters
    ----------
    latent_dim : int
    labels : Tensor (n,)
        Classes of all training images, 0, 1, ..., of which rare ones weigh more.
    """

    weights: Tensor

    def __init__(self, latent_dim: int, labels: Tensor) -> None:
        super().__init__()
        counts = labels.bincount().clamp(min=1)
        # skip_init leaves the global generator of torch alone.
        self.linear = nn.utils.skip_init(nn.Linear, latent_dim, len(counts), device=labels.device)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.register_buffer("weights", len(labels) / (len(counts) * counts.float()), persistent=False)

    def forward(self, latents: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy of latents (b, phi) with classes (b,)."""
        return cross_entropy(self.linear(latents), labels, self.weights)


class Descent:
    """The optimiser of one training, with its learning rate over the epochs and its order of images.

    `labels` (n,) are the classes of all training images. A batch of "all" whose maps would take more than `map_bytes`
    is computed in pieces. With a `crop_size`, random crops of so many pixels are shown and not whole images.
    """

    def __init__(
        self,
        network: TextureFCN,
        labels: Tensor,
        recipe: Recipe,
        generator: torch.Generator,
        map_bytes: int = MAP_BYTES,
        crop_size: int | None = None,
    ) -> None:
        self.network = network
        self.crop_size = crop_size
        self.labels = labels
        self.recipe = recipe
        self.generator = generator
        self.map_bytes = map_bytes
        self.bfloat16 = uses_bfloat16(recipe.precision, labels.device)
        self.extra_losses: list[Callable[[Tensor, Tensor], Tensor]] = []  # of latents and labels, set by callbacks
        self.head = Head(network.n_latents, labels) if recipe.head_weight else None
        rate, decay = recipe.learning_rate, recipe.weight_decay
        learnt = [weight for weight in network.parameters() if weight.requires_grad]
        weights: list[dict[str, Any]] = [{"params": learnt, "factor": 1.0}]
        if self.head is not None:
            weights.append({"params": list(self.head.parameters()), "factor": recipe.head_rate})
        self.optimizer: torch.optim.Optimizer
        if recipe.optimizer == "adamw":
            self.optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=decay)
        else:
            self.optimizer = torch.optim.Adadelta(weights, lr=rate, rho=0.65, eps=1e-6, weight_decay=decay)

    def start_epoch(self, epoch: int) -> float:
        """Set the learning rate of an epoch, on half a cosine from first to final rate, and return it."""
        recipe = self.recipe
        rate = cosine_rate(recipe.learning_rate, recipe.final_rate, epoch / recipe.n_epochs)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        return rate

    def back_propagate(
        self, images: Images, space: LatentSpace, epoch: int, batch_done: Callable[[float], None] = lambda _: None
    ) -> int:
        """Take the optimiser steps of an epoch; return how many images went through the network.

        After every batch, `batch_done` is called with the share of the epoch's images that had their turn.
        """
        device, moved = space.latents.device, self.moved(space).cpu().numpy()
        self.network.train()
        n_images, n_offered = 0, 0
        for batch in self._batches(images, moved):
            n_offered += len(batch)
            if not self._costs_anything(torch.from_numpy(batch).to(device), space):
                continue  # a step without a gradient would still decay the weights and follow the momentum
            self.optimizer.zero_grad(set_to_none=True)
            for part in self._parts(batch):
                loss = self._loss(self._latents(images, part, device), torch.from_numpy(part).to(device), space)
                if not torch.isfinite(loss):
                    raise TrainingError(
                        f"The loss became {loss.item()} in epoch {epoch}; try a smaller learning_rate"
                        " (or a smaller sh_close, if it is not 0)."
                    )
                loss.backward()
            self.optimizer.step()
            n_images += len(batch)
            batch_done(n_offered / (self.recipe.n_passes * len(moved)))
        return n_images

    def moved(self, space: LatentSpace) -> Tensor:
        """Return the images (m,) that an epoch moves: those of the anchors' terms; for the head, all of S.

        Terms with a weight of 0 move nothing.
        """
        anchored = space.anchors.moved if self.recipe.anchor_weight else space.svm.support[:0]
        if self.head is None:
            return anchored
        return torch.cat([anchored, space.svm.support]).unique()

    def _costs_anything(self, images: Tensor, space: LatentSpace) -> bool:
        """Tell whether a term that is switched on costs something for at least one of the images (b,)."""
        if self.head is not None and bool(torch.isin(images, space.svm.support).any()):
            return True
        return bool(self.recipe.anchor_weight) and bool(torch.isin(images, space.anchors.anchored).any())

    def _latents(self, images: Images, batch: np.ndarray, device: torch.device) -> Tensor:
        """Return the latents (b, n_latents) of a batch in train mode; a whole set that is too large goes in pieces."""
        with convolutions_in(bfloat16=self.bfloat16, device=device):
            shown = self._shown(images, batch)
            # The memory of a mini-batch is the user's choice, by its size; pieces would only make it slower.
            if self.recipe.batch_size == "all":
                height, width = shown(slice(1)).shape[1:3]
                n_fitting = max(1, self.map_bytes // bytes_per_image(self.network, height, width))
                if len(batch) > n_fitting:
                    kind, square = self.recipe.augmentation, height == width
                    augmentation = Augmentation(len(batch), kind, self.generator, square=square)

                    def pixels(part: slice) -> Tensor:
                        return augmentation.apply(to_batch(shown(part), device), part)

                    return latents_in_pieces(self.network, pixels, len(batch), n_fitting)
            latents: Tensor = self.network(
                augment(to_batch(shown(slice(None)), device), self.recipe.augmentation, self.generator)
            )
            return latents

    def _shown(self, images: Images, batch: np.ndarray) -> Callable[[slice], np.ndarray]:
        """Return what gives the pixels (b, h, w, c) of a part of a batch: whole images, or a random crop of each."""
        if self.crop_size is None:
            return lambda part: take(images, batch[part])
        # Drawn once: a batch in pieces asks for the same pixels several times.
        crops = random_crops((take(images, batch[[i]])[0] for i in range(len(batch))), self.crop_size, self.generator)
        return lambda part: crops[part]

    def _loss(self, latents: Tensor, images: Tensor, space: LatentSpace) -> Tensor:
        loss = latents.new_zeros(())
        if self.recipe.anchor_weight:
            moved = space.decision.scale.apply(latents)
            loss = self.recipe.anchor_weight * loss_terms(moved, images, space, self.recipe).total
        supports = torch.isin(images, space.svm.support)
        if self.head is not None and bool(supports.any()):
            loss = loss + self.recipe.head_weight * self.head(latents[supports], self.labels[images[supports]])
        for extra_loss in self.extra_losses:
            loss = loss + extra_loss(latents, self.labels[images])
        return loss

    def _parts(self, batch: np.ndarray) -> list[np.ndarray]:
        """Return what goes through the network at once: the batch, or each of its images by itself."""
        return list(batch[:, None]) if self.recipe.batch_size == "image" else [batch]

    def _batches(self, images: Images, moved: np.ndarray) -> Iterator[np.ndarray]:
        size = len(moved) if self.recipe.batch_size == "all" else self.recipe.batch_size
        for _ in range(self.recipe.n_passes if len(moved) else 0):
            if size == "image":
                # Class by class, as in the authors' program; running averages then remember the last class best.
                yield moved[np.argsort(self.labels.cpu().numpy()[moved], kind="stable")]
            elif self.crop_size is None:
                yield from shuffled_batches(images, moved, size, self.generator)
            else:  # crops have one size, whatever the images have
                order = torch.randperm(len(moved), generator=self.generator).numpy()
                yield from np.array_split(moved[order], -(-len(moved) // size))


class Augmentation:
    """Random flips of each image of a batch: "flips" in both directions, "dihedral" also at the diagonal.

    The latter are all eight flips and quarter turns of a square. Images that are not square are only flipped.

    Parameters
    ----------
    n_images : int
        Images of the batch.
    kind : {"none", "flips", "dihedral"}
    generator : torch.Generator
    square : bool
        Whether height and width are the same.
    """

    def __init__(self, n_images: int, kind: str, generator: torch.Generator, *, square: bool) -> None:
        n_changes = 0 if kind == "none" else 3 if kind == "dihedral" and square else 2
        self.chosen = [torch.rand(n_images, generator=generator) < 0.5 for _ in range(n_changes)]

    def apply(self, pixels: Tensor, part: slice = slice(None)) -> Tensor:
        """Return the images (b, c, h, w) of a part of the batch, flipped as chosen."""
        changes: list[Callable[[Tensor], Tensor]] = [lambda batch: batch.flip(2), lambda batch: batch.flip(3)]
        changes += [lambda batch: batch.transpose(2, 3)]
        for change, chosen in zip(changes, self.chosen, strict=False):
            here = chosen[part].to(pixels.device)[:, None, None, None]
            pixels = torch.where(here, change(pixels), pixels)
        return pixels


def augment(pixels: Tensor, kind: str, generator: torch.Generator) -> Tensor:
    """Flip each image of a batch (b, c, h, w) at random, as `Augmentation` says."""
    square = pixels.shape[2] == pixels.shape[3]
    return Augmentation(len(pixels), kind, generator, square=square).apply(pixels)


def random_crops(images: Iterable[np.ndarray], side: int, generator: torch.Generator) -> np.ndarray:
    """Return a random square (n, side, side, c) of each image (h, w, c); an image that is too small goes on mirrored.

    Examples
    --------
    >>> image = np.arange(4).reshape(2, 2, 1)
    >>> random_crops([image], 4, torch.Generator().manual_seed(0))[0, :, :, 0].tolist()
    [[0, 1, 1, 0], [2, 3, 3, 2], [2, 3, 3, 2], [0, 1, 1, 0]]
    """
    crops = []
    for image in images:
        height, width = image.shape[:2]
        if min(height, width) < side:
            missing = ((0, max(0, side - height)), (0, max(0, side - width)), (0, 0))
            image = np.pad(image, missing, mode="symmetric")
        top, left = (int(torch.randint(length - side + 1, (1,), generator=generator)) for length in image.shape[:2])
        crops.append(image[top : top + side, left : left + side])
    return np.stack(crops)


def back_propagate_terms(
    descent: Descent,
    images: Images,
    space: LatentSpace,
    epoch: int,
    batch_done: Callable[[float], None] = lambda _: None,
) -> int:
    """Take the steps of an epoch for each term of the loss in turn; return how many images went through the network.

    All terms keep the anchors of the start of the epoch.
    """
    turns = [replace(space, anchors=anchors) for anchors in space.anchors.single_terms()]
    turns = [turn for turn in turns if len(turn.anchors.moved)]
    n_images = 0
    for number, turn in enumerate(turns):

        def turn_done(share: float, before: int = number) -> None:
            batch_done((before + share) / len(turns))

        n_images += descent.back_propagate(images, turn, epoch, turn_done)
    return n_images


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
