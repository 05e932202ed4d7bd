"""The networks of a model: trained with validation images held out, then from all images."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from lmfcn.compute.encode import Images, JoinedImages, encode, refresh_and_encode
from lmfcn.compute.parallel import workers_of
from lmfcn.compute.resources import ThreadCounts, to_device
from lmfcn.data.training_data import TrainingData
from lmfcn.method.anchors import LatentSpace
from lmfcn.method.epoch import KeptEpoch, Observer, Problem, Trained, Training
from lmfcn.method.history import EpochRecord, History
from lmfcn.method.network import TextureFCN
from lmfcn.method.one_vs_all import one_against_all, train_side_by_side
from lmfcn.recipe import Settings
from lmfcn.training.checkpoints import Checkpoints
from lmfcn.training.first_filters import decorrelate_first_filters
from lmfcn.util.progress import Advance, epoch_progress, progress_note


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
    threads : ThreadCounts
        Numbers of threads that everything computes with.
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
    threads: ThreadCounts
    checkpoints: Checkpoints | None
    observe: Observer | None
    verbose: bool


def open_training(data: TrainingData, plan: Plan, root: Tensor | None, untrained: TextureFCN | None) -> list[Trained]:
    """Train new networks on the training images; validation images, if there are any, choose the epochs.

    `root` decorrelates the patches that half of their first filters look at. `untrained` is what the last SVM will see
    beside the trained networks, so epochs are judged with it.
    """
    n_opening = plan.settings.epochs - plan.settings.closing_epochs
    phase = _Phase("LMFCN", replace(plan.settings, epochs=n_opening), 0, "")
    networks = [new_network(data, plan, root, number) for number in range(_n_networks(data, plan))]
    problem = _problem(data, plan)
    if untrained is not None and data.validation is not None:
        beside = refresh_and_encode(untrained, data.train.images, plan.device)
        problem = replace(
            problem, beside=beside, validation_beside=encode(untrained, data.validation.images, plan.device)
        )
    return _train(data, plan, phase, problem, networks)


def close_training(data: TrainingData, plan: Plan, trained: Sequence[Trained]) -> list[Trained] | None:
    """Train the kept networks further, on training and validation images together, and keep the last epoch.

    All that validation images can tell is known by then. They are as many new images for the networks, of which those
    that lie inside the margin become support vectors at once. None if there is nothing to do: no closing epochs, or
    the user has stopped the first phase. Stopped before the first closing epoch was over, one network stays as it was.
    """
    n_closing = plan.settings.closing_epochs
    if n_closing == 0 or any(result.interrupted for result in trained):
        return None
    n_before = plan.settings.epochs - n_closing
    phase = _Phase("LMFCN, all images", replace(plan.settings, epochs=n_closing), n_before, "-closing")
    networks = [copy.deepcopy(result.kept.network) for result in trained]
    try:
        return _train(data, plan, phase, _problem_of_all(data, plan), networks)
    except KeyboardInterrupt:
        if plan.one_vs_all:
            raise
        return [_interrupted(trained[0].kept, History(), trained[0].history[-1].epoch, plan)]


def all_images(data: TrainingData) -> Images:
    """Return the training images and, behind them, the validation images."""
    train, validation = data.train, data.validation
    return train.images if validation is None else JoinedImages(train.images, validation.images)


def new_network(data: TrainingData, plan: Plan, root: Tensor | None, number: int = 0) -> TextureFCN:
    """Return one of the networks as it starts; the same one every time."""
    seed = int(np.random.default_rng([plan.seed, 1]).integers(2**62, size=number + 1)[number])
    generator = torch.Generator().manual_seed(seed)
    network = TextureFCN(data.form.channels, plan.latent_dim, plan.widths, generator=generator)
    decorrelate_first_filters(network, root)
    return network.to(plan.device)


def image_weights(plan: Plan, labels: Tensor) -> Tensor | None:
    """Return the factor (n,) on C for each image, if classes have one."""
    if plan.class_weights is None:
        return None
    return to_device(torch.from_numpy(plan.class_weights), labels.device)[labels]


def resumed_plan(plan: Plan, checkpoints: Checkpoints) -> tuple[Plan, list[str]]:
    """Return the plan with the checkpoints' folder and numbers of threads, and a message if these were others."""
    notes = []
    if checkpoints.threads not in (None, plan.threads):
        notes.append(
            f"The fit in {checkpoints.folder} was started with {checkpoints.threads}, and goes on with the same instead"
            f" of {plan.threads}: bits depend on it. Delete the folder to start anew."
        )
    return replace(plan, checkpoints=checkpoints, threads=checkpoints.threads or plan.threads), notes


def how_to_go_on(plan: Plan) -> str:
    """Say how an interrupted fit goes on."""
    if plan.checkpoints is None:
        return "Give checkpoint_dir to be able to go on after an interruption."
    return (
        f"To go on, call fit again with the same data, parameters and checkpoint_dir={str(plan.checkpoints.folder)!r}."
    )


@dataclass(frozen=True)
class _Phase:
    """One of the two phases: its title, its settings, the epochs before it, and the end of its checkpoints' names."""

    title: str
    settings: Settings
    n_before: int
    suffix: str

    def seed(self, plan: Plan, number: int) -> int:
        """Return what decides the order of the images."""
        return int(np.random.default_rng([plan.seed, 3, self.n_before, number]).integers(2**62))


def _n_networks(data: TrainingData, plan: Plan) -> int:
    return len(data.classes) if plan.one_vs_all else 1


def _train(
    data: TrainingData, plan: Plan, phase: _Phase, problem: Problem, networks: Sequence[TextureFCN]
) -> list[Trained]:
    """Train each network on its problem: that of all classes, or of one class against all others."""
    workers = workers_of(plan.n_jobs)
    in_workers = len(networks) > 1 and not workers.serial
    with epoch_progress(phase.title, len(networks) * (phase.settings.epochs + 1), visible=plan.verbose) as advance:
        observe = None if in_workers else _observer(plan.observe, advance)
        catch_up = None if in_workers else _note(advance)
        make = partial(_make_training, replace(plan, observe=None), phase, observe, catch_up)
        if not plan.one_vs_all:
            return [_run_interruptible(make(problem, networks[0], 0), plan)]
        tasks = {
            f"Class {label!r} against all others": partial(
                make, one_against_all(problem, number), networks[number], number
            )
            for number, label in enumerate(data.classes.tolist())
        }

        def finished(trained: Trained) -> None:
            for record in trained.history if in_workers else ():
                _note(advance)(record)

        return train_side_by_side(tasks, finished, workers=workers, n_threads=plan.threads.network)


def _make_training(
    plan: Plan,
    phase: _Phase,
    observe: Observer | None,
    catch_up: Callable[[EpochRecord], None] | None,
    problem: Problem,
    network: TextureFCN,
    number: int,
) -> Training:
    """Return the training of one network, at its start or where its checkpoint ends.

    `catch_up` sees the records of epochs that a checkpoint brings.
    """
    checkpoint = None if plan.checkpoints is None else plan.checkpoints.of(f"{number}{phase.suffix}")
    generator = torch.Generator().manual_seed(phase.seed(plan, number))
    save = None if checkpoint is None else checkpoint.save
    training = Training(network, problem, phase.settings, generator, observe, save, phase.n_before)
    if checkpoint is not None:
        checkpoint.restore(training)
    if catch_up is not None:
        for record in training.history:
            catch_up(record)
    return training


def _run_interruptible(training: Training, plan: Plan) -> Trained:
    """Run one training; when the user stops it, keep what there is."""
    try:
        return training.run()
    except KeyboardInterrupt:
        if len(training.history) == 0:
            raise
        return _interrupted(training.kept, training.history, training.history[-1].epoch, plan)


def _interrupted(kept: KeptEpoch, history: History[EpochRecord], last_epoch: int, plan: Plan) -> Trained:
    message = f"Interrupted after epoch {last_epoch}; epoch {kept.epoch} is kept. {how_to_go_on(plan)}"
    return Trained(kept, history, message, interrupted=True)


def _problem(data: TrainingData, plan: Plan) -> Problem:
    train, validation = data.train, data.validation
    labels = torch.from_numpy(train.numbers).to(plan.device)
    return Problem(
        train.images,
        labels,
        None if validation is None else validation.images,
        None if validation is None else torch.from_numpy(validation.numbers).to(plan.device),
        image_weights(plan, labels),
    )


def _problem_of_all(data: TrainingData, plan: Plan) -> Problem:
    """Return the problem without anything held out."""
    problem = _problem(data, plan)
    others = [] if problem.validation_labels is None else [problem.validation_labels]
    labels = torch.cat([problem.labels, *others])
    return Problem(all_images(data), labels, weights=image_weights(plan, labels))


def _note(advance: Advance) -> Callable[[EpochRecord], None]:
    return lambda record: advance(progress_note(record.validation_balanced_accuracy, record.n_support))


def _observer(observe: Observer | None, advance: Advance) -> Observer:
    def watch(record: EpochRecord, space: LatentSpace) -> None:
        _note(advance)(record)
        if observe is not None:
            observe(record, space)

    return watch
