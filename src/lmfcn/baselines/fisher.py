"""Fisher vectors of convolutional features with a linear SVM (FV-CNN)."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from lmfcn.baselines.network_svm import CNNSVC
from lmfcn.compute.encode import encoding_batch, equal_size_batches, fold_batch_norm, take, to_batch
from lmfcn.data.arrays import RandomState
from lmfcn.data.image_form import LoadedImages
from lmfcn.data.training_data import TrainingData
from lmfcn.method.network import TextureFCN
from lmfcn.training.final_svm import NEVER_HELD_OUT, FinalSVM, SVMCandidate, choose_candidate, fixed
from lmfcn.util.checks import check_integer
from lmfcn.util.packages import needs

C_VALUES = (1.0, 0.1, 10.0, 100.0)
_POSITIONS_PER_IMAGE = 100
"""Positions of an image that the mixture is fitted on; the Fisher vectors use all of them."""


class FisherSVC(CNNSVC):
    """Fisher vectors of the cross-entropy CNN's last feature maps, with a linear SVM (FV-CNN).

    The original uses a network that was pretrained on millions of images. This one uses the network of
    `CNNClassifier`, trained on the same images as all other methods. A Gaussian mixture is fitted to the principal
    components of local features of the training images. The vector of an image is the gradient of its likelihood,
    with signed square roots and length 1 (the improved Fisher vector).

    Parameters
    ----------
    n_modes : int, default=16
        Gaussians of the mixture.
    n_components : int, default=32
        Principal components of the local features, at most `latent_dim`; the vectors have
        2 n_modes n_components + n_modes values.
    latent_dim, widths, epochs, patience, batch_size, learning_rate, weight_decay, first_filters
        As in `CNNClassifier`, with the same defaults.
    augmentation, validation_fraction, image_shape, device, random_state, verbose
        Likewise.

    Attributes
    ----------
    pca_, mixture_ : PCA and GaussianMixture of scikit-learn

    Examples
    --------
    >>> from lmfcn import make_gaussians
    >>> X, y = make_gaussians(n_per_class=20, size=16, random_state=0)
    >>> classifier = FisherSVC(n_modes=4, n_components=3, epochs=1, latent_dim=4, random_state=0).fit(X, y)
    >>> classifier.transform(X).shape
    (40, 28)
    """

    def __init__(
        self,
        *,
        n_modes: int = 16,
        n_components: int = 32,
        latent_dim: int = 64,
        widths: tuple[int, ...] = (64, 128),
        epochs: int | None = None,
        patience: int | None = None,
        batch_size: int = 32,
        learning_rate: float = 3e-4,
        weight_decay: float = 1e-2,
        first_filters: str = "random",
        augmentation: str = "none",
        validation_fraction: float = 0.2,
        image_shape: tuple[int, ...] | None = None,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            latent_dim=latent_dim,
            widths=widths,
            epochs=epochs,
            patience=patience,
            batch_size=batch_size,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            first_filters=first_filters,
            augmentation=augmentation,
            validation_fraction=validation_fraction,
            image_shape=image_shape,
            device=device,
            random_state=random_state,
            verbose=verbose,
        )
        self.n_modes = n_modes
        self.n_components = n_components

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_integer("n_modes", self.n_modes, smallest=1)
        check_integer("n_components", self.n_components, smallest=1)
        needs("skimage.feature", "textures")

    def _cnn_parameters(self) -> dict[str, Any]:
        own = ("n_modes", "n_components")
        return {name: value for name, value in super()._cnn_parameters().items() if name not in own}

    def _learn(self, data: TrainingData, random: np.random.Generator) -> None:
        super()._learn(data, random)
        learn_gmm = needs("skimage.feature", "textures").learn_gmm
        sampled = [_sample_rows(rows, random) for _, rows in local_features(self.network_, data.train.images)]
        local = np.concatenate(sampled, dtype=np.float64)
        if len(local) < self.n_modes:
            raise ValueError(
                f"n_modes must be at most the {len(local)} positions of the training images' feature maps."
            )
        self.pca_ = PCA(min(self.n_components, *local.shape), svd_solver="full").fit(local)
        options = {"covariance_type": "diag", "reg_covar": 1e-4, "random_state": int(random.integers(2**31))}
        with warnings.catch_warnings():
            # A mixture that has not quite converged after a hundred iterations describes the features as well.
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.mixture_ = learn_gmm(self.pca_.transform(local), n_modes=self.n_modes, gm_args=options)

    def _describe(self, images: LoadedImages) -> Tensor:
        fisher_vector = needs("skimage.feature", "textures").fisher_vector
        vectors: list[Any] = [None] * len(images)
        for position, rows in local_features(self.network_, images):
            reduced = self.pca_.transform(rows.astype(np.float64))
            vectors[position] = fisher_vector(reduced, self.mixture_, improved=True)
        # An image whose gradient is zero has no direction; scikit-image divides zero by zero.
        return torch.from_numpy(np.stack([v if np.isfinite(v).all() else np.zeros_like(v) for v in vectors]))

    def rules(self) -> list[SVMCandidate]:
        """Return the rules that cross-validation chooses from; their kernel is linear."""
        return [SVMCandidate(C) for C in C_VALUES]

    def _fit_svm(self, features: Tensor, labels: Tensor, folds: Tensor) -> FinalSVM:
        kernel = features @ features.T
        rule, scores = choose_candidate(((rule, fixed(kernel)) for rule in self.rules()), labels, folds)
        margin = rule.fit(kernel, labels)
        decision: Any = LinearDecision(features[margin.support].T @ margin.coefficients, margin.intercepts)
        return FinalSVM(decision, margin.support, rule, (folds != NEVER_HELD_OUT).nonzero()[:, 0], scores)


@dataclass(frozen=True)
class LinearDecision:
    """Weights (n_features, n_scores) and constants (n_scores,)."""

    weights: Tensor
    intercepts: Tensor

    def scores(self, features: Tensor) -> Tensor:
        """Return scores (m, n_scores) for feature vectors (m, n_features)."""
        return features @ self.weights + self.intercepts


def local_features(network: TextureFCN, images: LoadedImages) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the index of each image and its local features: rows (n_positions, latent_dim) of the last feature maps."""
    device = next(network.parameters()).device
    maps = fold_batch_norm(network.eval()).get_submodule("features")
    for indices in equal_size_batches(images, np.arange(len(images)), encoding_batch(network, images, device)):
        with torch.no_grad():
            batch = maps(to_batch(take(images, indices), device)).flatten(2).transpose(1, 2)
        yield from zip(indices.tolist(), batch.cpu().numpy(), strict=True)


def _sample_rows(rows: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return rows[random.permutation(len(rows))[:_POSITIONS_PER_IMAGE]]
