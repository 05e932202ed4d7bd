"""`lmfcn inspect`: describe a collection of images and check that it is fit for training."""

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from lmfcn.cli.console import CommandConsole, format_count
from lmfcn.cli.options import AsJson, Data, GroupsFrom, Quiet

if TYPE_CHECKING:
    from lmfcn.data.leaks import Inspection

_SHOWN = 20
_SHOWN_GROUPS = 5


def inspect(
    data: Data,
    headers_only: Annotated[
        bool, Option("--headers-only", help="Do not decode images; duplicates are not found.")
    ] = False,
    groups_from: GroupsFrom = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Show classes, sizes, depths, groups and duplicates of a collection of images.

    The exit code is 0 if the collection is fit for training, 1 if it is not.
    """
    from lmfcn.data.leaks import inspect as inspect_images
    from lmfcn.data.sources import open_collection

    console = CommandConsole(quiet, as_json)
    found = inspect_images(open_collection(data, group_pattern=groups_from), pixels=not headers_only, verbose=not quiet)
    _print_result(console, found)
    if found.fit_for_training:
        more = [] if groups_from is None else ["--groups-from", groups_from]
        console.suggest(shlex.join(["lmfcn", "train", str(data), *more, "-o", "model.lmfcn"]))
    console.print_json(_json_values(found))
    raise typer.Exit(0 if found.fit_for_training else 1)


def _print_result(console: CommandConsole, found: "Inspection") -> None:
    classes = "1 class" if len(found.classes) == 1 else f"{len(found.classes)} classes"
    console.print_result(f"{format_count(found.n_images, 'image')}, {classes}")
    groups = found.groups_per_class
    rows = [[label, str(count), *([str(groups[label])] if groups else [])] for label, count in found.classes.items()]
    console.print_table(["class", "images", *(["groups"] if groups else [])], rows)
    for title, counts in (("sizes", found.sizes), ("channels", found.forms), ("formats", found.formats)):
        console.print_result(f"{title}: {_most_common(counts)}")
    if found.split:
        console.print_result(f"split: {_most_common(found.split)}")
    _print_list(console, "cannot be read", [str(error) for error in found.unreadable])
    _print_list(console, "groups of duplicates", found.duplicates, _SHOWN_GROUPS)
    for doubt in found.warnings:
        console.print_result(f"Note: {doubt}", style="yellow")
    for problem in found.problems:
        console.print_result(f"Problem: {problem}", style="red")
    console.print_result("Fit for training." if found.fit_for_training else "Not fit for training.")


def _json_values(found: "Inspection") -> dict[str, Any]:
    counts = ("n_images", "classes", "sizes", "forms", "formats", "groups_per_class", "split")
    return {
        "fit_for_training": found.fit_for_training,
        **{name: getattr(found, name) for name in counts},
        "duplicates": found.duplicates,
        "n_near_identical": found.n_near_identical,
        "doubts": found.warnings,
        "problems": found.problems,
        "unreadable": [str(error) for error in found.unreadable],
    }


def _most_common(counts: Mapping[str, int]) -> str:
    ordered: list[tuple[str, Any]] = sorted(counts.items(), key=lambda item: -item[1])
    more = f", and {len(ordered) - 8} more" if len(ordered) > 8 else ""
    return ", ".join(f"{name} ({count})" for name, count in ordered[:8]) + more


def _print_list(console: CommandConsole, title: str, lines: list[str], most: int = _SHOWN) -> None:
    if lines:
        console.print_result(f"{title} ({len(lines)}):")
    for line in lines[:most]:
        console.print_result(f"  {line}")
    if len(lines) > most:
        console.print_result(f"  ... and {len(lines) - most} more")
