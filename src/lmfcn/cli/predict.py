"""`lmfcn predict`: the classes of any number of images."""

import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer
from typer import Argument, Option

from lmfcn.cli.arguments import ModelFile, Quiet
from lmfcn.cli.config import ConfigFile, SaveConfig, save_config
from lmfcn.cli.telling import Teller, counted

if TYPE_CHECKING:
    from lmfcn.cli.rows import RowWriter
    from lmfcn.inference.streaming import FilePrediction

_SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def predict(
    context: typer.Context,
    model: ModelFile,
    paths: Annotated[
        list[str], Argument(metavar="PATHS...", help="Images, folders of images, or - for paths on standard input.")
    ],
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="FILE", help="Write there, whole or not at all.")
    ] = None,
    form: Annotated[
        str | None,
        Option(
            "--format", metavar="KIND", help="table, csv or jsonl; by FILE's ending, table on a terminal, else csv."
        ),
    ] = None,
    proba: Annotated[bool, Option("--proba", help="The probability of every class.")] = False,
    coverage: Annotated[
        float | None, Option("--set", metavar="SHARE", help="Classes that cannot be ruled out, such as 0.9.")
    ] = None,
    reject: Annotated[
        float | None, Option("--reject", metavar="SHARE", help="No class below this probability, such as 0.8.")
    ] = None,
    config: ConfigFile = None,
    save_config_to: SaveConfig = None,
    quiet: Quiet = False,
) -> None:
    """Predict the classes of images, a line each, in constant memory.

    Images are brought to the size and colour that the model was trained with. Files that cannot be used are named on
    standard error and left out; the command then ends with code 1.
    """
    from lmfcn.cli.rows import FORMATS, RowWriter
    from lmfcn.inference.files import load
    from lmfcn.inference.streaming import find_images, predict_paths, stream_predictions
    from lmfcn.parameters import check_choice

    del config  # it has spoken before
    chosen = form or _usual_format(output)
    check_choice("--format", chosen, FORMATS)
    save_config(context, save_config_to)
    loaded = load(model)
    writer = RowWriter(loaded, chosen, proba=proba, coverage=coverage, reject=reject)
    rows = stream_predictions(partial(predict_paths, loaded), find_images(_given(paths)))
    with _opened(output) as file:
        n_good, n_bad = _write(rows, writer, file, visible=_can_show_progress(output) and not quiet)
    note = f"{counted(n_good, 'image')} predicted" + (f", {n_bad} could not be used" if n_bad else "")
    if n_bad or output is not None:
        Teller(quiet).note(f"{note}.")
    raise typer.Exit(1 if n_bad else 0)


def _write(rows: "Iterable[FilePrediction]", writer: "RowWriter", file: TextIO, *, visible: bool) -> tuple[int, int]:
    """Write what comes, name what does not; return how many there were of both."""
    from lmfcn.progress import count_progress

    n_good = n_bad = 0
    with count_progress("Predicting", visible=visible) as advance:
        for row in rows:
            file.write(writer.begin() if n_good + n_bad == 0 else "")
            if row.probabilities is None:
                typer.echo(f"{row.path}: {row.error}", err=True)
                n_bad += 1
            else:
                file.write(writer.line(row.path, row.probabilities))
                n_good += 1
            advance()
    if n_good + n_bad == 0:
        raise ValueError("No image was found; give images, folders that hold some, or paths on standard input.")
    return n_good, n_bad


def _given(paths: list[str]) -> Iterator[str]:
    for path in paths:
        if path == "-":
            _keep_odd_names(sys.stdin)
            yield from (line.rstrip("\r\n") for line in sys.stdin if line.strip())
        else:
            yield path


def _usual_format(output: Path | None) -> str:
    if output is not None:
        return _SUFFIXES.get(output.suffix.lower(), "csv")
    return "table" if sys.stdout.isatty() else "csv"


def _can_show_progress(output: Path | None) -> bool:
    """Tell whether a bar has a place of its own; among the lines of a table it would tear them apart."""
    return sys.stderr.isatty() and (output is not None or not sys.stdout.isatty())


@contextmanager
def _opened(output: Path | None) -> Iterator[TextIO]:
    if output is None:
        _keep_odd_names(sys.stdout)
        yield sys.stdout
        return
    from lmfcn.files import whole_file

    with whole_file(output) as file:
        text = io.TextIOWrapper(file, "utf-8", "surrogateescape", newline="")
        try:
            yield text
        finally:
            text.detach()  # which writes what is waiting, and leaves the file open


def _keep_odd_names(stream: TextIO) -> None:
    """Let names of files that are not UTF-8 come in and go out as they are."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="surrogateescape")
