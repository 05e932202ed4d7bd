"""`lmfcn audit`: rank training images by how doubtful their labels are."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from typer import Option

from lmfcn.cli.console import CommandConsole, format_count, write_report
from lmfcn.cli.options import (
    Color,
    Data,
    Device,
    Fit,
    GroupsFrom,
    Quiet,
    Size,
    SplitDuplicates,
    Threads,
    compute_with,
    size_fit,
)

if TYPE_CHECKING:
    from lmfcn.data.collection import ImageCollection
    from lmfcn.explain.audit import NamedAudit
    from lmfcn.networks.registry import NetworkName

_SHOWN = 10


def audit(
    context: typer.Context,
    data: Data,
    model: Annotated[
        Path | None, Option(metavar="FILE", help="Model that encodes the images; by default a new one is trained.")
    ] = None,
    output: Annotated[
        Path, Option("--output", "-o", metavar="DIR", help="Folder for audit.html and audit.csv.")
    ] = Path("audit"),
    size: Size = None,
    fit: Fit = None,
    color: Color = "keep",
    seed: Annotated[int, Option(min=0, help="Seed of the training: same seed, same result.")] = 0,
    quick: Annotated[
        bool, Option("--quick", help="Untrained network: seconds instead of minutes, finds less.")
    ] = False,
    network: Annotated[
        str, Option(metavar="NAME", help="Network to train: texture-fcn (from scratch) or efficientnet-lite0.")
    ] = "texture-fcn",
    groups_from: GroupsFrom = None,
    split_duplicates: SplitDuplicates = False,
    threads: Threads = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Rank training images by how doubtful their labels are.

    Support vector machines that were not trained on an image predict its class; images of one group and near-identical
    images are held out together. The first line says how well they predict: with a low accuracy, most disagreements
    are their own errors. The exit code is 0 whatever is found.
    """
    CommandConsole(quiet).load_libraries()
    from lmfcn.data.leaks import KEPT_TOGETHER, MAY_BE_SPLIT, find_duplicates
    from lmfcn.explain.audit import NamedAudit, latents_for_audit, write_audit_table
    from lmfcn.explain.audit import audit as audit_latents
    from lmfcn.networks.registry import NETWORKS
    from lmfcn.report import audit_report_writer
    from lmfcn.util.checks import check_choice
    from lmfcn.util.files import create_folder
    from lmfcn.util.memory import reuse_freed_memory

    reuse_freed_memory()
    check_choice("--network", network, NETWORKS)
    compute_with(context, threads)
    if quick and model is not None:
        raise ValueError("--quick uses an untrained network and --model your own; give only one of them.")
    images = _open_images(data, size, fit, color, groups_from, has_model=model is not None)
    if (resizing := images.describe_resizing()) is not None:
        CommandConsole(quiet).note(f"Size: {resizing}")
    with create_folder(output):
        with CommandConsole(quiet or model is None).show_status(f"Encoding {format_count(len(images), 'image')}"):
            latents, origin = latents_for_audit(
                *(images, model, seed, device),
                quick=quick,
                network=cast("NetworkName", network),
                verbose=not quiet,
            )
        duplicates = find_duplicates(images, verbose=not quiet)
        found = audit_latents(
            *(latents, images.labels, images.groups),
            near_identical=duplicates.connected,
            split_duplicates=split_duplicates,
            verbose=not quiet,
        )
    audited = NamedAudit(found, images.paths, origin)
    write_audit_table(audited, output / "audit.csv")
    _print_result(audited, f"{duplicates.sentence} {MAY_BE_SPLIT if split_duplicates else KEPT_TOGETHER}")
    typer.echo(f"Table: {output / 'audit.csv'}")
    page, command = output / "audit.html", shlex.join(["lmfcn", *sys.argv[1:]])
    typer.echo(write_report(audit_report_writer, page, audited, images, command, page))


def _open_images(
    data: Path, size: int | None, fit: str | None, color: str, groups_from: str | None, *, has_model: bool
) -> "ImageCollection":
    from lmfcn.benchmark.tasks import check_classes
    from lmfcn.data.sources import open_collection
    from lmfcn.util.checks import check_choice

    check_choice("--color", color, ("keep", "grey", "rgb"))
    way = size_fit(size, fit)
    if has_model and (size is not None or color != "keep"):
        raise ValueError(
            "--size and --color apply to a new training; a given model converts images itself. Leave them out."
        )
    images = open_collection(data, color=color, group_pattern=groups_from)
    if images.labels is None:
        raise ValueError(f"{data} has no labels; an audit needs the class of every image.")
    check_classes(data, images.labels)
    return images if size is None else images.resized(size, way)


def _print_result(audited: "NamedAudit", duplicates: str) -> None:
    from lmfcn.explain.audit import describe_accuracy, describe_issues

    found = audited.found
    for sentence in describe_accuracy(found):
        typer.echo(sentence)
    if found.near_identical:
        typer.echo(duplicates)
    ranked = found.disagreeing.tolist()
    counts = f"{len(ranked)} of {format_count(len(found), 'image')} {'looks' if len(ranked) == 1 else 'look'}"
    typer.echo(f"{counts} like another class{'; labels to look at first:' if ranked else '.'}")
    for rank, position in enumerate(ranked[:_SHOWN], start=1):
        label = found.classes[found.numbers[position]]
        issues = "; ".join(describe_issues(audited, position))
        typer.echo(f"{rank:3d}. {audited.names[position]}, labelled {label}: {issues}")
    if len(ranked) > _SHOWN:
        typer.echo("     ... and so on; audit.csv ranks all images")
