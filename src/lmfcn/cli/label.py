"""`lmfcn label`: label the images of a folder in the browser, with a model that learns along."""

import secrets
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from lmfcn.cli.console import CommandConsole, format_count
from lmfcn.cli.options import Device, GroupsFrom, check_exists

_NETWORKS = ("auto", "efficientnet-lite0", "texture-fcn")


def label(
    folder: Annotated[
        Path, Argument(metavar="FOLDER", callback=check_exists, help="Folder with images, at any depth.")
    ],
    table: Annotated[
        Path | None,
        Option(metavar="FILE", help="Table that keeps the labels; by default lmfcn-labels.csv in FOLDER."),
    ] = None,
    labelled: Annotated[
        bool, Option("--labelled", help="Correct labels: those of a labels.csv in FOLDER, else its class folders.")
    ] = False,
    network: Annotated[
        str, Option(metavar="NAME", help="What describes the images: auto, efficientnet-lite0 or texture-fcn.")
    ] = "auto",
    groups_from: GroupsFrom = None,
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0 chooses a free one.")] = 8000,
    device: Device = "auto",
    open_browser: Annotated[bool, Option("--open", help="Open the page in a browser.")] = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print the address, nothing else.")] = False,
) -> None:
    """Label images in the browser, while a model learns along and asks for the images that help most.

    Every label is in the table at once; the same command goes on where you stopped. Only this machine can reach the
    page, with the token in the printed address. Ctrl-C stops it.
    """
    with CommandConsole(quiet).show_status("Loading"):
        from lmfcn.serve import load_server
        from lmfcn.util.checks import check_choice

        check_choice("--network", network, _NETWORKS)
        server = load_server()
        from lmfcn.label.session import LabellingSession
        from lmfcn.serve.finish import finish
        from lmfcn.serve.labelling import Worker, make_label_app

        session = LabellingSession(
            folder, table, network=network, groups_from=groups_from, labelled=labelled, device=device
        )
    token = secrets.token_urlsafe(16)
    app = make_label_app(session, lambda order, announce: finish(session, order, announce), token)
    with session, server.listen("127.0.0.1", port) as listening:
        worker = Worker(session)
        worker.start()
        address = f"{server.browser_address(listening)}#token={token}"
        if not quiet:
            told = f"{format_count(len(session.labels), 'label')} so far"
            typer.echo(
                f"{format_count(len(session.names), 'image')}, {told}; everything is kept in {session.table.path}."
            )
        typer.echo(f"The page is at {address} (Ctrl-C stops it)")
        try:
            server.run(app, listening, open_at=address if open_browser else None)
        finally:
            worker.stop()
    typer.echo("Stopped.")
