"""Models that were never trained: random networks, and random weights on the latents of some images."""

import numpy as np
import torch

from lmfcn.compute.encode import encode
from lmfcn.data.image_form import ImageForm
from lmfcn.method.kernel_svm import Decision, latent_scale
from lmfcn.method.network import TextureFCN
from lmfcn.model import Calibration, Networks, TextureModel

FULL_SCALE = {"uint8": 255, "uint16": 65535}


def random_images(n_images: int, size: tuple[int, int], form: ImageForm, seed: int = 0) -> np.ndarray:
    """Noise of different contrast, in the pixels of `form`."""
    random = np.random.default_rng(seed)
    images = random.uniform(size=(n_images, *size, form.channels)) * random.uniform(0.2, 1, (n_images, 1, 1, 1))
    if form.pixels == "float":
        return images.astype(np.float32)
    return np.rint(images * FULL_SCALE[form.pixels]).astype(form.pixels)


def random_model(
    classes: object,
    form: ImageForm,
    poolings: tuple[str, ...] = ("all", "last"),
    *,
    deviations: bool = False,
    correlations: bool = False,
    reductions: tuple[int, ...] | None = None,
) -> TextureModel:
    """A model whose support vectors are images as `random_images` gives them."""
    classes = np.asarray(classes)
    generator = torch.Generator().manual_seed(0)
    moments = {"deviations": deviations, "correlations": correlations}
    networks = [
        TextureFCN(form.channels, 4, (6, 8), pooling=pooling, reduction=factor, generator=generator, **moments)
        for pooling, factor in zip(poolings, reductions or [1] * len(poolings), strict=True)
    ]
    size = (24, 24) if form.row_shape is None else form.row_shape[:2]
    images = random_images(20, (abs(size[0]), 24 if size[1] == -1 else size[1]), form)
    latents = encode(Networks(networks), images, torch.device("cpu"))
    scale = latent_scale(latents, standardize=True)
    n_scores = 1 if len(classes) == 2 else len(classes)
    coefficients = torch.randn(20, n_scores, generator=generator, dtype=torch.float64)
    decision = Decision(scale, 1 / latents.shape[1], scale.apply(latents), coefficients, coefficients.mean(dim=0) / 9)
    held_out = torch.linspace(0.1, 0.9, 40, dtype=torch.float64)
    return TextureModel(networks, decision, Calibration(2.5, held_out, 0.1, held_out=True), classes, form)
