"""A store on disk: one directory, which several processes may use at once."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path

from llamacy.checkpoint.directory import (
    Listed,
    checked_directory,
    list_abandoned,
    look_at,
    open_head,
    open_snapshot,
    remove_file,
    save_snapshot,
    snapshot_name,
    snapshot_names,
)
from llamacy.checkpoint.format import file_size
from llamacy.checkpoint.index import Entry
from llamacy.checkpoint.snapshot import Snapshot
from llamacy.checkpoint.store import Store
from llamacy.errors import CheckpointError, CorruptCheckpointError, IncompatibleCheckpointError
from llamacy.types import StrPath

_logger = logging.getLogger("llamacy.checkpoint")

#: Kernels tell the time of a change no finer than by their ticks.
_TICK_NS = 100_000_000


@dataclass(eq=False)
class _File:
    """A file as it was when the directory was last looked at."""

    listed: Listed
    #: None where the file is of no use.
    entry: Entry[str] | None


class DiskStore(Store[str]):
    """Keeps snapshots as files of one directory; a snapshot takes what its file has.

    Files are named after what they hold, appear whole or not at all, and are checked before anything of them is used.
    One that is damaged, foreign or of another version is reported by `logging` (``llamacy.checkpoint``), counted and
    left out. When they were used last is the time of their last modification.

    Parameters
    ----------
    directory : path
        Created when there is something to store, for the user alone.
    capacity_bytes : int
        What the files may take together, those of all processes; the least recently used ones are removed. Processes
        that write at the same moment may go beyond it by what they write.

    Raises
    ------
    CheckpointError
        It can't be read, or isn't a directory.

    Pickled is where it is, not what it holds.

    Thread safety: may be used by several threads, and by several processes, which see what others stored.
    """

    def __init__(self, directory: StrPath, capacity_bytes: int = 16 << 30) -> None:
        super().__init__(capacity_bytes)
        self._directory = checked_directory(directory)
        self._files: dict[str, _File] = {}
        self._seen_ns: int | None = None
        self._stamp_ns = 0
        with self._lock:
            self._refresh()
            for file in list_abandoned(self._directory):
                remove_file(file.path)

    def __reduce__(self) -> tuple[type[DiskStore], tuple[str, int]]:
        return type(self), (str(self._directory), self.capacity_bytes)

    @property
    def directory(self) -> Path:
        """The directory."""
        return self._directory

    def _where(self) -> str:
        return f" {str(self._directory)!r}"

    def close(self) -> None:
        """Let go of what is in memory; the files stay."""
        super().close()
        self._files.clear()

    def _open(self) -> None:
        super()._open()
        self._refresh()

    def _n_bytes(self) -> int:
        # also files of no use take room
        return sum(file.listed.n_bytes for file in self._files.values())

    def _size(self, snapshot: Snapshot) -> int:
        return file_size(snapshot)

    def _store(self, snapshot: Snapshot, n_bytes: int) -> None:
        name = snapshot_name(snapshot)
        self._make_room_beside(name, n_bytes)
        save_snapshot(self._directory, snapshot)
        self._forget(name)
        self._notice(name)
        if name in self._files:
            self._touch_file(self._files[name])

    def _make_room_beside(self, name: str, n_bytes: int) -> None:
        """Remove the least recently used files, but not the one that is to be replaced."""
        others = [file for other, file in self._files.items() if other != name]
        left = sum(file.listed.n_bytes for file in others)
        while others and left + n_bytes > self.capacity_bytes:
            file = min(others, key=lambda file: file.listed.used_ns)
            listed = look_at(self._directory, file.listed.name)
            if listed is not None and listed.used_ns > file.listed.used_ns:
                # another process used it
                left += listed.n_bytes - file.listed.n_bytes
                file.listed = listed
                continue
            if not self._remove_file(file):
                raise CheckpointError(f"{str(file.listed.path)!r} can't be removed to make room")
            others.remove(file)
            left -= file.listed.n_bytes
            self._stats.n_evicted += 1

    def _load(self, entry: Entry[str]) -> Snapshot | None:
        # before the file is opened: should it be replaced meanwhile, it doesn't look like this afterwards
        listed = look_at(self._directory, entry.payload)
        try:
            if listed is None:
                raise FileNotFoundError  # also a pipe has come in its place, on which opening would wait
            return open_snapshot(self._directory / entry.payload)
        except FileNotFoundError:
            with self._lock:
                self._forget(entry.payload)
        except (CorruptCheckpointError, IncompatibleCheckpointError) as error:
            with self._lock:
                file = self._files.get(entry.payload)
                if file is not None and file.entry is entry:
                    file.listed = listed or file.listed
                    self._reject(file, error)
        return None

    def _discard(self, entry: Entry[str]) -> None:
        file = self._files.get(entry.payload)
        if file is not None and not self._remove_file(file):
            raise CheckpointError(f"{str(file.listed.path)!r} can't be removed")

    def _remove_file(self, file: _File) -> bool:
        if not remove_file(file.listed.path):
            return False
        self._forget(file.listed.name)
        return True

    def _touch(self, entry: Entry[str]) -> None:
        super()._touch(entry)
        file = self._files.get(entry.payload)
        if file is not None:
            self._touch_file(file)

    def _touch_file(self, file: _File) -> None:
        """Make a file the last used one, for other processes too."""
        # clocks may stand still, or go back
        self._stamp_ns = max(time.time_ns(), self._stamp_ns + 1)
        file.listed = file.listed._replace(used_ns=self._stamp_ns)
        try:
            os.utime(file.listed.path, ns=(self._stamp_ns, self._stamp_ns))
        except OSError:
            return  # it has gone, or belongs to somebody else: then its place in the order is for this process only

    def _refresh(self) -> None:
        """Let the index be what is in the directory."""
        now_ns = time.time_ns()
        try:
            changed_ns = self._directory.stat().st_mtime_ns
        except OSError:
            changed_ns = None
        if changed_ns is not None and changed_ns == self._seen_ns:
            return
        try:
            names = snapshot_names(self._directory)
        except OSError as error:
            raise CheckpointError(f"{str(self._directory)!r} can't be read: {error.strerror}") from error
        for name in self._files.keys() - names:
            self._forget(name)
        for name in names:
            # what has a name holds what it says; only one of no use may have been replaced by a sound one
            known = self._files.get(name)
            if known is None or known.entry is None:
                self._notice(name)
        # a change in the same tick of the clock as this look wouldn't show
        self._seen_ns = changed_ns if changed_ns is not None and changed_ns < now_ns - _TICK_NS else None

    def _notice(self, name: str) -> None:
        """Enter a file in the index, unless it is known to be of no use."""
        listed = look_at(self._directory, name)
        known = self._files.get(name)
        if listed is None or (known is not None and known.listed == listed):
            return
        self._forget(name)
        try:
            head = open_head(listed.path)
        except FileNotFoundError:
            return
        except (CorruptCheckpointError, IncompatibleCheckpointError) as error:
            file = self._files[name] = _File(listed, None)
            self._reject(file, error)
            return
        has_logits = head.n_logits_bytes > 0
        entry = Entry(head.fingerprint.digest, head.prefix, has_logits, listed.n_bytes, name)
        self._index.add(entry)
        self._files[name] = _File(listed, entry)

    def _forget(self, name: str) -> None:
        file = self._files.pop(name, None)
        if file is not None and file.entry is not None:
            self._index.remove(file.entry)

    def _reject(self, file: _File, error: CheckpointError) -> None:
        """Take a file of no use out of the index, and say so."""
        _logger.warning("%s; it is left out", str(error))
        self._stats.n_corrupt += 1
        if file.entry is not None:
            self._index.remove(file.entry)
            file.entry = None
