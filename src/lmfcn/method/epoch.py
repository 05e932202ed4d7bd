"""One network from first to last epoch: the epoch's five steps, the loop, the epoch that is kept."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lmfcn.compute.encode import Images, convolutions_in, encode, refresh_and_encode
from lmfcn.method.anchors import LatentSpace, survey
from lmfcn.method.backpropagation import MAP_BYTES, Descent, losses
from lmfcn.method.history import EpochRecord, History, Stopwatch, TrainingError
from lmfcn.method.kernel_svm import Decision, balanced_accuracy, class_numbers, has_spread
from lmfcn.method.network import TextureFCN
from lmfcn.recipe import Settings
from lmfcn.training.final_svm import ALWAYS, fit_final_svm, rules_of


@dataclass(frozen=True)
class Problem:
    """What one network learns to tell apart.

    Attributes
    ----------
    images : images (n, h, w, c)
    labels : Tensor (n,)
        Their classes 0, 1, ..., on the network's device.
    validation_images, validation_labels
        The same for choosing the epoch.
    weights : Tensor (n,), optional
        Factor on the price of a margin violation for each image.
    beside, validation_beside : Tensor (n, d) and (m, d), optional
        What the last SVM will see of every image besides the network's latents.
    """

    images: Images
    labels: Tensor
    validation_images: Images | None = None
    validation_labels: Tensor | None = None
    weights: Tensor | None = None
    beside: Tensor | None = None
    validation_beside: Tensor | None = None


@dataclass(frozen=True)
class KeptEpoch:
    """A network and the SVM of the same epoch, copies that later epochs do not change, and its validation accuracy."""

    epoch: int
    score: float
    network: TextureFCN
    decision: Decision
    support: Tensor


@dataclass(frozen=True)
class Trained:
    """What is left of a training when it has ended, with a message if it ended early: by itself or `interrupted`."""

    kept: KeptEpoch
    history: History[EpochRecord]
    message: str | None = None
    interrupted: bool = False


Observer = Callable[[EpochRecord, LatentSpace], None]


class Training:
    """Train one network on one problem of two or more classes.

    The paper has two; with more, "the other class" of every rule is any class but the image's own.

    Parameters
    ----------
    network : TextureFCN
        Trained in place.
    problem : Problem
    settings : Settings
    generator : torch.Generator
        Decides the order of the images.
    observe : callable, optional
        Called with the record and the latent space of every epoch.
    save : callable, optional
        Called with the training after every epoch, for a checkpoint.
    n_before : int, default=0
        Number of the first epoch: how many there were in the phase before this one.
    map_bytes : int, optional
        Memory for the maps of a batch of all images; a larger one is computed in pieces.

    Attributes
    ----------
    kept : KeptEpoch
        The epoch that `settings.keep` asks for; without validation images the last one.
    history : History of EpochRecord
        One record more than there are rounds of back-propagation: the last one measures what the last
        round achieved.
    """

    kept: KeptEpoch

    def __init__(
        self,
        network: TextureFCN,
        problem: Problem,
        settings: Settings,
        generator: torch.Generator,
        observe: Observer | None = None,
        save: "Callable[[Training], None] | None" = None,
        n_before: int = 0,
        map_bytes: int = MAP_BYTES,
    ) -> None:
        self.network = network
        self.problem = problem
        self.settings = settings
        self.observe = observe
        self.save = save
        self.n_before = n_before
        self.descent = Descent(network, problem.labels, settings, generator, map_bytes)
        self.history: History[EpochRecord] = History()

    def run(self) -> Trained:
        """Train until the last epoch, or until there is nothing to move; go on where `history` ends."""
        while not self.finished:
            record, space = self.train_epoch(len(self.history))
            self.history.append(record)
            if self.observe is not None:
                self.observe(record, space)
            if self.save is not None:
                self.save(self)
        early = len(self.history) <= self.settings.epochs
        return Trained(self.kept, self.history, _explain_early_end(self.history[-1]) if early else None)

    @property
    def finished(self) -> bool:
        """Whether the last epoch moved nothing: it was the one that only measures, or no image had a reason to."""
        return len(self.history) > 0 and self.history[-1].n_backpropagated == 0

    def train_epoch(self, epoch: int) -> tuple[EpochRecord, LatentSpace]:
        """Take the five steps of an epoch of this training. The one after the last round only measures."""
        clock, number = Stopwatch(), self.n_before + epoch
        with clock("encoding"):
            latents = self._encode_training_set(number)  # step 1: T
        # Steps 2-4: P, K, D; S, Q, R; A, M, G.
        space = survey(latents, self.problem.labels, self.settings, clock, self.problem.weights)
        score = self._validation_score(latents, space, clock)
        kept = self._better(number, score, space)
        with clock("backpropagation"):
            rate = self.descent.start_epoch(epoch)
            last = epoch == self.settings.epochs
            n_images = 0 if last else self.descent.back_propagate(self.problem.images, space, number)  # step 5
        record = EpochRecord(
            epoch=number,
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
        self.kept = kept  # only now, so that an interrupted epoch leaves no trace
        return record, space

    def _encode_training_set(self, epoch: int) -> Tensor:
        device = self.problem.labels.device
        with convolutions_in(bfloat16=self.descent.bfloat16, device=device):
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
            scores = self._judge(latents, space).scores(_behind(problem.validation_beside, found))
        return balanced_accuracy(problem.validation_labels, class_numbers(scores))

    def _judge(self, latents: Tensor, space: LatentSpace) -> Decision:
        """Return the decision that the last SVM would make of this epoch's latents: the epoch's own in the paper.

        One network of one-vs-all is judged by its own problem; the last SVM sees the latents of all.
        """
        problem, settings = self.problem, self.settings
        if problem.beside is None and not settings.whiten:
            return space.decision
        nobody, own = torch.full_like(problem.labels, ALWAYS), rules_of(settings, problem.weights)[:1]
        return fit_final_svm(_behind(problem.beside, latents), problem.labels, nobody, settings, own).decision

    def _better(self, epoch: int, score: float | None, space: LatentSpace) -> KeptEpoch:
        """Return the epoch to keep: this one, copied, unless the one kept so far is better."""
        if score is not None and len(self.history) > 0 and not self._deserves_keeping(score):
            return self.kept
        network = copy.deepcopy(self.network)
        return KeptEpoch(epoch, score or 0.0, network, space.decision, space.margin.support)

    def _deserves_keeping(self, score: float) -> bool:
        if self.settings.keep == "best":
            return score > self.kept.score
        # A hundred validation images cannot tell epochs apart that differ by an image or two, but training goes on.
        best = max(self.history.column("validation_balanced_accuracy"))
        return score >= best - self._standard_error(best)

    def _standard_error(self, score: float) -> float:
        """Return that of a validation balanced accuracy, as if every class were recognised equally well."""
        labels = self.problem.validation_labels
        counts = torch.ones(1) if labels is None else labels.bincount()
        counts = counts[counts > 0]
        return math.sqrt(score * (1 - score) * float((1 / counts).sum())) / len(counts)

    def _describe(self, space: LatentSpace, latents: Tensor) -> dict[str, Any]:
        """Return the part of an epoch's record that its latents, and its latent space, tell."""
        margin, labels = space.margin, self.problem.labels
        predicted = labels.clone()
        predicted[margin.misclassified] = -1  # some other class
        everyone = torch.arange(len(labels), device=labels.device)
        terms = losses(space.latents, everyone, space, self.settings)
        head = self.descent.head
        with torch.no_grad():
            head_loss = 0.0 if head is None else float(head(latents, labels))
        return {
            "train_balanced_accuracy": balanced_accuracy(labels, predicted),
            "n_support": len(margin.support),
            "n_misclassified": len(margin.misclassified),
            "n_settled": len(margin.settled),
            "support_loss": float(terms.support),
            "correction_loss": float(terms.correction),
            "separation_loss": float(terms.separation),
            "head_loss": head_loss,
            "n_without_anchor": space.anchors.n_without,
            "gamma": space.decision.gamma,
        }


def _behind(beside: Tensor | None, latents: Tensor) -> Tensor:
    return latents if beside is None else torch.cat([beside, latents], dim=1)


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
