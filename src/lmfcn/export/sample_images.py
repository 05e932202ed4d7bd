"""Images to compare with: textures drawn towards support vectors, noise, and whatever the user gives."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lmfcn.algorithm.encode import equal_size_batches, fold_batch_norm, spread_out, take
from lmfcn.export.graph import fixed_sides
from lmfcn.inference.model import TextureModel

SIZES = ((8, 8), (9, 31), (16, 16), (33, 50), (64, 64), (100, 81), (128, 192), (500, 333))
_FULL_SCALE = {"uint8": 255, "uint16": 65535}
_N_DRAWN = 8
_LARGEST_DRAWN = 64
_STEPS = 15
_STEP_SIZE = 0.08
_MOST_PIXELS = 2**15
_MOST_OF_THE_USERS = 64
_AT_ONCE = 16


def all_batches(model: TextureModel, X: Any = None) -> list[np.ndarray]:
    """Return what a file is compared on: batches of our own and, if there are any, of the user's images."""
    return [*sample_batches(model), *(() if X is None else user_batches(model, X))]


def sample_batches(model: TextureModel) -> list[np.ndarray]:
    """Return batches (b, h, w, c) of several sizes: textures like those of training, and noise.

    The training images are not in a model. Noise alone would be far from all of its support vectors, where every
    score is the same, so that a comparison would compare nothing. So are textures that were drawn for another size,
    as the zeros around an image take part; only large images repeat those of a smaller size.
    """
    generator = torch.Generator().manual_seed(0)
    heights, widths = fixed_sides(model.form)
    sizes = sorted({(heights or height, widths or width) for height, width in SIZES})
    drawn = {size: (heights or min(size[0], _LARGEST_DRAWN), widths or min(size[1], _LARGEST_DRAWN)) for size in sizes}
    textures = {size: draw_textures(model, size, generator) for size in sorted(set(drawn.values()))}
    return [_batch(model.form.pixels, textures[drawn[size]], size, generator) for size in sizes]


def draw_textures(model: TextureModel, size: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Return textures (n, c, h, w) that the networks see as they saw some of the support vectors.

    Steps against the gradient turn noise into images whose latents lie near those of support vectors.
    """
    networks = fold_batch_norm(model.networks)
    targets = model.support_latents[torch.from_numpy(spread_out(len(model.support_latents), _N_DRAWN))]
    pixels = torch.rand(len(targets), model.form.channels, *size, generator=generator).requires_grad_()
    optimizer = torch.optim.Adam([pixels], lr=_STEP_SIZE)
    for _ in range(_STEPS):
        latents = model.decision.scale.apply(networks(pixels))
        # The logarithm gives every image the same say, however far it still is.
        distance = (latents - targets.to(latents)).square().sum(dim=1).clamp(min=1e-12).log().sum()
        (pixels.grad,) = torch.autograd.grad(distance, [pixels])
        optimizer.step()
        with torch.no_grad():
            pixels.clamp_(0, 1)
    return pixels.detach()


def _batch(kind: str, textures: Tensor, size: tuple[int, int], generator: torch.Generator) -> np.ndarray:
    """Return as many textures and images of noise of one size as are checked quickly, at least one texture."""
    n_images = max(1, min(2 * len(textures), _MOST_PIXELS // (size[0] * size[1])))
    repeats = [-(-side // drawn) for side, drawn in zip(size, textures.shape[2:], strict=True)]
    tiled = textures.roll(size[0], dims=0)[: -(-n_images // 2)].repeat(1, 1, *repeats)[:, :, : size[0], : size[1]]
    contrast, noise = (
        torch.rand(n_images // 2, *shape, generator=generator) for shape in [(1, 1, 1), tuple(tiled.shape[1:])]
    )
    images = torch.cat([tiled, contrast * noise]).permute(0, 2, 3, 1).numpy()
    if kind not in _FULL_SCALE:
        return np.ascontiguousarray(images)
    return np.rint(images * _FULL_SCALE[kind]).astype(kind)


def user_batches(model: TextureModel, X: Any) -> Iterator[np.ndarray]:
    """Read up to 64 of the user's images, at even distances, as batches (b, h, w, c) in the model's form."""
    images = model.form.load(X)
    for positions in equal_size_batches(images, spread_out(len(images), _MOST_OF_THE_USERS), _AT_ONCE):
        yield take(images, positions)
