"""`lmfcn reproduce`: reproduce the tables and figures of the paper."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from lmfcn.cli.console import write_report

if TYPE_CHECKING:
    from lmfcn.benchmark.paper.profiles import Profile
    from lmfcn.benchmark.paper.reproduced_tables import Outcome
    from lmfcn.benchmark.paper.reproduction import Reproduction
    from lmfcn.benchmark.runs import RunKey


def reproduce(
    what: Annotated[
        list[str],
        typer.Argument(metavar="WHAT...", help="table2, table3, table4, figure1, figure3 or all; one or more."),
    ],
    stex: Annotated[Path | None, Option(metavar="DIR", help="Folder of the Salzburg textures (STex).")] = None,
    breakhis: Annotated[Path | None, Option(metavar="DIR", help="Folder of BreaKHis.")] = None,
    bach: Annotated[Path | None, Option(metavar="DIR", help="Folder Photos of BACH.")] = None,
    crc: Annotated[Path | None, Option(metavar="DIR", help="Folder of the CRC textures (Kather 2016).")] = None,
    resnet18_weights: Annotated[Path | None, Option(metavar="FILE", help="torchvision's state dict.")] = None,
    inception_weights: Annotated[Path | None, Option(metavar="FILE", help="The same for InceptionV3.")] = None,
    profile: Annotated[str, Option(help="full: the settings of the paper; quick: done within minutes.")] = "full",
    output: Annotated[Path, Option("--output", "-o", metavar="DIR", help="Folder for all results.")] = Path(
        "reproduction"
    ),
    size: Annotated[
        int | None, Option(min=16, metavar="PIXELS", help="Side of all images: 128, or 32 for quick.")
    ] = None,
    repeats: Annotated[int | None, Option(min=1, help="Repetitions: 5, or 2 for quick.")] = None,
    only: Annotated[list[str] | None, Option(metavar="METHODS", help="Names of table rows, joined by commas.")] = None,
    ignore_groups: Annotated[
        bool,
        Option("--ignore-groups", help="Split patients, slides and textures: too optimistic, but common in papers."),
    ] = False,
    jobs: Annotated[int, Option("--jobs", "-j", min=1, help="Runs at the same time on this machine.")] = 1,
    threads: Annotated[
        int, Option(min=1, metavar="N", help="Threads of each run; results depend on it in their last bits.")
    ] = 1,
    scheduler: Annotated[
        str | None, Option(metavar="ADDRESS", help="Dask scheduler whose workers do the runs.")
    ] = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Plain lines, no progress bar.")] = False,
) -> None:
    """Measure the tables and draw the figures of the LMFCN paper, and compare them with the printed ones.

    Gaussian images are generated; a published image set that is not given is listed as missing. After an interruption
    the same command continues: a run is repeated only if its parameters, or names or sizes of its files, changed. The
    exit code is 1 if a training failed, 130 after an interruption.
    """
    from lmfcn.benchmark.paper.reproduced_tables import Outcome, write_tables
    from lmfcn.benchmark.paper.reproduction import FIGURES, Request, prepare
    from lmfcn.report import paper_figures_drawer, reproduction_report_writer
    from lmfcn.util.files import create_folder
    from lmfcn.util.memory import reuse_freed_memory

    reuse_freed_memory()
    roots = {"BACH": bach, "BreaKHis": breakhis, "CRC": crc, "Salzburg": stex}
    weights = {"ResNet18": resnet18_weights, "InceptionV3": inception_weights}
    request = Request(
        what,
        output,
        profile,
        {name: root for name, root in roots.items() if root is not None},
        {name: path for name, path in weights.items() if path is not None},
        size,
        repeats,
        only or (),
        ignore_groups,
        jobs,
        scheduler,
        threads,
    )
    figures = [name for name in request.wanted if name in FIGURES]
    with create_folder(output):
        if figures:
            paper_figures_drawer()  # refuses missing packages before hours of measuring
        reproduction = prepare(request)
        for note in reproduction.notes:
            typer.echo(f"- {note}")
        live = not quiet and Console().is_terminal
        failures, stopped = _measure(reproduction, live=live)
    outcome = Outcome(reproduction, figures, failures, request.command)
    write_tables(outcome, output)
    _print_result(outcome, output)
    stopped = stopped or _draw(figures, reproduction.profile, output, live=live)
    typer.echo(write_report(reproduction_report_writer, output / "report.html", outcome, output))
    raise typer.Exit(130 if stopped else 1 if failures else 0)


def _measure(reproduction: "Reproduction", *, live: bool) -> tuple[list[str], bool]:
    """Run what is missing; return sentences about failures, and whether the user stopped it."""
    try:
        if not live:
            return reproduction.run(typer.echo), False
        from lmfcn.cli.console import RunBar

        with RunBar(len(reproduction.keys), len(reproduction.runs()), Console()) as bar:

            def begin(cell: "RunKey") -> bool:
                return bar.begin(cell._replace(method=reproduction.label_of(cell)))

            return reproduction.run(bar.end, begin), False
    except KeyboardInterrupt:
        return [], True


def _draw(figures: Sequence[str], profile: "Profile", output: Path, *, live: bool) -> bool:
    """Draw the missing figures; return whether the user stopped it."""
    from lmfcn.report import paper_figures_drawer

    try:
        if figures:
            paper_figures_drawer()(figures, profile, output, verbose=live)
    except KeyboardInterrupt:
        return True
    return False


def _print_result(outcome: "Outcome", output: Path) -> None:
    """Print the measured rows, and the remarks that were not printed before."""
    from lmfcn.benchmark.paper.printed_tables import TITLES
    from lmfcn.benchmark.paper.reproduced_tables import summary_sentence

    tag = outcome.reproduction.profile.tag
    for number, lines in outcome.tables.items():
        title = f"Table {number}: {TITLES[number]}{f', {tag}' if tag else ''}"
        table = Table("images", "method", title=f"{title}\ntest balanced accuracy")
        for heading in ("paper", "ours", "difference", "epoch, paper", "ours"):
            table.add_column(heading, justify="right")
        for line in (line for line in lines if line.runs):
            images, method, *_, paper, ours, difference, printed, epoch, _, _ = line.entries
            table.add_row(images, method, paper, ours, difference, printed, epoch)
        if table.row_count:
            Console(width=None if Console().is_terminal else 110).print(table)
        typer.echo(
            f"{summary_sentence(lines)} Training and validation: {output / f'table{number}'}.md, .tex and .csv\n"
        )
    for remark in outcome.remarks:
        if remark not in outcome.reproduction.notes:
            typer.echo(f"- {remark}")
