"""Who wants to know what happens to the memory of a context, and how it is told."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary, WeakSet

if TYPE_CHECKING:
    from llamacy.core.context import Context


class Observer(Protocol):
    """Holds something that relies on what is in a memory."""

    def invalidate(self, seq_id: int | None, from_pos: int = 0) -> None:
        """Take notice that a sequence, or each of them, may hold something else from a position on."""

    def inherit(self, seq_id_src: int, seq_id_dst: int) -> None:
        """Take notice that a sequence is a copy of another one now."""

    def invalidate_device(self, seq_id: int) -> None:
        """Take notice that what was kept of a sequence on the device was replaced."""

    def close(self) -> None:
        """Let go of everything."""


_lock = threading.Lock()
_observers: WeakKeyDictionary[Context, WeakSet[Observer]] = WeakKeyDictionary()


def observe(context: Context, observer: Observer) -> None:
    """Tell an observer from now on what happens to a context; neither is kept alive by it."""
    with _lock:
        _observers.setdefault(context, WeakSet()).add(observer)


def observers(context: Context) -> list[Observer]:
    """Return the observers of a context."""
    with _lock:
        return list(_observers.get(context, ()))


class Mutations:
    """Tells all observers of one context what was done to its memory; named and called as what was done.

    Call it after the operation, also after one that failed and may have done a part.

    Parameters
    ----------
    context
        Whose memory it is.

    Thread safety: as the context.
    """

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def decode(self, seq_id: int, from_pos: int) -> None:
        """Positions were written from one on."""
        self._invalidate(seq_id, from_pos)

    def clear(self) -> None:
        """Everything was removed."""
        self._invalidate(None)

    def seq_rm(self, seq_id: int, p0: int = -1, p1: int = -1) -> None:
        """Positions ``[p0, p1)`` were removed; of all sequences where `seq_id` is negative."""
        if p1 < 0 or p1 > max(p0, 0):
            self._invalidate(seq_id if seq_id >= 0 else None, max(p0, 0))

    def seq_cp(self, seq_id_src: int, seq_id_dst: int, p0: int = -1, p1: int = -1) -> None:
        """Positions ``[p0, p1)`` of a sequence were copied to another."""
        if seq_id_src == seq_id_dst:
            return
        self._invalidate(seq_id_dst, max(p0, 0))
        if p0 <= 0 and p1 < 0:
            for observer in observers(self._context):
                observer.inherit(seq_id_src, seq_id_dst)

    def seq_keep(self, seq_id: int) -> None:
        """All other sequences were removed."""
        for other in range(self._context.n_seq_max):
            if other != seq_id:
                self._invalidate(other)

    def seq_add(self, seq_id: int, p0: int, p1: int, delta: int) -> None:
        """`delta` was added to the positions ``[p0, p1)``."""
        if delta and (p1 < 0 or p1 > max(p0, 0)):
            # what is moved down may come to lie below
            self._invalidate(seq_id, max(min(p0, p0 + delta), 0))

    def seq_div(self, seq_id: int, p0: int, p1: int, d: int) -> None:
        """The positions ``[p0, p1)`` were divided by `d`."""
        if d != 1 and (p1 < 0 or p1 > max(p0, 0)):
            self._invalidate(seq_id, max(p0, 0) // d)

    def state_set(self) -> None:
        """The whole memory was replaced by a saved state."""
        self._invalidate(None)

    def seq_state_set(self, seq_id: int) -> None:
        """A sequence was replaced by a saved state."""
        self._invalidate(seq_id)

    def seq_state_get_on_device(self, seq_id: int) -> None:
        """The state of a sequence was saved on the device, over the one before."""
        for observer in observers(self._context):
            observer.invalidate_device(seq_id)

    def close(self) -> None:
        """Close all observers, before the context is closed."""
        for observer in observers(self._context):
            observer.close()

    def _invalidate(self, seq_id: int | None, from_pos: int = 0) -> None:
        for observer in observers(self._context):
            observer.invalidate(seq_id, from_pos)
