"""Read and decode the files of a request within limits, and refuse requests that cannot be served."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from email.message import Message

import numpy as np
import torch
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from lmfcn.data.arrays import check_images, pixel_kind
from lmfcn.data.framing import describe_channels, preprocess_image
from lmfcn.data.image_files import ImageError, TooManyPixelsError, UnknownFormatError, decode_image, probe_content
from lmfcn.data.image_form import ImageForm

MEGABYTE = 1_000_000
MEGAPIXEL = 1_000_000
MEGAPIXELS, MEGAPIXELS_NOT_RESIZED = 50, 2.5
FIELD = "files"
_SHOWN = 3
_OTHER_FIELDS = 10
_LONGEST_NAME = 200


@dataclass(frozen=True)
class Limits:
    """Bounds that keep one request from taking the whole machine.

    Attributes
    ----------
    file_bytes : int
        Largest size of one file.
    request_bytes : int
        Largest size of a request, with or without a Content-Length.
    files : int
        Largest number of files in one request.
    pixels : int
        Largest number of pixels of one image; checked before it is decoded.
    held_bytes : int
        Largest size of all requests together that are in memory at the same time.
    waiting : int
        Requests that may wait until others are computed; more are refused.
    workers : int
        Requests that compute at the same time.
    seconds : float
        Time in which a request must arrive completely.
    """

    file_bytes: int = 32 * MEGABYTE
    request_bytes: int = 128 * MEGABYTE
    files: int = 200
    pixels: int = MEGAPIXELS * MEGAPIXEL
    held_bytes: int = 1024 * MEGABYTE
    waiting: int = 64
    workers: int = 2
    seconds: float = 60.0

    def on(self, device: torch.device) -> "Limits":
        """Return the limits for a model on a device: on Apple's MPS, two threads at the same time end the process."""
        return replace(self, workers=1) if device.type == "mps" else self


def default_pixels(form: ImageForm) -> int:
    """Return how many pixels an image may have: fewer if the model does not resize images.

    Examples
    --------
    >>> default_pixels(ImageForm(channels=3, pixels="uint8"))
    2500000
    """
    return int((MEGAPIXELS_NOT_RESIZED if form.preprocessing.size is None else MEGAPIXELS) * MEGAPIXEL)


class Refusal(Exception):  # noqa: N818  (the request is wrong, not the server)
    """A request that is refused.

    Attributes
    ----------
    status : int
        HTTP status between 400 and 499, or 503 if the server cannot serve it now.
    reason : str
        One sentence.
    files : list of (name, reason)
        Files that cannot be used, and why; empty for other problems.
    retry_after : int or None
        Seconds after which the same request may be served.
    """

    def __init__(
        self, status: int, reason: str, files: Sequence[tuple[str, str]] = (), *, retry_after: int | None = None
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.files = list(files)
        self.retry_after = retry_after


class TooManyBytesError(ImageError):
    """A file with too many bytes."""


def refuse_files(errors: Sequence[ImageError]) -> Refusal:
    """Return the refusal of a request with files that cannot be used; the first file determines the status.

    Examples
    --------
    >>> refusal = refuse_files([UnknownFormatError("a.txt", "is not an image of a known format")])
    >>> refusal.status, refusal.reason
    (415, 'a.txt: is not an image of a known format.')
    """
    reason = "; ".join(str(error) for error in errors[:_SHOWN])
    more = f"; and {len(errors) - _SHOWN} more files" if len(errors) > _SHOWN else ""
    return Refusal(_status(errors[0]), f"{reason}{more}.", [(error.path, error.reason) for error in errors])


def _status(error: ImageError) -> int:
    if isinstance(error, UnknownFormatError):
        return 415
    return 413 if isinstance(error, TooManyPixelsError | TooManyBytesError) else 422


@dataclass(frozen=True)
class Upload:
    """The name and the content of a file."""

    name: str
    content: bytes


async def read_uploads(request: Request, limits: Limits, hold: Callable[[int], None]) -> list[Upload]:
    """Return the files of a multipart request; `hold` is told of every part of it that comes into memory.

    Raises
    ------
    Refusal
        For another kind of request, one that is too large, takes too long, or has no files.
    """
    if _media_type(request) != "multipart/form-data":
        raise Refusal(415, f"Send files as multipart/form-data in the field '{FIELD}'.")
    try:
        async with asyncio.timeout(limits.seconds):
            parts = await _parse(request, limits, hold)
    except TimeoutError as error:
        raise Refusal(408, f"The request did not arrive within {limits.seconds:g} seconds.") from error
    except ClientDisconnect as error:
        raise Refusal(400, "The connection was closed before the request had arrived.") from error
    if not parts:
        raise Refusal(422, f"There is no file in the request; send one or more in the field '{FIELD}'.")
    return parts


def _media_type(request: Request) -> str:
    message = Message()
    message["content-type"] = request.headers.get("content-type", "")
    return message.get_content_type()


async def _parse(request: Request, limits: Limits, hold: Callable[[int], None]) -> list[Upload]:
    body = _limited_body(request, limits.request_bytes, hold)
    parser = MultiPartParser(request.headers, body, max_files=limits.files, max_fields=_OTHER_FIELDS)
    parser.spool_max_size = limits.request_bytes + 1  # larger files would be written to disk
    try:
        form = await parser.parse()
    except MultiPartException as error:
        if error.message.startswith("Too many files"):
            raise Refusal(
                413, f"A request may hold {limits.files} files; send the others in further requests."
            ) from error
        raise Refusal(400, f"The request is not valid multipart/form-data: {error.message}") from error
    try:
        return [await _upload(field, value) for field, value in form.multi_items()]
    finally:
        await form.close()


async def _upload(field: str, value: UploadFile | str) -> Upload:
    if field != FIELD or isinstance(value, str):
        raise Refusal(422, f"Only files in the field '{FIELD}' are expected, got the field {field[:40]!r}.")
    # Browsers may send a path; only its last part is a name.
    name = (value.filename or "").replace("\\", "/").rpartition("/")[2]
    return Upload(name[-_LONGEST_NAME:] or "unnamed", await value.read())


async def _limited_body(request: Request, max_bytes: int, hold: Callable[[int], None]) -> AsyncGenerator[bytes]:
    """Yield the body of a request; refuse it if it is, or announces to be, too long."""
    received, declared = 0, request.headers.get("content-length", "")
    too_long = declared.isdecimal() and int(declared) > max_bytes
    async for chunk in request.stream():
        received += len(chunk)
        too_long = too_long or received > max_bytes
        if not too_long:
            hold(len(chunk))
            yield chunk
        elif received > 2 * max_bytes:
            break
    # The rest is read and dropped for a while: many clients read the response only after they have sent all.
    if too_long:
        raise Refusal(413, f"A request may have {max_bytes / MEGABYTE:g} MB; send fewer files at a time.")


def decode_upload(upload: Upload, form: ImageForm, limits: Limits) -> np.ndarray:
    """Return the image (height, width, channels) of an uploaded file in the form of a model.

    Raises
    ------
    ImageError
        With the name of the file and the reason.
    """
    if len(upload.content) > limits.file_bytes:
        size, most = len(upload.content) / MEGABYTE, limits.file_bytes / MEGABYTE
        raise TooManyBytesError(upload.name, f"has {size:.3g} MB, more than the {most:g} MB allowed")
    header = probe_content(upload.content, upload.name, max_pixels=limits.pixels)
    if header.channels not in _usable_channels(form):  # before pixels take memory
        raise _wrong_form(upload.name, (header.channels, header.pixels), form)
    image = decode_image(upload.content, upload.name, max_pixels=limits.pixels)
    try:
        image = preprocess_image(_drop_equal_channels(image) if form.channels == 1 else image, form.preprocessing)
        if (image.shape[2], pixel_kind(image)) != (form.channels, form.pixels):
            raise _wrong_form(upload.name, (image.shape[2], pixel_kind(image)), form)
        return check_images(image[None], smallest_side=form.smallest_side)[0]
    except ImageError:
        raise
    except ValueError as error:
        raise ImageError(upload.name, str(error).rstrip(".")) from error


def _usable_channels(form: ImageForm) -> set[int]:
    if form.preprocessing.color != "keep":
        return {1, 3}
    return {1, 3} if form.channels == 1 else {form.channels}


def _drop_equal_channels(image: np.ndarray) -> np.ndarray:
    """Return one channel if all three are equal: grey images from a clipboard arrive as RGB."""
    equal = image.shape[2] == 3 and bool((image == image[..., :1]).all())
    return image[..., :1] if equal else image


def _wrong_form(name: str, found: tuple[int, str], form: ImageForm) -> ImageError:
    expected = describe_channels(form.channels, form.pixels)
    return ImageError(name, f"has {describe_channels(*found)} pixels, but the model takes {expected} pixels")
