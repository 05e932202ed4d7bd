"""The `lmfcn` command."""

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from lmfcn import __version__
from lmfcn.cli.compare import compare
from lmfcn.cli.demo import demo
from lmfcn.cli.inspect import inspect
from lmfcn.cli.map import map_image

app = typer.Typer(
    name="lmfcn",
    help="Large-margin texture classification: small convolutional networks trained on their support vectors.",
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


app.command()(demo)
app.command()(inspect)
app.command()(compare)
app.command("map")(map_image)


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
