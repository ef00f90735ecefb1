"""Write a file so that it appears whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from llamacy.types import StrPath


@contextmanager
def replacing(path: StrPath) -> Iterator[str]:
    """Give the name of a file that takes the place of `path` when the block ends without an exception.

    It is in the same directory, so that the exchange is one rename; after an exception it is removed.
    """
    target = os.fsdecode(path)
    folder, name = os.path.split(os.path.abspath(target))
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, "Is a directory", target)
    temporary = os.path.join(folder, f".{name[:200]}.{secrets.token_hex(4)}.tmp")
    try:
        # a folder that does not exist, or can't be written to, is told here, before any work
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except OSError as error:
        error.filename = target
        raise
    try:
        yield temporary
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
