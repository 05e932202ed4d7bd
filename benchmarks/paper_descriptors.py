"""Why do LBP and PFTAS do so badly on the Gaussian images of the paper? Images and SVMs that could explain it.

    python benchmarks/paper_descriptors.py [--seeds 0 1] [--size 128]

For each treatment of the paper's images (`make_gaussians(kind="paper")`) and each descriptor: balanced accuracy on
training and test images of SVMs without any tuning. "scaled" standardises every feature; "raw" does not; gamma is
1 / (n_features * variance), as in the authors' program, or 1 / n_features ("auto", scikit-learn's former default).
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.metrics import balanced_accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from lmfcn.baselines.descriptors import DESCRIPTORS
from lmfcn.benchmark.tasks import gaussians


def grey(image: np.ndarray) -> np.ndarray:
    """Return the image in grey, as Pillow converts it."""
    return np.asarray(Image.fromarray(image).convert("L"))


def halved(image: np.ndarray) -> np.ndarray:
    """Return the image at half its size, bilinear."""
    return np.asarray(Image.fromarray(image).resize((image.shape[1] // 2, image.shape[0] // 2), Image.BILINEAR))


def stretched(image: np.ndarray) -> np.ndarray:
    """Return the image at 350x230 pixels, the size in the README of the authors' program, bilinear."""
    return np.asarray(Image.fromarray(image).resize((350, 230), Image.BILINEAR))


def centre(image: np.ndarray) -> np.ndarray:
    """Return the middle of the image, where no turn leaves a black corner."""
    height, width = (side // 4 for side in image.shape[:2])
    return image[height:-height, width:-width]


TREATMENTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "as they are": lambda image: image,
    "grey": grey,
    "half the size": halved,
    "350x230": stretched,
    "centre": centre,
}
MACHINES = {
    "raw, gamma auto": lambda: SVC(C=1.0, gamma="auto"),
    "raw, gamma scale": lambda: SVC(C=1.0, gamma="scale"),
    "scaled": lambda: make_pipeline(StandardScaler(), SVC(C=1.0)),
}


def main() -> None:
    """Print a line per treatment and descriptor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--treatments", nargs="+", choices=list(TREATMENTS), default=list(TREATMENTS))
    parser.add_argument("--descriptors", nargs="+", choices=list(DESCRIPTORS), default=list(DESCRIPTORS))
    options = parser.parse_args()
    for treatment in options.treatments:
        for name in options.descriptors:
            scores: dict[str, list[tuple[float, float]]] = {machine: [] for machine in MACHINES}
            for seed in options.seeds:
                data = gaussians(Path(), seed, size=options.size, counts=(100, 1, 100), kind="paper")
                train, test = (
                    np.array([DESCRIPTORS[name](TREATMENTS[treatment](np.asarray(image))) for image in part.images])
                    for part in (data.train, data.test)
                )
                for machine, make in MACHINES.items():
                    svm = make().fit(train, data.train.labels)
                    scores[machine].append(
                        tuple(
                            balanced_accuracy_score(part.labels, svm.predict(features))
                            for part, features in ((data.train, train), (data.test, test))
                        )
                    )
            words = "; ".join(
                f"{machine} {'/'.join(f'{mean:.3f}' for mean in np.mean(found, axis=0))}"
                for machine, found in scores.items()
            )
            print(f"{treatment}, {name}: train/test {words}", flush=True)


if __name__ == "__main__":
    main()
