"""`lmfcn inspect`: what a collection holds and whether it is fit for training."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer import Option

if TYPE_CHECKING:
    from lmfcn.data.inspection import Inspection

_SHOWN = 20


def inspect(
    path: Annotated[Path, typer.Argument(help="Folder of class folders, table (.csv, .tsv), list (.txt) or .npz.")],
    headers_only: Annotated[bool, Option("--headers-only", help="Do not decode images; finds no duplicates.")] = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress bars.")] = False,
) -> None:
    """Show classes, sizes, depths, groups and duplicates of a collection of images.

    Ends with code 0 if the collection is fit for training, 1 if it is not.
    """
    from lmfcn.data.inspection import inspect as look_at
    from lmfcn.data.sources import open_collection

    found = look_at(open_collection(path), pixels=not headers_only, verbose=not quiet)
    _print(found, Console())
    raise typer.Exit(0 if found.fit_for_training else 1)


def _print(found: "Inspection", console: Console) -> None:
    console.print(f"{found.n_images} images, {len(found.classes)} classes")
    groups = found.groups_per_class
    table = Table("class", "images", *(["groups"] if groups else []))
    for label, count in found.classes.items():
        table.add_row(label, str(count), *([str(groups[label])] if groups else []))
    console.print(table)
    for title, counts in (("sizes", found.sizes), ("channels", found.forms), ("formats", found.formats)):
        console.print(f"{title}: {_most_common(counts)}", highlight=False)
    if found.split:
        console.print(f"split: {_most_common(found.split)}", highlight=False)
    _print_list(console, "cannot be read", [str(error) for error in found.unreadable])
    _print_list(console, "duplicates", found.duplicates)
    for doubt in found.doubts:
        console.print(f"[yellow]Note:[/] {doubt}", highlight=False)
    for problem in found.problems:
        console.print(f"[red]Problem:[/] {problem}", highlight=False)
    console.print("Fit for training." if found.fit_for_training else "Not fit for training.")


def _most_common(counts: Mapping[str, int]) -> str:
    ordered: list[tuple[str, Any]] = sorted(counts.items(), key=lambda item: -item[1])
    more = f", and {len(ordered) - 8} more" if len(ordered) > 8 else ""
    return ", ".join(f"{name} ({count})" for name, count in ordered[:8]) + more


def _print_list(console: Console, title: str, lines: list[str]) -> None:
    if lines:
        console.print(f"{title} ({len(lines)}):", highlight=False)
    for line in lines[:_SHOWN]:
        console.print(f"  {line}", highlight=False, soft_wrap=True, markup=False)
    if len(lines) > _SHOWN:
        console.print(f"  ... and {len(lines) - _SHOWN} more", highlight=False)
