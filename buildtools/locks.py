"""An exclusive lock between processes, on a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    def _try_lock(fd: int) -> bool:
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _wait_lock(fd: int) -> None:
        while not _try_lock(fd):
            # LK_LOCK gives up after ten seconds, so it is asked again until it succeeds.
            try:
                msvcrt.locking(fd, msvcrt.LK_LOCK, 1)
            except OSError:
                continue
            return
else:
    import fcntl

    def _try_lock(fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _wait_lock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX)


@contextmanager
def file_lock(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold an exclusive lock on `path` for the length of the block.

    Parameters
    ----------
    path : Path
        The lock file. It is created when absent and left behind: removing a lock file while another process
        waits on it would let two processes in.
    waiting : callable, optional
        Called once, before waiting, when another process holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _try_lock(fd):
            if waiting is not None:
                waiting()
            _wait_lock(fd)
        yield
    finally:
        # Closing the descriptor releases the lock, also when the process dies.
        os.close(fd)
