"""`lmfcn evaluate`: measure a model on labelled images."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from lmfcn.cli.console import CommandConsole, print_accuracy, print_calibration, print_confusion
from lmfcn.cli.options import AsJson, ConfigFile, Data, Device, ModelFile, Quiet, SaveConfig, save_config

if TYPE_CHECKING:
    import numpy as np

    from lmfcn.data.collection import ImageCollection
    from lmfcn.model import TextureModel


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
    skip_bad: Annotated[bool, Option("--skip-bad", help="Leave out files that cannot be read.")] = False,
    csv_file: Annotated[Path | None, Option("--csv", metavar="FILE", help="Write one line per image.")] = None,
    device: Device = "auto",
    config: ConfigFile = None,
    save_config_to: SaveConfig = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Measure how well a model predicts labelled images that it was not trained on.

    Accuracies have 95 % intervals, in which images of one group count as one sample. A note says if images were used
    in the training of the model.
    """
    CommandConsole(quiet).load_libraries()
    from lmfcn.model_file import load
    from lmfcn.predict.evaluation import class_numbers_of, count_training_images, evaluate_predictions
    from lmfcn.user_training import check_readable
    from lmfcn.util.files import check_writable

    del config  # its callback has read the file already
    if csv_file is not None:
        check_writable(csv_file)
    save_config(context, save_config_to)
    console, loaded = CommandConsole(quiet, as_json), load(model, device)
    images, name = _open_part(loaded, data, groups, part)
    images = check_readable(images, skip_bad=skip_bad, verbose=not quiet)
    for error in images.left_out:
        console.note(f"Left out: {error}")
    predicted = loaded.predict_proba(images)
    evaluation = evaluate_predictions(loaded, class_numbers_of(loaded, images.labels), predicted, images.groups)
    n_known = count_training_images(loaded, images)
    if csv_file is not None:
        _write_csv(csv_file, loaded, images, predicted)
    if n_known:
        console.note(f"Note: {_known_sentence(n_known, len(images))}")
    print_accuracy(console, evaluation, "image" if name == "all" else f"{name} image")
    print_confusion(console, evaluation)
    print_calibration(console, evaluation)
    console.print_json({"model": str(model), "part": name, "n_training_images": n_known, **evaluation.as_dict()})


def _open_part(
    loaded: "TextureModel", data: Path, groups: str | None, part: str | None
) -> "tuple[ImageCollection, str]":
    """Return the images of a part in the form of the model, and the name of the part."""
    from lmfcn.data.sources import open_collection
    from lmfcn.predict.evaluation import class_numbers_of
    from lmfcn.user_training import select_part

    images, name = select_part(open_collection(data, group_column=groups), part)
    class_numbers_of(loaded, images.labels)  # refuses unknown labels before images are read
    return images.preprocessed_for_model(loaded.form.preprocessing), name


def _known_sentence(n_known: int, n_images: int) -> str:
    return (
        f"{n_known} of the {n_images} images were among the training or validation images of the model;"
        " on new images it may be worse."
    )


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
