"""Rules that lead nowhere, taken out of a grammar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llamacy.grammar.tree import Choice, Node, Ref, Repeat, refs

NEVER = Choice(())


def prune(rules: Mapping[str, Node], root: str) -> dict[str, Node]:
    """Return the rules that some text uses, without alternatives that no text can use.

    Parameters
    ----------
    rules
        The rules by name. A choice of nothing matches nothing.
    root
        The rule to begin with, which is kept even if it matches nothing.
    """
    alive = _alive(rules)
    left = {name: _without(node, alive) for name, node in rules.items() if name in alive}
    used = {root}
    pending = [root]
    while pending:
        for name in refs(left.get(pending.pop(), NEVER)):
            if name not in used:
                used.add(name)
                pending.append(name)
    return {name: node for name, node in left.items() if name in used}


def _alive(rules: Mapping[str, Node]) -> set[str]:
    """Return the rules that match some text."""
    users: dict[str, list[str]] = {}
    for name, node in rules.items():
        for ref in refs(node):
            users.setdefault(ref, []).append(name)
    alive: set[str] = set()
    pending = list(rules)
    while pending:
        name = pending.pop()
        if name not in alive and _matches(rules[name], alive):
            alive.add(name)
            pending += users.get(name, ())
    return alive


def _matches(node: Any, alive: set[str]) -> bool:
    kind = type(node)
    if kind is Ref:
        return str(node) in alive
    if kind is tuple:
        return all(_matches(part, alive) for part in node)
    if kind is Choice:
        return any(_matches(part, alive) for part in node)
    if isinstance(node, Repeat):
        return node.minimum == 0 or _matches(node.item, alive)
    return True


def _without(node: Any, alive: set[str]) -> Any:
    """Return a node that matches something without the parts that match nothing."""
    kind = type(node)
    if kind is tuple:
        parts = [_without(part, alive) for part in node]
        return tuple([part for part in parts if part != ()])
    if kind is Choice:
        ways = [_without(part, alive) for part in node if _matches(part, alive)]
        return ways[0] if len(ways) == 1 else Choice(ways)
    if isinstance(node, Repeat):
        if not _matches(node.item, alive):
            return ()
        return Repeat(_without(node.item, alive), node.minimum, node.maximum)
    return node
