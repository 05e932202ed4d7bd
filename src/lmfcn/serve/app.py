"""The web application: the page, the JSON interface, and errors as JSON."""

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from lmfcn import __version__
from lmfcn.explain.gallery import Gallery
from lmfcn.model import TextureModel
from lmfcn.model_file import to_bytes
from lmfcn.serve.admission import Admission
from lmfcn.serve.guard import LOOPBACK, Guard
from lmfcn.serve.metrics import MEDIA_TYPE, Metrics
from lmfcn.serve.models import ModelStore
from lmfcn.serve.predictions import Predictor, describe_model
from lmfcn.serve.schema import Health, ModelCard, Models, NamedModel, Predictions, Problem, TrainingImages
from lmfcn.serve.traffic import Traffic
from lmfcn.serve.uploads import FIELD, Limits, Refusal, default_pixels, read_uploads

_MEANINGS = {
    400: "The request is malformed, or the server does not accept this host name.",
    401: "The token is missing or wrong.",
    403: "The request comes from a page of another site.",
    404: "The address, the model or the image does not exist.",
    408: "The request did not arrive in time.",
    413: "The request, a file or an image is too large, or there are too many files.",
    415: "The type of the request or of a file is not supported.",
    422: "A parameter is wrong, there is no file, or an image is damaged or does not fit the model.",
    503: "The server has too many requests, or is stopping; Retry-After says when to ask again.",
    507: "The disk is full or cannot be written; nothing was changed.",
}
_FILES = {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}}
_FORM = {"type": "object", "required": [FIELD], "additionalProperties": False, "properties": {FIELD: _FILES}}
_BODY = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}}
_JPEG: dict[int | str, dict[str, Any]] = {
    200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}}
}
_METRICS: dict[int | str, dict[str, Any]] = {200: {"content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}}
_NO_GALLERY = "The server has no gallery of training images."
_STATIC = Path(__file__).parent / "static"


def describe_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI descriptions of these error statuses."""
    return {status: {"model": Problem, "description": _MEANINGS[status]} for status in statuses}


@dataclass(frozen=True)
class Service:
    """What all requests share; routes find it in `app.state.service`."""

    models: ModelStore
    admission: Admission
    metrics: Metrics


def service_of(request: Request) -> Service:
    """Return what all requests share."""
    service: Service = request.app.state.service
    return service


async def choose_model(
    request: Request,
    model: Annotated[str | None, Query(description="Name of the model; by default the first of the server.")] = None,
) -> Predictor:
    """Return the model that a request asks for."""
    return service_of(request).models.get(model)


Chosen = Annotated[Predictor, Depends(choose_model)]
public, router = APIRouter(), APIRouter()
"""Routes without data, and routes that need the token."""


@public.get("/ready", responses=describe_problems(400, 403, 503))
async def ready(request: Request) -> Health:
    """Report that the models are loaded and that requests are welcome."""
    service_of(request).admission.check_ready()
    return Health(status="ready")


@router.post("/predict", responses=describe_problems(400, 403, 404, 408, 413, 415, 422, 503), openapi_extra=_BODY)
async def predict(
    request: Request,
    predictor: Chosen,
    reasons: Annotated[bool, Query(description="Also explain: deciding images, map, neighbours.")] = False,
) -> Predictions:
    """Classify images.

    Returns a prediction for each file, in the order of the files. If some files cannot be used, the whole request
    is refused and the response names them. PNG, JPEG, TIFF, BMP, GIF and WebP are recognised by their content.
    Nothing is stored.
    """
    service = service_of(request)
    with service.admission.admit() as hold:
        uploads = await read_uploads(request, predictor.limits, hold)
        predict_all = partial(predictor.predict_all, uploads, reasons=reasons)
        answers = await service.admission.compute(request, predict_all)
    service.metrics.images.add(predictor.name, by=len(answers))
    request.state.logged = {"images": len(answers), "model": predictor.name, "fingerprint": predictor.fingerprint}
    return Predictions(answers=answers)


@router.get("/model", responses=describe_problems(400, 403, 404))
async def model(predictor: Chosen) -> ModelCard:
    """Describe a model, the images that it takes, and the limits of a request."""
    return describe_model(predictor)


@router.get("/models", responses=describe_problems(400, 403))
async def models(request: Request) -> Models:
    """List the models of the server."""
    named = [NamedModel(name=each.name, fingerprint=each.fingerprint) for each in service_of(request).models]
    return Models(models=named)


@router.get("/gallery", responses=describe_problems(400, 403, 404))
async def training(predictor: Chosen) -> TrainingImages:
    """List the training images as points on a plane."""
    if predictor.training_images is None:
        raise Refusal(404, _NO_GALLERY)
    return predictor.training_images


@router.get("/gallery/{image}", response_class=Response, responses={**describe_problems(400, 403, 404, 422), **_JPEG})
async def training_picture(predictor: Chosen, image: int) -> Response:
    """Return a small picture of one training image."""
    gallery = predictor.gallery
    if gallery is None:
        raise Refusal(404, _NO_GALLERY)
    if not 0 <= image < len(gallery):
        raise Refusal(404, f"There is no training image {image:.6g}; the numbers go from 0 to {len(gallery) - 1}.")
    return Response(gallery.pictures[image], media_type="image/jpeg")


@router.get("/metrics", response_class=Response, responses={**describe_problems(400, 403), **_METRICS})
async def metrics(request: Request) -> Response:
    """Return numbers for Prometheus: requests, latencies, refusals, models."""
    service = service_of(request)
    names = [(each.name, each.fingerprint) for each in service.models]
    text = service.metrics.as_text(service.admission.waiting, service.admission.in_progress, names)
    return Response(text, media_type=MEDIA_TYPE)


def make_app(
    model: TextureModel,
    gallery: Gallery | None = None,
    limits: Limits | None = None,
    token: str | None = None,
    hosts: Collection[str] | None = LOOPBACK,
    name: str = "lmfcn",
) -> FastAPI:
    """Return the application for one model.

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
    name : str
        The name that the page shows.

    Examples
    --------
    >>> from lmfcn import LMFCNClassifier, make_gaussians
    >>> X, y = make_gaussians(n_per_class=10, size=16, random_state=0)
    >>> app = make_app(LMFCNClassifier(epochs=1, latent_dim=4, random_state=0).fit(X, y).model_)
    >>> sorted(app.openapi()["paths"])
    ['/gallery', '/gallery/{image}', '/health', '/metrics', '/model', '/models', '/predict', '/ready']
    """
    if gallery is not None:
        gallery.check_belongs_to(model)
    limits = limits or Limits(pixels=default_pixels(model.form))
    fingerprint = hashlib.sha256(to_bytes(model)).hexdigest()
    return make_service(ModelStore([Predictor(model, gallery, limits, name, fingerprint)]), limits, token, hosts)


def make_service(
    models: ModelStore, limits: Limits, token: str | None = None, hosts: Collection[str] | None = LOOPBACK
) -> FastAPI:
    """Return the application for several models, with the parameters of `make_app`."""
    for predictor in models:
        limits = limits.on(predictor.model.device)
    app = FastAPI(title="lmfcn", version=__version__, docs_url=None, redoc_url=None)
    service = Service(models, Admission(limits), Metrics())
    app.state.service = service
    app.add_middleware(Guard, hosts=hosts)
    app.add_middleware(Traffic, metrics=service.metrics, admission=service.admission)
    add_error_handlers(app)
    add_page(app)
    app.include_router(public)
    if token is None:
        app.include_router(router)
    else:
        app.include_router(router, dependencies=[Depends(require_token(token))], responses=describe_problems(401))
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


def add_error_handlers(app: FastAPI) -> None:
    """Make an application respond with a `Problem` to every wrong request."""

    @app.exception_handler(Refusal)
    async def handle_refusal(_: Request, refusal: Refusal) -> JSONResponse:
        files = [{"name": name, "reason": reason} for name, reason in refusal.files]
        headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
        if refusal.retry_after is not None:
            headers["Retry-After"] = str(refusal.retry_after)
        return JSONResponse({"detail": refusal.reason, "files": files}, refusal.status, headers)

    @app.exception_handler(RequestValidationError)
    async def handle_wrong_parameter(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        reason = f"The parameter '{first['loc'][-1]}' is wrong: {first['msg']}."
        return JSONResponse({"detail": reason, "files": []}, 422)

    @app.exception_handler(HTTPException)
    async def handle_http_error(_: Request, error: HTTPException) -> JSONResponse:
        headers = dict(error.headers or {})
        if headers.get("Allow") == "GET":
            headers["Allow"] = "GET, HEAD"
        return JSONResponse({"detail": f"{error.detail}.", "files": []}, error.status_code, headers)
