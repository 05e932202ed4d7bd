"""Train a network on every image with an ordinary loss: the loop that all trained baselines share."""

import copy
import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lmfcn.compute.encode import encode, refresh_and_encode, take, to_batch
from lmfcn.data.training_data import TrainingData
from lmfcn.method.backpropagation import augment, cosine_rate, shuffled_batches
from lmfcn.method.history import History, Stopwatch, TrainingError
from lmfcn.method.kernel_svm import balanced_accuracy, class_numbers
from lmfcn.method.network import TextureFCN
from lmfcn.util.checks import check_choice, check_integer, check_positive
from lmfcn.util.progress import epoch_progress, progress_note

_FINAL_RATE = 0.1

AUGMENTATIONS = ("none", "flips", "dihedral")


@dataclass(frozen=True)
class NetworkRecord:
    """One epoch of a baseline, measured before its updates; epoch 0 is the untrained network."""

    epoch: int
    train_balanced_accuracy: float
    validation_balanced_accuracy: float | None
    loss: float
    validation_loss: float | None
    n_backpropagated: int
    learning_rate: float
    seconds_encoding: float
    seconds_backpropagation: float


@dataclass(frozen=True)
class Schedule:
    """Length, learning rate and augmentation of a baseline's training.

    Attributes
    ----------
    epochs : int or None
        None stands for the paper's 100 for two classes and 400 for more.
    batch_size : int
    learning_rate : float
        At the start; it falls to a tenth along half a cosine.
    weight_decay : float
    patience : int or None
        Training ends when neither validation loss nor validation accuracy has improved for so many epochs.
    augmentation : {"none", "flips", "dihedral"}
        As in LMFCN's recipe.
    """

    epochs: int | None
    batch_size: int
    learning_rate: float
    weight_decay: float
    patience: int | None = None
    augmentation: str = "none"

    def n_epochs(self, n_classes: int) -> int:
        """Return the largest number of epochs."""
        return self.epochs if self.epochs is not None else 100 if n_classes == 2 else 400

    def check(self) -> None:
        """Raise ValueError if training cannot run with these values."""
        if self.epochs is not None:
            check_integer("epochs", self.epochs, smallest=1)
        check_integer("batch_size", self.batch_size, smallest=1)
        check_positive("learning_rate", self.learning_rate)
        check_positive("weight_decay", self.weight_decay, zero_allowed=True)
        check_choice("augmentation", self.augmentation, AUGMENTATIONS)
        if self.patience is not None:
            check_integer("patience", self.patience, smallest=1)


class Criterion(nn.Module):
    """A loss that trains a network, with weights of its own if it needs any."""

    rate_factor = 1.0
    """Learning rate of the criterion's own weights, as a multiple of the network's."""

    @abstractmethod
    def forward(self, latents: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of latents (b, phi) with classes (b,)."""

    @abstractmethod
    def scores(self, latents: Tensor, seen: Tensor, seen_labels: Tensor) -> Tensor:
        """Return scores (m, n_scores) for latents (m, phi), given those of the training images."""


@dataclass(frozen=True)
class TrainedNetwork:
    """The network and the criterion of the best epoch, and the history of the training."""

    network: TextureFCN
    criterion: Criterion
    history: History[NetworkRecord]
    best_epoch: int


class NetworkTraining:
    """Train a network on all images with a criterion; select the best epoch.

    That is the one with the best validation balanced accuracy, on a tie the one with the lower validation loss;
    without validation images the last one.
    """

    def __init__(
        self,
        network: TextureFCN,
        criterion: Criterion,
        data: TrainingData,
        schedule: Schedule,
        generator: torch.Generator,
    ) -> None:
        if schedule.patience is not None and data.validation is None:
            raise ValueError(
                f"patience={schedule.patience} needs validation images, but there are none;"
                " set validation_fraction above 0, give a validation set, or set patience=None."
            )
        self.network, self.criterion, self.schedule, self.generator = network, criterion, schedule, generator
        self.train, self.validation = data.train, data.validation
        self.device = next(network.parameters()).device
        groups: Iterable[dict[str, Any]] = [
            {"params": list(network.parameters()), "factor": 1.0},
            {"params": list(criterion.parameters()), "factor": criterion.rate_factor},
        ]
        self.optimizer = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=schedule.learning_rate,
            weight_decay=schedule.weight_decay,
        )
        self.history: History[NetworkRecord] = History()

    def run(self, title: str, *, verbose: bool) -> TrainedNetwork:
        """Train to the last epoch, or until patience runs out; return the best epoch."""
        epochs, best = self.schedule.n_epochs(int(self.train.numbers.max()) + 1), None
        with epoch_progress(title, epochs, visible=verbose) as bar:
            for epoch in range(epochs + 1):
                clock = Stopwatch()
                with clock("encoding"):
                    measured = self._measure(epoch)
                if best is None or measured.is_better_than(best):
                    best, best_epoch = measured, epoch
                    selected = copy.deepcopy(self.network), copy.deepcopy(self.criterion)
                rate = cosine_rate(self.schedule.learning_rate, _FINAL_RATE, epoch / epochs)
                last = epoch == epochs or self._is_out_of_patience(measured)
                with clock("backpropagation"):
                    n_images = 0 if last else self._train_one_epoch(rate)
                self.history.append(measured.record(epoch, n_images, rate, clock))
                bar.move_to(min(epoch + 1, epochs), progress_note(epoch, measured.validation_score))
                if last:
                    break
        return TrainedNetwork(*selected, self.history, best_epoch)

    def _measure(self, epoch: int) -> "_Measured":
        numbers = torch.from_numpy(self.train.numbers).to(self.device)
        latents = refresh_and_encode(self.network, self.train.images, self.device)
        self.criterion.eval()
        with torch.no_grad():
            loss, score = self._loss_and_accuracy(latents, numbers, latents, numbers)
            if not math.isfinite(loss):
                raise TrainingError(f"The loss became {loss} in epoch {epoch}; try a smaller learning_rate.")
            if self.validation is None:
                return _Measured(loss, score, None, None)
            unseen = encode(self.network, self.validation.images, self.device)
            unseen_numbers = torch.from_numpy(self.validation.numbers).to(self.device)
            return _Measured(loss, score, *self._loss_and_accuracy(unseen, unseen_numbers, latents, numbers))

    def _loss_and_accuracy(
        self, latents: Tensor, numbers: Tensor, seen: Tensor, seen_numbers: Tensor
    ) -> tuple[float, float]:
        scores = self.criterion.scores(latents, seen, seen_numbers)
        return float(self.criterion(latents, numbers)), balanced_accuracy(numbers, class_numbers(scores))

    def _is_out_of_patience(self, measured: "_Measured") -> bool:
        patience, n_before = self.schedule.patience, len(self.history) + 1 - (self.schedule.patience or 0)
        if patience is None or n_before < 1:
            return False
        losses = [*self.history.column("validation_loss"), measured.validation_loss]
        scores = [*self.history.column("validation_balanced_accuracy"), measured.validation_score]
        lower = min(losses[n_before:]) < min(losses[:n_before])
        return not lower and max(scores[n_before:]) <= max(scores[:n_before])

    def _train_one_epoch(self, rate: float) -> int:
        """Take one optimiser step per batch; return how many images went through the network."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        self.network.train()
        self.criterion.train()
        all_indices = np.arange(len(self.train))
        for batch in shuffled_batches(self.train.images, all_indices, self.schedule.batch_size, self.generator):
            numbers = torch.from_numpy(self.train.numbers[batch]).to(self.device)
            pixels = to_batch(take(self.train.images, batch), self.device)
            pixels = augment(pixels, self.schedule.augmentation, self.generator)
            self.optimizer.zero_grad(set_to_none=True)
            self.criterion(self.network(pixels), numbers).backward()
            self.optimizer.step()
        return len(all_indices)


@dataclass(frozen=True)
class _Measured:
    """LossTerms and accuracies of a network at the start of an epoch."""

    loss: float
    score: float
    validation_loss: float | None
    validation_score: float | None

    def is_better_than(self, other: "_Measured") -> bool:
        if self.validation_score is None or other.validation_score is None:
            return True
        if self.validation_loss is None or other.validation_loss is None:
            return self.validation_score > other.validation_score
        return (self.validation_score, -self.validation_loss) > (other.validation_score, -other.validation_loss)

    def record(self, epoch: int, n_images: int, rate: float, clock: Stopwatch) -> NetworkRecord:
        return NetworkRecord(
            epoch=epoch,
            train_balanced_accuracy=self.score,
            validation_balanced_accuracy=self.validation_score,
            loss=self.loss,
            validation_loss=self.validation_loss,
            n_backpropagated=n_images,
            learning_rate=rate,
            seconds_encoding=clock.seconds["encoding"],
            seconds_backpropagation=clock.seconds["backpropagation"],
        )
