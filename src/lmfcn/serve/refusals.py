"""Requests that cannot be answered: a status, and the reason in one sentence."""

from collections.abc import Sequence

from lmfcn.data.images import ImageError, TooManyPixelsError, UnknownFormatError

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
