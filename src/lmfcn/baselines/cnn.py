"""LMFCN's network with a linear layer in place of the SVM (the paper's TCNN), trained on every image."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, multi_margin_loss

from lmfcn.baselines.network_training import Criterion, NetworkTraining, Schedule, TrainedNetwork
from lmfcn.compute.encode import encode
from lmfcn.compute.resources import check_device, to_cpu_double
from lmfcn.data.arrays import RandomState, as_generator
from lmfcn.data.training_data import TrainingData
from lmfcn.method.network import TextureFCN
from lmfcn.training.estimator import ImageClassifier
from lmfcn.training.first_filters import FIRST_FILTERS, start_first_filters
from lmfcn.util.checks import check_choice, check_integer, check_widths

LOSSES: dict[str, Callable[..., Tensor]] = {"cross-entropy": cross_entropy, "hinge": multi_margin_loss}
"""For two classes, "hinge" is half the usual hinge loss of the difference of the two outputs."""

SIZES = ("same", "one-vs-all")


class CNNClassifier(ImageClassifier):
    """The LMFCN's network with a linear layer in place of the SVM, trained by cross-entropy or hinge loss.

    Training is like that of LMFCN: batch-norm statistics are refreshed before every evaluation; optimiser,
    mini-batches and falling learning rate are the same. The epoch with the best validation accuracy is selected (the
    lowest validation loss breaks ties).

    Parameters
    ----------
    loss : {"cross-entropy", "hinge"}, default="cross-entropy"
        CNN-CE or CNN-H of the paper.
    latent_dim : int, default=64
    widths : sequence of int, default=(64, 128)
    size : {"same", "one-vs-all"}, default="same"
        "one-vs-all" multiplies the numbers of filters until there are as many weights as in one network per class.
    epochs : int, optional
        As in the paper by default: 100 for two classes, 400 for more.
    patience : int, optional
        Stop when neither validation loss nor validation accuracy has improved for that many epochs.
    batch_size : int, default=32
    learning_rate : float, default=0.0003
        Falls to a tenth along half a cosine.
    weight_decay : float, default=0.01
    balanced : bool, default=True
        Whether rare classes weigh as much in the loss as frequent ones.
    first_filters : {"random", "decorrelated"}, default="random"
    augmentation : {"none", "flips", "dihedral"}, default="none"
        First filters and augmentation as in LMFCN's recipe; the defaults here are those of the paper's CNN.
    validation_fraction : float, default=0.2
    image_shape : tuple of int, optional
    device : str, default="auto"
    random_state : None, int or NumPy generator, default=None
    verbose : bool, default=False

    Attributes
    ----------
    classes_, history_, best_epoch_, n_iter_, network_
        As in `LMFCNClassifier`; `network_` includes the linear layer.

    Examples
    --------
    >>> from lmfcn import make_gaussians
    >>> X, y = make_gaussians(n_per_class=20, size=16, random_state=0)
    >>> CNNClassifier(epochs=2, latent_dim=8, random_state=0).fit(X, y).predict(X).shape
    (40,)
    """

    def __init__(
        self,
        *,
        loss: str = "cross-entropy",
        latent_dim: int = 64,
        widths: tuple[int, ...] = (64, 128),
        size: str = "same",
        epochs: int | None = None,
        patience: int | None = None,
        batch_size: int = 32,
        learning_rate: float = 3e-4,
        weight_decay: float = 1e-2,
        balanced: bool = True,
        first_filters: str = "random",
        augmentation: str = "none",
        validation_fraction: float = 0.2,
        image_shape: tuple[int, ...] | None = None,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.loss = loss
        self.latent_dim = latent_dim
        self.widths = widths
        self.size = size
        self.epochs = epochs
        self.patience = patience
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.balanced = balanced
        self.first_filters = first_filters
        self.augmentation = augmentation
        self.validation_fraction = validation_fraction
        self.image_shape = image_shape
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, groups: Any = None, validation: Any = None) -> "CNNClassifier":
        """Train on images and labels; the arguments are those of `LMFCNClassifier.fit`."""
        self._check_parameters()
        random = as_generator(self.random_state)
        data = self._check_data(X, y, groups, validation, random)
        trained = self.train_network(data, torch.Generator().manual_seed(int(random.integers(2**62))))
        self.classes_, self._form = data.classes, data.form
        self.network_ = nn.Sequential(trained.network, trained.criterion.get_submodule("linear")).eval()
        self.history_, self.best_epoch_ = trained.history, trained.best_epoch
        self.n_iter_ = len(trained.history) - 1
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the label (n,) of every image."""
        outputs = self._outputs(X)
        return self.classes_[outputs.argmax(dim=1).numpy()]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the softmax of the outputs (n, n_classes), not calibrated."""
        return self._outputs(X).softmax(dim=1).numpy()

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the outputs (n, n_classes); for two classes their difference (n,), positive for `classes_[1]`."""
        outputs = self._outputs(X)
        return (outputs if len(self.classes_) > 2 else outputs[:, 1] - outputs[:, 0]).numpy()

    def _outputs(self, X: Any) -> Tensor:
        check_is_fitted(self, "network_")
        images = self._form.load(self._rows(X))
        return to_cpu_double(encode(self.network_, images, next(self.network_.parameters()).device))

    def train_network(self, data: TrainingData, generator: torch.Generator) -> TrainedNetwork:
        """Train on checked data and return the network; the classifier itself does not become fitted."""
        n_classes, device = len(data.classes), check_device(self.device)
        widths, latent_dim = tuple(self.widths), self.latent_dim
        if self.size == "one-vs-all" and n_classes > 2:
            widths, latent_dim = matched_filters(n_classes, data.form.channels, latent_dim, widths)
        network = TextureFCN(data.form.channels, latent_dim, widths, generator=generator)
        start_first_filters(network, self.first_filters, data.train.images)
        weights = _class_weights(data.train.numbers) if self.balanced else None
        criterion = LinearCriterion(latent_dim, n_classes, self.loss, weights, generator)
        training = NetworkTraining(network.to(device), criterion.to(device), data, self._schedule, generator)
        return training.run("CNN", verbose=self.verbose)

    @property
    def _schedule(self) -> Schedule:
        return Schedule(
            self.epochs, self.batch_size, self.learning_rate, self.weight_decay, self.patience, self.augmentation
        )

    def _check_parameters(self) -> None:
        check_choice("loss", self.loss, LOSSES)
        check_choice("size", self.size, SIZES)
        check_choice("first_filters", self.first_filters, FIRST_FILTERS)
        check_choice("balanced", self.balanced, (True, False))
        check_integer("latent_dim", self.latent_dim, smallest=1)
        check_widths(self.widths)
        self._schedule.check()


class LinearCriterion(Criterion):
    """A fully connected layer, and the loss of its outputs."""

    def __init__(
        self, latent_dim: int, n_classes: int, loss: str, weights: Tensor | None, generator: torch.Generator
    ) -> None:
        super().__init__()
        # skip_init keeps torch from drawing the first weights from its global generator.
        self.linear = nn.utils.skip_init(nn.Linear, latent_dim, n_classes)
        bound = 1 / math.sqrt(latent_dim)
        for parameter in self.linear.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
        self.loss = LOSSES[loss]
        self.register_buffer("class_weights", weights)

    def forward(self, latents: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of latents (b, phi) with classes (b,)."""
        return self.loss(self.linear(latents), labels, weight=self.class_weights)

    def scores(self, latents: Tensor, seen: Tensor, seen_labels: Tensor) -> Tensor:  # noqa: ARG002
        """Return the outputs (m, n_classes); the training images are not used."""
        return self.linear(latents)


def matched_filters(
    n_networks: int, channels: int, latent_dim: int, widths: tuple[int, ...]
) -> tuple[tuple[int, ...], int]:
    """Return hidden and last numbers of filters with as many weights as `n_networks` networks.

    All numbers grow by one common factor; the last one then corrects the rounding of the others. The weights of the
    linear layer count too. With some dozen filters or more the totals agree within 1 %, with fewer as well as whole
    filters allow.

    Examples
    --------
    >>> matched_filters(6, 1, 64, (64, 128))
    ((157, 314), 157)
    """
    goal = n_networks * _n_weights(channels, latent_dim, widths)

    def total(factor: float, last: int) -> int:
        return _n_weights(channels, last, _scaled(widths, factor)) + (last + 1) * n_networks

    low, high = 1.0, float(n_networks)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if total(middle, round(middle * latent_dim)) < goal else (low, middle)
    around = round(low * latent_dim)
    last = min(range(max(1, around // 2), 2 * around + 2), key=lambda last: abs(total(low, last) - goal))
    return _scaled(widths, low), last


def _scaled(widths: tuple[int, ...], factor: float) -> tuple[int, ...]:
    return tuple(round(width * factor) for width in widths)


def _n_weights(channels: int, latent_dim: int, widths: tuple[int, ...]) -> int:
    """Return the number of weights of a TextureFCN without building it: convolutions, and two per filter."""
    inputs, outputs = (channels, *widths), (*widths, latent_dim)
    return sum(9 * before * after + 2 * after for before, after in zip(inputs, outputs, strict=True))


def _class_weights(numbers: np.ndarray) -> Tensor:
    """Return the factor (n_classes,) that makes every class weigh the same, 1 on average over images."""
    counts = np.bincount(numbers)
    return torch.from_numpy(len(numbers) / (len(counts) * counts)).float()
