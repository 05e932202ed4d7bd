"""`lmfcn evaluate`: how good a model is on labelled images."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from lmfcn.cli.console import Teller, tell_accuracy, tell_calibration, tell_confusion
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
        str | None, Option(metavar="NAME", help="Part of divided images: test if there is one; or all.")
    ] = None,
    groups: Annotated[str | None, Option(metavar="COLUMN", help="Column of DATA: what belongs together.")] = None,
    skip_bad: Annotated[bool, Option("--skip-bad", help="Leave out files that cannot be read.")] = False,
    csv_file: Annotated[Path | None, Option("--csv", metavar="FILE", help="A line for every image.")] = None,
    device: Device = "auto",
    config: ConfigFile = None,
    save_config_to: SaveConfig = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Tell how good a model is on labelled images that it has not seen.

    Accuracies come with 95 % intervals; images of one group count as one draw. Images that the model was trained on
    are noticed.
    """
    from lmfcn.model_file import load
    from lmfcn.predict.evaluation import class_numbers_of, count_training_images, evaluate_predictions
    from lmfcn.user_training import only_sound
    from lmfcn.util.files import check_writable

    del config  # it has spoken before
    if csv_file is not None:
        check_writable(csv_file)
    save_config(context, save_config_to)
    teller, loaded = Teller(quiet, as_json), load(model, device)
    images, name = _open(loaded, data, groups, part)
    images = only_sound(images, skip_bad=skip_bad, verbose=not quiet)
    for error in images.left_out:
        teller.note(f"Left out: {error}")
    predicted = loaded.predict_proba(images)
    found = evaluate_predictions(loaded, class_numbers_of(loaded, images.labels), predicted, images.groups)
    known = count_training_images(loaded, images)
    if csv_file is not None:
        _write_csv(csv_file, loaded, images, predicted)
    if known:
        teller.note(f"Note: {_known_sentence(known, len(images))}")
    tell_accuracy(teller, found, "image" if name == "all" else f"{name} image")
    tell_confusion(teller, found)
    tell_calibration(teller, found)
    teller.give({"model": str(model), "part": name, "n_training_images": known, **found.as_dict()})


def _open(loaded: "TextureModel", data: Path, groups: str | None, part: str | None) -> "tuple[ImageCollection, str]":
    """Return the images in the form of the model, and the name of the part that they are."""
    from lmfcn.data.sources import open_collection
    from lmfcn.predict.evaluation import class_numbers_of
    from lmfcn.user_training import part_to_test_on

    images, name = part_to_test_on(open_collection(data, group_column=groups), part)
    class_numbers_of(loaded, images.labels)  # unknown labels are told before images are read
    return images.preprocessed_for_model(loaded.form.preprocessing), name


def _known_sentence(known: int, n_images: int) -> str:
    return (
        f"{known} of the {n_images} images were among the training or validation images of the model;"
        " on new images it may be worse."
    )


def _write_csv(path: Path, loaded: "TextureModel", images: "ImageCollection", predicted: "np.ndarray") -> None:
    from lmfcn.util.files import write_text

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["path", "true", "predicted", "probability"])
    labels = [] if images.labels is None else images.labels.tolist()
    for file, label, probabilities in zip(images.paths, labels, predicted, strict=True):
        guess = int(probabilities.argmax())
        writer.writerow([file, label, loaded.classes[guess], f"{probabilities[guess]:.6f}"])
    write_text(path, text.getvalue())
