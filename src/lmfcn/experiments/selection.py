"""Which methods a comparison runs: those asked for, of them those that can, and in which order."""

from collections.abc import Container, Iterable, Sequence

import numpy as np

from lmfcn.baselines.able import check_able
from lmfcn.data.collections import ImageCollection
from lmfcn.experiments.measuring import CHANGES, METHODS, Changes

WEIGHT_OPTIONS = {"ResNet18": "--resnet18-weights", "InceptionV3": "--inception-weights"}

DEFAULT_METHODS = ("LMFCN", "LMFCN, untrained", "CNN-CE", "CNN + SVM", "GLCM", "LBP", "PFTAS", "random-fcn")

CHEAP_FIRST = (
    *("LBP", "PFTAS", "random-fcn", "LMFCN, untrained", "GLCM"),
    *("ResNet18", "ResNet18, random weights", "InceptionV3", "InceptionV3, random weights"),
    *("LMFCN", "LMFCN, paper's preset", "contrastive", "proxy-anchor", "proxy-NCA", "ranked-list"),
    *("CNN-CE", "CNN + SVM", "FV-CNN", "CNN-H", "CNN multiclass"),
)
"""All methods in the order in which they are run: those that take seconds are not kept waiting by others."""

_FEW_EPOCHS = {
    **{name: {"epochs": 5} for name in ("LMFCN", "LMFCN, paper's preset")},
    **{name: {"epochs": 20, "patience": 5} for name in ("CNN-CE", "CNN-H", "CNN multiclass", "CNN + SVM", "FV-CNN")},
    **{name: {"epochs": 10} for name in ("contrastive", "proxy-anchor", "proxy-NCA", "ranked-list")},
}
QUICK_CHANGES: Changes = {**CHANGES, **_FEW_EPOCHS}
"""What a quick look changes: too few epochs for a fair verdict on methods that train."""


def choose_methods(names: Iterable[str]) -> list[str]:
    """Return the methods by these names in the order to run them; "all" stands for every one.

    Upper and lower case do not matter, and several names may be joined by commas.

    Examples
    --------
    >>> choose_methods(["lmfcn, untrained,LBP", "LMFCN"])
    ['LBP', 'LMFCN, untrained', 'LMFCN']
    """
    known = {method.lower(): method for method in METHODS}
    wanted: set[str] = set()
    for name in divided_at_commas(names, known):
        if name == "all":
            wanted |= set(METHODS)
        elif name in known:
            wanted.add(known[name])
        else:
            raise ValueError(f"There is no method {name!r}; there are {'; '.join(METHODS)}; and all.")
    if not wanted:
        raise ValueError("--methods names no method.")
    return [method for method in CHEAP_FIRST if method in wanted]


def able_methods(
    methods: Sequence[str], images: ImageCollection, changes: Changes = CHANGES
) -> tuple[list[str], dict[str, str]]:
    """Return the methods that can run here on these images, and for each of the others the reason why not."""
    channels, pixels = images.form()
    smallest_side, left_out = int(images.sizes().min()), _idle_methods(methods, images, changes)
    for method in (name for name in methods if name not in left_out):
        estimator = METHODS[method]().set_params(**changes.get(method, {}))
        try:
            check_able(estimator, channels, pixels, smallest_side)
        except (ImportError, ValueError, OSError) as error:
            left_out[method] = str(error)
    able = [method for method in methods if method not in left_out]
    if not able:
        raise ValueError(f"None of the methods can run: {'; '.join(left_out.values())}")
    return able, left_out


def _idle_methods(methods: Sequence[str], images: ImageCollection, changes: Changes) -> dict[str, str]:
    """Return the reasons of those that lack their weights, or would be the same as another."""
    reasons = {
        method: f"its weights were not given ({WEIGHT_OPTIONS[method]} FILE)."
        for method in methods
        if method in WEIGHT_OPTIONS and "weights" not in changes.get(method, {})
    }
    if {"CNN multiclass", "CNN-CE"} <= set(methods) and len(np.unique(np.asarray(images.labels))) == 2:
        reasons["CNN multiclass"] = "with two classes it is the same network as CNN-CE."
    return reasons


def divided_at_commas(names: Iterable[str], known: Container[str]) -> list[str]:
    """Return names in lower case, divided at commas, but not where a comma is part of a known name."""
    pieces: list[str] = []
    for name in names:
        for piece in (part.strip().lower() for part in name.split(",") if part.strip()):
            joined = f"{pieces[-1]}, {piece}" if pieces else ""
            if joined in known:
                pieces[-1] = joined
            else:
                pieces.append(piece)
    return pieces
