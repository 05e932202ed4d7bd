"""What all ways to get work done have in common."""

import pickle
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from joblib.externals.loky.cloudpickle_wrapper import dumps


class LostWorkerError(RuntimeError):
    """Every process that was given this piece of work died."""


class Outcome(NamedTuple):
    """What came of an argument: a result, or the exception that was raised."""

    argument: Any
    result: Any = None
    error: Exception | None = None


class Pool(Protocol):
    """Where pieces of work are done, one at a time in each place."""

    def n_free(self) -> int:
        """Return how many places wait for work."""

    def is_busy(self) -> bool:
        """Tell whether anything is under way."""

    def submit(self, argument: Any) -> None:
        """Begin a piece; there must be a free place."""

    def finished(self) -> Iterable[Outcome]:
        """Wait for the next pieces to end, and return what came of them; nothing if there may be new free places."""

    def close(self) -> None:
        """Give up what is under way."""


def pack(function: Callable[[Any], Any], keep: Callable[[pickle.PickleBuffer], Any] | None = None) -> bytes:
    """Return a function as bytes that `pickle.loads` understands elsewhere.

    Parameters
    ----------
    function : callable
    keep : callable, optional
        Told every array; where it returns something false, the array is left out of the bytes.
    """
    try:
        return dumps(function, protocol=5, buffer_callback=keep)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise ValueError(f"This work cannot be sent to other processes: {error}.") from error


def lost(argument: Any, n_times: int) -> LostWorkerError:
    """Say that nobody survives a piece of work."""
    return LostWorkerError(
        f"{n_times} processes died one after the other while they worked on {_short(argument)}; the likeliest reason is"
        " too little memory for so many at once."
    )


def _short(argument: Any) -> str:
    text = str(argument)
    return text if len(text) <= 80 else f"{text[:77]}..."
