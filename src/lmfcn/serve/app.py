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
from lmfcn.serve.predictions import Predictor, describe_gallery, describe_model
from lmfcn.serve.schema import Health, ModelCard, Predictions, Problem, TrainingImages
from lmfcn.serve.server import LOOPBACK, Guard
from lmfcn.serve.uploads import FIELD, Limits, Refusal, default_pixels, read_uploads

_MEANINGS = {
    400: "The request is malformed, or the server does not accept this host name.",
    401: "The token is missing or wrong.",
    403: "The request comes from a page of another site.",
    404: "The address or the image does not exist.",
    408: "The request did not arrive in time.",
    413: "The request, a file or an image is too large, or there are too many files.",
    415: "The type of the request or of a file is not supported.",
    422: "A parameter is wrong, there is no file, or an image is damaged or does not fit the model.",
    507: "The disk is full or cannot be written; nothing was changed.",
}
_FILES = {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}}
_FORM = {"type": "object", "required": [FIELD], "additionalProperties": False, "properties": {FIELD: _FILES}}
_BODY = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}}
_NO_GALLERY = "The server has no gallery of training images."
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
        Shared by all requests and never changed.
    gallery : Gallery, optional
        Its training images; without them explanations have no pictures and no latent space.
    limits : Limits, optional
        Limits of uploads; the default depends on whether the model resizes images.
    token : str, optional
        Secret that requests must send as `Authorization: Bearer TOKEN`.
    hosts : collection of str or None
        Accepted host names; None accepts any.

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
    add_error_handlers(app)
    add_page(app)
    limits = limits or Limits(pixels=default_pixels(model.form))
    predictor = Predictor(model, gallery, limits.on(model.device))
    if token is None:
        app.include_router(make_router(predictor))
    else:
        app.include_router(
            make_router(predictor), dependencies=[Depends(require_token(token))], responses=describe_problems(401)
        )
    return app


def require_token(token: str) -> Callable[..., Awaitable[None]]:
    """Return a dependency that refuses requests without the token."""

    async def check(
        given: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))],
    ) -> None:
        # Compared in constant time, so that the response time reveals nothing about the token.
        if given is None or not hmac.compare_digest(given.credentials.encode(), token.encode()):
            raise Refusal(401, "The token is missing or wrong; send the header 'Authorization: Bearer TOKEN'.")

    return check


def add_page(app: FastAPI, file: str = "index.html") -> None:
    """Add what needs no token: the page, which has no data, and the health check."""

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(_STATIC / file)

    @app.get("/health", responses=describe_problems(400, 403))
    async def health() -> Health:
        """Report that the server is running."""
        return Health(status="ok")

    app.mount("/static", StaticFiles(directory=_STATIC), name="static")


def make_router(predictor: Predictor) -> APIRouter:
    """Return the routes for predictions, the model and its training images."""
    router = APIRouter()
    _add_predict(router, predictor)
    _add_model(router, predictor)
    _add_gallery(router, predictor)
    return router


def _add_predict(router: APIRouter, predictor: Predictor) -> None:
    limits = predictor.limits
    slots, workers = asyncio.Semaphore(limits.requests), anyio.CapacityLimiter(limits.workers)

    @router.post("/predict", responses=describe_problems(400, 403, 408, 413, 415, 422), openapi_extra=_BODY)
    async def predict(
        request: Request,
        reasons: Annotated[bool, Query(description="Also explain: deciding images, map, neighbours.")] = False,
    ) -> Predictions:
        """Classify images.

        Returns a prediction for each file, in the order of the files. If some files cannot be used, the whole request
        is refused and the response names them. PNG, JPEG, TIFF, BMP, GIF and WebP are recognised by their content.
        Nothing is stored.
        """
        async with slots:
            uploads = await read_uploads(request, limits)
            predict_all = partial(predictor.predict_all, uploads, reasons=reasons)
            return Predictions(answers=await anyio.to_thread.run_sync(predict_all, limiter=workers))


def _add_model(router: APIRouter, predictor: Predictor) -> None:
    @router.get("/model", responses=describe_problems(400, 403))
    async def model(request: Request) -> ModelCard:
        """Describe the model, the images that it takes, and the limits of a request."""
        return describe_model(request.app.title, predictor.model, predictor.gallery, predictor.limits)


def _add_gallery(router: APIRouter, predictor: Predictor) -> None:
    gallery = predictor.gallery
    images = None if gallery is None else describe_gallery(gallery)

    @router.get("/gallery", responses=describe_problems(400, 403, 404))
    async def training() -> TrainingImages:
        """List the training images as points on a plane."""
        if images is None:
            raise Refusal(404, _NO_GALLERY)
        return images

    jpeg: dict[int | str, dict[str, Any]] = {
        200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}}
    }

    @router.get(
        "/gallery/{image}", response_class=Response, responses={**describe_problems(400, 403, 404, 422), **jpeg}
    )
    async def training_picture(image: int) -> Response:
        """Return a small picture of one training image."""
        if gallery is None:
            raise Refusal(404, _NO_GALLERY)
        if not 0 <= image < len(gallery):
            raise Refusal(404, f"There is no training image {image:.6g}; the numbers go from 0 to {len(gallery) - 1}.")
        return Response(gallery.pictures[image], media_type="image/jpeg")


def describe_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI descriptions of these error statuses."""
    return {status: {"model": Problem, "description": _MEANINGS[status]} for status in statuses}


def add_error_handlers(app: FastAPI) -> None:
    """Make an application respond with a `Problem` to every wrong request."""

    @app.exception_handler(Refusal)
    async def handle_refusal(_: Request, refusal: Refusal) -> JSONResponse:
        files = [{"name": name, "reason": reason} for name, reason in refusal.files]
        headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else None
        return JSONResponse({"detail": refusal.reason, "files": files}, refusal.status, headers)

    @app.exception_handler(RequestValidationError)
    async def handle_wrong_parameter(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        reason = f"The parameter '{first['loc'][-1]}' is wrong: {first['msg']}."
        return JSONResponse({"detail": reason, "files": []}, 422)

    @app.exception_handler(HTTPException)
    async def handle_http_error(_: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"detail": f"{error.detail}.", "files": []}, error.status_code, error.headers)
