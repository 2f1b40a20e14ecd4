"""Threads that do the work of requests, with bounds on how many wait and for how long."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Semaphore
from typing import Any, TypeVar

from hma.runs.memory_versions import BusyError

MOST_AT_ONCE = 64
"""Requests that a group of threads works on or keeps waiting; more are told to come again."""
BUSY = "too many requests are waiting; nothing was done: send it again later"
STOPPING = "the server is stopping; send it again later"
Answer = TypeVar("Answer")


class Workers:
    """Some threads and the work that waits for them.

    Args:
        threads: How many.
        name: What they are called.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, name)
        self._places = Semaphore(MOST_AT_ONCE)

    async def run(
        self, work: Callable[..., Answer], *given: Any, within: float | None = None
    ) -> Answer:
        """Return what ``work`` returns, or raise :class:`BusyError` where it did not begin.

        Args:
            work: Called in a thread.
            given: Its arguments.
            within: Seconds in which it must begin.
        """
        if not self._places.acquire(blocking=False):
            raise BusyError(BUSY)
        future = self._pool.submit(work, *given)
        future.add_done_callback(lambda _: self._places.release())
        try:
            waited = asyncio.wrap_future(future)
            done, _ = await asyncio.wait([waited], timeout=within)
            if not done and future.cancel():
                raise BusyError(BUSY)
            return await waited
        except asyncio.CancelledError as error:  # what a server does that must stop
            raise BusyError(STOPPING) from error

    def start(self, work: Callable[[], Any]) -> None:
        """Do work for which nobody waits."""
        self._pool.submit(work)

    def stop(self) -> None:
        """Drop what has not begun; what has is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)
