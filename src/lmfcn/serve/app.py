"""The web application: a page, and the same as JSON."""

import hmac
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Annotated

from fastapi import Depends, FastAPI
from fastapi.responses import FileResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.staticfiles import StaticFiles

from lmfcn import __version__
from lmfcn.explain.gallery import Gallery
from lmfcn.inference.model import TextureModel
from lmfcn.serve.answers import Answerer
from lmfcn.serve.guard import LOOPBACK, Guard
from lmfcn.serve.interface import interface
from lmfcn.serve.limits import Limits, default_pixels
from lmfcn.serve.problems import add_handlers, problems
from lmfcn.serve.refusals import Refusal
from lmfcn.serve.schema import Health

_STATIC = Path(__file__).parent / "static"


def make_app(
    model: TextureModel,
    gallery: Gallery | None = None,
    limits: Limits | None = None,
    token: str | None = None,
    hosts: Collection[str] | None = LOOPBACK,
) -> FastAPI:
    """Return the application for one model; its title is the name that the page shows.

    Parameters
    ----------
    model : TextureModel
        Is read, never changed; requests share it.
    gallery : Gallery, optional
        Its training images; without them there are no deciding images to look at and no latent space.
    limits : Limits, optional
        Of uploads; the default depends on whether the model brings images to one size.
    token : str, optional
        What requests must bring as `Authorization: Bearer TOKEN`.
    hosts : collection of str or None
        Names under which the server may be addressed; None for any.

    Examples
    --------
    >>> from lmfcn import LMFCNClassifier, make_gaussians
    >>> X, y = make_gaussians(n_per_class=10, size=16, random_state=0)
    >>> app = make_app(LMFCNClassifier(epochs=1, latent_dim=4, random_state=0).fit(X, y).model_)
    >>> sorted(app.openapi()["paths"])
    ['/gallery', '/gallery/{image}', '/health', '/model', '/predict']
    """
    if gallery is not None:
        gallery.check_belongs_to(model)
    app = FastAPI(title="lmfcn", version=__version__, docs_url=None, redoc_url=None)
    app.add_middleware(Guard, hosts=hosts)
    add_handlers(app)
    _add_page(app)
    limits = limits or Limits(pixels=default_pixels(model.form))
    answerer = Answerer(model, gallery, limits.on(model.device))
    if token is None:
        app.include_router(interface(answerer))
    else:
        app.include_router(interface(answerer), dependencies=[Depends(_check(token))], responses=problems(401))
    return app


def _check(token: str) -> Callable[..., Awaitable[None]]:
    """Return a dependency that refuses requests without the token."""

    async def check(
        brought: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))],
    ) -> None:
        # Compared in constant time, so that the time of an answer tells nothing about the token.
        if brought is None or not hmac.compare_digest(brought.credentials.encode(), token.encode()):
            raise Refusal(401, "The token is missing or wrong; send the header 'Authorization: Bearer TOKEN'.")

    return check


def _add_page(app: FastAPI) -> None:
    """Add what anyone may see: the page without any data, and that the server is there."""

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(_STATIC / "index.html")

    @app.get("/health", responses=problems(400, 403))
    async def health() -> Health:
        """Tell that the server is there."""
        return Health(status="ok")

    app.mount("/static", StaticFiles(directory=_STATIC), name="static")
