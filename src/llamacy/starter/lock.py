"""An exclusive lock between processes, on a file."""

from __future__ import annotations

import os
import sys
import time
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
else:
    import fcntl

    def _try_lock(fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextmanager
def file_lock(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold an exclusive lock on a file for the length of the block.

    The operating system gives the lock back when the process ends, however it ends. The file stays, unless who holds
    the lock removes it: a process that has opened it before then looks for the file again.

    Parameters
    ----------
    path
        The lock file; created when absent.
    waiting
        Called once when another process holds the lock.
    """
    fd = _locked(path, waiting)
    try:
        yield
    finally:
        os.close(fd)


def _locked(path: Path, waiting: Callable[[], None]) -> int:
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if not _try_lock(fd):
                waiting()
                while not _try_lock(fd):
                    # Polled, not blocked: a blocking lock would keep Ctrl-C waiting on Windows.
                    time.sleep(0.1)
            if _is_open(fd, path):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _is_open(fd: int, path: Path) -> bool:
    """Return whether a file is still the one of a path: a lock on one that was removed keeps nobody out."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False
