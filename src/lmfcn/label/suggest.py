"""Which unlabelled images to label next for a fitted model."""

import numpy as np

from lmfcn.data.collection import ImageCollection
from lmfcn.label.space import ask_for, doubts
from lmfcn.model import TextureModel, probabilities

HEADER = ("rank", "path", "predicted", "probability", "second", "second_probability")


def suggest_images(model: TextureModel, images: ImageCollection, n: int) -> list[list[str]]:
    """Return rows (see `HEADER`) of the images to label next, the most useful one first.

    They are near the margin of the model and spread over its latent space.
    """
    latents = model.latents(images)
    decision = model.decision
    predicted = probabilities(decision.scores(latents), model.calibration.inverse_temperature).cpu().numpy()
    places = decision.scale.apply(latents).cpu().double()
    nobody = np.array([], dtype=int)
    chosen = ask_for(places, np.arange(len(images)), nobody, doubts(predicted), n)
    paths = images.paths
    return [
        [str(rank), paths[position], *_best_two(model.classes, predicted[position])]
        for rank, position in enumerate(chosen.tolist(), start=1)
    ]


def _best_two(classes: np.ndarray, predicted: np.ndarray) -> list[str]:
    first, second = np.argsort(-predicted, kind="stable")[:2].tolist()
    return [str(classes[first]), f"{predicted[first]:.4f}", str(classes[second]), f"{predicted[second]:.4f}"]
