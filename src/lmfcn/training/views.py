"""How images are shown: at which scales they are described, and what a trained network sees of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch

from lmfcn.compute.encode import Images, equal_size_batches, image_sizes, refresh_and_encode, take
from lmfcn.compute.image_buffer import ImageBuffer
from lmfcn.data.image_form import LoadedImages
from lmfcn.data.training_data import LabelledImages, TrainingData
from lmfcn.method.kernel_svm import balanced_accuracy, class_numbers
from lmfcn.method.network import TextureFCN
from lmfcn.recipe import Recipe
from lmfcn.training.final_svm import fit_final_svm, svm_candidates

LARGEST_AREA = 512**2
"""Images are described as they are if half of them have no more pixels than these; larger ones are reduced first."""

COARSEST_SIDE = 32
"""The shorter side of most images at the coarsest scale has at least so many pixels."""

SMALLEST_REDUCED_SIDE = 4
"""The same for every image: less leaves nothing to pool."""

TRAINED_SIDE = 64
"""Trained networks see images reduced to about this side, or crops of it."""

_BATCH = 64


@dataclass(frozen=True)
class View:
    """What a trained network sees of the images.

    Attributes
    ----------
    reduction : int
        Factor by which images are reduced, a power of 2.
    crop_size : int or None
        Side in pixels of the random crops that are back-propagated; None for whole images.
    """

    reduction: int = 1
    crop_size: int | None = None

    def describe(self) -> str:
        """Return what is shown, in words."""
        if self.crop_size is not None:
            return f"random crops of {self.crop_size}x{self.crop_size} pixels"
        return "whole images" + ("" if self.reduction == 1 else f", reduced by a factor of {self.reduction}")


WHOLE = View()
"""Whole images as they are."""


def description_scales(sizes: np.ndarray, n_scales: int) -> tuple[int, ...]:
    """Return the factors by which images are reduced to be described, the smallest first.

    Parameters
    ----------
    sizes : array of int (n, 2)
        Height and width of every image.
    n_scales : int
        How many factors, if the images are large enough.

    Examples
    --------
    >>> description_scales(np.array([[200, 200]]), 3), description_scales(np.array([[64, 64]]), 3)
    ((1, 2, 4), (1, 2))
    >>> description_scales(np.array([[3000, 4000]]), 3)
    (8, 16, 32)
    """
    first = _smallest_power(lambda factor: bool(np.median(sizes.prod(axis=1)) / factor**2 <= LARGEST_AREA))
    factors = [first * 2**scale for scale in range(n_scales)]
    shorter = sizes.min(axis=1)
    fitting = [
        factor
        for factor in factors
        if np.median(shorter) >= COARSEST_SIDE * factor and shorter.min() >= SMALLEST_REDUCED_SIDE * factor
    ]
    return tuple(fitting) or (_largest_fitting(first, int(shorter.min())),)


def whole_view(sizes: np.ndarray) -> View:
    """Return whole images, reduced by the power of 2 that brings most of them nearest to `TRAINED_SIDE`.

    Examples
    --------
    >>> whole_view(np.array([[200, 200]])).reduction, whole_view(np.array([[64, 64]])).reduction
    (4, 1)
    """
    side = float(np.sqrt(np.median(sizes.prod(axis=1))))
    factor = 2 ** max(0, round(float(np.log2(side / TRAINED_SIDE))))
    return View(_largest_fitting(factor, int(sizes.min())))


def _smallest_power(fits: Callable[[int], bool]) -> int:
    factor = 1
    while not fits(factor):
        factor *= 2
    return factor


def _largest_fitting(factor: int, shortest: int) -> int:
    """Return the factor, or the largest power of 2 below it that leaves enough of the smallest image."""
    while factor > 1 and shortest < SMALLEST_REDUCED_SIDE * factor:
        factor //= 2
    return factor


def reduced_images(images: Images, factor: int) -> Images:
    """Return images reduced by a factor, with pixels of the same kind: the means of squares of pixels."""
    if factor == 1:
        return images
    buffer = None
    sizes = image_sizes(images) // factor
    for part in equal_size_batches(images, np.arange(len(images)), _BATCH):
        reduced = reduce_array(take(images, part), factor)
        buffer = ImageBuffer(sizes, reduced.dtype) if buffer is None else buffer
        buffer.put(part, reduced)
    return images if buffer is None else buffer.as_images()


def reduce_array(images: np.ndarray, factor: int) -> np.ndarray:
    """Return an array of images (n, h, w, c) reduced by a factor.

    Examples
    --------
    >>> reduce_array(np.array([[[[0], [1], [7]], [[2], [3], [7]]]], dtype=np.uint8), 2).tolist()
    [[[[2]]]]
    """
    n_images, height, width, channels = images.shape
    rows, columns = height // factor, width // factor
    squares = images[:, : rows * factor, : columns * factor].reshape(n_images, rows, factor, columns, factor, channels)
    means = squares.mean(axis=(2, 4), dtype=np.float32)
    return (np.rint(means) if images.dtype.kind == "u" else means).astype(images.dtype, copy=False)


def central_crops(images: Images, side: int) -> Images:
    """Return the middle of every image, with at most `side` pixels along each axis."""
    sizes = image_sizes(images)
    if int(sizes.max()) <= side:
        return images
    buffer = None
    for part in equal_size_batches(images, np.arange(len(images)), _BATCH):
        cut = _middle(take(images, part), side)
        buffer = ImageBuffer(sizes.clip(max=side), cut.dtype) if buffer is None else buffer
        buffer.put(part, cut)
    return images if buffer is None else buffer.as_images()


def _middle(images: np.ndarray, side: int) -> np.ndarray:
    height, width = images.shape[1:3]
    top, left = max(0, height - side) // 2, max(0, width - side) // 2
    return images[:, top : top + side, left : left + side]


def shown_data(data: TrainingData, view: View) -> TrainingData:
    """Return the same data as the networks are to encode them in the epochs.

    Whole images are reduced; where crops are back-propagated, epochs encode the middle of the images, a part of four
    times the pixels of a crop.
    """

    def shown(part: LabelledImages) -> LabelledImages:
        if view.crop_size is None:
            return replace(part, images=_loaded(reduced_images(part.images, view.reduction)))
        return replace(part, images=_loaded(central_crops(part.images, 2 * view.crop_size)), whole=part.images)

    validation = None if data.validation is None else shown(data.validation)
    return replace(data, train=shown(data.train), validation=validation)


def _loaded(images: Images) -> LoadedImages:
    return cast("LoadedImages", images)


def crop_tells_more(
    data: LabelledImages,
    networks: tuple[TextureFCN, TextureFCN],
    view: View,
    crop_size: int,
    folds: np.ndarray,
    device: torch.device,
) -> bool:
    """Tell whether one crop of each image tells the classes apart better than the whole image, reduced to its size.

    Both have about the same number of pixels. Fine textures that are alike everywhere are told apart better in a crop
    at full resolution; a crack in one corner is not.

    Parameters
    ----------
    data : LabelledImages
    networks : pair of TextureFCN
        Untrained ones, for whole images and for crops.
    view : View
        Of whole images.
    crop_size : int
    folds : array of int (n,)
        For the cross-validation.
    device : torch.device
    """
    whole = refresh_and_encode(networks[0], reduced_images(data.images, view.reduction), device)
    crop = refresh_and_encode(networks[1], central_crops(data.images, crop_size), device)
    return _cross_validated(crop, data, folds, device) > _cross_validated(whole, data, folds, device)


def _cross_validated(latents: torch.Tensor, data: LabelledImages, folds: np.ndarray, device: torch.device) -> float:
    recipe = Recipe()
    labels = torch.from_numpy(data.numbers).to(device)
    final = fit_final_svm(latents, labels, torch.from_numpy(folds).to(device), recipe, svm_candidates(recipe))
    if len(final.held_out) == 0:
        return 0.0
    return balanced_accuracy(labels[final.held_out], class_numbers(final.held_out_scores))
