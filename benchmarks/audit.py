"""How many planted wrong labels an audit finds, by the latents that it rests on.

python benchmarks/audit.py FOLDER --images 50 --seeds 0 1 2 [--classes NAME NAME]

Takes some images of every class (or of some classes) of a folder, grey and 64x64, and gives 5 % of all images a wrong
label drawn at random; then trains LMFCN on what it is given, as `lmfcn audit` does. Images of one group are held out
together. Prints a line of JSON per seed and kind of latents: the cross-validated balanced accuracy that the audit
states, the share of the wrong labels that are among the first 5 % and 10 % of the ranking, and how many images look
like another class than their label. "quick" is `lmfcn audit --quick`, without any training; --quick measures only
that. A hard set, such as the two cancers of lung, shows what an audit is worth where the classifier itself errs.
"""

import argparse
import json
from collections.abc import Iterator

import numpy as np

from lmfcn import LMFCNClassifier, Recipe
from lmfcn.baselines.network_svm import RandomFCN
from lmfcn.data.collection import ImageCollection
from lmfcn.data.leaks import find_duplicates
from lmfcn.data.sources import open_collection
from lmfcn.explain.audit import audit

SHARE_WRONG = 0.05


def plant(
    folder: str, n_images: int, seed: int, classes: list[str] | None = None
) -> tuple[ImageCollection, np.ndarray, np.ndarray]:
    """Return images, labels of which some are wrong, and which ones are."""
    images = open_collection(folder, color="grey").resized(64)
    random = np.random.default_rng(seed)
    classes = np.unique(images.labels) if classes is None else np.array(classes)
    chosen = [random.permutation(np.flatnonzero(images.labels == label))[:n_images] for label in classes]
    images = images[np.sort(np.concatenate(chosen))]
    labels = images.labels.copy()
    wrong = random.permutation(len(labels))[: round(SHARE_WRONG * len(labels))]
    for position in wrong:
        labels[position] = random.choice(classes[classes != images.labels[position]])
    return images, labels, wrong


def latents_by_kind(X: np.ndarray, y: np.ndarray, seed: int, *, quick: bool) -> Iterator[tuple[str, np.ndarray]]:
    untrained = RandomFCN(pooling="all", first_filters="decorrelated", random_state=seed)
    yield "quick", untrained.fit(X, y).transform(X)
    if quick:
        return
    classifier = LMFCNClassifier(recipe=Recipe(refit_epochs=0), random_state=seed).fit(X, y)
    latents, n_untrained = classifier.model_.latents(X).numpy(), classifier.model_.members[0].n_latents
    yield "untrained part of the model", latents[:, :n_untrained]
    yield "trained part of the model", latents[:, n_untrained:]
    yield "whole model", latents


def measure(latents: np.ndarray, y: np.ndarray, wrong: np.ndarray, images: ImageCollection) -> dict[str, float]:
    found = audit(latents, y, images.groups, near_identical=find_duplicates(images).connected)
    recall = {
        f"found_in_first_{share:.0%}": float(np.isin(wrong, found.order[: round(share * len(y))]).mean())
        for share in (0.05, 0.1)
    }
    disagreeing = np.isin(found.disagreeing, wrong)
    return {
        "balanced_accuracy": round(found.balanced_accuracy, 3),
        **recall,
        "disagreeing": len(disagreeing),
        "wrong_among_disagreeing": int(disagreeing.sum()),
        "wrong": len(wrong),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--classes", nargs="+", default=None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    for seed in arguments.seeds:
        images, y, wrong = plant(arguments.folder, arguments.images, seed, arguments.classes)
        for kind, latents in latents_by_kind(images.to_array(), y, seed, quick=arguments.quick):
            print(json.dumps({"seed": seed, "latents": kind, **measure(latents, y, wrong, images)}), flush=True)


if __name__ == "__main__":
    main()
