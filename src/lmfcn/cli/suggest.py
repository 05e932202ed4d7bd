"""`lmfcn suggest`: which unlabelled images to label next for a model."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from lmfcn.cli.console import CommandConsole, format_count
from lmfcn.cli.options import Device, ModelFile, Quiet, check_exists


def suggest(
    model: ModelFile,
    unlabelled: Annotated[
        Path, Argument(metavar="UNLABELLED", callback=check_exists, help="Folder of images, or a table of them.")
    ],
    number: Annotated[int, Option("--number", "-n", min=1, help="How many images to suggest.")] = 50,
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="FILE", help="CSV file to write instead of printing it.")
    ] = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """List the images whose labels would help a model most: near its margin, and spread over its latent space.

    The table has the columns rank, path, predicted, probability, second and second_probability. Label these images,
    train again with them, or let model.extend learn them in Python.
    """
    console = CommandConsole(quiet)
    console.load_libraries()
    from lmfcn.data.sources import open_images
    from lmfcn.label.suggest import HEADER, suggest_images
    from lmfcn.label.table import table_text, write_table
    from lmfcn.model_file import load
    from lmfcn.user_training import check_readable
    from lmfcn.util.files import check_writable

    if output is not None:
        check_writable(output)
    fitted = load(model, device)
    images = check_readable(open_images(unlabelled), skip_bad=True, verbose=not quiet)
    for error in images.left_out:
        console.note(f"{error}: left out.")
    with console.show_status(f"Describing {format_count(len(images), 'image')}"):
        rows = suggest_images(fitted, images, number)
    if output is None:
        typer.echo(table_text(rows, HEADER), nl=False)
        return
    write_table(output, rows, HEADER)
    console.note(f"{format_count(len(rows), 'image')} of {format_count(len(images), 'image')}: {output}")
