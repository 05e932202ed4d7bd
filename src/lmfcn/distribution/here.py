"""Work in this process, piece after piece."""

from collections.abc import Callable
from typing import Any

from lmfcn.distribution.pool import Outcome


class Here:
    """One place of work: where the caller is."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self._given: list[Any] = []

    def n_free(self) -> int:
        """Return 1 if nothing was given."""
        return 1 - len(self._given)

    def is_busy(self) -> bool:
        """Tell whether something was given."""
        return bool(self._given)

    def submit(self, argument: Any) -> None:
        """Take a piece."""
        self._given.append(argument)

    def finished(self) -> list[Outcome]:
        """Do it, and return what came of it."""
        argument = self._given.pop()
        try:
            return [Outcome(argument, self._function(argument))]
        except Exception as error:
            return [Outcome(argument, error=error)]

    def close(self) -> None:
        """Have nothing to give up."""
