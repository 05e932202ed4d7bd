"""What the classifiers of this package share: the images they take, and what they tell scikit-learn."""

import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from lmfcn.data.arrays import check_row_shape
from lmfcn.data.collection import ImageCollection
from lmfcn.data.image_form import as_collection
from lmfcn.data.training_data import TrainingData, check_training_data
from lmfcn.util.checks import check_fraction

_ROW_PIXELS = [np.float64, np.float32, np.uint16, np.uint8]
_STRATIFY = (
    "in cross_val_score give y=images.labels: without it scikit-learn makes folds in the order of the images, and a"
    " folder is sorted by class"
)


class ImageClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of images that come as arrays, collections or paths, or as rows when `image_shape` is given.

    Subclasses have the parameters `image_shape`, `validation_fraction` and `verbose`.
    """

    image_shape: tuple[int, ...] | None
    validation_fraction: float
    verbose: bool

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy: the share of images whose predicted label is right.

        Parameters
        ----------
        X : images, as for `predict`
        y : array-like (n,), optional
            True labels; a collection, or a folder of class folders, may bring its own.
        sample_weight : array-like (n,), optional
            Weights of the images.
        """
        check_is_fitted(self, "classes_")
        if y is None:
            X = as_collection(X)
            y = _own_labels(X, self.classes_)
        return float(super().score(X, y, sample_weight))

    def _check_data(self, X: Any, y: Any, groups: Any, validation: Any, random: np.random.Generator) -> TrainingData:
        """Return checked images for training and validation, and note what later images must look like."""
        check_fraction("validation_fraction", self.validation_fraction)
        row_shape = None if self.image_shape is None else check_row_shape(self.image_shape)
        if row_shape is not None:
            X, y = validate_data(self, X, y, dtype=_ROW_PIXELS)
            if isinstance(validation, tuple) and len(validation) == 2:
                validation = (self._rows(validation[0]), validation[1])
        data = check_training_data(
            *(X, y, groups, validation, self.validation_fraction, random),
            row_shape=row_shape,
            split_duplicates=self._split_duplicates,
            verbose=self.verbose,
        )
        if row_shape is None:
            self.n_features_in_ = data.form.channels
            self.__dict__.pop("feature_names_in_", None)
        return data

    @property
    def _split_duplicates(self) -> bool:
        """Whether near-identical images may be separated by a split."""
        return False

    def _rows(self, X: Any) -> Any:
        """Check rows as scikit-learn does; images are checked where they are loaded."""
        return X if self.image_shape is None else validate_data(self, X, reset=False, dtype=_ROW_PIXELS)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = self.image_shape is not None
        tags.input_tags.three_d_array = self.image_shape is None
        return tags


def _own_labels(X: Any, classes: np.ndarray) -> np.ndarray:
    """Return the labels of a collection; notice folds that were made without them."""
    if not isinstance(X, ImageCollection) or X.labels is None:
        raise ValueError("y is missing: score needs a label for every image, as y or in the collection.")
    found, known = set(X.labels.tolist()), set(classes.tolist())
    if unknown := sorted(found - known, key=str):
        raise ValueError(f"The classifier was not fitted on images of the class {unknown[0]!r}; {_STRATIFY}.")
    if len(found) == 1:
        message = f"All {len(X)} images to score are of the class {found.pop()!r}; {_STRATIFY}."
        warnings.warn(message, UserWarning, stacklevel=3)
    return X.labels
