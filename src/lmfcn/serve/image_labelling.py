"""The web application of `lmfcn label IMAGE`: a page with a viewer, and a JSON interface to strokes and maps."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Response
from fastapi.responses import JSONResponse
from PIL import Image
from pydantic import BaseModel, Field

from lmfcn import __version__
from lmfcn.data.framing import encode_jpeg
from lmfcn.label.image_session import ImageSession
from lmfcn.label.strokes import MOST_POINTS
from lmfcn.maps.pyramid import TILE, Pyramid
from lmfcn.serve.app import add_error_handlers, add_page, describe_problems, require_token
from lmfcn.serve.guard import LOOPBACK, Guard
from lmfcn.serve.labelling import Finish, Finishing, add_disk_errors
from lmfcn.serve.uploads import Refusal
from lmfcn.util.class_style import class_color, class_mark

_MOST_PICTURES = 500
_N_COLORS = 20


class StrokeOrder(BaseModel):
    """A stroke: its class, or none to erase; the diameter of the brush; points (x, y) of the finest level."""

    label: str = Field(max_length=200)
    size: float
    points: list[tuple[float, float]] = Field(min_length=1, max_length=MOST_POINTS)


class View(BaseModel):
    """The part of the image that is shown, in pixels of the finest level."""

    top: float = Field(allow_inf_nan=False)
    left: float = Field(allow_inf_nan=False)
    bottom: float = Field(allow_inf_nan=False)
    right: float = Field(allow_inf_nan=False)


class ImageOrder(BaseModel):
    """What to write at the end, and which windows of the map get no label."""

    folder: str = Field(min_length=1, max_length=4000)
    map: bool = True
    reject: float = Field(default=0.0, ge=0, le=1)
    none_of_these: float | None = Field(default=None, gt=0, lt=1)


def make_image_app(session: ImageSession, finish: Finish, token: str) -> FastAPI:
    """Return the application for one session; the caller runs a `Worker` beside it.

    Parameters
    ----------
    session : ImageSession
    finish : callable
        Called with an `ImageOrder` and a function that shows a sentence; yields sentences about what it wrote.
    token : str
        Secret that requests must send as `Authorization: Bearer TOKEN`.
    """
    app = FastAPI(title=f"lmfcn label {session.path.name}", version=__version__, docs_url=None, redoc_url=None)
    app.add_middleware(Guard, hosts=LOOPBACK)
    add_error_handlers(app)
    add_disk_errors(app)
    add_page(app, "label_image.html")
    router = APIRouter(dependencies=[Depends(require_token(token))], responses=describe_problems(400, 401, 403))
    page = _Page(session, Finishing(finish))
    _add_tiles(router, Pyramid(session.path))
    _add_session(router, page)
    app.include_router(router)
    return app


def _add_tiles(router: APIRouter, pyramid: Pyramid) -> None:
    pictures: OrderedDict[tuple[int, int, int], bytes] = OrderedDict()

    @router.get("/image")
    def image() -> JSONResponse:
        """Return the size of the image, and how it is divided into tiles."""
        size = {"width": pyramid.width, "height": pyramid.height}
        return JSONResponse({**size, "tile": TILE, "levels": pyramid.n_levels})

    @router.get("/tile/{level}/{row}/{column}", response_class=Response, responses=describe_problems(404))
    def tile(level: int, row: int, column: int) -> Response:
        """Return one tile of the image; every level halves the resolution."""
        key = level, row, column
        content = pictures.get(key)
        if content is None:
            try:
                content = encode_jpeg(Image.fromarray(pyramid.tile(*key)))
            except IndexError as error:
                raise Refusal(404, str(error)) from error
            pictures[key] = content
            while len(pictures) > _MOST_PICTURES:
                pictures.popitem(last=False)
        return Response(content, media_type="image/jpeg")


def _add_session(router: APIRouter, page: "_Page") -> None:
    problems, session = describe_problems(413, 422, 507), page.session

    def act(action: Callable[[], Any]) -> JSONResponse:
        try:
            action()
        except ValueError as error:
            raise Refusal(422, str(error)) from error
        return page.state()

    @router.get("/state")
    def state(
        since: Annotated[int, Query(description="Version that the page shows already.")] = -1,
        changes: Annotated[int, Query(description="Number of the strokes that it shows already.")] = -1,
    ) -> JSONResponse:
        """Return strokes, map of the view, accuracy and progress, as far as anything has changed."""
        if since == session.version:
            return JSONResponse({"version": since, "finish": page.finishing.state})
        return page.state(changes)

    @router.post("/view", responses=problems)
    def view(shown: View) -> JSONResponse:
        """Say what is shown: it is mapped first."""
        return act(lambda: session.look(shown.top, shown.left, shown.bottom, shown.right))

    @router.post("/stroke", responses=problems)
    def stroke(given: StrokeOrder) -> JSONResponse:
        """Draw a stroke; it is in the file before the answer is sent."""
        return act(lambda: session.draw(given.label, given.size, given.points))

    @router.post("/undo", responses=problems)
    def undo() -> JSONResponse:
        """Take the last stroke back, whichever tab drew it."""
        return act(session.undo)

    @router.post("/finish", responses=problems)
    def finish(order: ImageOrder) -> JSONResponse:
        """Train the model, and map the whole image."""
        page.finishing.begin(order)
        return page.state()


class _Page:
    """What a page shows of a session."""

    def __init__(self, session: ImageSession, finishing: Finishing) -> None:
        self.session, self.finishing = session, finishing

    def state(self, changes: int = -1) -> JSONResponse:
        """Return everything but the pixels, and the strokes only if they are not those of a page with `changes`."""
        session = self.session
        with session.lock:
            n_described, n_wanted = session.progress()
            values = {
                "version": session.version,
                "path": str(session.path),
                "table": str(session.file.path),
                "window": session.window / session.factor[0],
                "classes": [
                    {"name": name, "strokes": strokes, "windows": windows}
                    for name, (strokes, windows) in zip(session.classes, session.counts(), strict=True)
                ],
                "palette": [{"color": class_color(i), "mark": class_mark(i)} for i in range(self._n_colors())],
                "changes": session.n_changes,
                "strokes": None if changes == session.n_changes else self._strokes(),
                "cells": [_rounded(cell) for cell in session.cells()],
                "knows_typical": session.learned is not None and session.learned.typical is not None,
                "described": n_described,
                "wanted": n_wanted,
                "about": session.about,
                "sentence": session.sentence(),
                "notes": session.notes,
                "finish": self.finishing.state,
            }
        return JSONResponse(values)

    def _n_colors(self) -> int:
        return len(self.session.classes) + _N_COLORS

    def _strokes(self) -> list[dict[str, Any]]:
        numbers = {name: number for number, name in enumerate(self.session.classes)}
        return [
            {"class": numbers.get(stroke.label, -1), "size": stroke.size, "points": stroke.points}
            for stroke in self.session.file.actions
        ]


def _rounded(cell: tuple[float, float, float, float, int, float, float | None]) -> list[float | None]:
    left, top, right, bottom, best, probability, typicality = cell
    usual = None if typicality is None else round(typicality, 3)
    return [*(round(end, 1) for end in (left, top, right, bottom)), best, round(probability, 3), usual]
