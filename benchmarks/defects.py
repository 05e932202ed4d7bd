"""Whether maps of the decision value show a defect wherever it is, and not the border of the image.

python benchmarks/defects.py [--networks texture-fcn efficientnet-lite0] [--picture defects.png]

Trains on generated surfaces: plain ones, with a hole, or with a scratch at a random place, which may be at the border.
Prints a line of JSON per network and kind of map:

- `found`: the share of test images with a defect in which the largest value of the map of their class is at the defect,
  at most one blur away; the same for defects that touch the border and for the others.
- `plain`, `constant`: by class, the mean of the map in the outer 8 pixels and inside, of plain and of constant images.

The kinds of map: "zeros" computes it from the feature maps of the image alone, as the networks see it, with zeros
beyond the border; "mean subtracted" subtracts those of the average training image; "mirrored" is the package's.
"""

import argparse
import io
import json
from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image
from scipy.ndimage import distance_transform_edt, gaussian_filter

from lmfcn import LMFCNClassifier
from lmfcn.compute.encode import fold_batch_norm, to_batch
from lmfcn.explain import score_map as package
from lmfcn.explain.score_map import BLUR, ClassScore, class_number, score_map, upsampling_matrix
from lmfcn.model import TextureModel
from lmfcn.report.overlay import overlay

SIDE, OUTER = 96, 8
CLASSES = ("hole", "plain", "scratch")
MapOf = Callable[[np.ndarray, str], np.ndarray]


def surface(random: np.random.Generator) -> np.ndarray:
    rough = gaussian_filter(random.normal(size=(SIDE, SIDE)), 1.0, mode="wrap")
    return random.uniform(90, 170) + random.uniform(8, 16) * rough / rough.std()


def defect(random: np.random.Generator, kind: str) -> np.ndarray:
    """Return how much of a defect is at each pixel, from 0 to 1; its middle is anywhere in the image."""
    y, x = np.mgrid[:SIDE, :SIDE] - random.uniform(0, SIDE, (2, 1, 1))
    if kind == "hole":
        return 1 / (1 + np.exp((np.hypot(y, x) - random.uniform(5, 9)) / 0.7))
    angle = random.uniform(0, np.pi)
    along, across = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    return np.exp(-0.5 * np.square(across / 1.2)) / (1 + np.exp(abs(along) - random.uniform(10, 16)))


def surfaces(n_per_class: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return images (n, h, w, 1), their classes, and where their defects are (n, h, w)."""
    random, images, places = np.random.default_rng(seed), [], []
    for kind in np.repeat(CLASSES, n_per_class):
        amount = np.zeros((SIDE, SIDE)) if kind == "plain" else defect(random, kind)
        images.append(surface(random) + (70 if kind == "scratch" else -60) * amount)
        places.append(amount > 0.3)
    return np.rint(images).clip(0, 255).astype(np.uint8)[..., None], np.repeat(CLASSES, n_per_class), np.array(places)


def kinds_of_map(model: TextureModel, train: np.ndarray) -> dict[str, MapOf]:
    means = [sum(maps) / len(train) for maps in zip(*(feature_maps(model, image) for image in train), strict=True)]

    def zeros(image: np.ndarray, label: str) -> np.ndarray:
        with patch.object(package, "_margins", lambda *_: ((0, 0), None)):
            return score_map(model, image, label).values

    def mean_subtracted(image: np.ndarray, label: str) -> np.ndarray:
        score, scale = ClassScore.of(model.decision, class_number(model.classes, label)), model.decision.scale
        gradients = scale.pull_back(score.mean_gradient(torch.from_numpy(model.transform(image[None])[0])))
        values, baseline, start = zeros(image, label), np.zeros((SIDE, SIDE)), 0
        for mean in means:
            matrix = upsampling_matrix(mean.shape[1], SIDE, BLUR * SIDE)
            cells = torch.tensordot(gradients[start : start + len(mean)], mean, dims=1).numpy()
            baseline, start = baseline + matrix @ cells @ matrix.T, start + len(mean)
        return values - baseline + baseline.mean()

    return {
        "zeros": zeros,
        "mean subtracted": mean_subtracted,
        "mirrored": lambda image, label: score_map(model, image, label).values,
    }


def feature_maps(model: TextureModel, image: np.ndarray) -> list[torch.Tensor]:
    with torch.no_grad():
        return [maps[0].double() for maps in fold_batch_norm(model.networks).maps(to_batch(image[None], model.device))]


def share_found(map_of: MapOf, images: np.ndarray, labels: np.ndarray, places: np.ndarray) -> dict[str, float]:
    found, at_border = [], []
    for image, label, place in zip(images, labels, places, strict=True):
        if not place.any():  # a plain image, or a defect with all but its faint end outside
            continue
        found.append(distance_transform_edt(~place).flat[map_of(image, label).argmax()] <= BLUR * SIDE)
        at_border.append(place[[0, -1]].any() or place[:, [0, -1]].any())
    shares = {
        "all": found,
        "at the border": np.extract(at_border, found),
        "inside": np.extract(~np.array(at_border), found),
    }
    return {name: round(float(np.mean(values)), 3) for name, values in shares.items()}


def border_and_inside(map_of: MapOf, images: np.ndarray) -> dict[str, tuple[float, float]]:
    inside = np.zeros((SIDE, SIDE), dtype=bool)
    inside[OUTER:-OUTER, OUTER:-OUTER] = True
    means = {label: np.mean([map_of(image, label) for image in images], axis=0) for label in CLASSES}
    return {label: (round(mean[~inside].mean(), 2), round(mean[inside].mean(), 2)) for label, mean in means.items()}


def draw(maps: dict[str, MapOf], images: np.ndarray, labels: np.ndarray, path: str) -> None:
    """Draw some images with a defect, and below each one its maps."""
    chosen = np.flatnonzero(labels != "plain")[::13]
    picture = Image.new("RGB", (208 * len(chosen), 208 * (1 + len(maps))), "white")
    for column, number in enumerate(chosen):
        image, label = images[number], labels[number]
        picture.paste(Image.fromarray(image[..., 0]).resize((192, 192)), (208 * column, 0))
        for row, map_of in enumerate(maps.values(), start=1):
            drawn = Image.open(io.BytesIO(overlay(image, map_of(image, label)))).resize((192, 192))
            picture.paste(drawn, (208 * column, 208 * row))
    picture.save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=["texture-fcn", "efficientnet-lite0"])
    parser.add_argument("--picture")
    arguments = parser.parse_args()
    train, train_labels, _ = surfaces(50, seed=0)
    images, labels, places = surfaces(50, seed=1)
    constant = np.stack([np.full((SIDE, SIDE, 1), grey, dtype=np.uint8) for grey in (60, 130, 200)])
    for network in arguments.networks:
        model = LMFCNClassifier(network=network, epochs=5, random_state=0, device="cpu").fit(train, train_labels).model_
        accuracy = round(float((model.predict(images) == labels).mean()), 3)
        maps = kinds_of_map(model, train)
        for name, map_of in maps.items():
            result = {
                "found": share_found(map_of, images, labels, places),
                "plain": border_and_inside(map_of, images[labels == "plain"]),
                "constant": border_and_inside(map_of, constant),
            }
            print(json.dumps({"network": network, "accuracy": accuracy, "map": name, **result}), flush=True)
        if arguments.picture:
            draw(maps, images, labels, arguments.picture.replace(".png", f"-{network}.png"))


if __name__ == "__main__":
    main()
