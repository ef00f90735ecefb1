"""Cancel a request of which nobody else knows whether it has begun."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Protocol, TypeVar

_Item = TypeVar("_Item")


class Cancellable(Protocol):
    """Where a request runs that can be cancelled."""

    def abort(self, cancellation: Cancellation, /) -> bool:
        """Abort the request that has this cancellation; return whether it runs."""


class Cancellation:
    """Cancels the request that is made inside `run`: where it runs, or before it does.

    `Llama.abort` stops what runs now, whoever asked for it. This stops one request and no other, and also one that
    still waits for its turn.

    Attributes
    ----------
    cancelled
        Whether `cancel` was called.
    slots
        Where the request has begun, or None.

    Thread safety: `cancel` may be called from any thread.
    """

    def __init__(self) -> None:
        self.cancelled = False
        self.slots: Cancellable | None = None

    def run(self, function: Callable[[], _Item]) -> _Item:
        """Call a function; the request that it makes is the one that can be cancelled."""
        token = current.set(self)
        try:
            return function()
        finally:
            current.reset(token)

    def cancel(self) -> bool:
        """End the request with the finish reason ``"abort"``; return whether it was running."""
        self.cancelled = True  # first: whoever begins later sees it
        return self.slots is not None and self.slots.abort(self)


current: ContextVar[Cancellation | None] = ContextVar("llamacy_cancellation", default=None)
