"""One binary problem from first to last epoch: the epoch's five steps, the loop, the epoch that is kept."""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lmfcn.algorithm.backpropagation import Descent, losses
from lmfcn.algorithm.encode import Images, encode, refresh_batch_norm
from lmfcn.algorithm.errors import TrainingError, TrainingWarning
from lmfcn.algorithm.geometry import has_spread
from lmfcn.algorithm.history import EpochRecord, History, Stopwatch
from lmfcn.algorithm.latent_space import Decision, LatentSpace, survey
from lmfcn.algorithm.network import TextureFCN
from lmfcn.algorithm.score import balanced_accuracy
from lmfcn.algorithm.settings import Settings


@dataclass(frozen=True)
class Problem:
    """The images (n, h, w, c) of one binary problem and their classes 0 and 1, on the network's device."""

    images: Images
    labels: Tensor
    validation_images: Images | None = None
    validation_labels: Tensor | None = None


@dataclass(frozen=True)
class KeptEpoch:
    """A network and the SVM of the same epoch: copies that later epochs do not change."""

    epoch: int
    score: float
    network: TextureFCN
    decision: Decision
    support: Tensor


Observer = Callable[[EpochRecord, LatentSpace], None]


class BinaryTraining:
    """Train one network on one binary problem.

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

    Attributes
    ----------
    kept : KeptEpoch
        The epoch with the best validation balanced accuracy, the earlier one on a tie; without validation
        images the last one.
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
    ) -> None:
        self.network = network
        self.problem = problem
        self.settings = settings
        self.observe = observe
        self.descent = Descent(network, settings, generator)
        self.history: History[EpochRecord] = History()

    def run(self) -> None:
        """Train until the last epoch, or until no image has an anchor any more."""
        for epoch in range(self.settings.epochs + 1):
            record, space = self.train_epoch(epoch)
            self.history.append(record)
            if self.observe is not None:
                self.observe(record, space)
            if record.n_backpropagated == 0 and epoch < self.settings.epochs:
                self._explain_early_end(record)
                break

    def train_epoch(self, epoch: int) -> tuple[EpochRecord, LatentSpace]:
        """Take the five steps of an epoch. The one after the last round only measures."""
        clock = Stopwatch()
        with clock("encoding"):
            latents = self._encode_training_set(epoch)  # step 1: T
        space = survey(latents, self.problem.labels, self.settings, clock)  # steps 2-4: P, K, D; S, Q, R; A, M, G
        with clock("encoding"):
            score = self._validation_score(space)
        self._keep_if_better(epoch, score, space)
        with clock("backpropagation"):
            rate = self.descent.start_epoch(epoch)
            last = epoch == self.settings.epochs
            n_images = 0 if last else self.descent.back_propagate(self.problem.images, space, epoch)  # step 5
        record = EpochRecord(
            epoch=epoch,
            validation_balanced_accuracy=score,
            n_backpropagated=n_images,
            learning_rate=rate,
            latent_spread=float(latents.var(dim=0, correction=0).mean().sqrt()),
            **self._describe(space),
            seconds_encoding=clock.seconds["encoding"],
            seconds_svm=clock.seconds["svm"],
            seconds_anchors=clock.seconds["anchors"],
            seconds_backpropagation=clock.seconds["backpropagation"],
        )
        return record, space

    def _encode_training_set(self, epoch: int) -> Tensor:
        device = self.problem.labels.device
        refresh_batch_norm(self.network, self.problem.images, device)
        latents = encode(self.network, self.problem.images, device)
        if not bool(torch.isfinite(latents).all()):
            raise TrainingError(f"The latents are no longer finite in epoch {epoch}; try a smaller learning_rate.")
        if not bool(has_spread(latents.mean(dim=0), latents.std(dim=0, correction=0)).any()):
            raise TrainingError(_collapse_message(epoch, len(latents)))
        return latents

    def _validation_score(self, space: LatentSpace) -> float | None:
        images, labels = self.problem.validation_images, self.problem.validation_labels
        if images is None or labels is None:
            return None
        decisions = space.decision.decide(encode(self.network, images, labels.device))
        return balanced_accuracy(labels, (decisions > 0).to(labels))

    def _keep_if_better(self, epoch: int, score: float | None, space: LatentSpace) -> None:
        if score is None or epoch == 0 or score > self.kept.score:
            network = copy.deepcopy(self.network)
            self.kept = KeptEpoch(epoch, score or 0.0, network, space.decision, space.margin.support)

    def _explain_early_end(self, record: EpochRecord) -> None:
        """Warn why nothing moved: every later epoch would be the same."""
        if record.n_without_anchor == 0 and record.n_settled == 0:
            message = (
                "every image is a support vector, and support vectors are not moved by these terms; try a larger C"
            )
        elif record.n_without_anchor == 0:
            message = "no image violates a term of the loss that is switched on, so there is nothing left to learn"
        else:
            message = (
                f"none of the {record.n_without_anchor} images that should move has an allowed anchor"
                f" ({record.n_settled} of all images are settled); try a larger C or a smaller gamma_factor"
            )
        warnings.warn(f"Training ended in epoch {record.epoch}: {message}.", TrainingWarning, stacklevel=2)

    def _describe(self, space: LatentSpace) -> dict[str, Any]:
        """Return the part of an epoch's record that its latent space tells."""
        margin, labels = space.margin, self.problem.labels
        predicted = labels.clone()
        predicted[margin.misclassified] = 1 - labels[margin.misclassified]
        everyone = torch.arange(len(labels), device=labels.device)
        terms = losses(space.latents, everyone, space, self.settings)
        return {
            "train_balanced_accuracy": balanced_accuracy(labels, predicted),
            "n_support": len(margin.support),
            "n_misclassified": len(margin.misclassified),
            "n_settled": len(margin.settled),
            "support_loss": float(terms.support),
            "correction_loss": float(terms.correction),
            "separation_loss": float(terms.separation),
            "n_without_anchor": space.anchors.n_without,
            "gamma": space.decision.gamma,
        }


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
