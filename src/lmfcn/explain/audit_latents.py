"""The latents that an audit rests on: of a model, of one that is trained for it, or of the untrained network."""

from pathlib import Path

import numpy as np

from lmfcn.baselines.network_svm import RandomFCN
from lmfcn.classifier import LMFCNClassifier
from lmfcn.data.collections import ImageCollection
from lmfcn.inference.files import load


def latents_for_audit(
    images: ImageCollection,
    model: Path | None = None,
    seed: int = 0,
    device: str = "auto",
    *,
    quick: bool = False,
    verbose: bool = False,
) -> tuple[np.ndarray, str]:
    """Return latents (n, phi) of labelled images, and a sentence about where they come from.

    Parameters
    ----------
    images : ImageCollection
    model : Path, optional
        File of a fitted model; without one, a model is trained on the images.
    seed : int
    device : str
        Where to encode, and to train if need be.
    quick : bool
        Take the untrained network, which knows no labels, and train nothing.
    verbose : bool
        Show progress.
    """
    if model is not None:
        return load(model, device).latents(images).cpu().numpy(), f"The images were encoded by the model {model}."
    if quick:
        untrained = RandomFCN(
            pooling="all", first_filters="decorrelated", device=device, random_state=seed, verbose=verbose
        )
        return untrained.fit(images).transform(images), "The images were encoded by an untrained network."
    # Without closing epochs: the network learns the labels of fewer images, and so fewer wrong ones by heart.
    trained = LMFCNClassifier(closing_epochs=0, device=device, random_state=seed, verbose=verbose).fit(images)
    latents = trained.model_.latents(images).cpu().numpy()
    return latents, "The images were encoded by a model that was trained on them as they are labelled."
