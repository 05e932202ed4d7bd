"""LMFCN and other methods on a folder of your own, on the same split.

python examples/compare_methods.py my_images

One folder per class (or a table with the columns path, label and group). Needs the extra `textures` for LBP.
"""

import sys
from typing import Any

from sklearn.metrics import balanced_accuracy_score

from lmfcn import LMFCNClassifier
from lmfcn.baselines import METHODS
from lmfcn.baselines.tuning import Tuned
from lmfcn.data.sources import open_collection
from lmfcn.data.splits import split

NAMES = ("CNN + SVM", "LBP", "random-fcn")


def main(folder: str, size: int = 64, **options: Any) -> dict[str, float]:
    """Train and test each method once; return the test balanced accuracies."""
    images = open_collection(folder).resized(size)
    parts = split(images.labels, groups=images.groups, random_state=0)
    train, validation, test = (images[part] for part in (parts.train, parts.validation, parts.test))
    estimators = {"LMFCN": LMFCNClassifier(), **{name: METHODS[name]() for name in NAMES}}
    scores = {}
    for name, estimator in estimators.items():
        known = estimator.get_params()
        wanted = {"random_state": 0, "verbose": True, **options}
        estimator.set_params(**{key: value for key, value in wanted.items() if key in known})
        tuned = Tuned(estimator).fit(train, validation=validation)  # the same budget for all
        scores[name] = float(balanced_accuracy_score(test.labels, tuned.predict(test)))
        print(f"{name:12s} test balanced accuracy {scores[name]:.3f}  chosen: {tuned.best_params_ or 'defaults'}")
    return scores


if __name__ == "__main__":
    main(sys.argv[1])
