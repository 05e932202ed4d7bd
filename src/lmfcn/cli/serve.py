"""`lmfcn serve`: serve a model as a web page and a JSON interface."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from lmfcn.cli.console import CommandConsole
from lmfcn.cli.options import Device, GalleryFile, ModelFile, Threads, compute_with

if TYPE_CHECKING:
    from lmfcn.explain.gallery import Gallery
    from lmfcn.model import TextureModel
    from lmfcn.serve.uploads import Limits

_SHORTEST_TOKEN = 8
_FILES_OF_A_REQUEST = 4  # of the largest allowed size; smaller files can be more


def serve(
    context: typer.Context,
    model: ModelFile,
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
    threads: Threads = None,
    device: Device = "auto",
    open_browser: Annotated[bool, Option("--open", help="Open the page in a browser.")] = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print the address, nothing else.")] = False,
) -> None:
    """Serve a model as a page in the browser, and as a JSON interface.

    Drop or paste images on the page to see probabilities, the deciding training images and a map over the image.
    Only this machine can reach the server unless --host is given. No image is stored. Ctrl-C stops it.
    """
    _check_token(token)
    with CommandConsole(quiet).show_status(f"Loading {model.name}"):
        from lmfcn.model_file import load
        from lmfcn.serve import load_server

        server = load_server()
        from lmfcn.serve.app import make_app

        fitted = load(model, device)
    local = server.is_loopback(host)
    images = _load_gallery(model, gallery, fitted)
    limits = server.share_threads(
        _limits(fitted, max_files, max_megabytes, max_megapixels), compute_with(context, threads)
    )
    app = make_app(fitted, images, limits, token, _hosts(host, allow_host or [], local=local))
    app.title = model.name
    with server.listen(host, port) as listening:
        address = server.browser_address(listening)
        if not quiet:
            _print_access(images, token, local=local)
        typer.echo(f"{model.name} is at {address} (Ctrl-C stops it)")
        server.run(app, listening, open_at=address if open_browser else None)
    typer.echo("Stopped.")


def _check_token(token: str | None) -> None:
    if token is not None and not (len(token) >= _SHORTEST_TOKEN and token.isascii() and token.isprintable()):
        raise ValueError(f"A token needs at least {_SHORTEST_TOKEN} printable ASCII characters; choose a longer one.")


def _load_gallery(model_path: Path, path: Path | None, model: "TextureModel") -> "Gallery | None":
    """Return the given gallery, or the one beside the model, if there is one."""
    from lmfcn.explain.gallery import gallery_path, load_gallery

    beside = gallery_path(model_path)
    if path is None and not beside.exists():
        return None
    return load_gallery(path or beside, model)


def _limits(model: "TextureModel", files: int, megabytes: float, megapixels: float | None) -> "Limits":
    from lmfcn.serve.uploads import MEGABYTE, MEGAPIXEL, Limits, default_pixels

    file_bytes = int(megabytes * MEGABYTE)
    pixels = default_pixels(model.form) if megapixels is None else int(megapixels * MEGAPIXEL)
    return Limits(file_bytes=file_bytes, request_bytes=_FILES_OF_A_REQUEST * file_bytes, files=files, pixels=pixels)


def _hosts(host: str, others: list[str], *, local: bool) -> list[str] | None:
    """Return the host names to accept; any on a network, unless some are given."""
    from lmfcn.serve.server import LOOPBACK

    if not local and not others:
        return None
    return [*LOOPBACK, f"[{host}]" if ":" in host else host, *others]


def _print_access(gallery: "Gallery | None", token: str | None, *, local: bool) -> None:
    if gallery is None:
        typer.echo("No gallery beside the model: the page shows no training images.")
    else:
        typer.echo(f"{len(gallery)} training images in the gallery.")
    if not local and token is None:
        typer.echo(
            "Warning: everyone who can reach this machine can use the model and see its images; set --token.", err=True
        )
    if token is not None:
        typer.echo("The page asks for the token.")
