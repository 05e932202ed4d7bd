"""`lmfcn predict`: predict the classes of any number of images."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from lmfcn.cli.console import CommandConsole, format_count
from lmfcn.cli.options import (
    ConfigFile,
    Device,
    ModelFile,
    NoneOfThese,
    Quiet,
    SaveConfig,
    Threads,
    compute_with,
    save_config,
    threads_beside_workers,
)

if TYPE_CHECKING:
    from lmfcn.model import TextureModel
    from lmfcn.predict.journal import Journal
    from lmfcn.predict.stream import FilePrediction
    from lmfcn.predict.writers import PredictionWriter

_SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".pq": "parquet"}


def predict(
    context: typer.Context,
    model: ModelFile,
    paths: Annotated[
        list[str], Argument(metavar="PATHS...", help="Images, folders of images, or - for paths on standard input.")
    ],
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="FILE", help="File to write, complete or not at all.")
    ] = None,
    form: Annotated[
        str | None,
        Option(
            "--format",
            metavar="KIND",
            help="table, csv, jsonl or parquet; by default from FILE's ending, table on a terminal, else csv.",
        ),
    ] = None,
    proba: Annotated[bool, Option("--proba", help="Write the probability of every class.")] = False,
    coverage: Annotated[
        float | None,
        Option(
            "--set",
            metavar="SHARE",
            help="Write prediction sets that hold the true class of about this share of images, such as 0.9.",
        ),
    ] = None,
    reject: Annotated[
        float | None, Option("--reject", metavar="SHARE", help="Predict no class below this probability, such as 0.8.")
    ] = None,
    none_of_these: NoneOfThese = None,
    jobs: Annotated[
        int | None, Option("--jobs", "-j", min=1, help="Worker processes on this machine, one thread each.")
    ] = None,
    scheduler: Annotated[
        str | None, Option(metavar="ADDRESS", help="Dask scheduler whose workers do the work.")
    ] = None,
    threads: Threads = None,
    device: Device = "auto",
    resume: Annotated[bool, Option("--resume", help="Continue an interrupted run that writes FILE.")] = False,
    config: ConfigFile = None,
    save_config_to: SaveConfig = None,
    quiet: Quiet = False,
) -> None:
    """Predict the classes of images, one line per image, in constant memory.

    Images are converted to the size and colour that the model was trained with. Files that cannot be used are named on
    standard error and left out; the exit code is then 1, or 2 if no image is left. With --jobs or --scheduler, workers
    read the images themselves; rows keep the order of the files.
    """
    CommandConsole(quiet).load_libraries()
    from lmfcn.compute.resources import check_device
    from lmfcn.model_file import load
    from lmfcn.predict.writers import (
        FORMATS,
        ConsoleWriter,
        PredictionRule,
        RowFormatter,
        is_complete,
        make_file_writer,
        write_file,
    )
    from lmfcn.util.checks import check_choice
    from lmfcn.util.files import check_writable

    del config  # its callback has read the file already
    chosen = form or _default_format(output)
    check_choice("--format", chosen, FORMATS)
    _check_output(output, chosen, resume=resume)
    if output is not None:
        check_writable(output)
    save_config(context, save_config_to)
    compute_with(context, threads_beside_workers(threads, jobs, scheduler))
    console = CommandConsole(quiet)
    if resume and output is not None and is_complete(output):
        console.note(f"{output} is complete, so there is nothing to resume; without --resume it is written again.")
        return
    if jobs is None and scheduler is None:
        check_device(device)  # worker processes check it themselves
    loaded = load(model, "cpu")
    rule = PredictionRule(loaded, coverage, reject, none_of_these)
    run = _Run(loaded, paths, jobs, scheduler, device, visible=_can_show_progress(output) and not quiet)
    if output is None:
        counts = run.fill(ConsoleWriter(RowFormatter(rule, chosen, proba=proba)))
    else:
        writer = make_file_writer(rule, chosen, proba=proba)
        with _journal(output, model, paths, console, resume=resume) as journal:
            counts = run.fill(journal)
            write_file(output, journal, writer)
            if counts.all_good:
                journal.remove()
    if output is not None or not counts.all_good:
        again = "" if output is None or counts.all_good else " The same command with --resume tries these again."
        console.note(counts.sentence + again)
    raise typer.Exit(0 if counts.all_good else 1)


@dataclass
class _Counts:
    """Numbers of images: predicted by an earlier run, predicted now, unusable; and of unreadable folders."""

    before: int
    good: int = 0
    bad: int = 0
    folders: int = 0

    @property
    def all_good(self) -> bool:
        return self.bad == self.folders == 0

    @property
    def sentence(self) -> str:
        before = f", {self.before:,} were predicted before" if self.before else ""
        bad = f", {self.bad:,} could not be used" if self.bad else ""
        folders = f", {format_count(self.folders, 'folder')} could not be read" if self.folders else ""
        return f"{format_count(self.good, 'image')} predicted{before}{bad}{folders}."

    def check(self) -> None:
        """Refuse a run without any prediction."""
        if self.before or self.good:
            return
        if self.all_good:
            raise ValueError("No image was found; give images, folders that hold some, or paths on standard input.")
        raise ValueError("No image could be used; the reasons are above.")


@dataclass(frozen=True)
class _Run:
    """The images to predict, and where."""

    model: "TextureModel"
    paths: list[str]
    jobs: int | None
    scheduler: str | None
    device: str
    visible: bool

    def fill(self, writer: "PredictionWriter") -> _Counts:
        """Give all predictions to a writer, print the errors, and return the counts of both."""
        from lmfcn.util.progress import count_progress

        counts = _Counts(writer.n_before)

        def pass_over(folder: str, reason: str) -> None:
            typer.echo(f"{folder}: {reason}", err=True)
            counts.folders += 1

        with count_progress("Predicting", visible=self.visible) as advance:
            for row in self._rows(writer, pass_over):
                if row.probabilities is None:
                    typer.echo(f"{row.path}: {row.error}", err=True)
                    counts.bad += 1
                else:
                    writer.add(row.path, row.probabilities, row.typicality)
                    counts.good += 1
                advance()
        counts.check()
        return counts

    def _rows(self, writer: "PredictionWriter", pass_over: Callable[[str, str], None]) -> "Iterator[FilePrediction]":
        from lmfcn.compute.resources import WithThreads
        from lmfcn.predict.stream import FilePredictor, find_images, stream_predictions

        predict = FilePredictor(self.model, os.getcwd(), self.device)
        paths = (path for path in find_images(_read_paths(self.paths), pass_over) if path not in writer)
        if self.jobs is None and self.scheduler is None:
            return stream_predictions(predict, paths)
        # One thread each: then results do not depend on the number of workers or on their cores.
        return stream_predictions(WithThreads(predict, 1), paths, jobs=self.jobs or 1, scheduler=self.scheduler)


@contextmanager
def _journal(
    output: Path, model: Path, paths: list[str], console: CommandConsole, *, resume: bool
) -> "Iterator[Journal]":
    """Open the journal; if the block fails, say that its predictions are kept."""
    from lmfcn.predict.journal import Journal

    with Journal(output, model, paths, resume=resume) as journal:
        try:
            yield journal
        except BaseException:
            if len(journal) > 0:
                console.note(
                    f"{format_count(len(journal), 'prediction')} kept; the same command with --resume continues."
                )
            raise


def _read_paths(paths: list[str]) -> Iterator[str]:
    from lmfcn.predict.writers import allow_any_file_names

    for path in paths:
        if path == "-":
            allow_any_file_names(sys.stdin)
            yield from (line.rstrip("\r\n") for line in sys.stdin if line.strip())
        else:
            yield path


def _default_format(output: Path | None) -> str:
    if output is not None:
        return _SUFFIXES.get(output.suffix.lower(), "csv")
    return "table" if sys.stdout.isatty() else "csv"


def _check_output(output: Path | None, form: str, *, resume: bool) -> None:
    option = "--resume" if resume else "--format parquet"
    if output is None and (resume or form == "parquet"):
        raise ValueError(f"{option} needs a file; add -o FILE.")


def _can_show_progress(output: Path | None) -> bool:
    """Return whether a progress bar does not mix with printed lines on the same terminal."""
    return output is not None or not (sys.stderr.isatty() and sys.stdout.isatty())
