"""Imports that Ctrl-C doesn't break off.

Extension modules such as NumPy's can't be loaded twice. When an exception ends the first import of NumPy halfway, every
later one fails as long as the process lives, and a request that imports it may well be the moment at which a user
presses Ctrl-C.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import FrameType, ModuleType


def import_whole(name: str) -> ModuleType:
    """Import a module; Ctrl-C is answered when that is done.

    Parameters
    ----------
    name
        The module's whole name.

    Returns
    -------
    ModuleType
        The module.

    Raises
    ------
    ImportError
        There is none, or it can't be imported.

    Thread safety: any thread. Python answers signals in the main thread only, so other threads import as always.
    """
    if name in sys.modules:
        return import_module(name)
    from signal import SIGINT, getsignal, signal  # not at the top: few need it, and it takes a millisecond

    handler = getsignal(SIGINT)
    if not callable(handler):  # nothing is raised
        return import_module(name)
    pressed: list[tuple[int, FrameType | None]] = []

    def later(number: int, frame: FrameType | None) -> None:
        pressed.append((number, frame))

    try:
        signal(SIGINT, later)
    except ValueError:  # not the main thread
        return import_module(name)
    try:
        return import_module(name)
    finally:
        if getsignal(SIGINT) is later:
            signal(SIGINT, handler)
        if pressed:
            handler(*pressed[0])
