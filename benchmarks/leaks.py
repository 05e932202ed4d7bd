"""Near-identical images with hidden groups: how many are found, and what they do to the test accuracy.

    python benchmarks/leaks.py FOLDER [--tiles 100] [--seeds 0 1 2] [--classes lung_aca lung_scc]

FOLDER holds groups.csv with the columns path, label and group, such as LC25000's lung images, in which the images of
one group are augmentations of one source tile. The groups are hidden, near-identical images are searched, and pairs
that were found are compared with the pairs of the groups. Then a network that is not trained, with an SVM on its
features, is tested on splits by image, by the groups that were found, and by the true groups.

With --copies, only the first image of each group is used, with three copies of it that differ in brightness, contrast
and compression: what the search is made for.
"""

import argparse
import io
import json
from pathlib import Path

import numpy as np
from PIL import Image

from lmfcn.baselines.network_svm import RandomFCN
from lmfcn.data.collection import ImageCollection
from lmfcn.data.leaks import find_duplicates
from lmfcn.data.sources import open_collection
from lmfcn.data.splits import split

N_COPIES = 3


def choose_tiles(folder: str, classes: list[str], n_tiles: int, seed: int) -> ImageCollection:
    """Return all images of some groups of each class."""
    images = open_collection(Path(folder) / "groups.csv")
    random = np.random.default_rng(seed)
    chosen = [random.permutation(np.unique(images.groups[images.labels == label]))[:n_tiles] for label in classes]
    return images.subset(np.isin(images.groups, np.concatenate(chosen)))


def with_copies(images: ImageCollection, seed: int) -> ImageCollection:
    """Return the first image of each group, and copies of it that only differ in brightness and compression."""
    random = np.random.default_rng(seed)
    first = np.sort(np.unique(images.groups, return_index=True)[1])
    pixels = [images[int(position)] for position in first]
    copies = [changed(image, random) for _ in range(N_COPIES) for image in pixels]
    again = np.tile(first, N_COPIES + 1)
    return ImageCollection(np.stack([*pixels, *copies]), images.labels[again], images.groups[again])


def changed(image: np.ndarray, random: np.random.Generator) -> np.ndarray:
    values = image.astype(float) * random.uniform(0.7, 1.1) + random.uniform(-20, 20)
    with io.BytesIO() as file:
        picture = Image.fromarray(np.clip(values, 0, 255).astype(np.uint8))
        picture.save(file, "JPEG", quality=int(random.integers(40, 90)))
        return np.asarray(Image.open(file))


def count_pairs(found: list[tuple[int, ...]], groups: np.ndarray) -> dict[str, int]:
    """Return how many pairs of images were found, missed, and found although their groups differ."""
    sizes = np.unique(groups, return_counts=True)[1]
    n_true = int((sizes * (sizes - 1) // 2).sum())
    n_all = sum(len(group) * (len(group) - 1) // 2 for group in found)
    n_right = sum(
        int(groups[one] == groups[other]) for group in found for i, one in enumerate(group) for other in group[i + 1 :]
    )
    return {"true_pairs": n_true, "found": n_right, "missed": n_true - n_right, "wrong": n_all - n_right}


def test_accuracy(images: ImageCollection, groups: np.ndarray | None, seed: int) -> tuple[float, float]:
    """Return the balanced test accuracy, and the share of test images with a training image of their true group."""
    parts = split(images.labels, fractions=(0.6, 0.0, 0.4), groups=groups, random_state=seed)
    train, test = images.subset(parts.train), images.subset(parts.test)
    leaking = np.isin(test.groups, train.groups).mean()
    classifier = RandomFCN(pooling="all", first_filters="decorrelated", random_state=seed)
    classifier.fit(train.to_array(), train.labels, groups=train.groups if groups is images.groups else None)
    right = classifier.predict(test.to_array()) == test.labels
    recalls = [right[test.labels == label].mean() for label in np.unique(test.labels)]
    return float(np.mean(recalls)), float(leaking)


def measure(arguments: argparse.Namespace, seed: int) -> dict[str, object]:
    images = choose_tiles(arguments.folder, arguments.classes, arguments.tiles, seed)
    if arguments.copies:
        images = with_copies(images, seed)
    found = find_duplicates(images)
    small = images.resized(arguments.size)
    joined = found.keep_together(ImageCollection(np.zeros((len(images), 8, 8), np.uint8))).groups
    by = {"image": None, "found groups": joined, "true groups": small.groups}
    results = {name: test_accuracy(small, groups, seed) for name, groups in by.items()}
    return {
        "seed": seed,
        "images": len(images),
        **count_pairs(found.connected, images.groups),
        **{f"accuracy, split by {name}": round(accuracy, 3) for name, (accuracy, _) in results.items()},
        **{f"leaking test images, split by {name}": round(leaking, 3) for name, (_, leaking) in results.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--classes", nargs="+", default=["lung_aca", "lung_scc"])
    parser.add_argument("--tiles", type=int, default=50)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--copies", action="store_true")
    arguments = parser.parse_args()
    for seed in arguments.seeds:
        print(json.dumps(measure(arguments, seed)), flush=True)


if __name__ == "__main__":
    main()
