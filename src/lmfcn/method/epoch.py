"""The five steps of an epoch, the loop over the epochs, and the selection of the epoch that counts."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lmfcn.compute.encode import Images, convolutions_in, encode, refresh_and_encode
from lmfcn.method.anchors import LatentSpace, analyse_latents
from lmfcn.method.backpropagation import MAP_BYTES, Descent, back_propagate_terms
from lmfcn.method.history import EpochRecord, History, Phase, Stopwatch, TrainingError
from lmfcn.method.kernel_svm import Decision, balanced_accuracy, class_numbers, has_spread
from lmfcn.method.losses import loss_terms
from lmfcn.method.network import TextureFCN
from lmfcn.recipe import Recipe


@dataclass(frozen=True)
class Problem:
    """What one network learns to tell apart.

    Attributes
    ----------
    images : images (n, h, w, c)
    labels : Tensor (n,)
        Their classes 0, 1, ..., on the network's device.
    validation_images, validation_labels
        The same for the selection of the epoch.
    weights : Tensor (n,), optional
        Factor on C for each image.
    moved_images : images, optional
        What is back-propagated in place of `images`, if it is crops of other, larger ones.
    crop_size : int, optional
        Side of these crops.
    """

    images: Images
    labels: Tensor
    validation_images: Images | None = None
    validation_labels: Tensor | None = None
    weights: Tensor | None = None
    moved_images: Images | None = None
    crop_size: int | None = None


@dataclass(frozen=True)
class SelectedEpoch:
    """A network and the SVM of the same epoch, copies that later epochs do not change, and its validation accuracy."""

    epoch: int
    score: float
    network: TextureFCN
    decision: Decision
    support: Tensor


@dataclass(frozen=True)
class Trained:
    """The result of a training, with a message if it ended early: by itself, by a callback, or `interrupted`."""

    selected: SelectedEpoch
    history: History[EpochRecord]
    message: str | None = None
    interrupted: bool = False


Judge = Callable[[Tensor, Tensor, LatentSpace], Tensor]
"""Returns scores (m, n_scores) of validation latents (m, phi), given the training latents (n, phi) of the epoch."""


def judge_by_epoch_svm(latents: Tensor, validation_latents: Tensor, space: LatentSpace) -> Tensor:  # noqa: ARG001
    """Return the scores of the epoch's own SVM, as in the paper."""
    return space.decision.scores(validation_latents)


class Callback:
    """Follows the training of a network: override the moments that you need.

    With one network per class, the moments of all networks reach the same callback, one network after the other.

    Examples
    --------
    >>> from lmfcn import Callback, LMFCNClassifier, make_gaussians
    >>> class StopWhenSettled(Callback):
    ...     def on_epoch_end(self, training, record, space):
    ...         if record.n_support <= 3:
    ...             training.stop("few support vectors are left")
    >>> X, y = make_gaussians(n_per_class=12, size=16, random_state=0)
    >>> classifier = LMFCNClassifier(epochs=2, latent_dim=4, random_state=0)
    >>> classifier = classifier.fit(X, y, callbacks=[StopWhenSettled()])
    """

    def on_training_start(self, training: "Training") -> None:
        """Before the first epoch. After a resumption, `training.history` already has records."""

    def on_batch_end(self, training: "Training", share: float) -> None:
        """After every optimiser step; `share` tells how much of the epoch's back-propagation is done, up to 1."""

    def extra_loss(self, training: "Training", latents: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        """Return a term of your own to add to the loss of an optimiser step; nothing by default.

        `latents` (b, n_latents) are those of a batch in train mode, `labels` (b,) its class numbers. A training that is
        resumed asks again, and does not check that the term is the same.
        """
        return latents.new_zeros(())

    def on_epoch_end(self, training: "Training", record: EpochRecord, space: LatentSpace) -> None:
        """After every epoch, with its record and its latent space; `training.history` ends with the record."""

    def on_training_end(self, training: "Training", result: Trained) -> None:
        """After the last epoch, also if the training ended early; not after an interruption (Ctrl-C)."""


class Training:
    """Train one network on one problem of two or more classes.

    The paper has two; with more, "the other class" of every rule is any class but the image's own.

    Parameters
    ----------
    network : TextureFCN
        Trained in place.
    problem : Problem
    recipe : Recipe
        With a number of epochs.
    generator : torch.Generator
        Decides the order of the images.
    callbacks : sequence of Callback
        Called in this order.
    judge : callable
        How the validation images of an epoch are scored.
    phase : {"training", "refit"}, default="training"
        Stands in the records.
    first_epoch : int, default=0
        Number of the first epoch: how many records there are of the phase before this one.
    map_bytes : int, optional
        Memory for the maps of a batch of all images; a larger batch is computed in pieces.

    Attributes
    ----------
    selected : SelectedEpoch
        The epoch that `recipe.epoch_selection` asks for; without validation images the last one.
    history : History of EpochRecord
        One record more than there are rounds of back-propagation: the last one measures what the last round achieved.
    """

    selected: SelectedEpoch

    def __init__(
        self,
        network: TextureFCN,
        problem: Problem,
        recipe: Recipe,
        generator: torch.Generator,
        *,
        callbacks: Sequence[Callback] = (),
        judge: Judge = judge_by_epoch_svm,
        phase: Phase = "training",
        first_epoch: int = 0,
        map_bytes: int = MAP_BYTES,
    ) -> None:
        self.network = network
        self.problem = problem
        self.recipe = recipe
        self.callbacks = tuple(callbacks)
        self.judge = judge
        self.phase = phase
        self.first_epoch = first_epoch
        self.descent = Descent(network, problem.labels, recipe, generator, map_bytes, problem.crop_size)
        with_term = [callback for callback in self.callbacks if type(callback).extra_loss is not Callback.extra_loss]
        self.descent.extra_losses = [partial(callback.extra_loss, self) for callback in with_term]
        self.history: History[EpochRecord] = History()
        self.stop_reason: str | None = None

    def run(self) -> Trained:
        """Train until the last epoch, or until there is nothing to move; go on where `history` ends."""
        for callback in self.callbacks:
            callback.on_training_start(self)
        while not self.finished:
            record, space = self.train_epoch(len(self.history))
            self.history.append(record)
            for callback in self.callbacks:
                callback.on_epoch_end(self, record, space)
        result = Trained(self.selected, self.history, self._early_end())
        for callback in self.callbacks:
            callback.on_training_end(self, result)
        return result

    def stop(self, reason: str) -> None:
        """End the training after this epoch. Callbacks may call it."""
        self.stop_reason = reason

    @property
    def finished(self) -> bool:
        """Whether training was stopped, or the last epoch moved nothing: it only measured, or no image had to move."""
        return len(self.history) > 0 and (self.stop_reason is not None or self.history[-1].n_backpropagated == 0)

    def train_epoch(self, epoch: int) -> tuple[EpochRecord, LatentSpace]:
        """Take the five steps of an epoch of this training. The one after the last round only measures."""
        clock, number = Stopwatch(), self.first_epoch + epoch
        with clock("encoding"):
            latents = self._encode_training_set(number)  # step 1: T
        # Steps 2-4: P, K, D; S, Q, R; A, M, G.
        space = analyse_latents(latents, self.problem.labels, self.recipe, clock, self.problem.weights)
        score = self._validation_score(latents, space, clock)
        selected = self._select(number, score, space)
        with clock("backpropagation"):
            rate = self.descent.start_epoch(epoch)
            last = epoch == self.recipe.n_epochs
            n_images = 0
            if not last:
                moved = self.problem.images if self.problem.moved_images is None else self.problem.moved_images
                steps = self.descent.back_propagate  # step 5
                if self.recipe.step_per == "term":
                    steps = partial(back_propagate_terms, self.descent)
                n_images = steps(moved, space, number, self._batch_done)
        record = EpochRecord(
            epoch=number,
            phase=self.phase,
            validation_balanced_accuracy=score,
            n_backpropagated=n_images,
            learning_rate=rate,
            latent_spread=float(latents.var(dim=0, correction=0).mean().sqrt()),
            **self._describe(space, latents),
            seconds_encoding=clock.seconds["encoding"],
            seconds_svm=clock.seconds["svm"],
            seconds_anchors=clock.seconds["anchors"],
            seconds_backpropagation=clock.seconds["backpropagation"],
        )
        self.selected = selected  # only now, so that an interrupted epoch leaves no trace
        return record, space

    def _batch_done(self, share: float) -> None:
        for callback in self.callbacks:
            callback.on_batch_end(self, share)

    def _encode_training_set(self, epoch: int) -> Tensor:
        device = self.problem.labels.device
        with convolutions_in(bfloat16=self.descent.bfloat16, device=device):
            if self.recipe.batch_statistics == "running":
                latents = encode(self.network, self.problem.images, device)
            else:
                latents = refresh_and_encode(self.network, self.problem.images, device)
        if not bool(torch.isfinite(latents).all()):
            raise TrainingError(f"The latents are no longer finite in epoch {epoch}; try a smaller learning_rate.")
        if not bool(has_spread(latents.mean(dim=0), latents.std(dim=0, correction=0)).any()):
            raise TrainingError(_collapse_message(epoch, len(latents)))
        return latents

    def _validation_score(self, latents: Tensor, space: LatentSpace, clock: Stopwatch) -> float | None:
        """Return the validation balanced accuracy of the model that this epoch would make."""
        problem = self.problem
        if problem.validation_images is None or problem.validation_labels is None:
            return None
        device = problem.labels.device
        with clock("encoding"), convolutions_in(bfloat16=self.descent.bfloat16, device=device):
            found = encode(self.network, problem.validation_images, device)
        with clock("svm"):
            scores = self.judge(latents, found, space)
        return balanced_accuracy(problem.validation_labels, class_numbers(scores))

    def _select(self, epoch: int, score: float | None, space: LatentSpace) -> SelectedEpoch:
        """Return a copy of this epoch, or the epoch selected so far if that one counts."""
        if score is not None and len(self.history) > 0 and not self._is_selected(score):
            return self.selected
        network = copy.deepcopy(self.network)
        return SelectedEpoch(epoch, score or 0.0, network, space.decision, space.svm.support)

    def _is_selected(self, score: float) -> bool:
        if self.recipe.epoch_selection == "last":
            return True
        if self.recipe.epoch_selection == "best":
            return score > self.selected.score
        # A hundred validation images cannot tell epochs apart that differ by an image or two, but training goes on.
        best = max(self.history.column("validation_balanced_accuracy"))
        return score >= best - self._standard_error(best)

    def _standard_error(self, score: float) -> float:
        """Return that of a validation balanced accuracy, as if the recalls of all classes were equal."""
        labels = self.problem.validation_labels
        counts = torch.ones(1) if labels is None else labels.bincount()
        counts = counts[counts > 0]
        return math.sqrt(score * (1 - score) * float((1 / counts).sum())) / len(counts)

    def _early_end(self) -> str | None:
        """Return why the training ended before its last epoch, if it did."""
        if len(self.history) > self.recipe.n_epochs:
            return None
        if self.stop_reason is not None:
            return f"Training was stopped after epoch {self.history[-1].epoch}: {self.stop_reason}."
        return _explain_early_end(self.history[-1])

    def _describe(self, space: LatentSpace, latents: Tensor) -> dict[str, Any]:
        """Return the part of an epoch's record that its latents, and its latent space, tell."""
        svm, labels = space.svm, self.problem.labels
        predicted = labels.clone()
        predicted[svm.misclassified] = -1  # some other class
        all_indices = torch.arange(len(labels), device=labels.device)
        terms = loss_terms(space.latents, all_indices, space, self.recipe)
        head = self.descent.head
        with torch.no_grad():
            head_loss = 0.0 if head is None else float(head(latents, labels))
        return {
            "train_balanced_accuracy": balanced_accuracy(labels, predicted),
            "n_support": len(svm.support),
            "n_misclassified": len(svm.misclassified),
            "n_settled": len(svm.settled),
            "support_loss": float(terms.support),
            "correction_loss": float(terms.correction),
            "separation_loss": float(terms.separation),
            "head_loss": head_loss,
            "n_without_anchor": space.anchors.n_without,
            "gamma": space.decision.gamma,
        }


def _explain_early_end(record: EpochRecord) -> str:
    """Say why nothing moved: every later epoch would be the same."""
    if record.n_without_anchor == 0 and record.n_settled == 0:
        reason = "every image is a support vector, and support vectors are not moved by these terms; try a larger C"
    elif record.n_without_anchor == 0:
        reason = "no image violates a term of the loss that is switched on, so there is nothing left to learn"
    else:
        reason = (
            f"none of the {record.n_without_anchor} images that should move has an allowed anchor"
            f" ({record.n_settled} of all images are settled); try a larger C or a smaller gamma_factor"
        )
    return f"Training ended in epoch {record.epoch}: {reason}."


def _collapse_message(epoch: int, n_images: int) -> str:
    if epoch == 0:
        return (
            f"All {n_images} images have the same latents before any training (epoch 0);"
            " check that the images differ and are not constant."
        )
    return (
        f"The latents collapsed to one point in epoch {epoch}; try a smaller learning_rate,"
        ' support_loss="contrast", or sh_close=1, which pushes the classes apart.'
    )
