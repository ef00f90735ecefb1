"""Snapshots of what sequences hold, the stores that keep them, and checkpoints inside a live context."""

from llamacy.checkpoint.disk import DiskStore
from llamacy.checkpoint.fingerprint import Fingerprint, context_fingerprint
from llamacy.checkpoint.prefix import Media, Prefix
from llamacy.checkpoint.ram import RamStore
from llamacy.checkpoint.registry import Checkpoint, Registry, pauses
from llamacy.checkpoint.snapshot import Restored, Snapshot, can_cut
from llamacy.checkpoint.stats import StoreStats
from llamacy.checkpoint.store import Hit, Store

__all__ = [
    "Checkpoint",
    "DiskStore",
    "Fingerprint",
    "Hit",
    "Media",
    "Prefix",
    "RamStore",
    "Registry",
    "Restored",
    "Snapshot",
    "Store",
    "StoreStats",
    "can_cut",
    "context_fingerprint",
    "pauses",
]
