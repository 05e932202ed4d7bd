"""Pages that a command writes beside its tables, where the packages for them are installed."""

from collections.abc import Callable
from pathlib import Path


def write_report(find_writer: Callable[[], Callable[..., None]], path: Path, *content: object) -> str:
    """Write a page and return what to say about it; without the packages for it, the rest is there all the same.

    Parameters
    ----------
    find_writer : callable
        Returns the function that writes the page, or raises ImportError with advice.
    path : Path
        Of the page.
    *content
        What that function takes.
    """
    try:
        write = find_writer()
    except ImportError as error:
        return str(error)
    write(*content)
    return f"Report: {path}"
