"""`lmfcn inspect`: what a collection holds and whether it is fit for training."""

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from lmfcn.cli.console import Teller, counted
from lmfcn.cli.options import AsJson, Data, Quiet

if TYPE_CHECKING:
    from lmfcn.data.leaks import Inspection

_SHOWN = 20
_SHOWN_GROUPS = 5


def inspect(
    data: Data,
    headers_only: Annotated[bool, Option("--headers-only", help="Do not decode images; finds no duplicates.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Show classes, sizes, depths, groups and duplicates of a collection of images.

    Ends with code 0 if the collection is fit for training, 1 if it is not.
    """
    from lmfcn.data.leaks import inspect as look_at
    from lmfcn.data.sources import open_collection

    teller = Teller(quiet, as_json)
    found = look_at(open_collection(data), pixels=not headers_only, verbose=not quiet)
    _tell(teller, found)
    if found.fit_for_training:
        teller.hint(f"lmfcn train {shlex.quote(str(data))} -o model.lmfcn")
    teller.give(_values(found))
    raise typer.Exit(0 if found.fit_for_training else 1)


def _tell(teller: Teller, found: "Inspection") -> None:
    classes = "1 class" if len(found.classes) == 1 else f"{len(found.classes)} classes"
    teller.say(f"{counted(found.n_images, 'image')}, {classes}")
    groups = found.groups_per_class
    rows = [[label, str(count), *([str(groups[label])] if groups else [])] for label, count in found.classes.items()]
    teller.table(["class", "images", *(["groups"] if groups else [])], rows)
    for title, counts in (("sizes", found.sizes), ("channels", found.forms), ("formats", found.formats)):
        teller.say(f"{title}: {_most_common(counts)}")
    if found.split:
        teller.say(f"split: {_most_common(found.split)}")
    _tell_list(teller, "cannot be read", [str(error) for error in found.unreadable])
    _tell_list(teller, "groups of duplicates", found.duplicates, _SHOWN_GROUPS)
    for warning in found.warnings:
        teller.say(f"Note: {warning}", style="yellow")
    for problem in found.problems:
        teller.say(f"Problem: {problem}", style="red")
    teller.say("Fit for training." if found.fit_for_training else "Not fit for training.")


def _values(found: "Inspection") -> dict[str, Any]:
    counts = ("n_images", "classes", "sizes", "forms", "formats", "groups_per_class", "split")
    return {
        "fit_for_training": found.fit_for_training,
        **{name: getattr(found, name) for name in counts},
        "duplicates": found.duplicates,
        "doubts": found.warnings,
        "problems": found.problems,
        "unreadable": [str(error) for error in found.unreadable],
    }


def _most_common(counts: Mapping[str, int]) -> str:
    ordered: list[tuple[str, Any]] = sorted(counts.items(), key=lambda item: -item[1])
    more = f", and {len(ordered) - 8} more" if len(ordered) > 8 else ""
    return ", ".join(f"{name} ({count})" for name, count in ordered[:8]) + more


def _tell_list(teller: Teller, title: str, lines: list[str], most: int = _SHOWN) -> None:
    if lines:
        teller.say(f"{title} ({len(lines)}):")
    for line in lines[:most]:
        teller.say(f"  {line}")
    if len(lines) > most:
        teller.say(f"  ... and {len(lines) - most} more")
