"""The two phases of a fit: train with validation images held out, then refit on all images."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from lmfcn.compute.encode import Images, JoinedImages
from lmfcn.compute.parallel import workers_of
from lmfcn.compute.resources import ThreadCounts, to_device
from lmfcn.data.training_data import LabelledImages, TrainingData
from lmfcn.method.anchors import LatentSpace
from lmfcn.method.epoch import Callback, Judge, Problem, SelectedEpoch, Trained, Training, judge_by_epoch_svm
from lmfcn.method.history import EpochRecord, History, Phase
from lmfcn.method.network import TextureFCN
from lmfcn.method.one_vs_all import one_against_all, train_side_by_side
from lmfcn.recipe import Recipe
from lmfcn.training.checkpoints import Checkpoints
from lmfcn.training.final_svm import NEVER_HELD_OUT, SHRINKAGE, SVMCandidate, fit_final_svm, svm_candidates
from lmfcn.training.first_filters import decorrelate_first_filters
from lmfcn.training.frozen import Beside
from lmfcn.training.views import WHOLE, View
from lmfcn.util.progress import EpochBar, progress_note


@dataclass(frozen=True)
class FitOptions:
    """Everything that is decided before the first epoch.

    Attributes
    ----------
    recipe : Recipe
        With every "auto" resolved.
    class_weights : array (n_classes,) or None
        Factor on C for each class.
    seed : int
    device : torch.device
    n_jobs : int or None
        Networks of one-vs-all to train at the same time.
    threads : ThreadCounts
        Numbers of threads that everything computes with.
    checkpoints : Checkpoints or None
    callbacks : tuple of Callback
        Those of the user.
    verbose : bool
    network : torch.nn.Module or None
        The frozen network on whose maps to train; None trains on pixels.
    shrinkage : float
        Of the covariance by which the final SVM's latents are whitened.
    view : View
        What the networks see of the images in training.
    """

    recipe: Recipe
    class_weights: np.ndarray | None
    seed: int
    device: torch.device
    n_jobs: int | None
    threads: ThreadCounts
    checkpoints: Checkpoints | None = None
    callbacks: tuple[Callback, ...] = ()
    verbose: bool = False
    network: nn.Module | None = None
    shrinkage: float = SHRINKAGE
    view: View = WHOLE

    @property
    def one_vs_all(self) -> bool:
        """Whether there is one network per class instead of one for all."""
        return self.recipe.strategy == "one-vs-all"


def n_bar_epochs(data: TrainingData, options: FitOptions) -> int:
    """Return how many epochs both phases have together, over all networks."""
    return _n_networks(data, options) * options.recipe.n_epochs


def phase_title(data: TrainingData, *, refit: bool = False) -> str:
    """Return what a phase trains on, in words."""
    n_train, n_validation = len(data.train), 0 if data.validation is None else len(data.validation)
    if refit:
        return f"Refit on all {n_train + n_validation} images"
    return f"Training on {n_train} images" + (f", {n_validation} held out" if n_validation else "")


def train_held_out(
    data: TrainingData, options: FitOptions, root: Tensor | None, beside: Beside | None, bar: EpochBar
) -> list[Trained]:
    """Train new networks on the training images; validation images, if there are any, select the epochs.

    `root` decorrelates the patches that half of the first filters look at. The final SVM sees the features `beside` the
    latents of the trained networks, so they also take part in the selection of epochs.
    """
    recipe = options.recipe
    n_epochs = recipe.n_epochs - recipe.n_refit_epochs
    networks = [new_network(data, options, root, number) for number in range(_n_networks(data, options))]
    # Maps of a frozen network have a first layer that has seen nothing yet.
    if recipe.fixed_first and recipe.batch_size != "all" and options.network is None and recipe.widths:
        for network in networks:
            network.fix_first_block()
    phase_recipe = replace(recipe, epochs=n_epochs, refit_epochs=0)
    phase = _Phase("training", phase_title(data), phase_recipe, 0, [0] * len(networks))
    return _train(data, options, phase, _problem(data, options), networks, bar, _judge(options, beside))


def refit(data: TrainingData, options: FitOptions, trained: Sequence[Trained], bar: EpochBar) -> list[Trained] | None:
    """Train the selected networks further, on training and validation images together; the last epoch counts.

    By then the validation images have selected everything that there is to select, and are as many new images to learn
    from. None if there is nothing to do: no refit epochs, or the user has interrupted the first phase. Interrupted
    before the first refit epoch was over, a single network stays as it was.
    """
    recipe = options.recipe
    if recipe.n_refit_epochs == 0 or any(result.interrupted for result in trained):
        return None
    epochs_before = recipe.n_epochs - recipe.n_refit_epochs
    phase_recipe = replace(recipe, epochs=recipe.n_refit_epochs, refit_epochs=0)
    first_epochs = [len(result.history) for result in trained]
    phase = _Phase("refit", phase_title(data, refit=True), phase_recipe, epochs_before, first_epochs)
    networks = [copy.deepcopy(result.selected.network) for result in trained]
    try:
        return _train(data, options, phase, _problem_of_all(data, options), networks, bar)
    except KeyboardInterrupt:
        if options.one_vs_all:
            raise
        _say_what_is_kept(bar, trained[0].selected)
        return [_interrupted(trained[0].selected, History(), trained[0].history[-1].epoch, options)]


def all_images(data: TrainingData) -> Images:
    """Return the training images and, behind them, the validation images."""
    return _joined(data, lambda part: part.images)


def _joined(data: TrainingData, images_of: Callable[[LabelledImages], Images]) -> Images:
    train = images_of(data.train)
    return train if data.validation is None else JoinedImages(train, images_of(data.validation))


def new_network(data: TrainingData, options: FitOptions, root: Tensor | None, number: int = 0) -> TextureFCN:
    """Return one of the networks as it starts; the same one every time."""
    seed = int(np.random.default_rng([options.seed, 1]).integers(2**62, size=number + 1)[number])
    generator = torch.Generator().manual_seed(seed)
    recipe = options.recipe
    network = TextureFCN(
        data.form.channels,
        recipe.latent_dim,
        tuple(recipe.widths),
        deviations=recipe.deviations is not False,
        generator=generator,
    )
    decorrelate_first_filters(network, root)
    return network.to(options.device)


def image_weights(options: FitOptions, labels: Tensor) -> Tensor | None:
    """Return the factor (n,) on C for each image, if classes have one."""
    if options.class_weights is None:
        return None
    return to_device(torch.from_numpy(options.class_weights), labels.device)[labels]


def resumed_options(options: FitOptions, checkpoints: Checkpoints) -> tuple[FitOptions, list[str]]:
    """Return the options with the checkpoints and their numbers of threads, and a message if these differ."""
    notes = []
    if checkpoints.threads not in (None, options.threads):
        notes.append(
            f"The fit in {checkpoints.folder} was started with {checkpoints.threads}, and goes on with the same instead"
            f" of {options.threads}: bits depend on it. Delete the folder to start anew."
        )
    return replace(options, checkpoints=checkpoints, threads=checkpoints.threads or options.threads), notes


def how_to_resume(options: FitOptions) -> str:
    """Say how an interrupted fit goes on."""
    if options.checkpoints is None:
        return "Give checkpoint_dir to be able to go on after an interruption."
    folder = str(options.checkpoints.folder)
    return f"To go on, call fit again with the same data, parameters and checkpoint_dir={folder!r}."


@dataclass(frozen=True)
class _Phase:
    """One of the two phases: its recipe, the epochs before it, and the number of each network's first record."""

    name: Phase
    title: str
    recipe: Recipe
    epochs_before: int
    first_epochs: Sequence[int]

    def seed(self, options: FitOptions, number: int) -> int:
        """Return the seed of the order of the images."""
        return int(np.random.default_rng([options.seed, 3, self.epochs_before, number]).integers(2**62))

    def checkpoint_name(self, number: int) -> str:
        """Return what the checkpoint of a network is called."""
        return str(number) if self.name == "training" else f"{number}-{self.name}"


@dataclass(frozen=True)
class _JudgeByFinalSVM:
    """Score validation images with an SVM like the final one, fitted on the latents of an epoch.

    `untrained` (n, d) and `validation_untrained` (m, d) are features that the final SVM also sees. A network of
    one-vs-all is judged by its own binary problem, although the final SVM sees the latents of all networks.
    """

    recipe: Recipe
    labels: Tensor
    rule: SVMCandidate
    untrained: Tensor | None
    validation_untrained: Tensor | None

    def __call__(self, latents: Tensor, validation_latents: Tensor, space: LatentSpace) -> Tensor:  # noqa: ARG002
        no_folds = torch.full_like(self.labels, NEVER_HELD_OUT)
        features = side_by_side(self.untrained, latents)
        decision = fit_final_svm(features, self.labels, no_folds, self.recipe, [self.rule]).decision
        return decision.scores(side_by_side(self.validation_untrained, validation_latents))


def side_by_side(first: Tensor | None, second: Tensor) -> Tensor:
    """Return features (n, d) and latents (n, phi) as (n, d + phi), or the latents alone."""
    return second if first is None else torch.cat([first, second], dim=1)


def _judge(options: FitOptions, beside: Beside | None) -> Callable[[Problem], Judge]:
    """Return what makes the judge of a problem: the epoch's own SVM as in the paper, or one like the final SVM."""

    def judge_of(problem: Problem) -> Judge:
        if beside is None and not options.recipe.whiten:
            return judge_by_epoch_svm
        features = (None, None) if beside is None else (beside.train, beside.validation)
        rule, *_ = svm_candidates(options.recipe, problem.weights, options.shrinkage)
        return _JudgeByFinalSVM(options.recipe, problem.labels, rule, *features)

    return judge_of


class _Progress(Callback):
    """Moves a progress bar by one step per round of back-propagation, batch by batch.

    The record after the last round only measures, and moves nothing.
    """

    def __init__(self, bar: EpochBar, n_epochs: int, epochs_before: int, n_networks: int) -> None:
        self.bar, self.n_epochs = bar, n_epochs
        self.n_before = n_networks * epochs_before

    def on_training_start(self, training: Training) -> None:
        if len(training.history):
            self.bar.resume(self._n_done(training), _note(training.history[-1]))

    def on_batch_end(self, training: Training, share: float) -> None:
        self.bar.move_to(self._n_done(training) + share)

    def on_epoch_end(self, training: Training, record: EpochRecord, space: LatentSpace) -> None:  # noqa: ARG002
        self.bar.move_to(self._n_done(training), _note(record))

    def finish(self, trained: Trained) -> None:
        """Count all epochs of a training, also of one that ended early or ran in another process."""
        self.n_before += self.n_epochs
        if round(self.bar.done, 6) < self.n_before:
            self.bar.move_to(self.n_before, _note(trained.history[-1]))

    def _n_done(self, training: Training) -> int:
        return self.n_before + min(len(training.history), self.n_epochs)


def _note(record: EpochRecord) -> str:
    return progress_note(record.epoch, record.validation_balanced_accuracy, record.n_support)


def _n_networks(data: TrainingData, options: FitOptions) -> int:
    return len(data.classes) if options.one_vs_all else 1


def _train(
    data: TrainingData,
    options: FitOptions,
    phase: _Phase,
    problem: Problem,
    networks: Sequence[TextureFCN],
    bar: EpochBar,
    judge_of: Callable[[Problem], Judge] = lambda _: judge_by_epoch_svm,
) -> list[Trained]:
    """Train each network on its problem: that of all classes, or of one class against all others."""
    workers = workers_of(options.n_jobs)
    in_workers = len(networks) > 1 and not workers.serial
    bar.begin(phase.title)
    progress = _Progress(bar, phase.recipe.n_epochs, phase.epochs_before, len(networks))
    callbacks = () if in_workers else (progress, *options.callbacks)
    make = partial(_make_training, replace(options, callbacks=(), network=None), phase, callbacks)
    if not options.one_vs_all:
        trained = _run_interruptible(make(problem, judge_of(problem), networks[0], 0), options, bar)
        if not trained.interrupted:
            progress.finish(trained)
        return [trained]
    tasks = {}
    for number, label in enumerate(data.classes.tolist()):
        binary = one_against_all(problem, number)
        tasks[f"Class {label!r} against all others"] = partial(make, binary, judge_of(binary), networks[number], number)
    return train_side_by_side(tasks, progress.finish, workers=workers, n_threads=options.threads.network)


def _make_training(
    options: FitOptions,
    phase: _Phase,
    callbacks: Sequence[Callback],
    problem: Problem,
    judge: Judge,
    network: TextureFCN,
    number: int,
) -> Training:
    """Return the training of one network; its checkpoint, if there is one, comes before all other callbacks."""
    if options.checkpoints is not None:
        callbacks = (options.checkpoints.of(phase.checkpoint_name(number)), *callbacks)
    generator = torch.Generator().manual_seed(phase.seed(options, number))
    return Training(
        network,
        problem,
        phase.recipe,
        generator,
        callbacks=callbacks,
        judge=judge,
        phase=phase.name,
        first_epoch=phase.first_epochs[number],
    )


def _run_interruptible(training: Training, options: FitOptions, bar: EpochBar) -> Trained:
    """Run one training; when the user interrupts it, say at once what happens and return what there is."""
    try:
        return training.run()
    except KeyboardInterrupt:
        if len(training.history) == 0:
            raise
        _say_what_is_kept(bar, training.selected)
        return _interrupted(training.selected, training.history, training.history[-1].epoch, options)


def _say_what_is_kept(bar: EpochBar, selected: SelectedEpoch) -> None:
    bar.say(f"Finishing with epoch {selected.epoch}; press Ctrl-C again to stop without a model.")
    bar.begin("Finishing")


def _interrupted(
    selected: SelectedEpoch, history: History[EpochRecord], last_epoch: int, options: FitOptions
) -> Trained:
    message = f"Interrupted after epoch {last_epoch}; epoch {selected.epoch} is selected. {how_to_resume(options)}"
    return Trained(selected, history, message, interrupted=True)


def _problem(data: TrainingData, options: FitOptions) -> Problem:
    train, validation = data.train, data.validation
    labels = torch.from_numpy(train.numbers).to(options.device)
    return Problem(
        train.images,
        labels,
        None if validation is None else validation.images,
        None if validation is None else torch.from_numpy(validation.numbers).to(options.device),
        image_weights(options, labels),
        train.whole,
        options.view.crop_size,
    )


def _problem_of_all(data: TrainingData, options: FitOptions) -> Problem:
    """Return the problem without anything held out."""
    problem = _problem(data, options)
    others = [] if problem.validation_labels is None else [problem.validation_labels]
    labels = torch.cat([problem.labels, *others])
    whole = (
        None
        if data.train.whole is None
        else _joined(data, lambda part: part.images if part.whole is None else part.whole)
    )
    return Problem(
        all_images(data),
        labels,
        weights=image_weights(options, labels),
        moved_images=whole,
        crop_size=options.view.crop_size,
    )
