"""Read the files of a request into memory within limits, and refuse what cannot be answered."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
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
MEGAPIXELS, MEGAPIXELS_AS_THEY_ARE = 50, 2.5


@dataclass(frozen=True)
class Limits:
    """Bounds that keep one request from taking the whole machine.

    Attributes
    ----------
    file_bytes : int
        Of one file.
    request_bytes : int
        Of a whole request, whether it says so beforehand or not.
    files : int
        In one request.
    pixels : int
        Of one image; compared with its header before it is decoded.
    requests : int
        Read into memory and answered at a time; others wait.
    workers : int
        Requests that compute at a time.
    seconds : float
        For a request to arrive completely.
    """

    file_bytes: int = 32 * MEGABYTE
    request_bytes: int = 128 * MEGABYTE
    files: int = 200
    pixels: int = MEGAPIXELS * MEGAPIXEL
    requests: int = 8
    workers: int = 2
    seconds: float = 60.0

    def on(self, device: torch.device) -> "Limits":
        """Return the limits for a model on a device: on Apple's MPS, two threads at a time end the process."""
        return replace(self, workers=1) if device.type == "mps" else self


def default_pixels(form: ImageForm) -> int:
    """Return how many pixels an image may have: fewer where the network takes images in the size in which they come.

    Examples
    --------
    >>> default_pixels(ImageForm(channels=3, pixels="uint8"))
    2500000
    """
    return int((MEGAPIXELS_AS_THEY_ARE if form.preprocessing.size is None else MEGAPIXELS) * MEGAPIXEL)


_SHOWN = 3


class Refusal(Exception):  # noqa: N818  (it is the user's request that is wrong)
    """A request that is refused.

    Attributes
    ----------
    status : int
        Of HTTP, between 400 and 499.
    reason : str
        One sentence.
    files : list of (name, reason)
        Which of the files cannot be used, and why; empty if something else is wrong.
    """

    def __init__(self, status: int, reason: str, files: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.files = list(files)


class TooManyBytesError(ImageError):
    """A file with more bytes than are allowed."""


def refuse_files(errors: Sequence[ImageError]) -> Refusal:
    """Return the refusal of a request with files that cannot be used; the status is that of the first of them.

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


FIELD = "files"
_OTHER_FIELDS = 10
_LONGEST_NAME = 200


@dataclass(frozen=True)
class Upload:
    """The name and the content of a file."""

    name: str
    content: bytes


async def read_uploads(request: Request, limits: Limits) -> list[Upload]:
    """Return the files of a multipart request.

    Raises
    ------
    Refusal
        For another kind of request, one that is too large, takes too long, or has no files.
    """
    if _media_type(request) != "multipart/form-data":
        raise Refusal(415, f"Send files as multipart/form-data in the field '{FIELD}'.")
    try:
        async with asyncio.timeout(limits.seconds):
            parts = await _parse(request, limits)
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


async def _parse(request: Request, limits: Limits) -> list[Upload]:
    parser = MultiPartParser(
        request.headers, _bounded(request, limits.request_bytes), max_files=limits.files, max_fields=_OTHER_FIELDS
    )
    parser.spool_max_size = limits.request_bytes + 1  # beyond this, files would go to the disk
    try:
        form = await parser.parse()
    except MultiPartException as error:
        if error.message.startswith("Too many files"):
            raise Refusal(
                413, f"A request may hold {limits.files} files; send more of them one after the other."
            ) from error
        raise Refusal(400, f"The request is not sound multipart/form-data: {error.message}") from error
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


async def _bounded(request: Request, most: int) -> AsyncGenerator[bytes]:
    """Pass on a body, or refuse it as soon as it is too long or says that it will be."""
    received, declared = 0, request.headers.get("content-length", "")
    too_long = declared.isdecimal() and int(declared) > most
    async for chunk in request.stream():
        received += len(chunk)
        too_long = too_long or received > most
        if not too_long:
            yield chunk
        elif received > 2 * most:
            break
    # What a client still sends is read and dropped for a while: many listen for an answer only when they are done.
    if too_long:
        raise Refusal(413, f"A request may have {most / MEGABYTE:g} MB; send fewer files at a time.")


def image_of(upload: Upload, form: ImageForm, limits: Limits) -> np.ndarray:
    """Return the image (height, width, channels) of a file in the form of a model.

    Raises
    ------
    ImageError
        Names the file and what is wrong with it.
    """
    if len(upload.content) > limits.file_bytes:
        size, most = len(upload.content) / MEGABYTE, limits.file_bytes / MEGABYTE
        raise TooManyBytesError(upload.name, f"has {size:.3g} MB, more than the {most:g} MB allowed")
    header = probe_content(upload.content, upload.name, max_pixels=limits.pixels)
    if header.channels not in _usable_channels(form):  # before memory is needed for all of them
        raise _unlike(upload.name, (header.channels, header.pixels), form)
    image = decode_image(upload.content, upload.name, max_pixels=limits.pixels)
    try:
        image = preprocess_image(_as_grey_if_it_is(image) if form.channels == 1 else image, form.preprocessing)
        if (image.shape[2], pixel_kind(image)) != (form.channels, form.pixels):
            raise _unlike(upload.name, (image.shape[2], pixel_kind(image)), form)
        return check_images(image[None])[0]
    except ImageError:
        raise
    except ValueError as error:
        raise ImageError(upload.name, str(error).rstrip(".")) from error


def _usable_channels(form: ImageForm) -> set[int]:
    if form.preprocessing.color != "keep":
        return {1, 3}
    return {1, 3} if form.channels == 1 else {form.channels}


def _as_grey_if_it_is(image: np.ndarray) -> np.ndarray:
    """Return one channel of three equal ones: what is pasted from a clipboard comes as RGB, grey or not."""
    equal = image.shape[2] == 3 and bool((image == image[..., :1]).all())
    return image[..., :1] if equal else image


def _unlike(name: str, found: tuple[int, str], form: ImageForm) -> ImageError:
    expected = describe_channels(form.channels, form.pixels)
    return ImageError(name, f"has {describe_channels(*found)} pixels, but the model takes {expected} pixels")
