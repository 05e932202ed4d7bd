"""The `lmfcn` command."""

import sys
from collections.abc import Callable
from inspect import cleandoc
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from lmfcn import __version__
from lmfcn.cli.audit import audit
from lmfcn.cli.card import card
from lmfcn.cli.compare import compare
from lmfcn.cli.demo import demo
from lmfcn.cli.evaluate import evaluate
from lmfcn.cli.explain import explain
from lmfcn.cli.export import export
from lmfcn.cli.info import info
from lmfcn.cli.inspect import inspect
from lmfcn.cli.label import label
from lmfcn.cli.map import map_image
from lmfcn.cli.options import ConfigError, name_options
from lmfcn.cli.predict import predict
from lmfcn.cli.reproduce import reproduce
from lmfcn.cli.serve import serve
from lmfcn.cli.suggest import suggest
from lmfcn.cli.train import train

_EPILOG = (
    "Exit codes: 0 success; 1 finished with problems (unreadable files or parts of an image, images unfit for training,"
    " a failed training); 2 wrong options or wrong data, with one sentence about it; 130 stopped by Ctrl-C."
)

app = typer.Typer(
    name="lmfcn",
    help="Large-margin texture classification: small networks trained on their support vectors.\n\n"
    "  lmfcn train my_images -o wood.lmfcn       # one folder of images per class\n\n"
    "  lmfcn predict wood.lmfcn new_images       # predict the class of every image",
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


def _add(command: Callable[..., None], short: str, name: str | None = None) -> None:
    """Register a command; the paragraphs of its docstring are wrapped to the width of the terminal."""
    paragraphs = cleandoc(command.__doc__ or "").split("\n\n")
    app.command(name, help="\n\n".join(" ".join(text.split()) for text in paragraphs), short_help=short)(command)


# In the usual order of work with new images; each line fits a narrow terminal.
_add(demo, "Train on built-in textures and show the result.")
_add(inspect, "Check whether your images are fit for training.")
_add(audit, "Rank doubtful labels; find duplicates.")
_add(label, "Label images while a model learns along.")
_add(train, "Train a model on your images, with a report.")
_add(evaluate, "Measure a model on labelled images.")
_add(predict, "Predict the classes of any number of images.")
_add(explain, "Explain predictions.")
_add(suggest, "List which images to label next.")
_add(compare, "Compare with other methods on your images.")
_add(reproduce, "Reproduce the paper's tables and figures.")
_add(serve, "Serve a web page that predicts and explains.")
_add(map_image, "Map the textures in an image of any size.", "map")
_add(export, "Write a model as ONNX or torch.export file.")
_add(info, "Describe a model.")
_add(card, "Write a model card.")
_GROUP = typer.main.get_command(app)


def _error_message(error: Exception) -> str:
    """Return the message of an error; it names options of the command instead of Python parameters."""
    if isinstance(error, ConfigError):
        return str(error)
    return name_options(_python_message(error), _known_options())


def _known_options() -> set[str]:
    """Return the options of the command that was called."""
    commands = getattr(_GROUP, "commands", {})
    command = next((commands[argument] for argument in sys.argv[1:] if argument in commands), None)
    return set() if command is None else {name for parameter in command.params for name in parameter.opts}


def _python_message(error: Exception) -> str:
    """Return the message of an error; for file errors the name and the reason, without the error number."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}."
    if not isinstance(error, ValueError):
        return str(error)
    from lmfcn.data.image_files import CollectionError, describe_errors

    if isinstance(error, CollectionError):  # its own message is for Python users
        return (
            f"{error.errors[0]}."
            if len(error.errors) == 1
            else f"{describe_errors(error.errors)}\nRepair or remove them."
        )
    return str(error)


def main() -> None:
    """Run the command; a user's mistake ends with one sentence and exit code 2."""
    try:
        app()
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        Console(stderr=True).print(
            f"[bold red]Error:[/] {escape(_error_message(error))}", highlight=False, soft_wrap=True
        )
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("Stopped.")
        sys.exit(130)


if __name__ == "__main__":
    main()
