"""What a store has done so far."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class StoreStats:
    """Counts of a store since it was opened, and what it holds now."""

    #: Snapshots that it holds.
    n_entries: int = 0
    #: Bytes that they take: in memory, or in files.
    n_bytes: int = 0
    #: Bytes that they may take.
    capacity_bytes: int = 0
    #: Searches that found something of use.
    n_hits: int = 0
    #: Searches that didn't.
    n_misses: int = 0
    #: Tokens, and cells of media, that needn't be decoded thanks to the hits.
    n_tokens_saved: int = 0
    #: Snapshots that were stored.
    n_stored: int = 0
    #: Snapshots that were not, as they alone take more than the store may.
    n_too_large: int = 0
    #: Snapshots that went to make room.
    n_evicted: int = 0
    #: Files that were damaged, cut off, foreign or of another version; each is counted once.
    n_corrupt: int = 0
    #: Seconds spent with searching.
    search_s: float = 0.0
    #: Seconds spent with reading.
    read_s: float = 0.0
    #: Seconds spent with storing.
    write_s: float = 0.0
