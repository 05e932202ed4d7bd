"""What the classifiers of this package share: the images they take, and what they tell scikit-learn."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import validate_data

from lmfcn.data.arrays import check_row_shape
from lmfcn.data.training_data import TrainingData, check_training_data
from lmfcn.util.checks import check_fraction

_ROW_PIXELS = [np.float64, np.float32, np.uint16, np.uint8]


class ImageClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of images that come as arrays, collections or paths, or as rows when `image_shape` is given.

    Subclasses have the parameters `image_shape`, `validation_fraction` and `verbose`.
    """

    image_shape: tuple[int, ...] | None
    validation_fraction: float
    verbose: bool

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
