"""Requests that don't block an event loop."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_Item = TypeVar("_Item")
_END: Any = object()


class Worker:
    """Run the requests of one model in a thread of its own, one after the other, for any number of tasks.

    Parameters
    ----------
    abort
        Stops the request that runs.

    Thread safety: the tasks of one event loop at a time.
    """

    def __init__(self, abort: Callable[[], None]) -> None:
        self._abort = abort
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="llamacy")
        # one for each event loop: the requests of a loop wait for each other in the order in which they came
        self._turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()

    async def call(self, request: Callable[[], _Item]) -> _Item:
        """Return what a request returns; when the task is cancelled, the request is aborted."""
        async with self._turn():
            return await self._run(request)

    async def iterate(self, request: Callable[[], Iterator[_Item]]) -> AsyncGenerator[_Item, None]:
        """Yield what the iterator of a request yields; it ends when the task is cancelled or stops reading."""
        async with self._turn():
            items = await self._run(request)
            try:
                while (item := await self._run(lambda: next(items, _END))) is not _END:
                    yield item
            finally:
                close = getattr(items, "close", None)
                if close is not None:
                    await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, close))

    def close(self) -> None:
        """End the thread once what it runs is done."""
        self._thread.shutdown(wait=False)

    def _turn(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        turn = self._turns.get(loop)
        if turn is None:
            turn = self._turns[loop] = asyncio.Lock()
        return turn

    async def _run(self, function: Callable[[], _Item]) -> _Item:
        """Run a function in the thread; a cancelled task waits until it has come to its end."""
        future = asyncio.get_running_loop().run_in_executor(self._thread, function)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not future.done():
                self._abort()
                await asyncio.wait([future])
            raise
