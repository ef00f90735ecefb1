"""Automata as rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from llamacy.grammar.automaton import Dfa
from llamacy.grammar.charset import ANY, CharSet
from llamacy.grammar.schema.rulebook import RAW, Rulebook, repeat
from llamacy.grammar.tree import Choice, Node, Ref, Repeat
from llamacy.grammar.work import spend

Spelling = Callable[[Rulebook, CharSet], Node]

# of `llamacy.grammar.work`: for a state or edge
_STEPS = 2
_NOT_RAW = ~RAW
_MAX_NESTING = 12
_MAX_INNER = 64
_SHORT = {0x22: '"', 0x5C: "\\", 8: "b", 9: "t", 10: "n", 12: "f", 13: "r"}


def as_is(_book: Rulebook | None, characters: CharSet) -> Node:
    """Spell characters as what they are."""
    if len(characters) == 1 and characters[0][0] == characters[0][1]:
        return chr(characters[0][0])
    return characters


def in_json(book: Rulebook, characters: CharSet) -> Node:
    """Spell characters as they stand in a JSON string: any way when all of them may, else escaped only if they must."""
    if characters == ANY:
        return book.shared("char")
    ways = _ways_in_json(characters)
    if len(ways) == 1:
        return ways[0]
    return ways if len(ways) < 3 else book.add("character", ways)


@lru_cache(maxsize=256)
def _ways_in_json(characters: CharSet) -> Choice:
    """Return the ways to write characters: as they are, and those that a JSON string can't hold like that escaped."""
    raw = characters & RAW
    ways: list[Node] = [as_is(None, raw)] if raw else []
    codes = [code for low, high in characters & _NOT_RAW for code in range(low, high + 1)]
    short = "".join([_SHORT[code] for code in codes if code in _SHORT])
    if short:
        ways.append("\\" + short if len(short) == 1 else ("\\", CharSet.of(short)))
    for high in (0, 1):
        digits = "".join([f"{code & 15:x}" for code in codes if code < 0x20 and code >> 4 == high])
        if digits:
            ways.append((f"\\u00{high}", CharSet.of(digits, digits.upper())))
    return Choice(ways)


class AutomatonWriter:
    """Writes one automaton as rules that never need to look ahead.

    Parameters
    ----------
    book
        Where rules go that are needed more than once.
    kind
        What they are called.
    dfa
        A language that is not empty.
    spell
        How a set of characters is written.
    close
        What follows each text.
    """

    def __init__(self, book: Rulebook, kind: str, dfa: Dfa, spell: Spelling, close: str) -> None:
        self._book = book
        self._kind = kind
        self._edges = dfa.edges
        self._accepting = dfa.accepting
        self._spell = spell
        self._close = close
        self._spelled: dict[CharSet, Node] = {}
        self._refs: dict[int, Ref] = {}
        self._pending: list[int] = []

    def write(self) -> Node:
        """Return the node of the language; states that more than one way leads to are rules."""
        spend(_STEPS * (len(self._edges) + sum(map(len, self._edges))))
        entries = [0] * len(self._edges)
        for state, edges in enumerate(self._edges):
            for _, target in edges:
                entries[target] += target != state
        for state, n in enumerate(entries):
            if n > (state != 0) and self._edges[state]:
                self._make_rule(state)
        start = self._refs.get(0) or self._sequence(0, 0)
        while self._pending:
            state = self._pending.pop()
            self._book.define(self._refs[state], self._sequence(state, 0))
        return start

    def _make_rule(self, state: int) -> Ref:
        ref = self._refs[state] = self._book.new(self._kind)
        self._pending.append(state)
        return ref

    def _character(self, characters: CharSet) -> Node:
        node = self._spelled.get(characters)
        if node is None:
            node = self._spelled[characters] = self._spell(self._book, characters)
        return node

    def _go(self, state: int, nesting: int) -> Node:
        """Return what may follow once a state is entered."""
        ref = self._refs.get(state)
        if ref is None and nesting > _MAX_NESTING:
            ref = self._make_rule(state)
        return ref if ref is not None else self._sequence(state, nesting)

    def _sequence(self, state: int, nesting: int) -> Node:
        """Return what may follow in a state, up to states that are rules."""
        parts: list[Node] = []
        while True:
            others: Sequence[tuple[CharSet, int]] = self._edges[state]
            loops = [characters for characters, target in others if target == state]
            if loops:
                others = [edge for edge in others if edge[1] != state]
            accepts = state in self._accepting
            if loops:
                _repeat(parts, self._character(loops[0]), 0, None)
            elif len(others) == 1:
                n, end = self._run(state)
                if accepts and n:
                    _repeat(parts, self._character(others[0][0]), 0, n)
                    return _whole([*parts, self._close])
                if n > 1:
                    _repeat(parts, self._character(others[0][0]), n, n)
                    if end in self._refs:
                        return _whole([*parts, self._refs[end]])
                    state = end
                    continue
            if not others:
                return _whole([*parts, self._close])
            if accepts or len(others) > 1:
                break
            parts.append(self._character(others[0][0]))
            state = others[0][1]
            if state in self._refs:
                return _whole([*parts, self._refs[state]])
        branches = [
            joined([self._character(characters), self._go(target, nesting + 1)]) for characters, target in others
        ]
        if not accepts:
            parts.append(Choice(branches))
        elif self._close:
            parts.append(Choice((*branches, self._close)))
        elif _is_short(branches):
            parts.append(Repeat(branches[0] if len(branches) == 1 else Choice(branches), 0, 1))
        else:
            parts.append(Choice((*branches, ())))
        return _whole(parts)

    def _run(self, state: int) -> tuple[int, int]:
        """Return how many equal steps can be taken at once from a state, and where they lead.

        From an accepting state they must lead to the end of all texts, since each of them may be the last one.
        """
        characters = self._edges[state][0][0]
        accepts = state in self._accepting
        n = 0
        while True:
            edges = self._edges[state]
            same = len(edges) == 1 and edges[0][0] == characters and (state in self._accepting) is accepts
            if not same or edges[0][1] == state or (n and state in self._refs):
                break
            state = edges[0][1]
            n += 1
        if accepts and (self._edges[state] or state not in self._accepting or state in self._refs):
            return 0, state
        return n, state


def _repeat(parts: list[Node], item: Node, minimum: int, maximum: int | None) -> None:
    """Append a repetition, and make one with an equal item before it part of it."""
    before = parts[-1] if parts else None
    if isinstance(before, Repeat) and before.item == item:
        parts.pop()
        minimum += before.minimum
        maximum = None if maximum is None or before.maximum is None else maximum + before.maximum
    elif before == item and type(before) is type(item):
        parts.pop()
        minimum += 1
        maximum = None if maximum is None else maximum + 1
    parts.append(Repeat(item, minimum, maximum))


def _whole(parts: list[Node]) -> Node:
    """Return a sequence in which no repetition is too long for llama.cpp."""
    short: list[Node] = []
    for part in parts:
        short += repeat(part.item, part.minimum, part.maximum) if isinstance(part, Repeat) else (part,)
    return joined(short)


def _is_short(nodes: Iterable[Node]) -> bool:
    """Return whether nodes have no long repetitions, which llama.cpp would multiply by one around them."""
    for node in nodes:
        if isinstance(node, Repeat):
            if (node.maximum or node.minimum) > _MAX_INNER or not _is_short((node.item,)):
                return False
        elif type(node) is tuple or type(node) is Choice:
            inner: Any = node
            if not _is_short(inner):
                return False
    return True


def joined(parts: list[Node]) -> Node:
    """Return a sequence without sequences in it, in which literals that stand together are one."""
    merged: list[Node] = []
    for part in parts:
        items: Any = part if type(part) is tuple else (part,)
        for item in items:
            if type(item) is str and merged and type(merged[-1]) is str:
                merged[-1] = merged[-1] + item
            elif type(item) is not str or item:
                merged.append(item)
    return merged[0] if len(merged) == 1 else tuple(merged)
