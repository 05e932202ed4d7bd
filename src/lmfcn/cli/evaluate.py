"""`lmfcn evaluate`: measure a model on labelled images."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from lmfcn.cli.console import CommandConsole, print_accuracy, print_calibration, print_confusion
from lmfcn.cli.options import (
    AsJson,
    ConfigFile,
    Data,
    Device,
    GroupsFrom,
    ModelFile,
    Quiet,
    SaveConfig,
    Threads,
    compute_with,
    save_config,
)

if TYPE_CHECKING:
    import numpy as np

    from lmfcn.data.collection import ImageCollection
    from lmfcn.model import TextureModel
    from lmfcn.predict.evaluation import Estimate, TrainingCopies


def evaluate(
    context: typer.Context,
    model: ModelFile,
    data: Data,
    part: Annotated[
        str | None, Option(metavar="NAME", help="Part of the split in DATA, or all; test by default, if there is one.")
    ] = None,
    groups: Annotated[
        str | None, Option(metavar="COLUMN", help="Column of DATA with groups that belong together.")
    ] = None,
    groups_from: GroupsFrom = None,
    skip_bad: Annotated[bool, Option("--skip-bad", help="Leave out files that cannot be read.")] = False,
    csv_file: Annotated[Path | None, Option("--csv", metavar="FILE", help="Write one line per image.")] = None,
    threads: Threads = None,
    device: Device = "auto",
    config: ConfigFile = None,
    save_config_to: SaveConfig = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Measure how well a model predicts labelled images that it was not trained on.

    Accuracies have 95 % intervals, in which images of one group count as one sample. A line says how many of the images
    have a near-identical training image, and the accuracy without them.
    """
    CommandConsole(quiet).load_libraries()
    from lmfcn.model_file import load
    from lmfcn.predict.evaluation import accuracy_without, class_numbers_of, evaluate_predictions, find_training_copies
    from lmfcn.user_training import check_readable
    from lmfcn.util.files import check_writable

    del config  # its callback has read the file already
    if csv_file is not None:
        check_writable(csv_file)
    compute_with(context, threads)
    save_config(context, save_config_to)
    console, loaded = CommandConsole(quiet, as_json), load(model, device)
    images, name = _open_part(loaded, data, part, group_column=groups, group_pattern=groups_from)
    images = check_readable(images, skip_bad=skip_bad, verbose=not quiet)
    for error in images.left_out:
        console.note(f"Left out: {error}")
    predicted = loaded.predict_proba(images)
    numbers = class_numbers_of(loaded, images.labels)
    evaluation = evaluate_predictions(loaded, numbers, predicted, images.groups)
    copies = find_training_copies(loaded, images)
    without = None if copies is None else accuracy_without(copies.near, numbers, predicted, images.groups)
    if csv_file is not None:
        _write_csv(csv_file, loaded, images, predicted)
    noun = "image" if name == "all" else f"{name} image"
    print_accuracy(console, evaluation, noun)
    _print_copies(console, copies, without, noun)
    print_confusion(console, evaluation)
    print_calibration(console, evaluation)
    values = {"model": str(model), "part": name, **_copies_values(copies, without)}
    console.print_json({**values, **evaluation.as_dict()})


def _open_part(
    loaded: "TextureModel", data: Path, part: str | None, **groups: str | None
) -> "tuple[ImageCollection, str]":
    """Return the images of a part in the form of the model, and the name of the part."""
    from lmfcn.data.sources import open_collection
    from lmfcn.predict.evaluation import class_numbers_of
    from lmfcn.user_training import select_part

    images, name = select_part(open_collection(data, **groups), part)
    class_numbers_of(loaded, images.labels)  # refuses unknown labels before images are read
    return images.preprocessed_for_model(loaded.form.preprocessing), name


def _print_copies(
    console: CommandConsole, copies: "TrainingCopies | None", without: "Estimate | None", noun: str
) -> None:
    if copies is None:
        console.note("Note: The model file does not say which images the model was trained on.")
        return
    console.print_result(copies.sentence(without, noun))
    if not copies.complete:
        console.note(
            "Note: The model file is of an earlier version and holds no perceptual hashes, so that only exact copies"
            " of training images were found. Train again to find near-identical ones."
        )


def _copies_values(copies: "TrainingCopies | None", without: "Estimate | None") -> dict[str, Any]:
    if copies is None:
        return {"n_training_images": None, "n_near_training_images": None, "balanced_accuracy_without_them": None}
    return {
        "n_training_images": int(copies.exact.sum()),
        "n_near_training_images": int(copies.near.sum()) if copies.complete else None,
        "balanced_accuracy_without_them": None if without is None else vars(without),
    }


def _write_csv(path: Path, loaded: "TextureModel", images: "ImageCollection", predicted: "np.ndarray") -> None:
    from lmfcn.util.files import write_text

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["path", "true", "predicted", "probability"])
    labels = [] if images.labels is None else images.labels.tolist()
    for file, label, probabilities in zip(images.paths, labels, predicted, strict=True):
        best = int(probabilities.argmax())
        writer.writerow([file, label, loaded.classes[best], f"{probabilities[best]:.6f}"])
    write_text(path, text.getvalue())
