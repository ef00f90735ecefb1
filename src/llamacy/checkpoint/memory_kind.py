"""Which memories a state can be taken of, and how far back these can go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llamacy.errors import CheckpointError, ClosedError

if TYPE_CHECKING:
    from llamacy.core.context import Context
    from llamacy.core.memory import Memory


def can_cut(context: Context) -> bool:
    """Return whether a restored sequence can be cut back to any earlier position.

    That is so for attention without a window. Recurrent state goes on from where it was saved only; so does a sliding
    window, also with ``swa_full``: llama.cpp saves no cells beyond the window.
    """
    return checked_memory(context).kind == "attention"


def checked_memory(context: Context) -> Memory:
    """Return the memory of an open context that has one; raise `ClosedError` or `CheckpointError` otherwise."""
    if context.closed:
        raise ClosedError("the context is closed")
    memory = context.memory
    if memory is None:
        raise CheckpointError("a model of this kind has no memory, so there is no state to keep")
    return memory
