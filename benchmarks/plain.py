"""An epoch of the paper written down as directly as possible: what the speed of the package is compared with.

Image by image, with a pass for the support vectors and one for the misclassified, the kernel row by row, and an SVM
that fits probabilities by an inner cross-validation, as programs of this method do.
"""

import warnings

import numpy as np
import torch
from sklearn.svm import SVC
from torch import nn


def plain_network(channels: int, latent_dim: int) -> nn.Module:
    layers: list[nn.Module] = []
    for width in (64, 128):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.MaxPool2d(3, stride=2, padding=1)]
        channels = width
    layers += [nn.Conv2d(channels, latent_dim, 3, padding=1), nn.BatchNorm2d(latent_dim), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def plain_epoch(network: nn.Module, images: np.ndarray, labels: np.ndarray, optimizer: torch.optim.Optimizer) -> int:
    """Take one epoch on images (n, h, w, c) with classes 0 and 1; return how many images were back-propagated."""
    pixels = [torch.from_numpy(image.transpose(2, 0, 1).astype(np.float32) / 255) for image in images]
    latents = encode_one_by_one(network, pixels)
    kernel, distances = kernel_row_by_row(latents)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        svm = SVC(C=10, kernel="precomputed", probability=True, random_state=0).fit(kernel, labels)
    wrong = np.flatnonzero(svm.predict(kernel) != labels)
    support = svm.support_
    settled = np.setdiff1d(np.arange(len(labels)), np.union1d(support, wrong))
    n_images = pull(network, pixels, latents, anchors(distances, labels, support, settled, 5), optimizer)
    return n_images + pull(network, pixels, latents, anchors(distances, labels, wrong, support, 1), optimizer)


def encode_one_by_one(network: nn.Module, pixels: list[torch.Tensor]) -> np.ndarray:
    network.eval()
    with torch.no_grad():
        return np.concatenate([network(image[None]).numpy() for image in pixels]).astype(np.float64)


def kernel_row_by_row(latents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    gamma = 1 / (latents.shape[1] * latents.var())
    distances = np.zeros((len(latents), len(latents)))
    for row, latent in enumerate(latents):
        distances[row] = np.sqrt(((latents - latent) ** 2).sum(axis=1))
    return np.exp(-gamma * distances**2), distances


def anchors(
    distances: np.ndarray, labels: np.ndarray, moved: np.ndarray, pool: np.ndarray, count: int
) -> dict[int, np.ndarray]:
    """Return the nearest images of the same class for each moving one, from a full sort of every row."""
    allowed = np.zeros(len(labels), dtype=bool)
    allowed[pool] = True
    found = {}
    for image in moved.tolist():
        order = np.argsort(distances[image])
        found[image] = order[allowed[order] & (labels[order] == labels[image]) & (order != image)][:count]
    return found


def pull(
    network: nn.Module,
    pixels: list[torch.Tensor],
    latents: np.ndarray,
    chosen: dict[int, np.ndarray],
    optimizer: torch.optim.Optimizer,
) -> int:
    """Back-propagate every image towards its anchors and take one step."""
    network.train()
    optimizer.zero_grad()
    for image, nearest in chosen.items():
        targets = torch.from_numpy(latents[nearest]).float()
        ((network(pixels[image][None]) - targets) ** 2).sum().div(len(chosen)).backward()
    optimizer.step()
    return len(chosen)
