"""The same network with a linear head, trained by cross-entropy on every image."""

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lmfcn.algorithm.encode import Images, encode, equal_size_batches, take, to_batch
from lmfcn.algorithm.errors import TrainingError
from lmfcn.algorithm.history import History, Stopwatch
from lmfcn.algorithm.network import TextureFCN
from lmfcn.algorithm.refresh import refresh_and_encode
from lmfcn.algorithm.score import balanced_accuracy
from lmfcn.data.seeds import RandomState, as_generator
from lmfcn.data.training_data import LabelledImages, TrainingData, check_training_data
from lmfcn.parameters import check_device, check_fraction, check_integer, check_positive, check_widths
from lmfcn.progress import epoch_progress, progress_note


@dataclass(frozen=True)
class CNNRecord:
    """One epoch of a CNN, measured before its updates; epoch 0 is the untrained network."""

    epoch: int
    train_balanced_accuracy: float
    validation_balanced_accuracy: float | None
    loss: float
    n_backpropagated: int
    learning_rate: float
    seconds_encoding: float
    seconds_backpropagation: float


class CNNClassifier(ClassifierMixin, BaseEstimator):
    """The LMFCN's network with a linear layer in place of the SVM, trained by cross-entropy (CNN-CE).

    It gets the same care as LMFCN: batch-norm statistics refreshed before every evaluation, the same
    optimiser, mini-batches and falling learning rate, and the epoch of best validation accuracy is kept.

    Parameters
    ----------
    latent_dim : int, default=64
    widths : sequence of int, default=(64, 128)
    epochs : int, default=100
    batch_size : int, default=32
    learning_rate : float, default=0.0003
        Falls to a tenth along half a cosine.
    weight_decay : float, default=0.01
    validation_fraction : float, default=0.2
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
        latent_dim: int = 64,
        widths: tuple[int, ...] = (64, 128),
        epochs: int = 100,
        batch_size: int = 32,
        learning_rate: float = 3e-4,
        weight_decay: float = 1e-2,
        validation_fraction: float = 0.2,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.latent_dim = latent_dim
        self.widths = widths
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, groups: Any = None, validation: Any = None) -> "CNNClassifier":
        """Train on images and labels; the arguments are those of `LMFCNClassifier.fit`."""
        self._check_parameters()
        random = as_generator(self.random_state)
        data = check_training_data(X, y, groups, validation, self.validation_fraction, random, verbose=self.verbose)
        generator = torch.Generator().manual_seed(int(random.integers(2**62)))
        network = self._build(data, generator)
        optimizer = torch.optim.AdamW(network.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay)
        history: History[CNNRecord] = History()
        best = -1.0
        with epoch_progress("CNN", self.epochs + 1, visible=self.verbose) as advance:
            for epoch in range(self.epochs + 1):
                record, weights = self._train_epoch(epoch, network, data, optimizer, generator)
                history.append(record)
                score = record.validation_balanced_accuracy
                if score is None or score > best:
                    best, best_epoch, kept = score or 0.0, epoch, weights
                advance(progress_note(score))
        network.load_state_dict(kept)
        self.classes_, self._form = data.classes, data.form
        self.network_, self.history_ = network.eval(), history
        self.best_epoch_, self.n_iter_ = best_epoch, self.epochs
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the label (n,) of every image."""
        logits = self._logits(X)
        return self.classes_[logits.argmax(dim=1).cpu().numpy()]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the network's own probabilities (n, n_classes), not calibrated."""
        return self._logits(X).softmax(dim=1).cpu().numpy()

    def _logits(self, X: Any) -> Tensor:
        check_is_fitted(self, "network_")
        return encode(self.network_, self._form.load(X), _device(self.network_))

    def _build(self, data: TrainingData, generator: torch.Generator) -> nn.Module:
        features = TextureFCN(data.form.channels, self.latent_dim, self.widths, generator=generator)
        head = nn.utils.skip_init(nn.Linear, self.latent_dim, len(data.classes))
        bound = 1 / math.sqrt(self.latent_dim)
        for weights in head.parameters():
            nn.init.uniform_(weights, -bound, bound, generator=generator)
        return nn.Sequential(features, head).to(check_device(self.device))

    def _train_epoch(
        self,
        epoch: int,
        network: nn.Module,
        data: TrainingData,
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator,
    ) -> tuple[CNNRecord, dict[str, Tensor]]:
        """Measure the network and copy its weights, then go once through all images."""
        clock, device, train = Stopwatch(), _device(network), data.train
        with clock("encoding"):
            refresh_and_encode(network[0], train.images, device)
            loss, train_score = _evaluate(network, train)
            validation_score = None
            if data.validation is not None:
                _, validation_score = _evaluate(network, data.validation)
        if not math.isfinite(loss):
            raise TrainingError(f"The loss became {loss} in epoch {epoch}; try a smaller learning_rate.")
        weights = copy.deepcopy(network.state_dict())
        rate = self.learning_rate * (0.55 + 0.45 * math.cos(math.pi * epoch / self.epochs))
        with clock("backpropagation"):
            n_images = 0 if epoch == self.epochs else len(train)
            for batch in _batches(train.images, n_images, self.batch_size, generator):
                optimizer.param_groups[0]["lr"] = rate
                targets = torch.from_numpy(train.numbers[batch]).to(device)
                optimizer.zero_grad(set_to_none=True)
                cross_entropy(network.train()(to_batch(take(train.images, batch), device)), targets).backward()
                optimizer.step()
        seconds = clock.seconds["encoding"], clock.seconds["backpropagation"]
        return CNNRecord(epoch, train_score, validation_score, loss, n_images, rate, *seconds), weights

    def _check_parameters(self) -> None:
        for name in ("latent_dim", "epochs", "batch_size"):
            check_integer(name, getattr(self, name), smallest=1)
        check_widths(self.widths)
        check_positive("learning_rate", self.learning_rate)
        check_positive("weight_decay", self.weight_decay, zero_allowed=True)
        check_fraction("validation_fraction", self.validation_fraction)


def _evaluate(network: nn.Module, data: LabelledImages) -> tuple[float, float]:
    """Return cross-entropy and balanced accuracy."""
    device = _device(network)
    logits, labels = encode(network, data.images, device), torch.from_numpy(data.numbers).to(device)
    return float(cross_entropy(logits, labels)), balanced_accuracy(labels, logits.argmax(dim=1))


def _batches(images: Images, n_images: int, batch_size: int, generator: torch.Generator) -> Iterator[np.ndarray]:
    if n_images:
        order = torch.randperm(n_images, generator=generator).numpy()
        yield from equal_size_batches(images, order, batch_size)


def _device(network: nn.Module) -> torch.device:
    return next(network.parameters()).device
