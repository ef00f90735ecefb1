"""Where the code of the user is, for warnings."""

from __future__ import annotations

import sys


def levels_to_caller() -> int:
    """Return the ``stacklevel`` with which a warning of the function that calls this points at code outside llamacy."""
    level = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("llamacy."):
        frame = frame.f_back
        level += 1
    return level
