"""`lmfcn audit`: which training images are likely mislabelled or there twice."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from lmfcn.cli.console import Teller, counted, write_report
from lmfcn.cli.options import Color, Data, Device, Quiet, Size

if TYPE_CHECKING:
    from lmfcn.data.collection import ImageCollection
    from lmfcn.explain.audit import NamedAudit

_SHOWN = 10


def audit(
    data: Data,
    model: Annotated[
        Path | None, Option(metavar="FILE", help="Model to encode the images with; else one is trained.")
    ] = None,
    output: Annotated[
        Path, Option("--output", "-o", metavar="DIR", help="Folder for audit.html and audit.csv.")
    ] = Path("audit"),
    size: Size = None,
    color: Color = "keep",
    seed: Annotated[int, Option(min=0, help="Of the training: same seed, same result.")] = 0,
    quick: Annotated[
        bool, Option("--quick", help="Untrained network: seconds instead of minutes, finds less.")
    ] = False,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Find training images that are likely mislabelled or there twice.

    Every image is judged by support vector machines that have not learnt from it; groups stay together. Ends with code
    0 whatever it finds.
    """
    from lmfcn.compute.resources import reuse_freed_memory
    from lmfcn.explain.audit import NamedAudit, latents_for_audit, write_audit_table
    from lmfcn.explain.audit import audit as look_at
    from lmfcn.report import audit_report_writer
    from lmfcn.util.files import made_folder

    reuse_freed_memory()
    if quick and model is not None:
        raise ValueError("--quick takes the untrained network, --model yours; give one of them.")
    images = _open(data, size, color, framed_by_model=model is not None)
    with made_folder(output):
        with Teller(quiet or model is None).busy(f"Encoding {counted(len(images), 'image')}"):
            latents, origin = latents_for_audit(images, model, seed, device, quick=quick, verbose=not quiet)
        found = look_at(latents, images.labels, images.groups, verbose=not quiet)
    audited = NamedAudit(found, images.paths, origin)
    write_audit_table(audited, output / "audit.csv")
    _tell(audited)
    typer.echo(f"Table: {output / 'audit.csv'}")
    page, command = output / "audit.html", shlex.join(["lmfcn", *sys.argv[1:]])
    typer.echo(write_report(audit_report_writer, page, audited, images, command, page))


def _open(data: Path, size: int | None, color: str, *, framed_by_model: bool) -> "ImageCollection":
    from lmfcn.benchmark.tasks import check_classes
    from lmfcn.data.sources import open_collection
    from lmfcn.util.checks import check_choice

    check_choice("--color", color, ("keep", "grey", "rgb"))
    if framed_by_model and (size is not None or color != "keep"):
        raise ValueError("--size and --color are for a new training; a model brings images to its own form.")
    images = open_collection(data, color=color)
    if images.labels is None:
        raise ValueError(f"{data} has no labels; an audit needs the class of every image.")
    check_classes(data, images.labels)
    return images if size is None else images.resized(size)


def _tell(audited: "NamedAudit") -> None:
    from lmfcn.explain.audit import describe_issues, group_noun

    found = audited.found
    suspects = found.suspects.tolist()
    groups = counted(len(found.near_identical), f"near-identical {group_noun(found.near_identical)}")
    typer.echo(f"{counted(len(found), 'image')}, {counted(len(suspects), 'doubtful label')}, {groups}")
    for rank, position in enumerate(suspects[:_SHOWN], start=1):
        label = found.classes[found.numbers[position]]
        issues = "; ".join(describe_issues(audited, position))
        typer.echo(f"{rank:3d}. {audited.names[position]}, labelled {label}: {issues}")
    if len(suspects) > _SHOWN:
        typer.echo(f"     ... and {len(suspects) - _SHOWN} more")
