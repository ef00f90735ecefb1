"""Snapshots of what sequences hold, the stores that keep them, and checkpoints inside a live context.

The names are loaded when they are first used, so that a `Llama` without a cache pays nothing for them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamacy.checkpoint.disk import DiskStore
    from llamacy.checkpoint.fingerprint import Fingerprint, context_fingerprint
    from llamacy.checkpoint.memory_kind import can_cut
    from llamacy.checkpoint.prefix import Media, Prefix
    from llamacy.checkpoint.ram import RamStore
    from llamacy.checkpoint.registry import Checkpoint, Registry, pauses
    from llamacy.checkpoint.snapshot import Restored, Snapshot
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

_HOMES = {
    "disk": "DiskStore",
    "fingerprint": "Fingerprint context_fingerprint",
    "memory_kind": "can_cut",
    "prefix": "Media Prefix",
    "ram": "RamStore",
    "registry": "Checkpoint Registry pauses",
    "snapshot": "Restored Snapshot",
    "stats": "StoreStats",
    "store": "Hit Store",
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return value
