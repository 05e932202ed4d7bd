"""`lmfcn inspect`: describe a collection of images and check that it is fit for training."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer import Option

from lmfcn.cli.console import CommandConsole, format_count
from lmfcn.cli.options import (
    AsJson,
    Color,
    Data,
    Fit,
    Groups,
    GroupsFrom,
    Quiet,
    Size,
    SkipBad,
    Threads,
    compute_with,
    name_options,
    size_fit,
)

if TYPE_CHECKING:
    from lmfcn.data.collection import ImageCollection
    from lmfcn.data.framing import Color as ColorName
    from lmfcn.data.leaks import Inspection
    from lmfcn.training.forecast import Forecast

_SHOWN = 20
_SHOWN_GROUPS = 5
_LONG_MINUTES = 30
"""A training that may take longer is proposed with this budget."""
_PARTS = {"train", "training", "val", "valid", "validation", "test"}


def inspect(
    context: typer.Context,
    data: Data,
    groups: Groups = None,
    size: Size = None,
    fit: Fit = None,
    color: Color = "keep",
    skip_bad: SkipBad = False,
    headers_only: Annotated[
        bool, Option("--headers-only", help="Do not decode images; duplicates are not found.")
    ] = False,
    groups_from: GroupsFrom = None,
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Show classes, sizes, depths, groups and duplicates of a collection of images.

    The image options are those of lmfcn train. At the end stands the command that trains on these images, with its time
    on this machine, for which the steps of a training are tried on a few of the images. The exit code is 0 if the
    collection is fit for training with these options, 1 if it is not.
    """
    from lmfcn.data.leaks import inspect as inspect_images
    from lmfcn.data.sources import open_collection
    from lmfcn.util.checks import check_choice

    check_choice("--color", color, ("keep", "grey", "rgb"))
    size_fit(size, fit)
    console = CommandConsole(quiet, as_json)
    images = open_collection(data, group_column=groups, group_pattern=groups_from, color=cast("ColorName", color))
    images = images if size is None else images.resized(size, size_fit(size, fit))
    found = inspect_images(images, pixels=not headers_only, verbose=not quiet)
    problems = [problem for problem in found.problems if not (skip_bad and "cannot be read" in problem)]
    _print_result(console, found, problems)
    images = _readable(images, found)
    if len(images) and (resizing := images.describe_resizing()) is not None:
        console.note(f"Size: {resizing}")
    given = {
        "--groups": groups,
        "--groups-from": groups_from,
        "--size": size,
        "--fit": fit,
        "--color": None if color == "keep" else color,
        "--skip-bad": skip_bad,
    }
    options = _train_options(given, found, problems)
    forecasts: dict[str, Forecast] = {}
    if options is not None and not problems and not headers_only and (as_json or not quiet):
        forecasts = _forecast(console, context, images, threads)
    command = None if options is None else _train_command(data, {**options, **_budget(forecasts)})
    if command is not None:
        _print_forecast(console, forecasts)
        console.suggest(command)
    times = {name: {"seconds": found.seconds, "memory_bytes": found.memory} for name, found in forecasts.items()}
    console.print_json(
        {
            **_json_values(found),
            "fit_for_training": not problems,
            "problems": problems,
            "command": command,
            "training": times,
        }
    )
    raise typer.Exit(1 if problems else 0)


def _readable(images: "ImageCollection", found: "Inspection") -> "ImageCollection":
    """Return the images without those that cannot be read."""
    unreadable = {str(error.path) for error in found.unreadable}
    if not unreadable:
        return images
    return images.subset([position for position, path in enumerate(images.paths) if path not in unreadable])


def _train_options(given: Mapping[str, object], found: "Inspection", problems: list[str]) -> dict[str, object] | None:
    """Return the options of `lmfcn train` that these images need; None if no option helps."""
    cures = _cures(found, problems)
    if len(cures) < len(problems):
        return None
    options = {**{name: value for name, value in given.items() if value}, **cures}
    if found.split and not set(found.split) <= _PARTS:
        options["--ignore-split"] = True
    return options


def _train_command(data: Path, options: Mapping[str, object]) -> str:
    words = [shlex.quote(str(data))]
    for name, value in options.items():
        words += [name] if value is True else [name, shlex.quote(str(value))]
    return f"lmfcn train {' '.join(words)} -o model.lmfcn"


def _forecast(
    console: CommandConsole, context: typer.Context, images: "ImageCollection", threads: int | None
) -> "dict[str, Forecast]":
    """Return what a training takes, by the network that it starts from."""
    with console.show_status("Trying a few images"):
        from lmfcn.networks.registry import EFFICIENTNET_LITE0, TEXTURE_FCN, has_weights
        from lmfcn.networks.trunk import SMALLEST_SIDE
        from lmfcn.user_training import forecast_training

        compute_with(context, threads)
        pretrained = has_weights() and int(images.sizes().min()) >= SMALLEST_SIDE
        networks = [TEXTURE_FCN, *([EFFICIENTNET_LITE0] if pretrained else [])]
        found = {name: forecast_training(images, {"network": name}) for name in networks}
    return {name: forecast for name, forecast in found.items() if forecast is not None}


def _budget(forecasts: "Mapping[str, Forecast]") -> dict[str, object]:
    """Return the option that bounds the time of a training that would take very long."""
    longest = max((forecast.seconds for forecast in forecasts.values()), default=0.0)
    return {"--budget": _LONG_MINUTES} if longest > 60 * _LONG_MINUTES else {}


def _print_forecast(console: CommandConsole, forecasts: "Mapping[str, Forecast]") -> None:
    if not forecasts or console.as_json:
        return
    times = ", ".join(f"{forecast.describe()} with {name}" for name, forecast in forecasts.items())
    console.note(f"Training on this machine: {times}")


def _cures(found: "Inspection", problems: list[str]) -> dict[str, object]:
    """Return the option of `lmfcn train` that solves each problem, for those that an option can solve."""
    cures: dict[str, object] = {}
    for problem in problems:
        if found.unreadable and "cannot be read" in problem:
            cures["--skip-bad"] = True
        elif "give color=" in problem:
            cures["--color"] = "rgb"
        elif "are smaller than" in problem:
            cures["--size"] = _size_for(found)
    return cures


def _size_for(found: "Inspection") -> int:
    """Return the most frequent smaller side that training accepts, or the least that it accepts."""
    sides = [min(map(int, size.split("x"))) for size in found.sizes.elements()]
    enough = [side for side in sides if side >= 8]
    return max(set(enough), key=lambda side: (enough.count(side), side)) if enough else 8


def _print_result(console: CommandConsole, found: "Inspection", problems: list[str]) -> None:
    classes = "1 class" if len(found.classes) == 1 else f"{len(found.classes)} classes"
    console.print_result(f"{format_count(found.n_images, 'image')}, {classes}")
    groups = found.groups_per_class
    rows = [[label, str(count), *([str(groups[label])] if groups else [])] for label, count in found.classes.items()]
    console.print_table(["class", "images", *(["groups"] if groups else [])], rows)
    kinds = (("sizes (width x height)", found.sizes), ("channels", found.forms), ("formats", found.formats))
    for title, counts in kinds:
        console.print_result(f"{title}: {_most_common(counts)}")
    if found.split:
        console.print_result(f"split: {_most_common(found.split)}")
    _print_list(console, "cannot be read", [str(error) for error in found.unreadable])
    _print_list(console, "groups of duplicates", found.duplicates, _SHOWN_GROUPS)
    for doubt in found.warnings:
        console.print_result(f"Note: {doubt}", style="yellow")
    for problem in problems:
        console.print_result(f"Problem: {name_options(problem)}", style="red")
    console.print_result("Not fit for training." if problems else "Fit for training.")


def _json_values(found: "Inspection") -> dict[str, Any]:
    counts = ("n_images", "classes", "sizes", "forms", "formats", "groups_per_class", "split")
    return {
        "fit_for_training": found.fit_for_training,
        **{name: getattr(found, name) for name in counts},
        "duplicates": found.duplicates,
        "n_near_identical": found.n_near_identical,
        "doubts": found.warnings,
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
