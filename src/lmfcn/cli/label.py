"""`lmfcn label`: label a folder of images, or parts of a large one, in the browser, with a model that learns along."""

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from lmfcn.cli.console import CommandConsole, format_count
from lmfcn.cli.options import Device, GroupsFrom, check_exists

if TYPE_CHECKING:
    from fastapi import FastAPI

    from lmfcn.label.image_session import ImageSession
    from lmfcn.label.session import LabellingSession

_NETWORKS = ("auto", "efficientnet-lite0", "texture-fcn")


def label(
    source: Annotated[
        Path,
        Argument(
            metavar="FOLDER|IMAGE",
            callback=check_exists,
            help="Folder with images, at any depth; or one large image or slide, to draw strokes on.",
        ),
    ],
    table: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="File that keeps the labels; lmfcn-labels.csv in FOLDER, or IMAGE.strokes.jsonl beside IMAGE.",
        ),
    ] = None,
    labelled: Annotated[
        bool, Option("--labelled", help="Correct labels: those of a labels.csv in FOLDER, else its class folders.")
    ] = False,
    network: Annotated[
        str, Option(metavar="NAME", help="What describes the images: auto, efficientnet-lite0 or texture-fcn.")
    ] = "auto",
    groups_from: GroupsFrom = None,
    window: Annotated[
        int | None, Option(metavar="PIXELS", help="Side of the windows of IMAGE that are told apart; 64 by default.")
    ] = None,
    resolution: Annotated[
        float | None,
        Option(metavar="MICROMETRES", help="Pixel size to look at IMAGE with; by default its finest level."),
    ] = None,
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0 chooses a free one.")] = 8000,
    device: Device = "auto",
    open_browser: Annotated[bool, Option("--open", help="Open the page in a browser.")] = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print the address, nothing else.")] = False,
) -> None:
    """Label images in the browser, while a model learns along and shows what it makes of the rest.

    Of a FOLDER it asks for the images that help most. On a large IMAGE you draw strokes, and a map of what is in view
    follows. Everything is kept at once; the same command goes on where you stopped. Only this machine can reach the
    page, with the token in the printed address. Ctrl-C stops it.
    """
    with CommandConsole(quiet).show_status("Loading"):
        from lmfcn.serve import load_server
        from lmfcn.util.checks import check_choice

        check_choice("--network", network, _NETWORKS)
        server = load_server()
        token = secrets.token_urlsafe(16)
        if source.is_dir():
            _refuse(source, "is a folder, but", "an image", {"--window": window, "--resolution": resolution})
            labelling = _label_folder(source, table, network, groups_from, device, token, labelled=labelled)
        else:
            _refuse(
                source, "is a file, but", "a folder", {"--labelled": labelled or None, "--groups-from": groups_from}
            )
            labelling = _label_image(source, table, network, window, resolution, device, token)
    from lmfcn.serve.labelling import Worker

    with labelling.session, server.listen("127.0.0.1", port) as listening:
        worker = Worker(labelling.session)
        worker.start()
        address = f"{server.browser_address(listening)}#token={token}"
        if not quiet:
            typer.echo(labelling.about)
        typer.echo(f"The page is at {address} (Ctrl-C stops it)")
        try:
            server.run(labelling.app, listening, open_at=address if open_browser else None)
        finally:
            worker.stop()
    typer.echo("Stopped.")


@dataclass(frozen=True)
class _Labelling:
    """A session, its web application, and what to say of it."""

    session: "LabellingSession | ImageSession"
    app: "FastAPI"
    about: str


def _refuse(source: Path, what: str, other: str, given: dict[str, object]) -> None:
    if wrong := [name for name, value in given.items() if value is not None]:
        raise ValueError(f"{source} {what} {wrong[0]} is for {other}; leave it out.")


def _label_folder(
    folder: Path,
    table: Path | None,
    network: str,
    groups_from: str | None,
    device: str,
    token: str,
    *,
    labelled: bool,
) -> _Labelling:
    from lmfcn.label.session import LabellingSession
    from lmfcn.serve.finish import finish
    from lmfcn.serve.labelling import make_label_app

    session = LabellingSession(
        folder, table, network=network, groups_from=groups_from, labelled=labelled, device=device
    )
    app = make_label_app(session, lambda order, announce: finish(session, order, announce), token)
    told = f"{format_count(len(session.labels), 'label')} so far"
    about = f"{format_count(len(session.names), 'image')}, {told}; everything is kept in {session.table.path}."
    return _Labelling(session, app, about)


def _label_image(
    image: Path,
    table: Path | None,
    network: str,
    window: int | None,
    resolution: float | None,
    device: str,
    token: str,
) -> _Labelling:
    from lmfcn.label.image_session import ImageSession
    from lmfcn.maps.texture_map import USUAL_WINDOW
    from lmfcn.serve.finish import finish_image
    from lmfcn.serve.image_labelling import make_image_app

    side = USUAL_WINDOW if window is None else window
    session = ImageSession(image, table, window=side, resolution=resolution, network=network, device=device)
    app = make_image_app(session, lambda order, announce: finish_image(session, order, announce), token)
    height, width = session.size
    told = f"{format_count(len(session.file.actions), 'stroke')} so far"
    return _Labelling(session, app, f"{width}x{height} pixels, {told}; everything is kept in {session.file.path}.")
