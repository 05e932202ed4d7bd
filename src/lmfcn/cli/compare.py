"""`lmfcn compare`: compare LMFCN with other methods on your own images."""

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Console
from typer import Option

from lmfcn.cli.console import write_report
from lmfcn.cli.options import Color, Data, Fit, GroupsFrom, Size, SplitDuplicates, size_fit

if TYPE_CHECKING:
    from lmfcn.benchmark.comparison import Comparison, Outcome
    from lmfcn.benchmark.runs import RunKey
    from lmfcn.data import framing


def compare(
    data: Data,
    output: Annotated[
        Path | None,
        Option(
            "--output", "-o", metavar="DIR", help="Folder for runs, tables and report: comparison, or comparison-quick."
        ),
    ] = None,
    methods: Annotated[
        list[str] | None, Option(help="Names joined by commas, or all; eight methods by default.")
    ] = None,
    repeats: Annotated[int | None, Option(min=1, help="Random splits of the images: 5, or 3 with --quick.")] = None,
    resnet18_weights: Annotated[
        Path | None, Option(metavar="FILE", help="torchvision's state dict; adds ResNet18.")
    ] = None,
    inception_weights: Annotated[Path | None, Option(metavar="FILE", help="The same for InceptionV3.")] = None,
    time_budget: Annotated[
        float | None, Option(min=0.01, metavar="MINUTES", help="Start no run after this time.")
    ] = None,
    size: Size = None,
    fit: Fit = None,
    color: Color = "keep",
    seed: Annotated[int, Option(min=0, help="Seed of the first repeat; the others follow it.")] = 0,
    ignore_split: Annotated[bool, Option("--ignore-split", help="Ignore the split in DATA.")] = False,
    groups_from: GroupsFrom = None,
    split_duplicates: SplitDuplicates = False,
    quick: Annotated[
        bool, Option("--quick", help="Few epochs and small images: a first impression, not a result.")
    ] = False,
    jobs: Annotated[int, Option("--jobs", "-j", min=1, help="Runs at the same time on this machine.")] = 1,
    threads: Annotated[
        int, Option(min=1, metavar="N", help="Threads of each run; results depend on it in their last bits.")
    ] = 1,
    scheduler: Annotated[
        str | None, Option(metavar="ADDRESS", help="Dask scheduler whose workers do the runs.")
    ] = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Plain lines, no live table.")] = False,
) -> None:
    """Compare LMFCN with other methods on your own images.

    All methods get the same random splits (60 % training, 20 % validation, 20 % test; groups and near-identical images
    stay together) and are tested once per repeat. The baselines are tuned first. After an interruption, or with more
    repeats or methods, the same command continues. Every run uses one thread unless --threads gives more, so that
    results do not depend on the machine; --jobs or --scheduler uses more cores. The exit code is 1 if a training
    failed, 130 after an interruption.
    """
    from lmfcn.benchmark.comparison import Outcome, Request, prepare, write_results
    from lmfcn.benchmark.measure import DEFAULT_METHODS
    from lmfcn.report import comparison_report_writer
    from lmfcn.util.checks import check_choice
    from lmfcn.util.files import create_folder
    from lmfcn.util.memory import reuse_freed_memory

    reuse_freed_memory()
    check_choice("--color", color, ("keep", "grey", "rgb"))
    # A folder of its own, so that a quick comparison does not block the full one.
    output = output or Path("comparison-quick" if quick else "comparison")
    weights = {"ResNet18": resnet18_weights, "InceptionV3": inception_weights}
    request = Request(
        data,
        output,
        methods or DEFAULT_METHODS,
        repeats,
        size,
        cast("framing.Color", color),
        seed,
        ignore_split,
        quick,
        jobs,
        scheduler,
        {method: path for method, path in weights.items() if path is not None},
        groups_from,
        split_duplicates,
        size_fit(size, fit),
        threads,
    )
    with create_folder(output):
        comparison = prepare(request, verbose=not quiet)
        _print_notes(comparison)
        failures, stopped = _measure(comparison, time_budget, live=not quiet and Console().is_terminal)
    outcome = Outcome(comparison, comparison.runs(), failures, request.command)
    _check_complete(outcome, stopped=stopped)
    write_results(outcome, output)
    page = output / "report.html"
    _print_result(outcome, output, write_report(comparison_report_writer, page, outcome, page))
    raise typer.Exit(_exit_code(outcome, stopped=stopped))


def _print_notes(comparison: "Comparison") -> None:
    for method, reason in comparison.left_out.items():
        typer.echo(f"{method} is left out: {reason}")
    if (resizing := comparison.images.describe_resizing()) is not None:
        typer.echo(f"Size: {resizing}")
    if comparison.data.duplicate_sentence:
        typer.echo(f"Note: {comparison.data.leak_sentence}")


def _measure(comparison: "Comparison", minutes: float | None, *, live: bool) -> tuple[list[str], bool]:
    """Run what is missing within the time budget; return sentences about failures, and whether the user stopped it."""
    end = math.inf if minutes is None else time.monotonic() + 60 * minutes
    try:
        if not live:
            return comparison.run(typer.echo, lambda _: time.monotonic() < end), False
        from lmfcn.cli.console import LiveTable

        with LiveTable(comparison, Console()) as table:

            def start(cell: "RunKey") -> bool:
                in_time = time.monotonic() < end
                if in_time:
                    table.begin(cell)
                return in_time

            return comparison.run(table.show_result, start, table.end, table.fail), False
    except KeyboardInterrupt:
        return [], True


def _check_complete(outcome: "Outcome", *, stopped: bool) -> None:
    """End the command if no repeat is complete."""
    if outcome.shared:
        return
    if outcome.runs or not (stopped or outcome.failures):
        typer.echo("No repeat is complete yet; run the same command to continue.")
    else:
        typer.echo("Stopped before anything was measured." if stopped else "No method could be measured.", err=True)
    raise typer.Exit(_exit_code(outcome, stopped=stopped))


def _exit_code(outcome: "Outcome", *, stopped: bool) -> int:
    return 130 if stopped else 1 if outcome.failures else 0


def _print_result(outcome: "Outcome", output: Path, report: str) -> None:
    typer.echo("\n" + " ".join(outcome.verdict.sentences))
    for remark in outcome.remarks:
        typer.echo(f"- {remark}")
    typer.echo(f"Tables: {output / 'results.md'} and results.csv\n{report}")
