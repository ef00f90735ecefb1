"""Requests that don't block an event loop."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from llamacy.errors import ClosedError, InUseError
from llamacy.generate.cancellation import Cancellation

if TYPE_CHECKING:
    from typing_extensions import Self

_Item = TypeVar("_Item")
_END: Any = object()


class Worker:
    """Run the requests of one model in a thread of its own, one after the other, for any number of tasks.

    Thread safety: the tasks of one event loop at a time.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="llamacy")
        # one for each event loop: the requests of a loop wait for each other in the order in which they came
        self._turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()
        self._stream: weakref.ref[Stream[Any]] | None = None  # that has its turn

    async def call(self, request: Callable[[], _Item]) -> _Item:
        """Return what a request returns; when the task is cancelled, the request is aborted."""
        await self._end_own_stream()
        async with self._turn():
            return await self._run(request, Cancellation())

    def iterate(self, request: Callable[[], Iterator[_Item]]) -> Stream[_Item]:
        """Return an iterator of what the iterator of a request yields, which begins when the first item is asked for.

        When the task that waits for an item is cancelled, the request is aborted.
        """
        return Stream(self, request)

    def close(self) -> None:
        """End the thread once what it runs is done."""
        self._thread.shutdown(wait=False)

    async def items(
        self, stream: weakref.ref[Stream[_Item]], request: Callable[[], Iterator[_Item]]
    ) -> AsyncGenerator[_Item, None]:
        """Yield the items of a stream when its turn has come."""
        await self._end_own_stream()
        async with self._turn():
            self._stream = stream
            cancellation = Cancellation()
            items = await self._run(request, cancellation)
            try:
                while (item := await self._run(partial(next, items, _END), cancellation)) is not _END:
                    yield item
            finally:
                self._stream = None
                close: Callable[[], None] = getattr(items, "close", _nothing)
                try:
                    closing = self._submit(close)
                except ClosedError:
                    close()  # the thread is at its end, so nothing of this runs there
                else:
                    await asyncio.shield(closing)

    def _turn(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        turn = self._turns.get(loop)
        if turn is None:
            turn = self._turns[loop] = asyncio.Lock()
        return turn

    async def _end_own_stream(self) -> None:
        """End the stream that has its turn when this very task reads it: the task would wait for itself."""
        stream = None if self._stream is None else self._stream()
        if stream is not None and stream.task is asyncio.current_task():
            stream.overtaken = True
            await stream.aclose()

    def _submit(self, function: Callable[[], _Item]) -> asyncio.Future[_Item]:
        try:
            return asyncio.get_running_loop().run_in_executor(self._thread, function)
        except RuntimeError:
            raise ClosedError("this Llama is closed") from None

    async def _run(self, function: Callable[[], _Item], cancellation: Cancellation) -> _Item:
        """Run a function in the thread; a cancelled task waits until the request has come to its end there."""
        future = self._submit(partial(cancellation.run, function))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(_seen)
            if not future.done() and cancellation.cancel():
                await asyncio.wait([future])
            raise


class Stream(Generic[_Item]):
    """An asynchronous iterator of chunks.

    It ends, and lets the next request have its turn, when it was read to the end, is closed or garbage, or when the
    task that reads it makes another request.

    Parameters
    ----------
    worker
        Where it runs.
    request
        Begins it.

    Attributes
    ----------
    task
        That read from it last.
    overtaken
        Whether a later request of that task has ended it.
    """

    def __init__(self, worker: Worker, request: Callable[[], Iterator[_Item]]) -> None:
        self._items = worker.items(weakref.ref(self), request)
        self.task: asyncio.Task[Any] | None = None
        self.overtaken = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _Item:
        """Return the next item.

        Raises
        ------
        InUseError
            A later request of the same task took over.
        """
        if self.overtaken:
            raise InUseError("a later request took over; a stream must be read before the next one begins")
        self.task = asyncio.current_task()
        return await anext(self._items)

    async def aclose(self) -> None:
        """End it."""
        await self._items.aclose()


def _nothing() -> None:
    pass


def _seen(future: asyncio.Future[Any]) -> None:
    """Take the exception of a future that nobody waits for any more, so that it isn't logged as forgotten."""
    if not future.cancelled():
        future.exception()
