"""`lmfcn serve`: serve a model as a web page and a JSON interface."""

from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from lmfcn.cli.console import CommandConsole
from lmfcn.cli.options import Device, GalleryFile, ModelFiles, Threads, compute_with

if TYPE_CHECKING:
    from lmfcn.serve.models import ModelStore
    from lmfcn.serve.uploads import Limits

_SHORTEST_TOKEN = 8
_FILES_OF_A_REQUEST = 4  # of the largest allowed size; smaller files can be more
_REQUESTS_IN_MEMORY = 8  # of the largest allowed size


def serve(
    context: typer.Context,
    models: ModelFiles,
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0 chooses a free one.")] = 8000,
    host: Annotated[str, Option(help="Address to listen on; 0.0.0.0 admits other machines.")] = "127.0.0.1",
    token: Annotated[
        str | None, Option(envvar="LMFCN_TOKEN", show_envvar=True, help="Secret that requests must contain.")
    ] = None,
    gallery: GalleryFile = None,
    allow_host: Annotated[list[str] | None, Option(metavar="NAME", help="Additional host name of the server.")] = None,
    max_files: Annotated[int, Option(min=1, help="Files in one request, and on the page.")] = 200,
    max_megabytes: Annotated[
        float, Option(min=0.001, help="Size of one file; a request may have four times as much.")
    ] = 32,
    max_megapixels: Annotated[
        float | None, Option(min=0.001, help="Size of one image: 50, or 2.5 if the model takes any size.")
    ] = None,
    max_waiting: Annotated[int, Option(min=0, help="Requests that may wait; more are refused with 503.")] = 64,
    log_json: Annotated[bool, Option("--log-json", help="Write a line of JSON about every request.")] = False,
    threads: Threads = None,
    device: Device = "auto",
    open_browser: Annotated[bool, Option("--open", help="Open the page in a browser.")] = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print the address, nothing else.")] = False,
) -> None:
    """Serve models as a page in the browser, and as a JSON interface.

    Drop or paste images on the page to see probabilities, the deciding training images and a map over the image.
    Only this machine can reach the server unless --host is given. No image is stored. Ctrl-C stops it; SIGHUP makes it
    read the models again.
    """
    _check_token(token)
    if gallery is not None and len(models) > 1:
        raise ValueError("--gallery is for one model; of several, put each gallery beside its model.")
    names = ", ".join(path.name for path in models)
    with CommandConsole(quiet).show_status(f"Loading {names}"):
        from lmfcn.serve import load_server

        server = load_server()
        from lmfcn.serve.app import make_service
        from lmfcn.serve.models import ModelSource, ModelStore

        limits = _limits(max_files, max_megabytes, max_waiting)
        sources = [ModelSource(path, gallery, device, limits, _pixels(max_megapixels)) for path in models]
        store = ModelStore.open(sources)
    local = server.is_loopback(host)
    limits = server.share_threads(limits, compute_with(context, threads))
    app = make_service(store, limits, token, _hosts(host, allow_host or [], local=local))
    with server.listen(host, port) as listening:
        address = server.browser_address(listening)
        if not quiet:
            _print_access(store, token, local=local)
        told = f"{names} {'is' if len(models) == 1 else 'are'} at {address} (Ctrl-C stops it)"
        server.run(
            app,
            listening,
            open_at=address if open_browser else None,
            log_json=log_json,
            announce=lambda: typer.echo(told),
        )
    typer.echo("Stopped.")


def _check_token(token: str | None) -> None:
    if token is not None and not (len(token) >= _SHORTEST_TOKEN and token.isascii() and token.isprintable()):
        raise ValueError(f"A token needs at least {_SHORTEST_TOKEN} printable ASCII characters; choose a longer one.")


def _limits(files: int, megabytes: float, waiting: int) -> "Limits":
    from lmfcn.serve.uploads import MEGABYTE, Limits

    file_bytes = int(megabytes * MEGABYTE)
    request_bytes = _FILES_OF_A_REQUEST * file_bytes
    return Limits(
        file_bytes=file_bytes,
        request_bytes=request_bytes,
        held_bytes=_REQUESTS_IN_MEMORY * request_bytes,
        files=files,
        waiting=waiting,
    )


def _pixels(megapixels: float | None) -> int | None:
    from lmfcn.serve.uploads import MEGAPIXEL

    return None if megapixels is None else int(megapixels * MEGAPIXEL)


def _hosts(host: str, others: list[str], *, local: bool) -> list[str] | None:
    """Return the host names to accept; any on a network, unless some are given."""
    from lmfcn.serve.guard import LOOPBACK

    if not local and not others:
        return None
    return [*LOOPBACK, f"[{host}]" if ":" in host else host, *others]


def _print_access(store: "ModelStore", token: str | None, *, local: bool) -> None:
    for predictor in store:
        of = f" of {predictor.name}" if len(list(store)) > 1 else ""
        if predictor.gallery is None:
            typer.echo(f"No gallery beside the model{of}: the page shows no training images.")
        else:
            typer.echo(f"{len(predictor.gallery)} training images in the gallery{of}.")
    if not local and token is None:
        typer.echo(
            "Warning: everyone who can reach this machine can use the model and see its images; set --token.", err=True
        )
    if token is not None:
        typer.echo("The page asks for the token.")
