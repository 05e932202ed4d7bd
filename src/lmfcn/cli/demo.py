"""`lmfcn demo`: train on built-in textures and show the result."""

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from lmfcn.cli.options import Threads, compute_with

if TYPE_CHECKING:
    from lmfcn.benchmark.demonstration import DemoResult


def demo(
    context: typer.Context,
    output: Annotated[
        Path, Option("--output", "-o", metavar="DIR", help="Folder for report.html, a model and the histories.")
    ] = Path("demo"),
    epochs: Annotated[int, Option(min=1, help="Epochs of the two LMFCNs; the CNN trains twice as long.")] = 15,
    size: Annotated[int, Option(min=8, metavar="PIXELS", help="Side of the images.")] = 64,
    images: Annotated[int, Option(min=3, help="Training images per class.")] = 60,
    seed: Annotated[int, Option(min=0, help="Seed of images and weights: same seed, same result.")] = 0,
    threads: Threads = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress bars, no table.")] = False,
) -> None:
    """Train on photographs and on striped noise, map a mosaic, explain a decision, and write a report.

    One LMFCN learns photographs of brick, grass and gravel, and maps a mosaic of them. Two LMFCNs (2 and 16 latent
    dimensions) and a CNN of the same architecture learn to distinguish two kinds of noise. Takes two to three minutes
    on two cores.
    """
    from lmfcn.util.files import create_folder
    from lmfcn.util.memory import reuse_freed_memory

    reuse_freed_memory()
    compute_with(context, threads)
    with create_folder(output):
        from lmfcn.benchmark.demonstration import DemoSettings, run_demo
        from lmfcn.report import demo_report_writer
        from lmfcn.util.packages import needs

        needs("skimage", "textures")
        write_demo_report = demo_report_writer()
        settings = DemoSettings(epochs=epochs, image_size=size, n_train=images, n_validation=images, seed=seed)
        result = run_demo(settings, verbose=not quiet)
    for run in result.runs:
        name = run.name.lower().replace(", ", "-").replace(" ", "-")
        run.history.save(output / f"{name}.jsonl")
        if run.refit_history is not None:
            run.refit_history.save(output / f"{name}-refit.jsonl")
    write_demo_report(result, output / "report.html")
    result.photographs.classifier.save(output / "photographs.lmfcn")
    if not quiet:
        _print_summary(result)
    _print_next(result, output)


def _print_next(result: "DemoResult", output: Path) -> None:
    """Say in three lines what was done, which page to open, and what to type for own images."""
    photographs, striped = result.photographs, result.runs[1]
    typer.echo(
        f"Done: learnt photographs ({photographs.test_balanced_accuracy:.3f} of new tiles right) and striped noise"
        f" ({striped.test_balanced_accuracy:.3f}); {photographs.share_right:.0%} of a mosaic mapped right."
    )
    typer.echo(f"Open in a browser: {output / 'report.html'}")
    typer.echo(f"Your images, in one folder per class: {_program()} train my_images -o my_model.lmfcn")


def _program() -> str:
    """Return what to type for lmfcn: its name if the shell finds it, else where it is."""
    if shutil.which("lmfcn"):
        return "lmfcn"
    beside = Path(sys.executable).with_name("lmfcn")
    return os.path.relpath(beside) if beside.exists() else f"{os.path.relpath(sys.executable)} -m lmfcn"


def _print_summary(result: "DemoResult") -> None:
    table = Table(title="Balanced accuracy")
    for heading in ("method", "test", "validation", "selected epoch", "seconds"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for run in result.runs:
        score = run.history[run.selected_epoch].validation_balanced_accuracy or 0.0
        table.add_row(
            run.name, f"{run.test_balanced_accuracy:.3f}", f"{score:.3f}", str(run.selected_epoch), f"{run.seconds:.0f}"
        )
    Console().print(table)
