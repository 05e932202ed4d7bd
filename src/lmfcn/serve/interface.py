"""The JSON interface: one function for every address."""

import asyncio
from functools import partial
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Query, Request, Response

from lmfcn.serve.answers import Answerer
from lmfcn.serve.describing import model_card, training_images
from lmfcn.serve.problems import problems
from lmfcn.serve.refusals import Refusal
from lmfcn.serve.schema import Answers, ModelCard, TrainingImages
from lmfcn.serve.uploads import FIELD, read_uploads

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
