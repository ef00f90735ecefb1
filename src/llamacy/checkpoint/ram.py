"""A store in memory."""

from __future__ import annotations

import os

from llamacy.checkpoint.index import Entry
from llamacy.checkpoint.snapshot import Snapshot
from llamacy.checkpoint.store import Store

_MOST_BYTES = 2 << 30


class RamStore(Store[Snapshot]):
    """Keeps snapshots in memory; a snapshot takes `Snapshot.n_bytes`.

    Parameters
    ----------
    capacity_bytes : int, optional
        What the snapshots may take together; the least recently used ones go first. By default an eighth of the
        machine's memory, but at most 2 GiB.

    Pickled is its capacity, not what it holds.

    Thread safety: may be used by several threads.
    """

    def __init__(self, capacity_bytes: int | None = None) -> None:
        super().__init__(_default_capacity() if capacity_bytes is None else capacity_bytes)

    def __reduce__(self) -> tuple[type[RamStore], tuple[int]]:
        return type(self), (self.capacity_bytes,)

    def _size(self, snapshot: Snapshot) -> int:
        return snapshot.n_bytes

    def _store(self, snapshot: Snapshot, n_bytes: int) -> None:
        before = self._index.get(snapshot.fingerprint.digest, snapshot.prefix)
        if before is not None:
            self._discard(before)
        self._make_room(n_bytes)
        owner, has_logits = snapshot.fingerprint.digest, snapshot.logits is not None
        self._index.add(Entry(owner, snapshot.prefix, has_logits, n_bytes, snapshot))

    def _make_room(self, n_bytes: int) -> None:
        """Drop the least recently used entries until there is room for so many bytes."""
        for entry in list(self._index):
            if self._n_bytes() + n_bytes <= self.capacity_bytes:
                return
            self._discard(entry)
            self._stats.n_evicted += 1

    def _load(self, entry: Entry[Snapshot]) -> Snapshot:
        return entry.payload

    def _discard(self, entry: Entry[Snapshot]) -> None:
        self._index.remove(entry)


def _default_capacity() -> int:
    try:
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on every system
        return _MOST_BYTES
    return min(_MOST_BYTES, memory_bytes // 8)
