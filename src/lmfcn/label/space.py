"""The latent space of the images to label: coordinates, what lies together, and which images to ask for."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
from torch import Tensor

from lmfcn.method.kernel_svm import LatentScale, latent_scale, squared_distances

N_DIRECTIONS = 256
"""Directions of largest variance that are kept: fitting then takes as long for 2000 labels as for 200."""

FEWEST_PER_CLASS = 2
"""Labels of every class, before an accuracy is estimated."""

_N_ITERATIONS, _N_EXTRA = 3, 16
_PER_CLUSTER = 12
_MOST_IN_TREE = 6000
_N_TREE_DIRECTIONS = 32
_MOST_CANDIDATES = 500
_N_NEIGHBOURS = 10


@dataclass(frozen=True)
class Directions:
    """The directions of largest variance of some standardised features; other features can be brought to them, too.

    Attributes
    ----------
    scale : LatentScale
    mean : Tensor (d,)
        Of the standardised features.
    basis : Tensor (d, k)

    Examples
    --------
    >>> Directions.of(np.array([[0.0, 5.0], [2.0, 5.0]])).coordinates(np.array([[4.0, 5.0]])).abs().tolist()
    [[3.0]]
    """

    scale: LatentScale
    mean: Tensor
    basis: Tensor

    @classmethod
    def of(cls, features: np.ndarray) -> "Directions":
        """Return the directions of features (n, d)."""
        rows = torch.from_numpy(np.asarray(features, dtype=np.float64))
        scale = latent_scale(rows, standardize=True)
        rows = scale.apply(rows)
        mean = rows.mean(dim=0)
        rows = rows - mean
        n_kept = min(N_DIRECTIONS, *rows.shape)
        # Randomised: the exact directions of 1568 features would take seconds.
        drawn = torch.randn(rows.shape[1], min(n_kept + _N_EXTRA, *rows.shape), generator=_seeded(), dtype=rows.dtype)
        basis = torch.linalg.qr(rows @ drawn).Q
        for _ in range(_N_ITERATIONS):
            basis = torch.linalg.qr(rows @ (rows.T @ basis)).Q
        _, spreads, right = torch.linalg.svd(basis.T @ rows, full_matrices=False)
        kept = spreads[:n_kept] > 1e-9 * spreads[0].clamp(min=1e-300)
        return cls(scale, mean, right[:n_kept][kept].T)

    def coordinates(self, features: np.ndarray) -> Tensor:
        """Return the coordinates (n, k) of features (n, d)."""
        rows = torch.from_numpy(np.asarray(features, dtype=np.float64))
        return (self.scale.apply(rows) - self.mean) @ self.basis


def coordinates_of(features: np.ndarray) -> Tensor:
    """Return coordinates (n, k) of features (n, d): standardised, on the directions of largest variance.

    Distances stay what they were, up to what the directions left out would add.

    Examples
    --------
    >>> coordinates_of(np.array([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0]])).abs().round(decimals=3).tolist()
    [[1.225], [0.0], [1.225]]
    """
    return Directions.of(features).coordinates(features)


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@dataclass(frozen=True)
class Arrangement:
    """An order in which similar images are next to each other.

    Attributes
    ----------
    order : array of int (n,)
    clusters : array of int (n,)
        The cluster of each image, numbered in this order: images that can often be labelled together.
    """

    order: np.ndarray
    clusters: np.ndarray


def arrange(coordinates: Tensor) -> Arrangement:
    """Return the order of a tree of clusters (Ward's method), and clusters of about a dozen images.

    Examples
    --------
    >>> found = arrange(torch.tensor([[0.0], [9.0], [0.1], [9.1]], dtype=torch.float64))
    >>> sorted([sorted(found.order[:2].tolist()), sorted(found.order[2:].tolist())])
    [[0, 2], [1, 3]]
    """
    n_images = len(coordinates)
    if n_images < 3 or coordinates.shape[1] == 0:
        return Arrangement(np.arange(n_images), np.zeros(n_images, dtype=int))
    rows = coordinates[:, :_N_TREE_DIRECTIONS].numpy()
    near = _near_centres(rows) if n_images > _MOST_IN_TREE else np.arange(n_images)
    centres = np.stack([rows[near == number].mean(axis=0) for number in range(near.max() + 1)])
    tree = linkage(centres, "ward")
    rank = np.argsort(leaves_list(tree))
    clusters = fcluster(tree, max(2, n_images // _PER_CLUSTER), "maxclust")[near]
    order = np.argsort(rank[near], kind="stable")
    firsts = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters[order].tolist()))}
    return Arrangement(order, np.array([firsts[cluster] for cluster in clusters.tolist()]))


def _near_centres(rows: np.ndarray) -> np.ndarray:
    """Return the nearest of many centres (n,) for each image: a tree of all of them would take too much memory."""
    from sklearn.cluster import MiniBatchKMeans

    found = MiniBatchKMeans(_MOST_IN_TREE // 4, random_state=0, n_init=1).fit_predict(rows)
    return np.unique(found, return_inverse=True)[1]


def doubts(probabilities: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
    """Return how near each image (n,) is to the margin: 1 where two classes are equally probable, 0 where one is sure.

    Parameters
    ----------
    probabilities : array (n, n_classes)
    counts : array (n_classes,), optional
        Labels of each class. Images that look like a class with a single label are doubtful, however sure they seem.

    Examples
    --------
    >>> doubts(np.array([[0.5, 0.5, 0.0], [0.0, 0.9, 0.1]])).round(2).tolist()
    [1.0, 0.2]
    """
    best = np.partition(probabilities, -2, axis=1)
    found = 1.0 - (best[:, -1] - best[:, -2])
    if counts is not None:
        found[counts[probabilities.argmax(axis=1)] < FEWEST_PER_CLASS] = 1.0
    return found


def ask_for(coordinates: Tensor, candidates: np.ndarray, known: np.ndarray, doubt: np.ndarray, n: int) -> np.ndarray:
    """Return the images (n,) to label next: near the margin, and spread over the latent space.

    An image explains its neighbours. One after the other, the candidate is chosen whose label would explain the most
    doubt that no labelled or chosen image explains yet; so the same is not asked twice, and no outlier is asked for.

    Parameters
    ----------
    coordinates : Tensor (n_images, k)
    candidates : array of int
        Images that may be asked for.
    known : array of int
        Labelled images.
    doubt : array (n_images,)
        From `doubts`; all ones as long as nothing was learnt.
    n : int

    Examples
    --------
    Three images at the margin, two of them nearly the same; one is sure:

    >>> places = torch.tensor([[0.0], [0.01], [1.0], [5.0]], dtype=torch.float64)
    >>> ask_for(places, np.arange(4), np.array([], dtype=int), np.array([1.0, 1.0, 0.9, 0.0]), 2).tolist()
    [0, 2]
    """
    if len(candidates) == 0 or n < 1:
        return np.array([], dtype=int)
    order = np.argsort(-doubt[candidates], kind="stable")
    pool = candidates[order[: max(_MOST_CANDIDATES, 2 * n)]]
    weights = torch.from_numpy(doubt[pool]).clamp(min=1e-6)
    squared = squared_distances(coordinates[pool])
    width = _usual_squared_distance(squared)
    similar = torch.exp(-squared / width)
    explained = torch.zeros(len(pool), dtype=torch.float64)
    if len(known):
        to_known = squared_distances(coordinates[pool], coordinates[known])
        explained = torch.exp(-to_known / width).max(dim=1).values
    chosen: list[int] = []
    for _ in range(min(n, len(pool))):
        gains = (similar - explained).clamp(min=0) @ weights + 1e-9 * weights
        gains[chosen] = -1.0
        best = int(gains.argmax())
        chosen.append(best)
        explained = torch.maximum(explained, similar[best])
    return pool[np.array(chosen)]


def _usual_squared_distance(squared: Tensor) -> float:
    """Return the median squared distance to a near neighbour."""
    if len(squared) < 2:
        return 1.0
    number = max(1, min(_N_NEIGHBOURS, len(squared) // 10))
    return max(float(squared.kthvalue(number + 1, dim=1).values.median()), 1e-12)
