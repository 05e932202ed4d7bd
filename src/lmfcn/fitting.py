"""From checked data to a fitted model: train the networks, fit the last SVM, calibrate."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import joblib
import numpy as np
import torch
from torch import Tensor

from lmfcn.algorithm.calibration import Calibration, calibrate, equal_prior_shift, probabilities
from lmfcn.algorithm.decision import Decision
from lmfcn.algorithm.encode import encode
from lmfcn.algorithm.final_svm import ALWAYS, FinalSVM, fit_final_svm
from lmfcn.algorithm.first_filters import decorrelate_first_filters, decorrelation
from lmfcn.algorithm.history import EpochRecord
from lmfcn.algorithm.latent_space import LatentSpace
from lmfcn.algorithm.network import TextureFCN
from lmfcn.algorithm.one_vs_all import one_against_all, train_side_by_side
from lmfcn.algorithm.refresh import refresh_and_encode
from lmfcn.algorithm.score import class_numbers
from lmfcn.algorithm.settings import Settings
from lmfcn.algorithm.training import Observer, Problem, Trained, Training
from lmfcn.checkpoints import Checkpoints
from lmfcn.data.splits import make_folds
from lmfcn.data.training_data import LabelledImages, TrainingData
from lmfcn.inference.held_out import HeldOut
from lmfcn.inference.model import Networks, TextureModel
from lmfcn.memory import check_kernel_memory, reused_buffers
from lmfcn.progress import Advance, epoch_progress, progress_note

N_FOLDS = 5
INTERRUPTED = "Interrupted after epoch"
FEW_IMAGES = 3
"""Classes with fewer training images are reported."""


@dataclass(frozen=True)
class Plan:
    """How to fit: everything that is decided before the first epoch.

    Attributes
    ----------
    latent_dim, widths
        The shape of each network.
    first_filters : "decorrelated" or "random"
        Where the filters of the first layer start.
    keep_untrained : bool
        Whether the last SVM also sees what the untrained network says: the means of the maps of all its layers.
    settings : Settings
    one_vs_all : bool
        One network per class instead of one for all.
    class_weights : array (n_classes,) or None
        Factor on C for each class.
    seed : int
    device : torch.device
    n_jobs : int or None
    checkpoints : Checkpoints or None
    observe : callable or None
    verbose : bool
    """

    latent_dim: int
    widths: tuple[int, ...]
    first_filters: str
    keep_untrained: bool
    settings: Settings
    one_vs_all: bool
    class_weights: np.ndarray | None
    seed: int
    device: torch.device
    n_jobs: int | None
    checkpoints: Checkpoints | None
    observe: Observer | None
    verbose: bool


@dataclass(frozen=True)
class Fitted:
    """A model, how it came about, and what the user should know about it."""

    model: TextureModel
    trained: list[Trained]
    support: np.ndarray
    C: float
    held_out: HeldOut
    messages: list[str]


def fit_model(data: TrainingData, plan: Plan) -> Fitted:
    """Train as the plan says and put the model together."""
    check_kernel_memory(len(data.train) + (0 if data.validation is None else len(data.validation)))
    try:
        with reused_buffers():
            root = decorrelation(data.train.images) if plan.first_filters == "decorrelated" else None
            trained = _train(data, plan, root)
            members = _members(data, plan, trained, root)
            final, rows = _final_svm(data, plan, Networks(members), trained)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(_how_to_go_on(plan))
        raise
    held_out = data.validation is not None
    decision, calibration = calibrated(final, rows.labels, plan.settings.prior_shift, held_out=held_out)
    model = TextureModel(members, decision, calibration, data.classes, data.form)
    doubts = _doubts(data, final, rows.labels[final.held_out])
    messages = [result.message for result in trained if result.message] + list(doubts)
    support = rows.positions[final.support.cpu().numpy()]
    return Fitted(model, trained, support, final.C, _held_out(final, rows, model), messages)


def _held_out(final: FinalSVM, rows: "_Rows", model: TextureModel) -> HeldOut:
    scores = final.held_out_scores.cpu() + (model.intercepts - final.decision.intercepts).cpu()
    held_out = final.held_out.cpu().numpy()
    numbers = rows.labels.cpu().numpy()[held_out]
    predicted = probabilities(scores, model.calibration.sharpness).numpy()
    return HeldOut(rows.positions[held_out], numbers, predicted, seen=not model.calibration.held_out)


def calibrated(final: FinalSVM, labels: Tensor, prior_shift: float, *, held_out: bool) -> tuple[Decision, Calibration]:
    """Return the decision, leaning towards rare classes as far as `prior_shift` says, and its calibration.

    `held_out` tells whether the features had not been learnt from the held-out images either.
    """
    labels_out = labels[final.held_out]
    calibration = calibrate(final.held_out_scores, labels_out, held_out=held_out)
    if not prior_shift:
        return final.decision, calibration
    shift = prior_shift * equal_prior_shift(labels, calibration.sharpness)
    decision = replace(final.decision, intercepts=final.decision.intercepts + shift.to(final.decision.intercepts))
    return decision, calibration.under(final.held_out_scores.cpu() + shift, labels_out)


def _train(data: TrainingData, plan: Plan, root: Tensor | None) -> list[Trained]:
    problem = _problem(data, plan)
    seeds = _network_seeds(data, plan)
    n_networks = len(seeds)
    in_workers = n_networks > 1 and joblib.effective_n_jobs(plan.n_jobs) > 1
    with epoch_progress("LMFCN", n_networks * (plan.settings.epochs + 1), visible=plan.verbose) as advance:
        observe = None if in_workers else _observer(plan.observe, advance)
        catch_up = None if in_workers else _note(advance)
        make = partial(_make_training, data.form.channels, root, replace(plan, observe=None), observe, catch_up)
        if not plan.one_vs_all:
            return [_run_interruptible(make(problem, seeds[0], 0), plan)]
        tasks = {
            f"Class {label!r} against all others": partial(
                make, one_against_all(problem, number), seeds[number], number
            )
            for number, label in enumerate(data.classes.tolist())
        }

        def finished(trained: Trained) -> None:
            for record in trained.history if in_workers else ():
                _note(advance)(record)

        return train_side_by_side(tasks, plan.n_jobs, finished)


def _make_training(
    channels: int,
    root: Tensor | None,
    plan: Plan,
    observe: Observer | None,
    catch_up: Callable[[EpochRecord], None] | None,
    problem: Problem,
    seed: int,
    number: int,
) -> Training:
    """Return the training of one network, at its start or where its checkpoint ends.

    `catch_up` sees the records of epochs that a checkpoint brings.
    """
    checkpoint = None if plan.checkpoints is None else plan.checkpoints.of(number)
    generator = torch.Generator().manual_seed(seed)
    network = _new_network(channels, root, plan, generator)
    save = None if checkpoint is None else checkpoint.save
    training = Training(network, problem, plan.settings, generator, observe, save)
    if checkpoint is not None:
        checkpoint.restore(training)
    if catch_up is not None:
        for record in training.history:
            catch_up(record)
    return training


def _network_seeds(data: TrainingData, plan: Plan) -> list[int]:
    n_networks = len(data.classes) if plan.one_vs_all else 1
    return np.random.default_rng([plan.seed, 1]).integers(2**62, size=n_networks).tolist()


def _new_network(channels: int, root: Tensor | None, plan: Plan, generator: torch.Generator) -> TextureFCN:
    network = TextureFCN(channels, plan.latent_dim, plan.widths, generator=generator)
    decorrelate_first_filters(network, root)
    return network.to(plan.device)


def _members(data: TrainingData, plan: Plan, trained: list[Trained], root: Tensor | None) -> list[TextureFCN]:
    """Return the networks of the model, the untrained one first if it is kept.

    Few images cannot teach everything that tells textures apart; what training lets go of is still there, and the SVM
    decides what it needs. Before a new SVM is fitted, filters are rounded: a file of half the size then loses nothing.
    """
    members = [result.kept.network for result in trained]
    if plan.keep_untrained:
        generator = torch.Generator().manual_seed(_network_seeds(data, plan)[0])
        untrained = _new_network(data.form.channels, root, plan, generator)
        untrained.pooling = "all"
        members.insert(0, untrained)
    for network in members if plan.settings.refit or plan.keep_untrained else ():
        network.round_filters()
        refresh_and_encode(network, data.train.images, plan.device)
    return members


def _run_interruptible(training: Training, plan: Plan) -> Trained:
    """Run one training; when the user stops it, keep what there is."""
    try:
        return training.run()
    except KeyboardInterrupt:
        if len(training.history) == 0:
            raise
        done, kept = training.history[-1].epoch, training.kept.epoch
        message = f"{INTERRUPTED} {done}; epoch {kept} is kept. {_how_to_go_on(plan)}"
        return Trained(training.kept, training.history, message)


def _how_to_go_on(plan: Plan) -> str:
    if plan.checkpoints is None:
        return "Give checkpoint_dir to be able to go on after an interruption."
    return (
        f"To go on, call fit again with the same data, parameters and checkpoint_dir={str(plan.checkpoints.folder)!r}."
    )


@dataclass(frozen=True)
class _Rows:
    """Images as the last SVM sees them."""

    latents: Tensor
    labels: Tensor
    positions: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


def _final_svm(data: TrainingData, plan: Plan, networks: Networks, trained: list[Trained]) -> tuple[FinalSVM, _Rows]:
    """Return the last SVM, and the images that its rows stand for.

    Its held-out scores are always those of validation images, if there are any.
    """
    random = np.random.default_rng([plan.seed, 2])
    train = _encoded(networks, data.train, plan)
    if data.validation is None:
        return _fit(train, judging_folds(data.train.numbers, random, data.train.groups), plan), train
    validation = _encoded(networks, data.validation, plan)
    rows = _Rows(
        torch.cat([train.latents, validation.latents]),
        torch.cat([train.labels, validation.labels]),
        np.concatenate([train.positions, validation.positions]),
    )
    if plan.settings.refit:
        folds = make_folds(data.validation.numbers, N_FOLDS, random, data.validation.groups)
        return _fit(rows, np.concatenate([np.full(len(train), ALWAYS), folds]), plan), rows
    kept, settings = trained[0].kept, plan.settings
    decision, support = kept.decision, kept.support
    if plan.one_vs_all or plan.keep_untrained:
        plain = _fit(train, np.full(len(train), ALWAYS), plan)
        decision, support = plain.decision, plain.support
    held_out = torch.arange(len(train), len(rows), device=plan.device)
    return FinalSVM(decision, support, settings.C, held_out, decision.scores(validation.latents)), rows


def _encoded(networks: Networks, data: LabelledImages, plan: Plan) -> _Rows:
    latents = encode(networks, data.images, plan.device)
    return _Rows(latents, torch.from_numpy(data.numbers).to(plan.device), data.positions)


def _fit(rows: _Rows, folds: np.ndarray, plan: Plan) -> FinalSVM:
    weights = _image_weights(plan, rows.labels)
    return fit_final_svm(rows.latents, rows.labels, torch.from_numpy(folds).to(plan.device), plan.settings, weights)


def judging_folds(numbers: np.ndarray, random: np.random.Generator, groups: np.ndarray | None = None) -> np.ndarray:
    """Return the folds (n,) by which SVMs on all these images are judged; each can be taken away."""
    return _leaving_every_class(make_folds(numbers, N_FOLDS, random, groups), numbers, groups)


def _leaving_every_class(folds: np.ndarray, numbers: np.ndarray, groups: np.ndarray | None) -> np.ndarray:
    """Return folds of which each can be taken away: a class that lies in one fold alone stays in every part.

    The groups of its images stay with it.
    """
    folds, groups = folds.copy(), np.arange(len(numbers)) if groups is None else groups
    changed = True
    while changed:
        changed = False
        for number in np.unique(numbers):
            taken_away = np.unique(folds[(numbers == number) & (folds != ALWAYS)])
            if len(taken_away) == 1 and not ((numbers == number) & (folds == ALWAYS)).any():
                folds[np.isin(groups, groups[numbers == number])] = ALWAYS
                changed = True
    return folds


def _problem(data: TrainingData, plan: Plan) -> Problem:
    train, validation = data.train, data.validation
    labels = torch.from_numpy(train.numbers).to(plan.device)
    return Problem(
        train.images,
        labels,
        None if validation is None else validation.images,
        None if validation is None else torch.from_numpy(validation.numbers).to(plan.device),
        _image_weights(plan, labels),
    )


def _image_weights(plan: Plan, labels: Tensor) -> Tensor | None:
    if plan.class_weights is None:
        return None
    return torch.from_numpy(plan.class_weights).to(labels.device)[labels]


def _note(advance: Advance) -> Callable[[EpochRecord], None]:
    return lambda record: advance(progress_note(record.validation_balanced_accuracy, record.n_support))


def _observer(observe: Observer | None, advance: Advance) -> Observer:
    def watch(record: EpochRecord, space: LatentSpace) -> None:
        _note(advance)(record)
        if observe is not None:
            observe(record, space)

    return watch


def _doubts(data: TrainingData, final: FinalSVM, held_out: Tensor) -> Iterator[str]:
    """Name the classes that are too small to learn, or that held-out images show as not learnt."""
    counts = np.bincount(data.train.numbers)
    for label, count in zip(data.classes.tolist(), counts.tolist(), strict=True):
        if count < FEW_IMAGES:
            yield f"Class {label!r} has only {count} training images; what is said about it rests on little."
    predicted = class_numbers(final.held_out_scores)
    for number in held_out.unique().tolist():
        mine = held_out == number
        count = int(mine.sum())
        if count > FEW_IMAGES and not bool((predicted[mine] == number).any()):
            yield f"None of the {count} held-out images of class {data.classes[number].item()!r} was recognised."
