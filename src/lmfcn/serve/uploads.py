"""The files of a request, read into memory within limits; nothing touches the disk."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from email.message import Message

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from lmfcn.serve.limits import MEGABYTE, Limits
from lmfcn.serve.refusals import Refusal

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
