"""An augmentation of your own: changed copies of the training images, each in the group of its original.

LMFCN flips images while it trains (`Recipe(augmentation=...)`). What else may change from image to image, such as
brightness here, comes as further images. Groups matter: without them a copy of a training image could be held out for
validation, and the accuracy would flatter.

python examples/own_augmentation.py
"""

import numpy as np

from lmfcn import LMFCNClassifier, make_gaussians


def brighter_or_darker(images: np.ndarray, random: np.random.Generator, strength: float = 0.3) -> np.ndarray:
    """Return every image (n, height, width) with another brightness."""
    factors = random.uniform(1 - strength, 1 + strength, len(images))
    return (images * factors[:, None, None]).round().clip(0, 255).astype(np.uint8)


def augmented(images: np.ndarray, labels: np.ndarray, n_copies: int, seed: int) -> tuple[np.ndarray, ...]:
    """Return images with changed copies, their labels, and from which image each comes."""
    random = np.random.default_rng(seed)
    copies = [brighter_or_darker(images, random) for _ in range(n_copies)]
    origins = np.tile(np.arange(len(images)), n_copies + 1)
    return np.concatenate([images, *copies]), np.tile(labels, n_copies + 1), origins


def main(n_per_class: int = 20, size: int = 64, epochs: int = 5) -> float:
    """Train with two copies of every image; return the accuracy on new images under other light."""
    X, y = make_gaussians(n_per_class, size, random_state=0)
    X_new, y_new = make_gaussians(n_per_class, size, random_state=1)
    images, labels, origins = augmented(X, y, n_copies=2, seed=0)
    classifier = LMFCNClassifier(epochs=epochs, random_state=0).fit(images, labels, groups=origins)
    new = brighter_or_darker(X_new, np.random.default_rng(2))
    accuracy = float(classifier.score(new, y_new))
    print(f"{len(images)} images of {len(X)} originals; accuracy under other light: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
