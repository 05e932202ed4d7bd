"""`lmfcn train`: train a model on your own images."""

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer import Option

from lmfcn.cli.console import CommandConsole, format_count, print_accuracy
from lmfcn.cli.options import (
    AsJson,
    ConfigFile,
    Data,
    Quiet,
    SaveConfig,
    compute_with,
    name_options,
    save_config,
    size_fit,
)

if TYPE_CHECKING:
    from lmfcn.classifier import LMFCNClassifier
    from lmfcn.data.framing import Color
    from lmfcn.user_training import EvaluatedPart, SplitImages, TrainedModel

_DATA, _METHOD, _RUN = "Images", "Method", "Run"


def train(
    context: typer.Context,
    data: Data,
    output: Annotated[Path, Option("--output", "-o", metavar="FILE", help="Model file to write.")] = Path(
        "model.lmfcn"
    ),
    report: Annotated[
        Path | None, Option("--report", metavar="FILE", help="HTML report; by default report.html beside the model.")
    ] = None,
    no_report: Annotated[bool, Option("--no-report", help="Write no report.")] = False,
    no_gallery: Annotated[
        bool, Option("--no-gallery", help="Write no gallery of training images for explain and serve.")
    ] = False,
    val: Annotated[
        Path | None,
        Option("--val", metavar="DATA", help="Validation images.", rich_help_panel=_DATA),
    ] = None,
    groups: Annotated[
        str | None,
        Option("--groups", metavar="COLUMN", help="Column with groups that stay together.", rich_help_panel=_DATA),
    ] = None,
    groups_from: Annotated[
        str | None,
        Option(
            "--groups-from",
            metavar="PATTERN",
            help=r"Pattern for file names; what its brackets hold is the group, as in 'exp\d+_num_(\d+)'.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    split_duplicates: Annotated[
        bool,
        Option(
            "--split-duplicates",
            help="Near-identical images may be on both sides of a split: accuracies flatter.",
            rich_help_panel=_DATA,
        ),
    ] = False,
    regions: Annotated[
        Path | None,
        Option(
            "--regions",
            metavar="FILE",
            help="GeoJSON of QuPath: train on tiles of the annotated regions of DATA, a large image or slide.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    tile: Annotated[int, Option(min=8, metavar="PIXELS", help="Side of these tiles.", rich_help_panel=_DATA)] = 64,
    resolution: Annotated[
        float | None,
        Option(metavar="MICROMETRES", help="Pixel size of these tiles; by default the file's.", rich_help_panel=_DATA),
    ] = None,
    size: Annotated[
        int | None,
        Option(min=8, metavar="PIXELS", help="Side of all images; by default as they are.", rich_help_panel=_DATA),
    ] = None,
    fit: Annotated[
        str | None,
        Option(
            metavar="HOW",
            help="How --size is reached: crop (cuts the longer side), pad or stretch.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    color: Annotated[
        str, Option(metavar="KIND", help="keep, grey or rgb: for images of mixed kinds.", rich_help_panel=_DATA)
    ] = "keep",
    holdout: Annotated[
        float,
        Option(
            min=0, max=0.9, metavar="SHARE", help="Share of validation images, without --val.", rich_help_panel=_DATA
        ),
    ] = 0.2,
    ignore_split: Annotated[
        bool, Option("--ignore-split", help="Ignore the split in DATA.", rich_help_panel=_DATA)
    ] = False,
    skip_bad: Annotated[
        bool, Option("--skip-bad", help="Leave out files that cannot be read.", rich_help_panel=_DATA)
    ] = False,
    network: Annotated[
        str,
        Option(
            metavar="NAME",
            help="auto (chosen by cross-validation), texture-fcn (from scratch) or efficientnet-lite0 (pretrained).",
            rich_help_panel=_METHOD,
        ),
    ] = "auto",
    weights: Annotated[
        Path | None,
        Option(metavar="FILE", help="Own weights for efficientnet-lite0.", rich_help_panel=_METHOD),
    ] = None,
    epochs: Annotated[
        int | None, Option(min=1, help="Epochs: 6; 10 per class with --recipe paper.", rich_help_panel=_METHOD)
    ] = None,
    refit_epochs: Annotated[
        int | None,
        Option(min=0, help="How many of them, the last, use all images: 3.", rich_help_panel=_METHOD),
    ] = None,
    latent_dim: Annotated[
        int | None, Option(min=1, help="Length of the latent vector: 64.", rich_help_panel=_METHOD)
    ] = None,
    strategy: Annotated[
        str | None, Option(metavar="NAME", help="joint or one-vs-all.", rich_help_panel=_METHOD)
    ] = None,
    recipe: Annotated[
        str,
        Option(
            metavar="NAME",
            help="default, paper: the method of the paper, or authors-program.",
            rich_help_panel=_METHOD,
        ),
    ] = "default",
    class_weight: Annotated[
        str,
        Option(metavar="WEIGHTS", help="auto, balanced, none, or such as rare=5,other=1.", rich_help_panel=_METHOD),
    ] = "auto",
    augmentation: Annotated[
        str | None, Option(metavar="KIND", help="Augmentation: flips, dihedral or none.", rich_help_panel=_METHOD)
    ] = None,
    learning_rate: Annotated[
        float | None, Option(help="Learning rate of the first epoch: 0.001.", rich_help_panel=_METHOD)
    ] = None,
    batch_size: Annotated[
        int | None, Option(min=1, help="Images per optimiser step: 32.", rich_help_panel=_METHOD)
    ] = None,
    passes: Annotated[
        int | None,
        Option(min=1, help="Passes over the images per epoch: 4 to 12.", rich_help_panel=_METHOD),
    ] = None,
    crop_size: Annotated[
        str | None,
        Option(
            metavar="PIXELS",
            help="Train on random crops of this side, or none: on whole images; auto (default) compares both.",
            rich_help_panel=_METHOD,
        ),
    ] = None,
    budget: Annotated[
        float | None,
        Option(
            min=0.1,
            metavar="MINUTES",
            help="Train for at most about so long, with fewer passes and epochs.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    seed: Annotated[int, Option(min=0, help="Same seed, same model.", rich_help_panel=_RUN)] = 0,
    jobs: Annotated[
        int | None, Option("--jobs", "-j", metavar="N", help="Processes for one-vs-all networks.", rich_help_panel=_RUN)
    ] = None,
    checkpoint: Annotated[
        Path | None,
        Option(
            "--checkpoint",
            "--resume",
            metavar="DIR",
            help="Save checkpoints here; continue from them.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    threads: Annotated[
        int | None,
        Option(
            min=1,
            metavar="N",
            help="Threads to compute with; by default as many as there are idle processors.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    device: Annotated[
        str, Option(metavar="NAME", help="Device: auto, cpu, cuda, mps, ...", rich_help_panel=_RUN)
    ] = "auto",
    config: ConfigFile = None,
    save_config_to: SaveConfig = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train on your own images; write a model, a report on its accuracy, and a gallery for explanations.

    A split or groups in DATA are used: test images are only tested on, images of one group stay together, and so do
    near-identical images. With --regions DATA is one large image, and every annotation is a
    group. Ctrl-C stops training, writes the model of the selected epoch and exits with code 130;
    pressed again, it stops without a model. With --checkpoint the same command continues.

    While training, the epoch score selects the epoch: the balanced accuracy on the validation images of an SVM that is
    fitted on the training images alone. The balanced accuracy at the end is that of the final SVM.
    """
    console = CommandConsole(quiet, as_json)
    console.load_libraries()
    from lmfcn.networks.registry import NETWORKS
    from lmfcn.recipe import change, override
    from lmfcn.user_training import AUTO, Source, open_split
    from lmfcn.util.checks import check_choice
    from lmfcn.util.files import check_writable, create_folder
    from lmfcn.util.memory import reuse_freed_memory

    del config  # its callback has read the file already
    reuse_freed_memory()
    _note_threads(console, compute_with(context, threads), threads)
    check_choice("--color", color, ("keep", "grey", "rgb"))
    check_choice("--network", network, (AUTO, *NETWORKS))
    page = None if no_report else report or output.parent / "report.html"
    save_config(context, save_config_to)
    changed_recipe = override(
        recipe,
        {
            "refit_epochs": refit_epochs,
            "augmentation": augmentation,
            "learning_rate": learning_rate,
            "batch_size": batch_size,
            "passes": passes,
            "split_duplicates": split_duplicates or None,
        },
    )
    if crop_size is not None:
        changed_recipe = change(changed_recipe, {"crop_size": parse_crop_size(crop_size)})
    # Values that contradict each other are refused before anything is read.
    override(changed_recipe, {"epochs": epochs, "latent_dim": latent_dim, "strategy": strategy})
    kept = size_fit(size, fit)
    source = Source(data, size, cast("Color", color), groups, skip_bad, groups_from, kept, regions, tile, resolution)
    with create_folder(output.parent), create_folder((page or output).parent):
        for file in filter(None, (output, page)):
            check_writable(file)
        parts = open_split(source, source.with_path(val), ignore_split=ignore_split, verbose=not quiet)
    _print_notes(console, parts, holdout, split_duplicates=split_duplicates)
    parameters = {
        "network": network,
        "weights": weights,
        "epochs": epochs,
        "latent_dim": latent_dim,
        "strategy": strategy,
        "class_weight": parse_class_weight(class_weight),
        "recipe": changed_recipe,
        "validation_fraction": holdout,
        "random_state": seed,
        "n_jobs": jobs,
        "checkpoint_dir": checkpoint,
        "device": device,
        "verbose": not quiet,
    }
    start = time.monotonic()
    trained = _train(console, parts, parameters, budget)
    _print_result(console, trained, time.monotonic() - start)
    _write(console, trained, output, page, gallery=not no_gallery)
    raise typer.Exit(130 if trained.interrupted else 0)


def parse_class_weight(text: str) -> Any:
    """Return the `class_weight` of `LMFCNClassifier` for a text.

    Examples
    --------
    >>> parse_class_weight("rare=5,other=1")
    {'rare': 5.0, 'other': 1.0}
    >>> parse_class_weight("none"), parse_class_weight("auto")
    (None, 'auto')
    """
    if "=" not in text:
        return None if text == "none" else text
    weights = {}
    for entry in text.split(","):
        label, separator, weight = entry.rpartition("=")
        try:
            weights[label.strip()] = float(weight if separator else "missing")
        except ValueError as error:
            raise ValueError(f"--class-weight must be such as rare=5,other=1, got {entry!r} in {text!r}.") from error
    return weights


def parse_crop_size(text: str) -> int | str | None:
    """Return the `crop_size` of a recipe for a text.

    Examples
    --------
    >>> parse_crop_size("64"), parse_crop_size("none"), parse_crop_size("auto")
    (64, None, 'auto')
    """
    if text in ("auto", "none"):
        return None if text == "none" else text
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"--crop-size must be auto, none or a number of pixels, got {text!r}.") from error


def _note_threads(console: CommandConsole, count: int, given: int | None) -> None:
    """Say how to repeat a training whose number of threads was chosen by how busy the machine was."""
    from lmfcn.compute.resources import allowed_threads

    if given is None and count < allowed_threads():
        console.note(f"Threads: {count} of {allowed_threads()}, the others are busy; --threads {count} repeats this.")


def _print_notes(console: CommandConsole, parts: "SplitImages", holdout: float, *, split_duplicates: bool) -> None:
    from lmfcn.data.leaks import KEPT_TOGETHER, MAY_BE_SPLIT

    inner_split = parts.validation is None and holdout > 0
    training = f"training and validation ({holdout:g} of every class is held out)" if inner_split else "training"
    counts = [
        f"{len(part)} for {what}"
        for part, what in ((parts.train, training), (parts.validation, "validation"), (parts.test, "the test"))
        if part is not None
    ]
    console.note(f"Images: {', '.join(counts)}")
    if (resizing := parts.train.describe_resizing()) is not None:
        console.note(f"Size: {resizing}")
    for error in parts.left_out:
        console.note(f"Left out: {error}")
    if parts.duplicates.sentence:
        # A split that came with the images is used as it is; what it separates is noted below.
        own_split = parts.validation is None and parts.test is None
        fate = MAY_BE_SPLIT if split_duplicates else KEPT_TOGETHER
        console.note(f"Note: {parts.duplicates.sentence} {fate if own_split else ''}".rstrip())
    for note in parts.notes:
        console.note(f"Note: {note}")


def _train(
    console: CommandConsole, parts: "SplitImages", parameters: dict[str, Any], budget: float | None
) -> "TrainedModel":
    from lmfcn.user_training import train_model

    try:
        return train_model(parts, parameters, announce=console.note, budget=budget)
    except KeyboardInterrupt:
        advice = " Run the same command to continue." if parameters["checkpoint_dir"] else ""
        typer.echo(f"Stopped; no model was written.{advice}", err=True)
        raise typer.Exit(130) from None


_ABOUT_EPOCH_SCORE = (
    "The epoch score ({score:.3f}) is not the balanced accuracy ({accuracy:.3f}), though both are measured on the"
    " validation images. It comes from an SVM fitted on the training images alone, and selects the epoch. The final SVM"
    " also learns from the other validation images, and leans towards rare classes."
)


def _print_result(console: CommandConsole, trained: "TrainedModel", seconds: float) -> None:
    for message in trained.notes[len(trained.parts.notes) :]:
        console.note(f"Note: {name_options(message)}")
    classifier, evaluated = trained.classifier, trained.best_evaluated
    if evaluated is not None:
        print_accuracy(console, evaluated.evaluation, f"{evaluated.part} image")
        if evaluated.copies is not None:
            console.print_result(
                evaluated.copies.sentence(evaluated.accuracy_without_copies, f"{evaluated.part} image")
            )
    n_images = len(trained.parts.train) + len(trained.parts.validation or ())
    support = f"{format_count(len(classifier.support_), 'support vector')} of {format_count(n_images, 'image')}"
    console.print_result(f"{support}, {_epochs(classifier)}, {seconds:.0f} seconds")
    score = trained.epoch_score
    if score is not None and evaluated is not None and evaluated is trained.held_out:
        accuracy = evaluated.evaluation.balanced_accuracy.value
        if f"{score:.3f}" != f"{accuracy:.3f}":
            console.note(f"Note: {_ABOUT_EPOCH_SCORE.format(score=score, accuracy=accuracy)}")


def _epochs(classifier: "LMFCNClassifier") -> str:
    """Describe the selected epoch, and whether training continued on all images."""
    from lmfcn.model_file import describe_model

    told = describe_model(classifier.model_)
    score = "" if told["epoch_score"] is None else f" (epoch score {told['epoch_score']:.3f})"
    refit = format_count(told["n_closing_epochs"], "refit epoch")
    more = "" if classifier.refit_history_ is None else f", then {refit} on all images"
    return f"epoch {classifier.best_epoch_} selected{score}{more}"


def _write(console: CommandConsole, trained: "TrainedModel", output: Path, page: Path | None, *, gallery: bool) -> None:
    trained.classifier.save(output)
    try:
        with console.show_status("Writing the gallery"):
            gallery_file = _write_gallery(trained, output) if gallery else None
        written = None if page is None else _write_report(console, trained, page, output.name)
    except KeyboardInterrupt:
        typer.echo(f"Stopped; the model was written before that: {output}.", err=True)
        raise typer.Exit(130) from None
    _print_files(console, trained, {"model": output, "report": written, "gallery": gallery_file})
    name = shlex.quote(str(output))
    console.suggest(f"lmfcn predict {name} NEW_IMAGES, or lmfcn serve {name}")


def _write_gallery(trained: "TrainedModel", output: Path) -> Path:
    """Write small pictures of the training images for explanations; the model itself holds none."""
    from lmfcn.explain.gallery import Gallery, gallery_path, save_gallery

    parts, path = trained.parts, gallery_path(output)
    save_gallery(Gallery.of(trained.classifier, parts.train, validation=parts.validation), path)
    return path


def _print_files(console: CommandConsole, trained: "TrainedModel", files: dict[str, Path | None]) -> None:
    for name, path in files.items():
        if path is not None:
            console.print_result(f"{name.capitalize()}: {path} ({path.stat().st_size / 1e6:.2f} MB)")
    paths = {name: None if path is None else str(path) for name, path in files.items()}
    console.print_json({**paths, **_json_values(trained)})


def _write_report(console: CommandConsole, trained: "TrainedModel", page: Path, name: str) -> Path | None:
    """Write the report; return None if packages for it are missing."""
    from lmfcn.report import training_report_writer

    with console.show_status("Writing the report"):
        try:
            write_training_report = training_report_writer()
        except ImportError as error:
            console.note(f"No report: {error}")
            return None
        write_training_report(trained, page, name=name)
    return page


def _json_values(trained: "TrainedModel") -> dict[str, Any]:
    from lmfcn.model_file import describe_model

    evaluated = {"held_out": trained.held_out, "test": trained.test}
    return {
        "information": describe_model(trained.classifier.model_),
        **{name: None if part is None else _evaluated_values(part) for name, part in evaluated.items()},
        "n_near_identical": trained.parts.duplicates.n_images,
        "left_out": [str(error) for error in trained.parts.left_out],
        "notes": trained.notes,
        "interrupted": trained.interrupted,
    }


def _evaluated_values(part: "EvaluatedPart") -> dict[str, Any]:
    without = part.accuracy_without_copies
    return {
        **part.evaluation.as_dict(),
        "n_near_training_images": None if part.copies is None else int(part.copies.near.sum()),
        "balanced_accuracy_without_them": None if without is None else vars(without),
    }
