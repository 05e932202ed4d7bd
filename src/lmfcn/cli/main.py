"""The `lmfcn` command."""

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from lmfcn import __version__
from lmfcn.cli.audit import audit
from lmfcn.cli.compare import compare
from lmfcn.cli.demo import demo
from lmfcn.cli.evaluate import evaluate
from lmfcn.cli.explain import explain
from lmfcn.cli.export import export
from lmfcn.cli.info import info
from lmfcn.cli.inspect import inspect
from lmfcn.cli.map import map_image
from lmfcn.cli.predict import predict
from lmfcn.cli.reproduce import reproduce
from lmfcn.cli.serve import serve
from lmfcn.cli.train import train

_EPILOG = (
    "Exit codes: 0 done; 1 done, but not everything was good (bad files, images unfit for training); 2 wrong use or"
    " wrong data, with one sentence that says what; 130 stopped by Ctrl-C."
)

app = typer.Typer(
    name="lmfcn",
    help="Large-margin texture classification: small networks trained on their support vectors.\n\n"
    "  lmfcn train my_images -o wood.lmfcn       # a folder of images for each class\n\n"
    "  lmfcn predict wood.lmfcn new_images       # the class of every image in it",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lmfcn {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None: ...


# In the order in which somebody with new images needs them, each with a line that fits a narrow screen.
app.command(short_help="Watch the method at work on built-in textures.")(demo)
app.command(short_help="Look at your images: are they fit for training?")(inspect)
app.command(short_help="Find labels to doubt and duplicates.")(audit)
app.command(short_help="Train on your images: a model, and a page about it.")(train)
app.command(short_help="Tell how good a model is on labelled images.")(evaluate)
app.command(short_help="Predict the classes of any number of images.")(predict)
app.command(short_help="Show why: deciding images, and where.")(explain)
app.command(short_help="Compare with other methods on your images.")(compare)
app.command(short_help="Reproduce the paper's tables and figures.")(reproduce)
app.command(short_help="Open a page in your browser that predicts and explains.")(serve)
app.command("map", short_help="Map what is where in an image of any size.")(map_image)
app.command(short_help="Write a model as ONNX, or for torch.")(export)
app.command(short_help="Tell what a model is and where it comes from.")(info)


def main() -> None:
    """Run the command; a user's mistake ends with one sentence and exit code 2."""
    try:
        app()
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        Console(stderr=True).print(f"[bold red]Error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("Stopped.")
        sys.exit(130)
