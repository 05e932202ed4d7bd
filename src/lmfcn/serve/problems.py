"""Errors as JSON: every one has a reason in one sentence, and stands in the OpenAPI document."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from lmfcn.serve.refusals import Refusal
from lmfcn.serve.schema import Problem

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
