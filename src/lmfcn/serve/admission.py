"""Decide which requests may enter: those that wait, that hold memory, and that compute are counted and limited."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import anyio
from starlette.requests import Request

from lmfcn.serve.uploads import MEGABYTE, Limits, Refusal

Result = TypeVar("Result")
_LONGEST_RETRY = 60
_SHARE_OF_LAST = 0.1
_STOPPING = "The server is stopping; ask again when it has started anew."


class Admission:
    """Lets requests in as long as there is room for them. Everything but the work runs on the event loop.

    Attributes
    ----------
    in_progress : int
        Requests that were let in and have no answer yet: they arrive, wait or compute.
    draining : bool
        Whether the server stops: what is in progress is finished, new requests are refused.
    """

    def __init__(self, limits: Limits) -> None:
        self.in_progress = 0
        self.draining = False
        self._limits = limits
        self._workers = anyio.CapacityLimiter(limits.workers)
        self._held_bytes = 0
        self._mean_seconds = 0.0

    @property
    def waiting(self) -> int:
        """Number of requests that have arrived and wait until others are computed."""
        return self._workers.statistics().tasks_waiting

    def check_ready(self) -> None:
        """Refuse if the server is stopping."""
        if self.draining:
            raise Refusal(503, _STOPPING, retry_after=_LONGEST_RETRY)

    @contextmanager
    def admit(self) -> Iterator[Callable[[int], None]]:
        """Let a request in, or refuse it; give a function that counts the bytes that the request holds in memory."""
        self.check_ready()
        self._check_room()
        held = 0

        def hold(n_bytes: int) -> None:
            nonlocal held
            if self._held_bytes + n_bytes > self._limits.held_bytes:
                most = self._limits.held_bytes / MEGABYTE
                raise self._busy(f"Requests of {most:g} MB are in memory")
            held += n_bytes
            self._held_bytes += n_bytes

        self.in_progress += 1
        try:
            yield hold
        finally:
            self.in_progress -= 1
            self._held_bytes -= held

    async def compute(self, request: Request, work: Callable[[], Result]) -> Result:
        """Do the work of a request in a thread when its turn has come, unless too many wait or its client is gone."""
        self._check_room()
        async with self._workers:
            if await request.is_disconnected():
                raise Refusal(400, "The connection was closed before the answer was computed.")
            start = time.perf_counter()
            # Cancelled only if the server cannot wait any longer; the end of the process then ends the thread.
            result = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
            self._mean_seconds += _SHARE_OF_LAST * (time.perf_counter() - start - self._mean_seconds)
            return result

    def _check_room(self) -> None:
        if self._workers.available_tokens < 1 and self.waiting >= self._limits.waiting:
            raise self._busy(f"{self.waiting} requests are waiting")

    def _busy(self, reason: str) -> Refusal:
        seconds = math.ceil((self.waiting + 1) * self._mean_seconds / self._limits.workers)
        retry_after = max(1, min(seconds, _LONGEST_RETRY))
        return Refusal(503, f"{reason}, as many as allowed; ask again in {retry_after} s.", retry_after=retry_after)
