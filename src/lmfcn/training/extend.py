"""Fit the last SVM of a model again with new images, of new classes too; the networks stay as they are."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lmfcn.compute.encode import encode, evenly_spaced
from lmfcn.compute.resources import check_kernel_memory
from lmfcn.data.arrays import check_labels
from lmfcn.data.image_form import LoadedImages, as_collection
from lmfcn.data.near_duplicates import group_near, join_groups, pack_hashes, perceptual_hashes, unpack_hashes
from lmfcn.data.splits import check_groups, make_folds
from lmfcn.data.training_data import image_digests, pack_digests, unpack_digests
from lmfcn.method.history import TrainingWarning
from lmfcn.method.kernel_svm import balanced_accuracy, class_numbers
from lmfcn.model import TextureModel
from lmfcn.recipe import Recipe
from lmfcn.training.final_svm import NEVER_HELD_OUT, SHRINKAGES, FinalSVM, Mirrored, fit_final_svm, svm_candidates
from lmfcn.training.fit import N_FOLDS, calibrated, keep_every_class
from lmfcn.training.frozen import MOST_MIRRORED

FEWEST_TO_CALIBRATE = 30
"""With fewer new images that could be held out, the calibration stays that of the model."""

DUE_SHARE = 0.5
"""A full training is due when so many images have come, as a share of those that the networks learnt from."""

_TOLERATED_LOSS = 0.05


@dataclass(frozen=True)
class _Images:
    """The images that the model knows and, behind them, the new ones, with the class number of each."""

    classes: np.ndarray
    numbers: np.ndarray
    n_known: int
    known: LoadedImages
    new: LoadedImages


def extend(model: TextureModel, X_new: Any, y_new: Any, X: Any, y: Any, groups: Any = None) -> TextureModel:
    """Return a model that has also learnt from new images; see `TextureModel.extend`."""
    images = _check(model, X_new, y_new, X, y)
    check_kernel_memory(len(images.numbers))
    recipe = _recipe_of(model)
    latents = torch.cat([model.latents(images.known), model.latents(images.new)])
    labels = torch.from_numpy(images.numbers).to(latents.device)
    folds = torch.from_numpy(_folds(images, groups)).to(latents.device)
    mirrored = _mirror_images(model, images.known) if recipe.sees_mirror_images else None
    final = fit_final_svm(latents, labels, folds, recipe, _rules(model, recipe, images), mirrored)
    decision, calibration = calibrated(final, labels, recipe.prior_shift, held_out=True)
    if len(final.held_out) < FEWEST_TO_CALIBRATE:
        calibration = model.calibration
    record = _record(model, images, final)
    extended = TextureModel(model.networks, decision, calibration, images.classes, model.form, record)
    if due := record["extended"]["training_due"]:
        warnings.warn(f"A full training is due: {due}", TrainingWarning, stacklevel=3)
    return extended


def _mirror_images(model: TextureModel, images: LoadedImages) -> Mirrored | None:
    """Return the latents of the mirror images of some images, as a fit with a frozen network does."""
    if model.trunk is None:
        return None
    chosen = evenly_spaced(len(images), MOST_MIRRORED)
    latents = encode(model.networks, images, model.device, chosen, mirrored=True)
    return Mirrored(torch.from_numpy(chosen).to(latents.device), latents)


def _check(model: TextureModel, X_new: Any, y_new: Any, X: Any, y: Any) -> _Images:
    """Load all images in the form of the model; refuse labels of other kinds, and training images that lack a class."""
    X_new, X = as_collection(X_new), as_collection(X)
    y_new = getattr(X_new, "labels", None) if y_new is None else y_new
    y = getattr(X, "labels", None) if y is None else y
    if y_new is None or y is None:
        raise ValueError("Labels are missing: extend needs those of the new images and those of the training images.")
    known, new = model.form.load(X), model.form.load(X_new)
    old_labels, new_labels = np.asarray(y), np.asarray(y_new)
    if (old_labels.dtype.kind in "USO") != (new_labels.dtype.kind in "USO"):
        raise ValueError(
            f"y_new must hold labels like {old_labels.tolist()[0]!r}, those of the model, got"
            f" {new_labels.tolist()[0]!r}; give all classes as texts, or all as numbers."
        )
    if len(old_labels) != len(known) or len(new_labels) != len(new):
        raise ValueError(
            f"There must be as many labels as images, got {len(new)} new images with {len(new_labels)} labels and"
            f" {len(known)} training images with {len(old_labels)}."
        )
    classes, numbers = check_labels(np.concatenate([old_labels, new_labels]), len(known) + len(new))
    missing = set(model.classes.tolist()) - set(old_labels.tolist())
    if missing:
        raise ValueError(
            f"X and y must be the images that the model was trained on, but they have no image of the class"
            f" {sorted(missing, key=str)[0]!r}; give all of them."
        )
    return _Images(classes, numbers, len(known), known, new)


def _recipe_of(model: TextureModel) -> Recipe:
    """Return the recipe in the record of a model."""
    parameters: Mapping[str, Any] = model.record.get("parameters", {})
    names = {entry.name for entry in fields(Recipe)}
    values = {name: value for name, value in parameters.items() if name in names}
    if "widths" in values:
        values["widths"] = tuple(values["widths"])
    return replace(Recipe(**values) if values else Recipe(), whiten=model.whitening is not None)


def _rules(model: TextureModel, recipe: Recipe, images: _Images) -> list[Any]:
    """Return what cross-validation may choose from, as in a fit."""
    by_class = model.record.get("parameters", {}).get("class_weight")
    weights: Tensor | None = None
    if isinstance(by_class, Mapping):
        factors = [float(by_class.get(str(label), 1.0)) for label in images.classes.tolist()]
        weights = torch.tensor(factors, dtype=torch.float64)[torch.from_numpy(images.numbers)].to(model.device)
    if model.trunk is None or not recipe.whiten:
        return svm_candidates(recipe, weights)
    return [rule for shrinkage in SHRINKAGES for rule in svm_candidates(recipe, weights, shrinkage)]


def _folds(images: _Images, groups: Any) -> np.ndarray:
    """Return folds of the new images: the networks have seen the others, so these can judge nothing."""
    n_new = len(images.new)
    own = None if groups is None else check_groups(groups, n_new)
    together = join_groups(own, group_near(perceptual_hashes(images.new)), n_new)
    folds = make_folds(images.numbers[images.n_known :], N_FOLDS, np.random.default_rng(0), together)
    numbered = np.arange(n_new) if together is None else np.unique(together, return_inverse=True)[1]
    return keep_every_class(
        np.concatenate([np.full(images.n_known, NEVER_HELD_OUT), folds]),
        images.numbers,
        np.concatenate([n_new + np.arange(images.n_known), numbered]),
    )


def _record(model: TextureModel, images: _Images, final: FinalSVM) -> dict[str, Any]:
    """Return the record of the model with what was added, and why a full training is due, if it is."""
    data = model.record.get("data", {})
    n_trained = data.get("n_train", images.n_known) + data.get("n_validation", 0)
    before, held_out = model.record.get("held_out", {}).get("balanced_accuracy"), final.held_out.cpu()
    numbers = torch.from_numpy(images.numbers)[held_out]
    accuracy = balanced_accuracy(numbers, class_numbers(final.held_out_scores.cpu())) if len(held_out) else None
    known = {str(name) for name in data.get("classes", model.classes.tolist())}
    extended = {
        "n_images": len(images.numbers),
        "n_new": len(images.numbers) - n_trained,
        "new_classes": [str(label) for label in images.classes.tolist() if str(label) not in known],
        "held_out_new": {"n_images": len(held_out), "balanced_accuracy": accuracy},
    }
    extended["training_due"] = _why_due(extended, n_trained, before)
    return {**model.record, **_fingerprints(model, images), "extended": extended}


def _why_due(extended: Mapping[str, Any], n_trained: int, before: float | None) -> str:
    """Say why the networks should be trained again; an empty text if they need not."""
    reasons, found = [], extended["held_out_new"]
    if extended["new_classes"]:
        reasons.append(f"the networks have never seen the class {', '.join(extended['new_classes'][:5])}")
    if extended["n_new"] >= DUE_SHARE * n_trained:
        reasons.append(f"they were trained on {n_trained} images, and {extended['n_new']} have come since")
    enough = found["n_images"] >= FEWEST_TO_CALIBRATE
    if before is not None and enough and found["balanced_accuracy"] < before - _TOLERATED_LOSS:
        reasons.append(
            f"the balanced accuracy on new images is {found['balanced_accuracy']:.2f}, on held-out images of the"
            f" training it was {before:.2f}"
        )
    return "; ".join(reasons) + "." if reasons else ""


def _fingerprints(model: TextureModel, images: _Images) -> dict[str, Any]:
    """Return digests and hashes by which all training images can be recognised."""
    digests = unpack_digests(model.record.get("image_digests")) | set(image_digests(images.new))
    found: dict[str, Any] = {"image_digests": pack_digests(digests)}
    hashes = unpack_hashes(model.record.get("image_hashes"))
    if hashes is not None:
        found["image_hashes"] = pack_hashes(np.concatenate([hashes, perceptual_hashes(images.new)]))
    return found
