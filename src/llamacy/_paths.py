"""Names of files, as callers give them."""

from __future__ import annotations

import errno
import os

from llamacy.types import StrPath


def file_name(path: StrPath | bytes) -> str:
    """Return a path as text.

    Raises
    ------
    OSError
        No file can have this name: it has a NUL character, or one that the file system has no bytes for. Of such a name
        Python's own functions raise ValueError, which who handles files that can't be opened does not expect.
    TypeError
        It is no path.
    """
    name = os.fsdecode(path)
    try:
        usable = b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise OSError(errno.EINVAL, "No file can have this name", name)
    return name
