"""What stores of snapshots have in common: searching, counting, and restoring what was found."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from llamacy.checkpoint.fingerprint import Fingerprint, context_fingerprint
from llamacy.checkpoint.index import Entry, Index
from llamacy.checkpoint.memory_kind import can_cut
from llamacy.checkpoint.prefix import Prefix
from llamacy.checkpoint.snapshot import Restored, Snapshot
from llamacy.checkpoint.stats import StoreStats
from llamacy.errors import ClosedError

if TYPE_CHECKING:
    from typing_extensions import Self

    from llamacy.core.context import Context
    from llamacy.types import AnyBuffer

_Payload = TypeVar("_Payload")


class Hit(NamedTuple):
    """A snapshot that is of use for a query."""

    snapshot: Snapshot
    #: How much of it is: elements from the beginning on.
    n_elements: int


class Store(ABC, Generic[_Payload]):
    """Keeps snapshots, and finds the one that saves most of the work of decoding a prompt.

    All stores find the same for the same query, and count in the same way. May be shared by contexts and models: a
    snapshot is only found for where it belongs.

    Parameters
    ----------
    capacity_bytes : int
        What the snapshots may take together; the least recently used ones go first.

    Raises
    ------
    ValueError
        The capacity is not positive.

    Thread safety: may be used by several threads.
    """

    def __init__(self, capacity_bytes: int) -> None:
        if capacity_bytes < 1:
            raise ValueError(f"capacity_bytes must be positive, not {capacity_bytes}")
        self._lock = threading.RLock()
        self._index: Index[_Payload] = Index()
        self._stats = StoreStats(capacity_bytes=capacity_bytes)
        self._closed = False

    @property
    def capacity_bytes(self) -> int:
        """What the snapshots may take together."""
        return self._stats.capacity_bytes

    @property
    def stats(self) -> StoreStats:
        """Counts so far; a copy."""
        with self._lock:
            return replace(self._stats, n_entries=len(self._index), n_bytes=self._n_bytes())

    @property
    def n_bytes(self) -> int:
        """Bytes that the snapshots take."""
        with self._lock:
            return self._n_bytes()

    def __len__(self) -> int:
        """Return the number of snapshots."""
        with self._lock:
            return len(self._index)

    def __repr__(self) -> str:
        name = type(self).__name__
        if self._closed:
            return f"<{name} closed>"
        return f"<{name}{self._where()} of {len(self)} snapshots, {self.n_bytes} of {self.capacity_bytes} bytes>"

    def _where(self) -> str:
        """Return where it is, with a space before it; nothing for memory."""
        return ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether the store is closed."""
        return self._closed

    def close(self) -> None:
        """Let go of everything that is in memory; a closed store takes and gives nothing."""
        with self._lock:
            self._closed = True
            self._index = Index()

    def put(self, snapshot: Snapshot, *, can_cut: bool = False) -> bool:
        """Store a snapshot, as the last used one; of two with the same tokens the one with logits stays.

        Parameters
        ----------
        snapshot
            What to store.
        can_cut
            Whether it can be cut where it belongs: then those that hold a beginning of it are dropped, as it
            serves as well.

        Returns
        -------
        bool
            False when it alone takes more than the store may: it is not stored.

        Raises
        ------
        CheckpointError
            It can't be written.
        ClosedError
            The store is closed.
        """
        with self._timed("write_s"), self._lock:
            self._open()
            n_bytes = self._size(snapshot)
            if n_bytes > self.capacity_bytes:
                self._stats.n_too_large += 1
                return False
            owner = snapshot.fingerprint.digest
            if can_cut:
                # first, so that nothing else has to go for it
                for entry in self._index.covered(owner, snapshot.prefix):
                    self._discard(entry)
            before = self._index.get(owner, snapshot.prefix)
            if before is not None and before.has_logits >= (snapshot.logits is not None):
                self._touch(before)
            else:
                self._store(snapshot, n_bytes)
            self._stats.n_stored += 1
            return True

    def get(self, fingerprint: Fingerprint, prefix: Prefix, *, can_cut: bool = False, n_least: int = 0) -> Hit | None:
        """Return the snapshot that saves most of the work of decoding a prefix.

        What is found leaves something to decode, or has the logits of the last token.

        Parameters
        ----------
        fingerprint
            Where it is to be restored (`context_fingerprint`).
        prefix
            What is to be decoded.
        can_cut
            Whether a snapshot can be cut there back to where it goes on otherwise.
        n_least
            Something is of use only when it has more elements than these, for instance those that the sequence holds;
            what has fewer counts neither as a hit nor as a miss.

        Returns
        -------
        Hit or None

        Raises
        ------
        ClosedError
            The store is closed.
        """
        while True:
            with self._timed("search_s"), self._lock:
                self._open()
                found = self._index.find(fingerprint, prefix, can_cut=can_cut)
                if found is None:
                    self._stats.n_misses += 1
                    return None
                if found.n_elements <= n_least:
                    return None
            # without the lock: other threads go on while a file is read
            with self._timed("read_s"):
                snapshot = self._load(found.entry)
            if snapshot is not None:
                with self._lock:
                    self._touch(found.entry)
                    self._stats.n_hits += 1
                    self._stats.n_tokens_saved += prefix.cells(found.n_elements)
                return Hit(snapshot, found.n_elements)
            with self._lock:
                self._index.remove(found.entry)  # should its file be unknown, after Ctrl-C

    def find(self, context: Context, prefix: Prefix, *, n_least: int = 0) -> Hit | None:
        """Return the snapshot that saves most of the work of decoding a prefix in a context that it fits.

        Parameters
        ----------
        context
            Where it is to be restored.
        prefix, n_least
            As for `get`.

        Returns
        -------
        Hit or None

        Raises
        ------
        CheckpointError, ClosedError
            As for `context_fingerprint`; or the store is closed.
        """
        fingerprint = context_fingerprint(context)
        hit = self.get(fingerprint, prefix, can_cut=can_cut(context), n_least=n_least)
        if hit is not None and hit.snapshot.prefix.cells(len(hit.snapshot.prefix)) > context.n_ctx_seq:
            # a longer one of a larger context, which can't be restored before it is cut
            hit = self.get(fingerprint, prefix, n_least=n_least)
        return hit

    def restore(
        self, context: Context, prefix: Prefix | AnyBuffer | Iterable[int], *, seq_id: int = 0, n_least: int = 0
    ) -> Restored | None:
        """Let a sequence hold as much of a prefix as the store has.

        Parameters
        ----------
        context
            Where to restore it.
        prefix
            What is to be decoded.
        seq_id
            The sequence to replace.
        n_least
            As for `get`.

        Returns
        -------
        Restored or None
            Where to go on; None when there is nothing of use, and nothing was changed.

        Raises
        ------
        CheckpointError
            As for `Snapshot.restore`.
        ClosedError
            The store or the context is closed.
        """
        wanted = prefix if isinstance(prefix, Prefix) else Prefix(prefix)
        hit = self.find(context, wanted, n_least=n_least)
        if hit is None:
            return None
        with self._timed("read_s"):
            return hit.snapshot.restore(context, seq_id=seq_id, n_elements=hit.n_elements)

    def remove(self, snapshot: Snapshot) -> bool:
        """Drop the snapshot of these tokens; return whether there was one."""
        with self._lock:
            self._open()
            entry = self._index.get(snapshot.fingerprint.digest, snapshot.prefix)
            if entry is None:
                return False
            self._discard(entry)
            return True

    def clear(self) -> None:
        """Drop all snapshots."""
        with self._lock:
            self._open()
            for entry in list(self._index):
                self._discard(entry)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                setattr(self._stats, name, getattr(self._stats, name) + time.perf_counter() - start)

    def _open(self) -> None:
        """Be sure that the store is open, and that the index is what there is."""
        if self._closed:
            raise ClosedError("the store is closed")

    def _n_bytes(self) -> int:
        return self._index.n_bytes

    def _touch(self, entry: Entry[_Payload]) -> None:
        self._index.touch(entry)

    @abstractmethod
    def _size(self, snapshot: Snapshot) -> int:
        """Return what a snapshot takes here."""

    @abstractmethod
    def _store(self, snapshot: Snapshot, n_bytes: int) -> None:
        """Make room, store a snapshot and enter it in the index."""

    @abstractmethod
    def _load(self, entry: Entry[_Payload]) -> Snapshot | None:
        """Return the snapshot of an entry; or None after its entry was taken out, as it has gone or is damaged."""

    @abstractmethod
    def _discard(self, entry: Entry[_Payload]) -> None:
        """Drop an entry and what it stands for."""
