"""`lmfcn train`: a model of your own images."""

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer import Option

from lmfcn.cli.console import Teller, counted, tell_accuracy
from lmfcn.cli.options import AsJson, ConfigFile, Data, Quiet, SaveConfig, save_config

if TYPE_CHECKING:
    from lmfcn.classifier import LMFCNClassifier
    from lmfcn.data.framing import Color
    from lmfcn.user_training import OwnModel, OwnParts

_DATA, _METHOD, _RUN = "Images", "Method", "Run"


def train(
    context: typer.Context,
    data: Data,
    output: Annotated[Path, Option("--output", "-o", metavar="FILE", help="The model.")] = Path("model.lmfcn"),
    report: Annotated[
        Path | None, Option("--report", metavar="FILE", help="The page about it; report.html beside the model.")
    ] = None,
    no_report: Annotated[bool, Option("--no-report", help="Write no page.")] = False,
    no_gallery: Annotated[
        bool, Option("--no-gallery", help="Write no small pictures of the images for explain and serve.")
    ] = False,
    val: Annotated[
        Path | None,
        Option("--val", metavar="DATA", help="Images to choose by, then to learn from.", rich_help_panel=_DATA),
    ] = None,
    groups: Annotated[
        str | None,
        Option("--groups", metavar="COLUMN", help="Column of DATA: what belongs together.", rich_help_panel=_DATA),
    ] = None,
    size: Annotated[
        int | None, Option(min=8, metavar="PIXELS", help="Side to bring all images to.", rich_help_panel=_DATA)
    ] = None,
    color: Annotated[
        str, Option(metavar="KIND", help="keep, grey or rgb: for images of mixed kinds.", rich_help_panel=_DATA)
    ] = "keep",
    holdout: Annotated[
        float,
        Option(min=0, max=0.9, metavar="SHARE", help="Held out to choose by, without --val.", rich_help_panel=_DATA),
    ] = 0.2,
    ignore_split: Annotated[
        bool, Option("--ignore-split", help="Give up a division that DATA brings.", rich_help_panel=_DATA)
    ] = False,
    skip_bad: Annotated[
        bool, Option("--skip-bad", help="Leave out files that cannot be read.", rich_help_panel=_DATA)
    ] = False,
    epochs: Annotated[
        int | None, Option(min=1, help="Rounds: 15; one-vs-all 10 per class.", rich_help_panel=_METHOD)
    ] = None,
    closing_epochs: Annotated[
        int | None,
        Option(min=0, help="The last of these, with all images: 7 of 15.", rich_help_panel=_METHOD),
    ] = None,
    latent_dim: Annotated[
        int | None, Option(min=1, help="Length of what is learnt: 64.", rich_help_panel=_METHOD)
    ] = None,
    strategy: Annotated[
        str | None, Option(metavar="NAME", help="joint or one-vs-all.", rich_help_panel=_METHOD)
    ] = None,
    preset: Annotated[
        str | None, Option(metavar="NAME", help="paper: its loss and constants.", rich_help_panel=_METHOD)
    ] = None,
    class_weight: Annotated[
        str,
        Option(metavar="WEIGHTS", help="auto, balanced, none, or such as rare=5,other=1.", rich_help_panel=_METHOD),
    ] = "auto",
    views: Annotated[
        str | None, Option(metavar="KIND", help="How images are shown: flips, turns or none.", rich_help_panel=_METHOD)
    ] = None,
    learning_rate: Annotated[float | None, Option(help="In the first epoch: 0.001.", rich_help_panel=_METHOD)] = None,
    batch_size: Annotated[int | None, Option(min=1, help="Images per step: 32.", rich_help_panel=_METHOD)] = None,
    passes: Annotated[
        int | None, Option(min=1, help="Through what moves, per epoch: 8.", rich_help_panel=_METHOD)
    ] = None,
    seed: Annotated[int, Option(min=0, help="Same seed, same model.", rich_help_panel=_RUN)] = 0,
    jobs: Annotated[
        int | None, Option("--jobs", "-j", metavar="N", help="Networks of one-vs-all at a time.", rich_help_panel=_RUN)
    ] = None,
    checkpoint: Annotated[
        Path | None,
        Option("--checkpoint", "--resume", metavar="DIR", help="Go on from there if stopped.", rich_help_panel=_RUN),
    ] = None,
    device: Annotated[
        str, Option(metavar="NAME", help="auto, cpu, cuda, mps, ...: where to compute.", rich_help_panel=_RUN)
    ] = "auto",
    config: ConfigFile = None,
    save_config_to: SaveConfig = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train on your own images; writes a model, a page that shows how good it is, and a gallery for explanations.

    A split or group that DATA brings is respected: test images are only tested on, images of one group stay together.
    Ctrl-C keeps what has been learnt so far and ends with code 130; with --checkpoint the same command goes on.
    """
    from lmfcn.compute.resources import reuse_freed_memory
    from lmfcn.user_training import Source, open_parts
    from lmfcn.util.checks import check_choice
    from lmfcn.util.files import check_writable, made_folder

    del config  # it has spoken before
    reuse_freed_memory()
    check_choice("--color", color, ("keep", "grey", "rgb"))
    page = None if no_report else report or output.parent / "report.html"
    save_config(context, save_config_to)
    teller = Teller(quiet, as_json)
    source = Source(data, size, cast("Color", color), groups, skip_bad)
    with made_folder(output.parent), made_folder((page or output).parent):
        for file in filter(None, (output, page)):
            check_writable(file)
        parts = open_parts(source, source.beside(val), ignore_split=ignore_split, verbose=not quiet)
    _tell_beforehand(teller, parts)
    parameters = {
        "epochs": epochs,
        "closing_epochs": closing_epochs,
        "latent_dim": latent_dim,
        "strategy": strategy,
        "preset": preset,
        "class_weight": parse_class_weight(class_weight),
        "views": views,
        "learning_rate": learning_rate,
        "batch_size": batch_size,
        "passes": passes,
        "validation_fraction": holdout,
        "random_state": seed,
        "n_jobs": jobs,
        "checkpoint_dir": checkpoint,
        "device": device,
        "verbose": not quiet,
    }
    start = time.monotonic()
    trained = _train(teller, parts, parameters)
    _tell(teller, trained, time.monotonic() - start)
    _write(teller, trained, output, page, gallery=not no_gallery)
    raise typer.Exit(130 if trained.interrupted else 0)


def parse_class_weight(text: str) -> Any:
    """Return what `--class-weight` means to `LMFCNClassifier`.

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
            weights[label.strip()] = float(weight if separator else "nothing")
        except ValueError as error:
            raise ValueError(f"--class-weight must be such as rare=5,other=1, got {entry!r} in {text!r}.") from error
    return weights


def _tell_beforehand(teller: Teller, parts: "OwnParts") -> None:
    counts = [
        f"{len(part)} for {what}"
        for part, what in ((parts.train, "training"), (parts.validation, "validation"), (parts.test, "the test"))
        if part is not None
    ]
    teller.note(f"Images: {', '.join(counts)}")
    for error in parts.left_out:
        teller.note(f"Left out: {error}")
    for note in parts.notes:
        teller.note(f"Note: {note}")


def _train(teller: Teller, parts: "OwnParts", parameters: dict[str, Any]) -> "OwnModel":
    from lmfcn.user_training import train_on

    try:
        return train_on(parts, parameters, announce=teller.note)
    except KeyboardInterrupt:
        going_on = " The same command goes on." if parameters["checkpoint_dir"] else ""
        typer.echo(f"Stopped; no model was written.{going_on}", err=True)
        raise typer.Exit(130) from None


def _tell(teller: Teller, trained: "OwnModel", seconds: float) -> None:
    for message in trained.notes[len(trained.parts.notes) :]:
        teller.note(f"Note: {message}")
    classifier, judged = trained.classifier, trained.judged
    if not teller.quiet and judged is not None:
        tell_accuracy(teller, judged.evaluation, f"{judged.part} image")
    if not teller.quiet:
        n_images = len(trained.parts.train) + len(trained.parts.validation or ())
        carried = f"{counted(len(classifier.support_), 'support vector')} of {counted(n_images, 'image')}"
        teller.say(f"{carried}, {_epochs(classifier)}, {seconds:.0f} seconds")


def _epochs(classifier: "LMFCNClassifier") -> str:
    """Say which epoch was kept, or that training went on from it with all images."""
    if classifier.closing_history_ is None:
        return f"epoch {classifier.best_epoch_} kept"
    return f"epoch {classifier.best_epoch_} kept and trained on with all images"


def _write(teller: Teller, trained: "OwnModel", output: Path, page: Path | None, *, gallery: bool) -> None:
    trained.classifier.save(output)
    pictures = _write_gallery(trained, output) if gallery else None
    written = None if page is None else _write_report(teller, trained, page, output.name)
    _tell_files(teller, trained, {"model": output, "report": written, "gallery": pictures})
    name = shlex.quote(str(output))
    teller.hint(f"lmfcn predict {name} NEW_IMAGES, or lmfcn serve {name}")


def _write_gallery(trained: "OwnModel", output: Path) -> Path:
    """Write what explanations show: small pictures of the images, apart from the model, which holds none."""
    from lmfcn.explain.gallery import Gallery, gallery_path, save_gallery

    parts, path = trained.parts, gallery_path(output)
    save_gallery(Gallery.of(trained.classifier, parts.train, validation=parts.validation), path)
    return path


def _tell_files(teller: Teller, trained: "OwnModel", files: dict[str, Path | None]) -> None:
    for name, path in files.items():
        if path is not None:
            teller.say(f"{name.capitalize()}: {path} ({path.stat().st_size / 1e6:.2f} MB)")
    paths = {name: None if path is None else str(path) for name, path in files.items()}
    teller.give({**paths, **_values(trained)})


def _write_report(teller: Teller, trained: "OwnModel", page: Path, name: str) -> Path | None:
    """Write the page; without the packages for it, the model is there all the same."""
    from lmfcn.report import training_report_writer

    try:
        write_training_report = training_report_writer()
    except ImportError as error:
        teller.note(f"No report: {error}")
        return None
    teller.note("Writing the report.")
    write_training_report(trained, page, name=name)
    return page


def _values(trained: "OwnModel") -> dict[str, Any]:
    from lmfcn.model_file import describe_model

    judged = {"held_out": trained.held_out, "test": trained.test}
    return {
        "information": describe_model(trained.classifier.model_),
        **{name: None if part is None else part.evaluation.as_dict() for name, part in judged.items()},
        "left_out": [str(error) for error in trained.parts.left_out],
        "notes": trained.notes,
        "interrupted": trained.interrupted,
    }
