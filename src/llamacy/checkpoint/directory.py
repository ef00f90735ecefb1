"""The directory of a disk store: names, what is in it, and how a file gets there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from llamacy.checkpoint.fingerprint import Fingerprint
from llamacy.checkpoint.format import Head, address, read_head, read_snapshot, write_snapshot
from llamacy.checkpoint.prefix import Prefix
from llamacy.checkpoint.snapshot import Snapshot
from llamacy.errors import CheckpointError, CorruptCheckpointError, IncompatibleCheckpointError
from llamacy.types import StrPath

SUFFIX = ".snapshot"

#: Seconds after which a file that was being written is what a process left behind that was killed.
ABANDONED_S = 3600.0

_name = re.compile(r"[0-9a-f]{40}" + re.escape(SUFFIX))
_unfinished = re.compile(r"\.[0-9a-f]{40}\.[0-9a-f]{16}\.tmp")


class Listed(NamedTuple):
    """One file of a directory."""

    directory: Path
    name: str
    n_bytes: int
    #: When it was used last, in nanoseconds since 1970.
    used_ns: int

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.directory / self.name


def checked_directory(given: StrPath) -> Path:
    """Return a path that is a directory, or that nothing is at yet.

    Raises
    ------
    CheckpointError
        It is something else, or there can't be a directory.
    """
    name = os.fsdecode(given)
    if not name:
        raise CheckpointError("the path of the directory is empty; give '.' for the current one")
    path = Path(name)
    try:
        found = path.stat()
    except FileNotFoundError:
        return path
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{name!r} can't be a directory: {error}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise CheckpointError(f"{name!r} is no directory")
    return path


def snapshot_name(snapshot: Snapshot) -> str:
    """Return the name of the file of a snapshot, which depends on its fingerprint and tokens only."""
    return address(snapshot.fingerprint, snapshot.prefix.elements) + SUFFIX


def snapshot_names(directory: Path) -> set[str]:
    """Return the names of snapshots in a directory, be it files or not; there are none where there is no directory."""
    try:
        return {name for name in os.listdir(directory) if name.endswith(SUFFIX) and _name.fullmatch(name)}
    except FileNotFoundError:
        return set()


def look_at(directory: Path, name: str) -> Listed | None:
    """Return what a name stands for; None where it can't be seen, or is no file but a link or a pipe."""
    try:
        found = os.lstat(directory / name)
    except OSError:
        return None
    return Listed(directory, name, found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


def list_snapshots(directory: Path) -> list[Listed]:
    """Return the snapshots in a directory, in no order."""
    return _listed(directory, snapshot_names(directory))


def list_abandoned(directory: Path) -> list[Listed]:
    """Return what processes left behind that were killed while they wrote."""
    try:
        names = [name for name in os.listdir(directory) if _unfinished.fullmatch(name)]
    except FileNotFoundError:
        return []
    before = time.time_ns() - int(ABANDONED_S * 1e9)
    return [file for file in _listed(directory, names) if file.used_ns < before]


def remove_file(path: Path) -> bool:
    """Remove a file; return whether it has gone, be it by another process."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def open_head(path: Path) -> Head:
    """Read what a file holds.

    Raises
    ------
    CorruptCheckpointError
        It is damaged, foreign, or not under its own name; or it can't be read.
    IncompatibleCheckpointError
        It is of another version of the format.
    FileNotFoundError
        It has gone.
    """
    with _readable(path) as file:
        head = read_head(file)
        _check_name(path, head.fingerprint, head.prefix)
    return head


def open_snapshot(path: Path) -> Snapshot:
    """Read a snapshot, and check all of it.

    Raises
    ------
    CorruptCheckpointError, IncompatibleCheckpointError, FileNotFoundError
        As for `open_head`.
    """
    with _readable(path) as file:
        snapshot = read_snapshot(file)
        _check_name(path, snapshot.fingerprint, snapshot.prefix)
    return snapshot


def save_snapshot(directory: Path, snapshot: Snapshot) -> Path:
    """Write a snapshot into a directory, where it appears whole or not at all; an older file is replaced.

    It is not forced to the disk: when the power fails, the last files may be damaged, which is found out when they are
    read.

    Raises
    ------
    CheckpointError
        It can't be written; an older file is left alone.
    """
    target = directory / snapshot_name(snapshot)
    try:
        # prompts are nobody else's business
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(f"{str(directory)!r} can't be made: {error.strerror or error}") from error
    _write_whole(target, directory / f".{target.stem}.{os.urandom(8).hex()}.tmp", snapshot)
    return target


def save_file(path: StrPath, snapshot: Snapshot) -> None:
    """Write a snapshot to a file of any name, for the user alone; it appears whole or not at all.

    Raises
    ------
    CheckpointError
        It can't be written, or something else than a file is there; what is there is left alone.
    """
    target = Path(os.fsdecode(path))
    try:
        is_file = stat.S_ISREG(target.stat().st_mode)
    except FileNotFoundError:
        is_file = True
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{str(target)!r} can't be written: {error}") from error
    if not is_file:
        raise CheckpointError(f"{str(target)!r} can't be written: it is no file")  # a device, for instance
    if target.is_symlink():
        target = target.resolve()  # the file is replaced, not the link
    _write_whole(target, target.with_name(f".{target.name[:100]}.{os.urandom(8).hex()}.tmp"), snapshot)


def load_file(path: StrPath) -> Snapshot:
    """Read a snapshot from a file of any name, and check all of it.

    Raises
    ------
    CorruptCheckpointError
        It is damaged or foreign, or can't be read.
    IncompatibleCheckpointError
        It is of another version of the format.
    FileNotFoundError
        There is no such file.
    """
    with _readable(Path(os.fsdecode(path))) as file:
        return read_snapshot(file)


def _write_whole(target: Path, temporary: Path, snapshot: Snapshot) -> None:
    try:
        with open(temporary, "xb", opener=_open_private) as file:
            write_snapshot(file, snapshot)
        temporary.replace(target)
    except OSError as error:
        remove_file(temporary)
        raise CheckpointError(f"{str(target)!r} can't be written: {error.strerror or error}") from error
    except BaseException:
        remove_file(temporary)
        raise


def _listed(directory: Path, names: Iterable[str]) -> list[Listed]:
    found = (look_at(directory, name) for name in names)
    return [listed for listed in found if listed is not None]


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise
    except (CorruptCheckpointError, IncompatibleCheckpointError) as error:
        raise type(error)(f"{str(path)!r} is of no use: {error.args[0]}") from error
    except OSError as error:
        raise CorruptCheckpointError(f"{str(path)!r} can't be read: {error.strerror or error}") from error
    except ValueError as error:  # no path at all
        raise CorruptCheckpointError(f"{str(path)!r} can't be read: {error}") from error


def _check_name(path: Path, fingerprint: Fingerprint, prefix: Prefix) -> None:
    if path.stem != address(fingerprint, prefix.elements):
        raise CorruptCheckpointError("it has the name of another snapshot")


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
