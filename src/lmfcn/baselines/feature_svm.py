"""An RBF SVM on feature vectors of images, the base of most baselines, with a cache on disk."""

import hashlib
import os
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from lmfcn.compute.resources import check_kernel_memory, to_cpu_double
from lmfcn.data.arrays import RandomState, as_generator
from lmfcn.data.image_form import LoadedImages
from lmfcn.data.splits import make_folds
from lmfcn.data.training_data import LabelledImages, TrainingData
from lmfcn.method.history import TrainingError
from lmfcn.method.kernel_svm import balanced_accuracy, class_numbers, has_spread
from lmfcn.model import probabilities
from lmfcn.recipe import Recipe
from lmfcn.training.estimator import ImageClassifier
from lmfcn.training.final_svm import NEVER_HELD_OUT, FinalSVM, SVMCandidate, fit_final_svm, grid
from lmfcn.training.fit import N_FOLDS, calibrated, cross_validation_folds, joined_groups


def check_cache_folder(folder: str | Path) -> None:
    """Create the folder of a cache; raise ValueError if that is not possible."""
    if not isinstance(folder, str | Path):
        raise ValueError(f"cache_dir must be the path of a folder, got {folder!r}.")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cache_dir must be a folder, but {folder} cannot be made one ({error}).") from error


class FeatureCache:
    """A folder of feature vectors, one small file each, named by a hash of the image's pixels.

    A changed image has another file name. A file holds only the numbers of its vector. A file of another length, or
    with numbers that are not finite, counts as missing.

    Parameters
    ----------
    folder : path
    kind : str
        Name and version of the features; each kind has its own folder.
    length : int
        Values of every vector.
    """

    def __init__(self, folder: str | Path, kind: str, length: int) -> None:
        self.folder = Path(folder) / kind
        self.length = length

    def get(self, image: np.ndarray) -> np.ndarray | None:
        """Return the vector of an image, or None if the cache does not have it."""
        try:
            content = self._path(image).read_bytes()
        except OSError:
            return None
        if len(content) != 8 * self.length:
            return None
        vector = np.frombuffer(content, dtype="<f8").astype(np.float64)
        return vector if np.isfinite(vector).all() else None

    def put(self, images: Sequence[np.ndarray], vectors: Sequence[np.ndarray]) -> None:
        """Write the vectors of some images."""
        for image, vector in zip(images, vectors, strict=True):
            path = self._path(image)
            path.parent.mkdir(parents=True, exist_ok=True)
            # Renamed when complete, but not forced to the disk: a lost file is only computed again.
            temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
            temporary.write_bytes(np.ascontiguousarray(vector, dtype="<f8").tobytes())
            temporary.replace(path)

    def _path(self, image: np.ndarray) -> Path:
        digest = hashlib.blake2b(repr((image.shape, image.dtype.str)).encode(), digest_size=16)
        digest.update(np.ascontiguousarray(image).data)
        name = digest.hexdigest()
        return self.folder / name[:2] / f"{name}.f8"


C_FACTORS = (1.0, 0.1, 10.0, 100.0)
GAMMA_FACTORS = (1.0, 0.3, 0.1, 0.03, 3.0, 10.0)
"""Multiples of C = 10 and of the gamma from the scale of the features. Cross-validation tries all pairs with
standardised features, and also the rule of LMFCN's final SVM, whose features are whitened within classes."""


class FeatureSVC(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ImageClassifier):
    """Base class: feature vectors with a calibrated RBF SVM, whose rule cross-validation chooses.

    The rule is that of LMFCN's final SVM, or a plain one with standardised features. A subclass computes the feature
    vectors. The SVM is fitted on training and validation images. If the features were learnt from the training
    images, only validation images score the rules, else all images do. Groups are never split.

    Attributes
    ----------
    classes_ : array (n_classes,)
    C_ : float
        Chosen by cross-validation.
    whitened_ : bool
        Whether cross-validation chose features that are whitened within classes.
    n_support_ : int
    calibration_error_ : float or None
    held_out_score_ : float or None
        Balanced accuracy on images that the SVM had not learnt from, by cross-validation.
    """

    learns_features = False
    """Whether the feature vectors depend on the labels of the training images."""

    random_state: RandomState

    @abstractmethod
    def _learn(self, data: TrainingData, random: np.random.Generator) -> Tensor | None:
        """Prepare what `_describe` needs; may return the feature vectors of the training images, if it has them."""

    @abstractmethod
    def _describe(self, images: LoadedImages) -> Tensor:
        """Return the feature vectors (n, n_features) of images (n, h, w, c)."""

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise ValueError for parameters that cannot work."""

    def fit(self, X: Any, y: Any = None, groups: Any = None, validation: Any = None) -> "FeatureSVC":
        """Learn from images and labels; the arguments are those of `LMFCNClassifier.fit`."""
        self._check_parameters()
        self.__dict__.pop("classes_", None)  # not a fitted classifier until the end of `fit`
        random = as_generator(self.random_state)
        data = self._check_data(X, y, groups, validation, random)
        parts = [data.train] if data.validation is None else [data.train, data.validation]
        check_kernel_memory(sum(len(part) for part in parts))
        learnt = self._learn(data, random)
        vectors = [] if learnt is None else [learnt]
        vectors += [self._describe(part.images) for part in parts[len(vectors) :]]
        features = torch.cat(vectors)
        self._check_features(features)
        self._n_features_out = features.shape[1]
        labels = torch.from_numpy(np.concatenate([part.numbers for part in parts])).to(features.device)
        folds = torch.from_numpy(self._folds(parts, random)).to(features.device)
        final = self._fit_svm(features, labels, folds)
        held_out = data.validation is not None or not self.learns_features
        self._decision, self._calibration = calibrated(final, labels, Recipe().prior_shift, held_out=held_out)
        self.classes_, self._form = data.classes, data.form
        self.C_, self.whitened_, self.n_support_ = final.rule.C, final.rule.whiten, len(final.support)
        self.calibration_error_ = self._calibration.error
        self.held_out_score_ = None
        if len(final.held_out):
            predicted = class_numbers(final.held_out_scores)
            self.held_out_score_ = balanced_accuracy(labels[final.held_out], predicted)
        return self

    def _check_features(self, features: Tensor) -> None:
        if not bool(torch.isfinite(features).all()):
            raise TrainingError(f"{type(self).__name__}: some features are not finite.")
        if not bool(has_spread(features.mean(dim=0), features.std(dim=0, correction=0)).any()):
            raise TrainingError(
                f"{type(self).__name__}: all {len(features)} images have the same features; check that the images"
                " differ and are not constant."
            )

    def rules(self) -> list[SVMCandidate]:
        """Return the rules that cross-validation chooses from."""
        own = SVMCandidate(Recipe().C)
        return [*grid(own, C_FACTORS, GAMMA_FACTORS), replace(own, whiten=True)]

    def _fit_svm(self, features: Tensor, labels: Tensor, folds: Tensor) -> FinalSVM:
        return fit_final_svm(features, labels, folds, Recipe(), self.rules())

    def predict(self, X: Any) -> np.ndarray:
        """Return the label (n,) of every image, the most probable one."""
        scores = self._scores(X)
        return self.classes_[class_numbers(scores).numpy()]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return probabilities (n, n_classes), calibrated on held-out scores."""
        scores = self._scores(X)
        return probabilities(scores, self._calibration.inverse_temperature).numpy()

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores (n, n_classes); for two classes one (n,), positive for `classes_[1]`."""
        scores = self._scores(X)
        return (scores[:, 0] if scores.shape[1] == 1 else scores).numpy()

    def transform(self, X: Any) -> np.ndarray:
        """Return the feature vectors (n, n_features), before they are standardised or whitened."""
        check_is_fitted(self, "classes_")
        return self._describe(self._form.load(self._rows(X))).cpu().numpy()

    def _scores(self, X: Any) -> Tensor:
        check_is_fitted(self, "classes_")
        return to_cpu_double(self._decision.scores(self._describe(self._form.load(self._rows(X)))))

    def _folds(self, parts: list[LabelledImages], random: np.random.Generator) -> np.ndarray:
        if self.learns_features and len(parts) == 2:
            train, validation = parts
            folds = make_folds(validation.numbers, N_FOLDS, random, validation.groups)
            return np.concatenate([np.full(len(train), NEVER_HELD_OUT), folds])
        return cross_validation_folds(np.concatenate([part.numbers for part in parts]), random, joined_groups(parts))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags
