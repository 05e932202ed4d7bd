"""`lmfcn card`: write a model card."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from lmfcn.cli.console import CommandConsole
from lmfcn.cli.options import ModelFile, Quiet


def card(
    model: ModelFile,
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="FILE", help="File to write, such as README.md.")
    ] = None,
    licence: Annotated[
        str | None, Option("--license", metavar="NAME", help="Your licence for the model, such as cc-by-4.0.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write a model card in Markdown, with the header that Hugging Face reads.

    It tells what the model file knows: classes and data, accuracy with its interval, calibration, the network and its
    licence, limits. Without -o it is printed.
    """
    console = CommandConsole(quiet)
    console.load_libraries()
    from lmfcn.model_file import load
    from lmfcn.predict.model_card import model_card
    from lmfcn.util.files import check_writable, write_text

    if output is not None:
        check_writable(output)
    text = model_card(load(model, "cpu"), model.name, licence=licence)
    if output is None:
        typer.echo(text, nl=False)
        return
    write_text(output, text)
    console.print_result(f"Card: {output}")
