"""Write a file so that it appears whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from llamacy._paths import file_name
from llamacy.types import StrPath


@contextmanager
def replacing(path: StrPath) -> Iterator[str]:
    """Give the name of a file that takes the place of `path` when the block ends without an exception.

    It is in the same directory, so that the exchange is one rename; after an exception it is removed. OSError says that
    nothing can be written there.
    """
    target = Path(file_name(path))
    if target.is_symlink():
        target = target.resolve()  # the file is replaced, not the link
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(target))
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "Not a regular file", str(target))  # a device is not to be replaced
    temporary = target.parent / f".{target.name[:100]}.{os.urandom(4).hex()}.tmp"
    try:
        # a folder that does not exist, or can't be written to, is told here, before any work
        temporary.touch(exist_ok=False)
    except OSError as error:
        error.filename = str(target)
        raise
    try:
        yield str(temporary)
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
