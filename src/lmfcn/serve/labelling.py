"""The web application of `lmfcn label`: a page, and a JSON interface to one labelling session."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from lmfcn import __version__
from lmfcn.data.framing import make_thumbnail
from lmfcn.data.image_files import ImageError, read_image
from lmfcn.label.session import N_ASKED, LabellingSession
from lmfcn.serve.app import add_error_handlers, add_page, describe_problems, require_token
from lmfcn.serve.guard import LOOPBACK, Guard
from lmfcn.serve.uploads import Refusal
from lmfcn.util.class_style import class_color, class_mark

SIDE, LARGE_SIDE = 160, 512
_MOST_PICTURES = 4000
_MOST_LISTED = 100
_PAUSE = 0.05

Finish = Callable[[Any, Callable[[str], None]], Iterable[str]]
"""Does what a user ordered at the end, tells how far it is, and yields a sentence about each file."""


class Labels(BaseModel):
    """Images, and the label that they get: one for all, or one for each."""

    images: list[int] = Field(min_length=1, max_length=100_000)
    label: str | list[str]
    by: Literal["hand", "suggestion"] = "hand"


class Images(BaseModel):
    """Images that are left out."""

    images: list[int] = Field(min_length=1, max_length=100_000)


class FinishOrder(BaseModel):
    """What to write at the end."""

    folder: str = Field(min_length=1, max_length=4000)
    files: Literal["none", "links", "copies"] = "none"
    train: bool = True
    scratch: bool = False


class Working(Protocol):
    """A session with work that is done part by part."""

    notes: list[str]
    version: int

    def step(self) -> bool:
        """Do a part; return False if nothing is to be done."""


class Worker(threading.Thread):
    """Does the work of a session in the background until it is stopped."""

    def __init__(self, session: Working) -> None:
        super().__init__(daemon=True)
        self.session, self._ended = session, threading.Event()

    def run(self) -> None:
        """Work; an error is shown on the page and does not end the session."""
        while not self._ended.is_set():
            try:
                if self.session.step():
                    continue
            except Exception as error:  # labelling goes on without suggestions
                self._tell(f"No suggestions: {error}")
                self._ended.wait(5)
            self._ended.wait(_PAUSE)

    def _tell(self, note: str) -> None:
        if note not in self.session.notes:
            self.session.notes.append(note)
            self.session.version += 1

    def stop(self) -> None:
        """End after the present step."""
        self._ended.set()
        self.join(timeout=30)


class Finishing:
    """The end of a session, in a thread of its own: what it is doing, what it wrote, or what went wrong."""

    def __init__(self, finish: Finish) -> None:
        self._finish = finish
        self._lock = threading.Lock()
        self.state: dict[str, Any] = {"running": False, "message": "", "written": [], "error": ""}

    def begin(self, order: BaseModel) -> None:
        """Start, unless an earlier order is not done yet."""
        with self._lock:
            if self.state["running"]:
                raise Refusal(409, "The last order is not done yet; wait for it.")
            self.state = {"running": True, "message": "Writing the table.", "written": [], "error": ""}
        threading.Thread(target=self._run, args=(order,), daemon=True).start()

    def _run(self, order: BaseModel) -> None:
        error = ""
        try:
            for sentence in self._finish(order, self._announce):
                self.state = {**self.state, "written": [*self.state["written"], sentence]}
        except Exception as problem:  # whatever it is, the page must say it
            error = str(problem)
        self.state = {**self.state, "running": False, "message": "", "error": error}

    def _announce(self, message: str) -> None:
        self.state = {**self.state, "message": message}


def make_label_app(session: LabellingSession, finish: Finish, token: str) -> FastAPI:
    """Return the application for one session; the caller runs a `Worker` beside it.

    Parameters
    ----------
    session : LabellingSession
    finish : callable
        Called with a `FinishOrder` and a function that shows a sentence; yields sentences about what it wrote.
    token : str
        Secret that requests must send as `Authorization: Bearer TOKEN`.
    """
    app = FastAPI(title=f"lmfcn label {session.folder.name}", version=__version__, docs_url=None, redoc_url=None)
    app.add_middleware(Guard, hosts=LOOPBACK)
    add_error_handlers(app)
    add_disk_errors(app)
    add_page(app, "label.html")
    router = APIRouter(dependencies=[Depends(require_token(token))], responses=describe_problems(400, 401, 403))
    finishing = Finishing(finish)
    _add_reading(router, session, finishing)
    _add_writing(router, session, finishing)
    app.include_router(router)
    return app


def add_disk_errors(app: FastAPI) -> None:
    """Make an application say what is wrong with the disk."""

    @app.exception_handler(OSError)
    async def handle_disk(_: Request, error: OSError) -> JSONResponse:
        reason = f"{error.filename}: {error.strerror}. Nothing was changed; make room on the disk and try again."
        return JSONResponse({"detail": reason, "files": []}, 507)


def _add_reading(router: APIRouter, session: LabellingSession, finishing: Finishing) -> None:
    pictures: OrderedDict[tuple[int, bool], bytes] = OrderedDict()

    @router.get("/state")
    def state(since: Annotated[int, Query(description="Version that the page shows already.")] = -1) -> JSONResponse:
        """Return labels, suggestions, accuracy and progress, if anything has changed."""
        if since == session.version:
            return JSONResponse({"version": since, "finish": finishing.state})
        return _state(session, finishing)

    @router.get("/images")
    def images(start: Annotated[int, Query(ge=0)] = 0) -> JSONResponse:
        """Return the names of all images from a number on."""
        return JSONResponse({"names": session.names[start:]})

    @router.get("/picture/{image}", response_class=Response, responses=describe_problems(404, 422))
    def picture(image: int, large: bool = False) -> Response:
        """Return a small picture of an image, or a larger one."""
        if not 0 <= image < len(session.names):
            raise Refusal(404, f"There is no image {image:.6g}; the numbers go from 0 to {len(session.names) - 1}.")
        content = pictures.get((image, large))
        if content is None:
            content = _picture(session.folder / session.names[image], LARGE_SIDE if large else SIDE)
            pictures[image, large] = content
            while len(pictures) > _MOST_PICTURES:
                pictures.popitem(last=False)
        return Response(content, media_type="image/jpeg")


def _picture(path: Path, side: int) -> bytes:
    try:
        return make_thumbnail(read_image(path), side)
    except ImageError as error:
        raise Refusal(422, f"{path.name} {error.reason}.") from error


def _add_writing(router: APIRouter, session: LabellingSession, finishing: Finishing) -> None:
    problems = describe_problems(413, 422, 507)

    def act(action: Callable[[], Any]) -> JSONResponse:
        try:
            action()
        except ValueError as error:
            raise Refusal(422, str(error)) from error
        return _state(session, finishing)

    @router.post("/label", responses=problems)
    def label(given: Labels) -> JSONResponse:
        """Give images a label; it is in the table before the answer is sent."""
        return act(lambda: session.put(given.images, given.label, given.by))

    @router.post("/skip", responses=problems)
    def skip(given: Images) -> JSONResponse:
        """Leave images without a label, and ask for them no more."""
        return act(lambda: session.skip(given.images))

    @router.post("/undo", responses=problems)
    def undo() -> JSONResponse:
        """Take the last action back, whichever tab did it."""
        return act(session.undo)

    @router.post("/rescan", responses=problems)
    def rescan() -> JSONResponse:
        """Look for new images, and for changes of the table by hand."""
        return act(session.rescan)

    @router.post("/finish", responses=problems)
    def finish(order: FinishOrder) -> JSONResponse:
        """Write the table, and the class folders and models that are wanted."""
        finishing.begin(order)
        return _state(session, finishing)


def _state(session: LabellingSession, finishing: Finishing) -> JSONResponse:
    """Return everything that a page shows, but names and pictures."""
    with session.lock:
        return JSONResponse(_state_values(session, finishing))


def _state_values(session: LabellingSession, finishing: Finishing) -> dict[str, Any]:
    version, n_images = session.version, len(session.names)
    number = {name: index for index, name in enumerate(session.classes)}
    labels = np.full(n_images, -1)
    for position, name in list(session.labels.items()):
        labels[position] = number[name]
    labels[[position for position in session.skipped if position not in session.labels]] = -2
    return {
        "version": version,
        "folder": str(session.folder),
        "table": str(session.table.path),
        "n_images": n_images,
        "n_described": session.n_described,
        "network": "" if session.features.describer is None else session.features.describer.about,
        "classes": [
            {"name": name, "count": count, "color": class_color(index), "mark": class_mark(index)}
            for index, (name, count) in enumerate(zip(session.classes, session.counts(), strict=True))
        ],
        "labels": labels.tolist(),
        **_suggestions(session, number),
        **_order(session),
        "doubtful": session.doubtful(),
        "left_out": _left_out(session),
        "curve": [
            {"n": point.n_labels, "expected": point.expected, **_rounded(vars(point.accuracy))}
            for point in session.curve
        ],
        "sentence": session.sentence(),
        "notes": list(session.notes),
        "finish": finishing.state,
    }


def _suggestions(session: LabellingSession, number: dict[str, int]) -> dict[str, Any]:
    """Return the likeliest class of every image and how probable it is, in percent; -1 where nothing is known."""
    suggested, sure = np.full(len(session.names), -1), np.zeros(len(session.names), dtype=int)
    learned = session.learned
    if learned is not None and learned.probabilities is not None:
        classes = np.array([number[name] for name in learned.classes])
        suggested[learned.space.positions] = classes[learned.probabilities.argmax(axis=1)]
        sure[learned.space.positions] = np.floor(100 * learned.probabilities.max(axis=1)).astype(int)
    # Before anything is described, the first images are as good as any.
    order = range(len(session.names)) if learned is None else learned.asked
    done = session.labels.keys() | session.skipped | session.left_out.keys()
    asked = [position for position in order if position not in done][:N_ASKED]
    return {"suggested": suggested.tolist(), "sure": sure.tolist(), "asked": asked}


def _order(session: LabellingSession) -> dict[str, Any]:
    """Return all images, similar ones together, and their clusters; those without features follow."""
    n_images, space = len(session.names), session.space
    if space is None:
        return {"order": list(range(n_images)), "clusters": [-1] * n_images}
    ordered = space.positions[space.arrangement.order]
    clusters = np.full(n_images, -1)
    clusters[space.positions] = space.arrangement.clusters
    rest = np.setdiff1d(np.arange(n_images), ordered)
    return {"order": [*ordered.tolist(), *rest.tolist()], "clusters": clusters.tolist()}


def _left_out(session: LabellingSession) -> list[dict[str, str]]:
    found = list(session.left_out.items())[:_MOST_LISTED]
    return [{"name": session.names[position], "reason": reason} for position, reason in found]


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(values[name], 4) for name in ("value", "low", "high")}
