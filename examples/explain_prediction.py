"""Why a model says so: deciding images, and where in the image. python examples/explain_prediction.py [FOLDER]."""

import sys
from pathlib import Path

import numpy as np

import lmfcn
from lmfcn import LMFCNClassifier, make_gaussians
from lmfcn.explain.explanation import Explanation, explain
from lmfcn.explain.gallery import Gallery, load_gallery, save_gallery
from lmfcn.report.overlay import overlay


def main(folder: Path, n_per_class: int = 40, size: int = 64, epochs: int = 3) -> Explanation:
    """Train, keep a gallery beside the model, and explain an image of which each half is of another class."""
    X, y = make_gaussians(n_per_class, size, random_state=0, stds=(10, 60))
    classifier = LMFCNClassifier(epochs=epochs, random_state=0, verbose=True).fit(X, y)
    classifier.save(folder / "model.lmfcn")
    save_gallery(Gallery.of(classifier, X, y), folder / "model.gallery")

    model = lmfcn.load(folder / "model.lmfcn")  # anywhere, as long as the gallery comes along
    gallery = load_gallery(folder / "model.gallery", model)
    X_new, y_new = make_gaussians(2, size, random_state=1, stds=(10, 60))
    image = np.concatenate([X_new[y_new == 0][0], X_new[y_new == 1][0]], axis=1)  # class 0 on the left
    found = explain(model, image, gallery, label=0, top=3)

    print(f"predicted: {found.label}; decision value for class 0: {found.value:+.3f}")
    for title, entries in (("for", found.supporting), ("against", found.opposing)):
        names = ", ".join(f"{entry.name} ({entry.weight:+.3f})" for entry in entries)
        print(f"{title} class 0: {names}")
    middle = found.map.values.shape[1] // 2
    left, right = found.map.values[:, :middle].mean(), found.map.values[:, middle:].mean()
    print(f"left half {left:+.3f}, right half {right:+.3f}, mean {found.map.values.mean():+.3f}")
    (folder / "map.png").write_bytes(overlay(image[..., None], found.map.values))
    return found


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "explained")
    target.mkdir(exist_ok=True)
    main(target)
