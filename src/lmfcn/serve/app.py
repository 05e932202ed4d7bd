"""The web application: the page, the JSON interface, and errors as JSON."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from lmfcn import __version__
from lmfcn.explain.gallery import Gallery
from lmfcn.model import TextureModel
from lmfcn.serve.answers import Answerer, model_card, training_images
from lmfcn.serve.schema import Answers, Health, ModelCard, Problem, TrainingImages
from lmfcn.serve.server import LOOPBACK, Guard
from lmfcn.serve.uploads import FIELD, Limits, Refusal, default_pixels, read_uploads

_MEANINGS = {
    400: "The request is not sound, or the server does not answer under this name.",
    401: "The token is missing or wrong.",
    403: "The request comes from a page of another site.",
    404: "There is no such thing.",
    408: "The request did not arrive in time.",
    413: "The request, a file or an image is too large, or there are too many files.",
    415: "The request or a file is of a kind that is not understood.",
    422: "A parameter is wrong, there is no file, or an image is damaged or not of the form that the model takes.",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return what the OpenAPI document says about these statuses."""
    return {status: {"model": Problem, "description": _MEANINGS[status]} for status in statuses}


def add_handlers(app: FastAPI) -> None:
    """Make an application answer with a `Problem` whatever is wrong with a request."""

    @app.exception_handler(Refusal)
    async def refused(_: Request, refusal: Refusal) -> JSONResponse:
        files = [{"name": name, "reason": reason} for name, reason in refusal.files]
        headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else None
        return JSONResponse({"detail": refusal.reason, "files": files}, refusal.status, headers)

    @app.exception_handler(RequestValidationError)
    async def wrong_parameter(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        reason = f"The parameter '{first['loc'][-1]}' is wrong: {first['msg']}."
        return JSONResponse({"detail": reason, "files": []}, 422)

    @app.exception_handler(HTTPException)
    async def not_there(_: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"detail": f"{error.detail}.", "files": []}, error.status_code, error.headers)


_FILES = {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}}
_FORM = {"type": "object", "required": [FIELD], "additionalProperties": False, "properties": {FIELD: _FILES}}
_BODY = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}}
_NO_GALLERY = "The server has no gallery of training images."


def interface(answerer: Answerer) -> APIRouter:
    """Return the addresses that tell something about the model, its training images, or new images."""
    router = APIRouter()
    _add_predict(router, answerer)
    _add_model(router, answerer)
    _add_gallery(router, answerer)
    return router


def _add_predict(router: APIRouter, answerer: Answerer) -> None:
    limits = answerer.limits
    at_a_time, workers = asyncio.Semaphore(limits.requests), anyio.CapacityLimiter(limits.workers)

    @router.post("/predict", responses=problems(400, 403, 408, 413, 415, 422), openapi_extra=_BODY)
    async def predict(
        request: Request,
        reasons: Annotated[bool, Query(description="Also tell why: deciding images, map, neighbours.")] = False,
    ) -> Answers:
        """Classify images.

        All files are answered in their order, or the request is refused and the answer names every file that cannot be
        used. PNG, JPEG, TIFF, BMP, GIF and WebP are recognised by their content. Nothing is kept.
        """
        async with at_a_time:
            uploads = await read_uploads(request, limits)
            answer = partial(answerer.answer_all, uploads, reasons=reasons)
            return Answers(answers=await anyio.to_thread.run_sync(answer, limiter=workers))


def _add_model(router: APIRouter, answerer: Answerer) -> None:
    @router.get("/model", responses=problems(400, 403))
    async def model(request: Request) -> ModelCard:
        """Tell what the model is, which images it takes, and how many at a time."""
        return model_card(request.app.title, answerer.model, answerer.gallery, answerer.limits)


def _add_gallery(router: APIRouter, answerer: Answerer) -> None:
    gallery = answerer.gallery
    images = None if gallery is None else training_images(gallery)

    @router.get("/gallery", responses=problems(400, 403, 404))
    async def training() -> TrainingImages:
        """List the training images as points on a plane."""
        if images is None:
            raise Refusal(404, _NO_GALLERY)
        return images

    jpeg: dict[int | str, dict[str, Any]] = {
        200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}}
    }

    @router.get("/gallery/{image}", response_class=Response, responses={**problems(400, 403, 404, 422), **jpeg})
    async def training_picture(image: int) -> Response:
        """Show one training image, small."""
        if gallery is None:
            raise Refusal(404, _NO_GALLERY)
        if not 0 <= image < len(gallery):
            raise Refusal(404, f"There is no training image {image:.6g}; they count from 0 to {len(gallery) - 1}.")
        return Response(gallery.pictures[image], media_type="image/jpeg")


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
