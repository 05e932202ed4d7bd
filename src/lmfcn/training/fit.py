"""From checked data to a fitted model: train the networks, fit the final SVM, calibrate."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lmfcn.compute.encode import Images, encode, evenly_spaced, image_sizes, refresh_and_encode
from lmfcn.compute.parallel import Workers, workers_of
from lmfcn.compute.resources import ThreadCounts, check_device, check_kernel_memory, to_cpu_double, to_like
from lmfcn.data.image_form import ImageForm
from lmfcn.data.splits import make_folds
from lmfcn.data.training_data import LabelledImages, TrainingData
from lmfcn.method.epoch import Callback, Trained
from lmfcn.method.history import EpochRecord, History
from lmfcn.method.kernel_svm import Decision, class_numbers, has_spread
from lmfcn.method.network import TextureFCN
from lmfcn.model import (
    Calibration,
    HeldOut,
    Networks,
    TextureModel,
    TypicalDistances,
    class_centres,
    nearest_centre,
    probabilities,
)
from lmfcn.networks.trunk import SMALLEST_SIDE, Trunk
from lmfcn.recipe import Recipe
from lmfcn.training.calibration import (
    calibrate,
    equal_prior_shift,
    expected_calibration_error,
    select_most_likely,
)
from lmfcn.training.final_svm import (
    NEVER_HELD_OUT,
    SHRINKAGE,
    SHRINKAGES,
    FinalSVM,
    Mirrored,
    SVMCandidate,
    cross_validate,
    fit_final_svm,
    svm_candidates,
)
from lmfcn.training.first_filters import N_FOR_FILTERS, decorrelation
from lmfcn.training.frozen import Beside, start_from
from lmfcn.training.phases import (
    FitOptions,
    all_images,
    how_to_resume,
    image_weights,
    n_bar_epochs,
    new_network,
    phase_title,
    refit,
    side_by_side,
    train_held_out,
)
from lmfcn.training.views import (
    SMALLEST_REDUCED_SIDE,
    TRAINED_SIDE,
    WHOLE,
    View,
    crop_tells_more,
    description_scales,
    reduced_images,
    shown_data,
    whole_view,
)
from lmfcn.util.packages import versions
from lmfcn.util.progress import EpochBar, epoch_progress, step_progress

N_FOLDS = 5
MOST_CONFUSED = 50
"""Classes of which a model file holds the confusion matrix."""
FEW_IMAGES = 3
"""Classes with fewer training images are reported."""


@dataclass(frozen=True)
class Fitted:
    """A fitted model, the results of its trainings, and messages for the user.

    Attributes
    ----------
    model : TextureModel
    trained : list of Trained
        The networks of the selected epochs.
    refitted : list of Trained, or None
        The same after the refit epochs, if there were any.
    support : array of int
        Positions of the support vectors of the final SVM.
    C : float
    held_out : HeldOut
    recipe : Recipe
        With everything that the data have decided.
    shown : str
        What the networks saw of the images in training, in words.
    messages : list of str
    """

    model: TextureModel
    trained: list[Trained]
    refitted: list[Trained] | None
    support: np.ndarray
    C: float
    held_out: HeldOut
    recipe: Recipe
    shown: str
    messages: list[str]

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped the training before its last epoch."""
        return any(result.interrupted for result in (*self.trained, *(self.refitted or ())))

    @property
    def refit_histories(self) -> list[History[EpochRecord]]:
        """The history of each network's refit epochs; none if there were none."""
        return [result.history for result in self.refitted or () if len(result.history)]

    def record(self) -> dict[str, Any]:
        """Return what a model file tells of the training, as JSON can hold it."""
        return {
            "C": self.C,
            "shown": self.shown,
            "interrupted": self.interrupted,
            "best_epochs": [result.selected.epoch for result in self.trained],
            "held_out": {
                "n_images": len(self.held_out.numbers),
                "balanced_accuracy": self.held_out.balanced_accuracy,
                "seen_in_training": self.held_out.seen,
                "confusion": _small_confusion(self.held_out),
            },
            "histories": _without_seconds([result.history for result in self.trained]),
            "closing_histories": _without_seconds(self.refit_histories),
        }


def _small_confusion(held_out: HeldOut) -> list[list[int]] | None:
    """Return the confusion matrix of few classes; that of many would be large, and nearly empty."""
    if not len(held_out.numbers) or held_out.probabilities.shape[1] > MOST_CONFUSED:
        return None
    counts: list[list[int]] = held_out.confusion.tolist()
    return counts


def _without_seconds(histories: Sequence[History[EpochRecord]]) -> list[list[dict[str, Any]]]:
    """Return records as a model file holds them: the same training should make the same file."""
    return [
        [{name: value for name, value in asdict(entry).items() if not name.startswith("seconds")} for entry in history]
        for history in histories
    ]


def make_options(
    recipe: Recipe,
    data: TrainingData,
    class_weight: Any,
    *,
    seed: int,
    device: str,
    n_jobs: int | None,
    callbacks: Sequence[Callback],
    verbose: bool,
    network: nn.Module | None = None,
) -> FitOptions:
    """Return everything that is decided before the first epoch of a fit on these data."""
    recipe = recipe.for_data(len(data.classes), len(data.train), has_validation=data.validation is not None)
    workers = workers_of(n_jobs)
    n_networks = len(data.classes) if recipe.strategy == "one-vs-all" else 1
    if callbacks and n_networks > 1 and not workers.serial:
        raise ValueError("callbacks see nothing of other processes; use n_jobs=1 with them.")
    return FitOptions(
        recipe=recipe,
        class_weights=_weights_by_class(class_weight, data.classes),
        seed=seed,
        device=check_device(device),
        n_jobs=n_jobs,
        threads=_thread_counts(workers, n_networks),
        callbacks=tuple(callbacks),
        verbose=verbose,
        network=network,
    )


def describe_run(data: TrainingData, options: FitOptions, others: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a model comes from, as JSON can hold it: parameters, seed, data, versions.

    `others` are parameters that the result depends on beside those of the recipe.
    """
    parameters = {**asdict(options.recipe), **others, "device": str(options.device)}
    return {
        "parameters": {name: _as_json(value) for name, value in parameters.items()},
        "seed": options.seed,
        "data": {
            "fingerprint": data.fingerprint(),
            "n_train": len(data.train),
            "n_validation": 0 if data.validation is None else len(data.validation),
            "classes": {str(label): int((data.train.numbers == i).sum()) for i, label in enumerate(data.classes)},
        },
        "versions": versions(),
    }


def _thread_counts(workers: Workers, n_networks: int) -> ThreadCounts:
    """Return the threads of this process, and those of each network: its worker's share, or one on a cluster."""
    process = torch.get_num_threads()
    if workers.scheduler is not None and n_networks > 1:
        return ThreadCounts(process, 1)
    return ThreadCounts(process, max(1, process // min(workers.jobs, n_networks)))


def _weights_by_class(class_weight: Any, classes: np.ndarray) -> np.ndarray | None:
    """Return weights by label as weights in the order of the classes."""
    if not isinstance(class_weight, Mapping):
        return None
    unknown = set(class_weight) - set(classes.tolist())
    if unknown:
        raise ValueError(f"class_weight names labels that no image has: {sorted(unknown, key=str)}.")
    return np.array([float(class_weight.get(label, 1.0)) for label in classes.tolist()])


def _as_json(value: Any) -> Any:
    """Return a parameter as JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(key): _as_json(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_as_json(entry) for entry in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def fit_model(data: TrainingData, options: FitOptions) -> Fitted:
    """Train the networks in two phases, fit the final SVM, calibrate it, and put the model together."""
    check_kernel_memory(len(data.train) + (0 if data.validation is None else len(data.validation)))
    try:
        start = start_of_training(data, options)
        options = start.options(options)
        n_epochs = n_bar_epochs(start.inputs, options)
        with epoch_progress(phase_title(data), n_epochs, visible=options.verbose) as bar:
            trained, refitted, members, final, rows = _train_and_decide(start, options, bar)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(how_to_resume(options))
        raise
    held_out = data.validation is not None
    decision, calibration = calibrated(final, rows.labels, options.recipe.prior_shift, held_out=held_out)
    networks = Networks(members, start.trunk, keep_trunk=options.recipe.keep_untrained)
    typical = _typical_distances(final, rows, options, held_out=held_out)
    form = start.model_form(members)
    model = TextureModel(networks, decision, calibration, data.classes, form, typical=typical)
    warnings = _class_warnings(data, final, rows.labels[final.held_out])
    messages = [result.message for result in (*trained, *(refitted or ())) if result.message] + list(warnings)
    support = rows.positions[final.support.cpu().numpy()]
    found = _held_out(final, rows, model)
    shown = options.view.describe()
    return Fitted(model, trained, refitted, support, final.rule.C, found, options.recipe, shown, messages)


def _typical_distances(
    final: FinalSVM, rows: "_EncodedImages", options: FitOptions, *, held_out: bool
) -> TypicalDistances | None:
    """Return the centres of what the model learnt from, and the distances of the images that were held out from them.

    None without validation images: the networks know all others, which are closer than new images.
    """
    if not held_out or final.held_out_distances is None or not len(final.held_out_distances):
        return None
    features, labels = final.decision.scale.apply(rows.latents), rows.labels
    if not options.recipe.refit:
        n_learnt = len(rows) - len(final.held_out)
        features, labels = features[:n_learnt], labels[:n_learnt]
    return TypicalDistances.of(class_centres(features, labels), final.held_out_distances)


def _train_and_decide(
    start: "_Start", options: FitOptions, bar: EpochBar
) -> tuple[list[Trained], list[Trained] | None, list[TextureFCN], FinalSVM, "_EncodedImages"]:
    """Run both phases; return their results, the networks of the model, its final SVM and the images of that."""
    inputs = start.inputs
    trained = train_held_out(inputs, options, start.root, start.beside, bar)
    refitted = refit(inputs, options, trained, bar)
    bar.begin("Final SVM")
    members = _trained_networks(trained, start.data.train.images, options)
    final, rows = _final_svm(start, options, Networks(members), trained)
    if refitted is not None:
        members = _trained_networks(refitted, all_images(start.data), options)
        final, rows = _refit_final_svm(final, start, options, Networks(members))
    return trained, refitted, [*start.untrained, *members], final, rows


@dataclass(frozen=True)
class _Start:
    """What training starts from.

    Attributes
    ----------
    data : TrainingData
        What the networks of the model see: the images, or the maps of a trunk.
    inputs : TrainingData
        The same as the networks see them in training: reduced, or in part.
    form : ImageForm
        What images of the model must look like.
    trunk : Trunk or None
    root : Tensor or None
        What decorrelates the patches of the first filters.
    untrained : list of TextureFCN
        The untrained network at every scale, if the final SVM sees it.
    beside : Beside or None
        The features of the trunk or of the untrained networks, which the final SVM sees beside the trained latents.
    view : View
        What `inputs` show.
    shrinkage : float
        For the whitening of latents.
    """

    data: TrainingData
    inputs: TrainingData
    form: ImageForm
    trunk: Trunk | None
    root: Tensor | None
    untrained: list[TextureFCN]
    beside: Beside | None
    view: View = WHOLE
    shrinkage: float = SHRINKAGE

    def model_form(self, networks: Sequence[TextureFCN]) -> ImageForm:
        """Return the form of images for the model: networks that reduce them a lot need more of them."""
        least = max(SMALLEST_REDUCED_SIDE // 2 * network.reduction for network in networks)
        return replace(self.form, smallest_side=max(self.form.smallest_side, least))

    def options(self, options: FitOptions) -> FitOptions:
        """Return the options with what was decided about the images."""
        recipe = options.recipe
        if recipe.deviations == "auto":
            recipe = replace(recipe, deviations=not self.untrained or self.untrained[0].deviations)
        if recipe.correlations == "auto":
            described = self.trunk or (self.untrained[0] if self.untrained else None)
            recipe = replace(recipe, correlations=described is not None and described.correlations)
        if self.trunk is None:
            recipe = replace(recipe, crop_size=self.view.crop_size)
        return replace(options, recipe=recipe, shrinkage=self.shrinkage, view=self.view)

    def features(self, *, validation: bool) -> Tensor | None:
        """Return those features of the training or validation images that need no training."""
        if self.beside is None:
            return None
        return self.beside.validation if validation else self.beside.train


def start_of_training(data: TrainingData, options: FitOptions) -> _Start:
    """Describe the images, and decide what the networks see of them."""
    if options.network is not None:
        return _start_frozen(data, options.network, options)
    recipe = options.recipe
    with step_progress("Describing images", visible=options.verbose):
        untrained, beside, shrinkage = _describe(data, options)
        view = _choose_view(data, options)
        inputs = shown_data(data, view)
        root = decorrelation(inputs.train.images) if recipe.first_filters == "decorrelated" else None
    return _Start(data, inputs, data.form, None, root, untrained, beside, view, shrinkage)


def _describe(data: TrainingData, options: FitOptions) -> tuple[list[TextureFCN], Beside | None, float]:
    """Return the untrained networks, what they say of the images, and the shrinkage for the whitening of that.

    Cross-validation chooses which moments of maps are kept, unless the recipe says so.
    """
    if not options.recipe.keep_untrained:
        return [], None, SHRINKAGE
    networks = untrained_networks(data, options)
    beside = Beside.of_untrained(networks, data, options.device)
    kinds = torch.cat([network.moment_orders() for network in networks]).to(options.device)
    orders = options.recipe.moment_orders
    candidates = [beside.columns(kinds <= order) for order in orders]
    chosen, shrinkage = _choose_description(candidates, data, options)
    return [network.with_moments(orders[chosen]) for network in networks], candidates[chosen], shrinkage


def _start_frozen(data: TrainingData, network: nn.Module, options: FitOptions) -> _Start:
    recipe = options.recipe
    frozen = start_from(
        network,
        data,
        options.device,
        correlations=False not in (recipe.correlations, recipe.deviations),
        mirrored=recipe.sees_mirror_images,
        verbose=options.verbose,
    )
    beside = frozen.features if recipe.keep_untrained else None
    form = replace(data.form, smallest_side=SMALLEST_SIDE)
    with step_progress("Preparing", visible=options.verbose):
        _, shrinkage = _choose_description([frozen.features], frozen.data, options)
        root = decorrelation(frozen.data.train.images) if recipe.first_filters == "decorrelated" else None
    return _Start(frozen.data, frozen.data, form, frozen.trunk, root, [], beside, WHOLE, shrinkage)


def _choose_view(data: TrainingData, options: FitOptions) -> View:
    """Return what is shown in training: as the recipe says, or what tells more before training."""
    sizes, crop = image_sizes(all_images(data)), options.recipe.crop_size
    if crop is not None and crop != "auto":
        return View(1, crop)
    whole = whole_view(sizes) if options.recipe.scales > 1 else WHOLE
    if crop is None or whole.reduction == 1:
        return whole
    random = np.random.default_rng([options.seed, 6])
    folds = cross_validation_folds(data.train.numbers, random, data.train.groups)
    networks = (_untrained(data, options, whole.reduction), _untrained(data, options, 1))
    for network in networks:
        network.reduction = 1
    more = crop_tells_more(data.train, networks, whole, TRAINED_SIDE, folds, options.device)
    return View(1, TRAINED_SIDE) if more else whole


def _choose_description(candidates: Sequence[Beside], data: TrainingData, options: FitOptions) -> tuple[int, float]:
    """Return under which features, and which shrinkage, cross-validation makes the classes most likely.

    With `refit`, validation images take part: nothing has been learnt from any image yet.
    """
    if not options.recipe.whiten:
        return 0, SHRINKAGE
    parts = [data.train, *([data.validation] if options.recipe.refit and data.validation is not None else [])]
    described = [features.of_parts(len(parts)) for features in candidates]
    turned = [_mirrored(features.mirrored, len(data.train)) for features in candidates]
    if not all(bool(has_spread(latents.mean(dim=0), latents.std(dim=0)).any()) for latents in described):
        return 0, SHRINKAGE  # the first epoch will say that all images are alike
    numbers = np.concatenate([part.numbers for part in parts])
    random = np.random.default_rng([options.seed, 4])
    folds = torch.from_numpy(cross_validation_folds(numbers, random, joined_groups(parts))).to(options.device)
    labels = torch.from_numpy(numbers).to(options.device)
    weights = image_weights(options, labels)
    rules = [rule for value in SHRINKAGES for rule in svm_candidates(options.recipe, weights, value)]
    found = [
        cross_validate(latents, labels, folds, options.recipe, rules, mirrored)
        for latents, mirrored in zip(described, turned, strict=True)
    ]
    scores = torch.stack([held_out for _, held_out in found])
    chosen = select_most_likely(scores, labels[folds != NEVER_HELD_OUT]) if scores.shape[1] else 0
    return chosen, found[chosen][0].shrinkage


def _held_out(final: FinalSVM, rows: "_EncodedImages", model: TextureModel) -> HeldOut:
    scores = final.held_out_scores.cpu() + (model.intercepts - final.decision.intercepts).cpu()
    held_out = final.held_out.cpu().numpy()
    numbers = rows.labels.cpu().numpy()[held_out]
    predicted = probabilities(scores, model.calibration.inverse_temperature).numpy()
    return HeldOut(rows.positions[held_out], numbers, predicted, seen=not model.calibration.held_out)


def calibrated(final: FinalSVM, labels: Tensor, prior_shift: float, *, held_out: bool) -> tuple[Decision, Calibration]:
    """Return the decision, shifted towards rare classes by `prior_shift`, and its calibration.

    `held_out` tells whether the networks were not trained on the held-out images either.
    """
    labels_out = labels[final.held_out]
    calibration = calibrate(final.held_out_scores, labels_out, held_out=held_out)
    if not prior_shift:
        return final.decision, calibration
    shift = prior_shift * equal_prior_shift(labels, calibration.inverse_temperature, final.held_out_scores)
    decision = replace(final.decision, intercepts=final.decision.intercepts + to_like(shift, final.decision.intercepts))
    scores = final.held_out_scores.cpu() + shift
    if not len(scores):
        return decision, calibration
    predicted = probabilities(to_cpu_double(scores), calibration.inverse_temperature)
    error = expected_calibration_error(labels_out.cpu(), predicted)
    return decision, replace(calibration.with_scores(scores, labels_out), error=error)


def untrained_networks(data: TrainingData, options: FitOptions) -> list[TextureFCN]:
    """Return the initial network at every scale: its latents are moments of the maps of all its layers."""
    # A validation image that is smaller than all others must survive the reduction too.
    scales = description_scales(image_sizes(all_images(data)), options.recipe.scales)
    highest = max(options.recipe.moment_orders)
    return [_untrained(data, options, reduction).with_moments(highest) for reduction in scales]


def _untrained(data: TrainingData, options: FitOptions, reduction: int) -> TextureFCN:
    """Return the initial network for images that it reduces, its first filters made for them."""
    images = data.train.images[evenly_spaced(len(data.train), N_FOR_FILTERS)]
    root = decorrelation(reduced_images(images, reduction)) if options.recipe.first_filters == "decorrelated" else None
    network = new_network(data, options, root)
    network.pooling, network.reduction = "all", reduction
    network.round_filters()
    return network


def _trained_networks(trained: Sequence[Trained], images: Images, options: FitOptions) -> list[TextureFCN]:
    """Return the networks of the model that were trained, with batch-norm statistics of `images`.

    Filters are rounded to half precision before the final SVM is fitted, so that a file of half the size loses nothing.
    """
    networks, recipe = [result.selected.network for result in trained], options.recipe
    for network in networks:
        network.reduction = options.view.reduction
        if recipe.refit or recipe.whiten or recipe.keep_untrained:
            network.round_filters()
            refresh_and_encode(network, images, options.device)
    return networks


@dataclass(frozen=True)
class _EncodedImages:
    """Latents, labels and positions in X of the images that the final SVM is fitted on, with some mirror images."""

    latents: Tensor
    labels: Tensor
    positions: np.ndarray
    mirrored: Mirrored | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def concatenated(self, other: "_EncodedImages") -> "_EncodedImages":
        """Return these images and, behind them, the others."""
        return _EncodedImages(
            torch.cat([self.latents, other.latents]),
            torch.cat([self.labels, other.labels]),
            np.concatenate([self.positions, other.positions]),
            self.mirrored,
        )


def _final_svm(
    start: _Start, options: FitOptions, networks: Networks, trained: list[Trained]
) -> tuple[FinalSVM, _EncodedImages]:
    """Return the final SVM, and the images that it is fitted on.

    Its held-out scores are those of the validation images, if there are any.
    """
    random, data = np.random.default_rng([options.seed, 2]), start.data
    train = _encoded_training(start, options, networks)
    if data.validation is None:
        return _fit(train, cross_validation_folds(data.train.numbers, random, data.train.groups), options), train
    validation = _encoded(networks, data.validation, options, start.features(validation=True))
    rows = train.concatenated(validation)
    if options.recipe.refit:
        folds = make_folds(data.validation.numbers, N_FOLDS, random, data.validation.groups)
        return _fit(rows, np.concatenate([np.full(len(train), NEVER_HELD_OUT), folds]), options), rows
    selected, (rule,) = trained[0].selected, svm_candidates(options.recipe, shrinkage=options.shrinkage)
    decision, support = selected.decision, selected.support
    if options.one_vs_all or options.recipe.keep_untrained or rule.whiten:
        of_training = _fit(train, np.full(len(train), NEVER_HELD_OUT), options)
        decision, support = of_training.decision, of_training.support
    held_out = torch.arange(len(train), len(rows), device=options.device)
    centres = class_centres(decision.scale.apply(train.latents), train.labels)
    distances = nearest_centre(to_cpu_double(decision.scale.apply(validation.latents)), centres)
    return FinalSVM(decision, support, rule, held_out, decision.scores(validation.latents), distances), rows


def _refit_final_svm(
    final: FinalSVM, start: _Start, options: FitOptions, networks: Networks
) -> tuple[FinalSVM, _EncodedImages]:
    """Return the final SVM on the latents of the refitted networks.

    Its parameters and held-out scores stay those from before: no image is left to judge new ones.
    """
    data = start.data
    rows = _encoded_training(start, options, networks)
    if data.validation is not None:
        rows = rows.concatenated(_encoded(networks, data.validation, options, start.features(validation=True)))
    again = _fit(rows, np.full(len(rows), NEVER_HELD_OUT), options, [final.rule])
    return replace(final, decision=again.decision, support=again.support), rows


def _encoded_training(start: _Start, options: FitOptions, networks: Networks) -> _EncodedImages:
    """Return the training images as `_encoded` does, with the mirror images."""
    data, beside = start.data.train, start.beside
    rows = _encoded(networks, data, options, start.features(validation=False))
    if data.mirrored is None:
        return rows
    features = None if beside is None else beside.mirrored
    latents = side_by_side(features, encode(networks, data.mirrored, options.device))
    return replace(rows, mirrored=_mirrored(latents, len(data)))


def _mirrored(latents: Tensor | None, n_images: int) -> Mirrored | None:
    """Return latents of mirror images with the rows of their images, which lie at even distances."""
    if latents is None:
        return None
    return Mirrored(torch.from_numpy(evenly_spaced(n_images, len(latents))).to(latents.device), latents)


def _encoded(networks: Networks, data: LabelledImages, options: FitOptions, features: Tensor | None) -> _EncodedImages:
    latents = side_by_side(features, encode(networks, data.images, options.device))
    return _EncodedImages(latents, torch.from_numpy(data.numbers).to(options.device), data.positions)


def _fit(
    rows: _EncodedImages, folds: np.ndarray, options: FitOptions, rules: Sequence[SVMCandidate] | None = None
) -> FinalSVM:
    if rules is None:
        rules = svm_candidates(options.recipe, image_weights(options, rows.labels), options.shrinkage)
    in_folds = torch.from_numpy(folds).to(options.device)
    return fit_final_svm(rows.latents, rows.labels, in_folds, options.recipe, rules, rows.mirrored)


def cross_validation_folds(
    numbers: np.ndarray, random: np.random.Generator, groups: np.ndarray | None = None
) -> np.ndarray:
    """Return cross-validation folds (n,); every class keeps images when a fold is held out."""
    return keep_every_class(make_folds(numbers, N_FOLDS, random, groups), numbers, groups)


def joined_groups(parts: Sequence[LabelledImages]) -> np.ndarray | None:
    """Return numbers (n,) of groups over all parts; an image of a part without groups is a group of its own."""
    if all(part.groups is None for part in parts):
        return None
    names = [
        (number, "group", group) if part.groups is not None else (number, "image", group)
        for number, part in enumerate(parts)
        for group in (range(len(part)) if part.groups is None else part.groups.tolist())
    ]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names])


def keep_every_class(folds: np.ndarray, numbers: np.ndarray, groups: np.ndarray | None) -> np.ndarray:
    """Return folds that leave images of every class: a class in a single fold, with its groups, is never held out."""
    folds, groups = folds.copy(), np.arange(len(numbers)) if groups is None else groups
    changed = True
    while changed:
        changed = False
        for number in np.unique(numbers):
            held_out_folds = np.unique(folds[(numbers == number) & (folds != NEVER_HELD_OUT)])
            if len(held_out_folds) == 1 and not ((numbers == number) & (folds == NEVER_HELD_OUT)).any():
                folds[np.isin(groups, groups[numbers == number])] = NEVER_HELD_OUT
                changed = True
    return folds


def _class_warnings(data: TrainingData, final: FinalSVM, held_out: Tensor) -> Iterator[str]:
    """Yield warnings about classes with very few images, or without any recognised held-out image."""
    counts = np.bincount(data.train.numbers)
    for label, count in zip(data.classes.tolist(), counts.tolist(), strict=True):
        if count < FEW_IMAGES:
            yield f"Class {label!r} has only {count} training images; what is said about it rests on little."
    predicted = class_numbers(final.held_out_scores)
    for number in held_out.unique().tolist():
        in_class = held_out == number
        count = int(in_class.sum())
        if count > FEW_IMAGES and not bool((predicted[in_class] == number).any()):
            yield f"None of the {count} held-out images of class {data.classes[number].item()!r} was recognised."
