"""A store in memory."""

from __future__ import annotations

from llamacy.checkpoint.index import Entry
from llamacy.checkpoint.snapshot import Snapshot
from llamacy.checkpoint.store import Store


class RamStore(Store[Snapshot]):
    """Keeps snapshots in memory; a snapshot takes `Snapshot.n_bytes`.

    Parameters
    ----------
    capacity_bytes : int
        What the snapshots may take together; the least recently used ones go first.

    Pickled is its capacity, not what it holds.

    Thread safety: may be used by several threads.
    """

    def __init__(self, capacity_bytes: int = 2 << 30) -> None:
        super().__init__(capacity_bytes)

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
