"""Whether maps of the decision value point at the right places, and the picture of docs/explanations.md.

python benchmarks/where.py [--picture docs/images/where.png]

Trains on tiles of brick, grass and gravel (extra `textures`). Test tiles are shown as they are, and in pairs: the left
half of one beside the right half of one of another class. Prints a line of JSON per kind of map: the share of pixels
with the right sign, positive where the texture is that of the explained class and negative elsewhere; with the mean
slope on the way from the average image, which the package uses, and with the slope at the image itself.
"""

import argparse
import io
import json
from itertools import permutations
from unittest.mock import patch

import numpy as np
from PIL import Image
from torch import Tensor

from lmfcn import LMFCNClassifier
from lmfcn.data.datasets import load_photographed_textures
from lmfcn.explain.score_map import ClassScore, score_map
from lmfcn.model import TextureModel
from lmfcn.report.overlay import overlay

SIDES = np.where(np.arange(64) < 32, 1, -1)
PAIRS_PER_CLASSES = 8


def gradient(score: ClassScore, latent: Tensor) -> Tensor:
    latent, weights = latent.double(), score.weights(latent)
    return 2 * score.gamma * (weights @ score.support_latents - weights.sum() * latent)


def values_of(model: TextureModel, image: np.ndarray, label: str) -> np.ndarray:
    found = score_map(model, image, label)
    return found.values + (found.value - found.values.mean())  # which changes nothing for the mean slope


def halves(images: np.ndarray, labels: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Return images of two halves, with the label of the left one."""
    return [
        (left, np.concatenate([images[labels == left][i][:, :32], images[labels == right][i][:, 32:]], axis=1))
        for left, right in permutations(np.unique(labels).tolist(), 2)
        for i in range(PAIRS_PER_CLASSES)
    ]


def measure(model: TextureModel, images: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    pairs = [(np.sign(values_of(model, image, label)) == SIDES).mean() for label, image in halves(images, labels)]
    own = [(values_of(model, image, label) > 0).mean() for image, label in zip(images, labels, strict=True)]
    other = [
        (values_of(model, image, name) < 0).mean()
        for image, label in zip(images[::4], labels[::4], strict=True)
        for name in model.classes
        if name != label
    ]
    shares = {"two halves": pairs, "whole tile, own class": own, "whole tile, other class": other}
    return {name: round(float(np.mean(values)), 3) for name, values in shares.items()}


def draw(model: TextureModel, images: np.ndarray, labels: np.ndarray, path: str) -> None:
    """Draw three images of two halves, above their maps for the class of the left half."""
    shown = halves(images, labels)[:: 2 * PAIRS_PER_CLASSES]
    picture = Image.new("RGB", (3 * 256 + 2 * 16, 2 * 256 + 16), "white")
    for column, (label, image) in enumerate(shown):
        above = Image.fromarray(image[..., 0]).resize((256, 256), Image.Resampling.NEAREST)
        values = score_map(model, image, label).values
        picture.paste(above, (column * 272, 0))
        picture.paste(Image.open(io.BytesIO(overlay(image, values))), (column * 272, 272))
    picture.save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture")
    arguments = parser.parse_args()
    tiles = load_photographed_textures(64)
    model = LMFCNClassifier(epochs=5, random_state=0).fit(tiles.part("train"), validation=tiles.part("val")).model_
    images, labels = tiles.part("test").to_array(), tiles.part("test").labels
    if arguments.picture:
        draw(model, images, labels, arguments.picture)
    print(json.dumps({"map": "mean slope on the way", **measure(model, images, labels)}), flush=True)
    with patch.object(ClassScore, "mean_gradient", gradient):
        print(json.dumps({"map": "slope at the image", **measure(model, images, labels)}), flush=True)


if __name__ == "__main__":
    main()
