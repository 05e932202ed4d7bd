"""LMFCN's network trained with losses of deep metric learning, with an RBF SVM on its latents."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lmfcn.baselines.network_svm import TrainedNetworkSVC
from lmfcn.baselines.network_training import Criterion, NetworkTraining, TrainedNetwork
from lmfcn.compute.resources import check_device
from lmfcn.data.arrays import RandomState
from lmfcn.data.training_data import TrainingData
from lmfcn.method.kernel_svm import Decision, fit_svm, gamma_from_scale, latent_scale, rbf_kernel, squared_distances
from lmfcn.method.network import TextureFCN
from lmfcn.recipe import Recipe
from lmfcn.training.first_filters import start_first_filters
from lmfcn.util.checks import check_choice
from lmfcn.util.packages import needs

LOSSES: dict[str, Callable[[Any, int, int], Any]] = {
    "contrastive": lambda losses, n_classes, latent_dim: losses.ContrastiveLoss(),  # noqa: ARG005
    "proxy-anchor": lambda losses, n_classes, latent_dim: losses.ProxyAnchorLoss(n_classes, latent_dim),
    "proxy-NCA": lambda losses, n_classes, latent_dim: losses.ProxyNCALoss(n_classes, latent_dim, softmax_scale=3),
    # The package has no defaults here, and warns of temperatures above 5.
    "ranked-list": lambda losses, n_classes, latent_dim: losses.RankedListLoss(margin=0.4, Tn=5),  # noqa: ARG005
}
"""LossTerms of pytorch-metric-learning, with its own defaults where it has them."""


class MetricSVC(TrainedNetworkSVC):
    """LMFCN's network trained with a loss of deep metric learning, with an RBF SVM on its latents.

    Optimiser, mini-batches and batch-norm refresh are those of `CNNClassifier`. In every epoch an SVM is fitted on the
    training latents; the epoch whose SVM classifies the validation images best is selected.

    Parameters
    ----------
    loss : {"contrastive", "proxy-anchor", "proxy-NCA", "ranked-list"}, default="contrastive"
        As in the package pytorch-metric-learning. Proxies learn a hundred times as fast as the network, as their
        authors advise.
    latent_dim, widths, epochs, patience, batch_size, learning_rate, weight_decay, first_filters
        As in `CNNClassifier`, with the same defaults but for 100 epochs with any number of classes.
    augmentation, validation_fraction, image_shape, device, random_state, verbose
        Likewise.

    Examples
    --------
    >>> from lmfcn import make_gaussians
    >>> X, y = make_gaussians(n_per_class=20, size=16, random_state=0)
    >>> MetricSVC(loss="proxy-anchor", epochs=1, latent_dim=4, random_state=0).fit(X, y).transform(X).shape
    (40, 4)
    """

    def __init__(
        self,
        *,
        loss: str = "contrastive",
        latent_dim: int = 64,
        widths: tuple[int, ...] = (64, 128),
        epochs: int = 100,
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
        self.loss = loss

    def _check_parameters(self) -> None:
        check_choice("loss", self.loss, LOSSES)
        needs("pytorch_metric_learning.losses", "metric")
        super()._check_parameters()

    def _train(self, data: TrainingData, generator: torch.Generator) -> TrainedNetwork:
        device = check_device(self.device)
        network = TextureFCN(data.form.channels, self.latent_dim, tuple(self.widths), generator=generator)
        start_first_filters(network, self.first_filters, data.train.images)
        criterion = MetricCriterion(self.loss, len(data.classes), self.latent_dim, generator)
        training = NetworkTraining(network.to(device), criterion.to(device), data, self._schedule, generator)
        return training.run(self.loss, verbose=self.verbose)


class MetricCriterion(Criterion):
    """A loss on latents and their classes; an SVM on the training latents gives the scores."""

    rate_factor = 100.0

    def __init__(self, loss: str, n_classes: int, latent_dim: int, generator: torch.Generator) -> None:
        super().__init__()
        losses = needs("pytorch_metric_learning.losses", "metric")
        # Proxies are drawn from torch's global generator, which is left as it was.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
            self.loss = LOSSES[loss](losses, n_classes, latent_dim)

    def forward(self, latents: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of latents (b, phi) with classes (b,)."""
        return self.loss(latents, labels)

    def scores(self, latents: Tensor, seen: Tensor, seen_labels: Tensor) -> Tensor:
        """Return the scores (m, n_scores) of an SVM on the training latents, as LMFCN fits one in every epoch."""
        settings = Recipe()
        scale = latent_scale(seen, standardize=settings.standardize)
        seen = scale.apply(seen)
        gamma = gamma_from_scale(seen, settings.gamma_factor)
        margin = fit_svm(rbf_kernel(squared_distances(seen), gamma), seen_labels, settings.C)
        return Decision(scale, gamma, seen[margin.support], margin.coefficients, margin.intercepts).scores(latents)
