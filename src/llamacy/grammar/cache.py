"""Grammars that were made lately."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamacy.grammar.grammar import Grammar
    from llamacy.grammar.schema.policy import Policy

_MAX_KEPT = 256

# what a grammar was made of, and its policy, None for the default one
Key = tuple[str | bytes, "Policy | None"]

_kept: dict[Key, Grammar] = {}


def exact_key(value: Any, policy: Policy | None) -> Key | None:
    """Return what equal values have in common; None when the value is not plain JSON.

    The value has to be one that `check_plain` has nothing against: it is written as often as it is referred to.
    """
    try:
        return marshal.dumps(value, 2), policy
    except ValueError:
        return None


def quick_key(value: Any, policy: Policy | None) -> Key | None:
    """Return what few but equal values have in common; None when the value is not plain JSON.

    Parts that something else refers to are written once and then referred to. So this is quick for any value, but an
    equal value may be written in another way.
    """
    try:
        return marshal.dumps(value, 4), policy
    except ValueError:
        return None


def find(keys: Sequence[Key | None]) -> Grammar | None:
    """Return the grammar that was kept under the last of some keys, if it is still there."""
    return None if not keys or keys[-1] is None else _kept.get(keys[-1])


def remember(keys: Iterable[Key | None], grammar: Grammar) -> None:
    """Keep a grammar under some keys, in place of the oldest ones when there are many."""
    for key in keys:
        if key is None or key in _kept:
            continue
        while len(_kept) >= _MAX_KEPT:
            _kept.pop(next(iter(_kept)), None)
        _kept[key] = grammar
