"""Grammars as networks of positions, for `llamacy.grammar.matcher`.

A rule becomes positions that say what may come next: a character, one of several positions, another rule and then a
position. What a repetition says is written once: a position of its own counts how often it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from llamacy.errors import GrammarError
from llamacy.grammar.charset import CharSet
from llamacy.grammar.tree import Choice, Node, Ref, Repeat, Rules, Token

RETURN = 0  # the position at the end of every rule

CHARACTER, SPLIT, CALL, COUNT = range(1, 5)


class Network:
    """The positions of a grammar, by number.

    Parameters
    ----------
    rules
        The grammar; `llamacy.grammar.check.check` found nothing wrong with it.

    Attributes
    ----------
    start
        Where a text begins.
    kind
        What a position is: `CHARACTER` reads one character, `SPLIT` goes on at one of its `targets`, `CALL` reads a
        rule, `COUNT` reads a group as often as its `bounds` say.
    follow
        Where a position goes on when it was read (`CHARACTER`, `CALL`, `COUNT`).
    entry
        Where the rule or group begins (`CALL`, `COUNT`).
    targets, bounds
        See `kind`.
    text, index
        A `CHARACTER` is one of a set, ``text``, or that of a literal, ``text[index]``.
    rule
        Name of the rule that a position belongs to.
    nullable
        Whether the end of the rule can be reached from a position without reading anything.
    alive
        Whether it can be reached at all.

    Raises
    ------
    GrammarError
        The grammar speaks of tokens, which no text shows.
    """

    def __init__(self, rules: Rules) -> None:
        self.kind: list[int] = []
        self.follow: list[int] = []
        self.entry: list[int] = []
        self.targets: list[tuple[int, ...]] = []
        self.bounds: list[tuple[int, int | None]] = []
        self.text: list[str | CharSet] = []
        self.index: list[int] = []
        self.rule: list[str] = []
        self._new("")
        self._rules = rules.rules
        self._entries: dict[str, int] = {}
        self._todo: list[tuple[Node, int, int]] = []  # what is to be read at a position, and where it goes on
        self.start = self._entry_of(rules.root)
        while self._todo:
            self._write(*self._todo.pop())
        self.follow = [self._resolved(position) for position in self.follow]
        self.alive = self._reaching(self._is_alive)
        self.nullable = self._reaching(self._is_nullable)

    # from trees to positions

    def _new(self, rule: str) -> int:
        self.kind.append(SPLIT)
        self.follow.append(RETURN)
        self.entry.append(RETURN)
        self.targets.append(())
        self.bounds.append((1, 1))
        self.text.append("")
        self.index.append(0)
        self.rule.append(rule)
        return len(self.kind) - 1

    def _entry_of(self, name: str) -> int:
        entry = self._entries.get(name)
        if entry is None:
            entry = self._entries[name] = self._new(name)
            self._todo.append((self._rules[name], entry, RETURN))
        return entry

    def _write(self, node: Node, at: int, follow: int) -> None:
        kind = type(node)
        if kind is str:
            self._write_literal(cast(str, node), at, follow)
        elif kind is CharSet:
            self.kind[at], self.text[at], self.follow[at] = CHARACTER, cast(CharSet, node), follow
        elif kind is Ref:
            self.kind[at], self.entry[at], self.follow[at] = CALL, self._entry_of(str(node)), follow
        elif kind is tuple:
            self._write_sequence(cast("tuple[Node, ...]", node), at, follow)
        elif kind is Choice:
            self.targets[at] = tuple([self._new(self.rule[at]) for _ in cast(Choice, node)])
            self._todo += [(part, to, follow) for part, to in zip(cast(Choice, node), self.targets[at], strict=True)]
        elif kind is Repeat:
            self._write_repetition(cast(Repeat, node), at, follow)
        else:
            token = cast(Token, node).token
            raise GrammarError(
                f"rule {self.rule[at]!r} speaks of the token {token!r}, and which tokens a text was made of can't be "
                "seen from it"
            )

    def _write_literal(self, literal: str, at: int, follow: int) -> None:
        if not literal:
            self.targets[at] = (follow,)
        for index in range(len(literal)):
            to = follow if index == len(literal) - 1 else self._new(self.rule[at])
            self.kind[at], self.text[at], self.index[at], self.follow[at] = CHARACTER, literal, index, to
            at = to

    def _write_sequence(self, items: tuple[Node, ...], at: int, follow: int) -> None:
        if not items:
            self.targets[at] = (follow,)
        for index, item in enumerate(items):
            to = follow if index == len(items) - 1 else self._new(self.rule[at])
            self._todo.append((item, at, to))
            at = to

    def _write_repetition(self, node: Repeat, at: int, follow: int) -> None:
        item = self._new(self.rule[at])
        if node.maximum is None and node.minimum <= 1:
            again = at
            if node.minimum:
                again = self._new(self.rule[at])
                self.targets[at] = (item,)
            self.targets[again] = (item, follow)
            self._todo.append((node.item, item, again))
        elif (node.minimum, node.maximum) == (0, 1):
            self.targets[at] = (item, follow)
            self._todo.append((node.item, item, follow))
        else:
            self.kind[at], self.entry[at], self.follow[at] = COUNT, item, follow
            self.bounds[at] = node.minimum, node.maximum
            self._todo.append((node.item, item, RETURN))

    def _resolved(self, position: int) -> int:
        """Return where a position leads when it leads to one place only."""
        while self.kind[position] == SPLIT and len(self.targets[position]) == 1:
            position = self.targets[position][0]
        return position

    # what is known of positions

    def _is_alive(self, position: int, known: list[bool]) -> bool:
        kind = self.kind[position]
        if kind == SPLIT:
            return any(known[target] for target in self.targets[position])
        if not known[self.follow[position]]:
            return False
        if kind == CHARACTER:
            return bool(self.text[position])
        return known[self.entry[position]] or (kind == COUNT and self.bounds[position][0] == 0)

    def _is_nullable(self, position: int, known: list[bool]) -> bool:
        return self.kind[position] != CHARACTER and self._is_alive(position, known)

    def _reaching(self, holds: Callable[[int, list[bool]], bool]) -> list[bool]:
        """Return for which positions something holds, which begins to hold at `RETURN`."""
        uses: list[list[int]] = [[] for _ in self.kind]
        for position in range(1, len(self.kind)):
            for other in (self.follow[position], self.entry[position], *self.targets[position]):
                uses[other].append(position)
        known = [False] * len(self.kind)
        known[RETURN] = True
        todo = [RETURN]
        while todo:
            for position in uses[todo.pop()]:
                if not known[position] and holds(position, known):
                    known[position] = True
                    todo.append(position)
        return known

    def reads(self, position: int, char: str) -> bool:
        """Say whether a `CHARACTER` position reads this one."""
        text = self.text[position]
        return text[self.index[position]] == char if type(text) is str else cast(CharSet, text).has(char)

    def leftmost(self, positions: Iterable[int]) -> list[int]:
        """Return the positions that some lead to without anything being read, each before those that it leads to.

        Where positions lead to each other in a circle, as those of ``("a"*)*`` do, some come after one they lead to.
        """
        order: list[int] = []
        seen = {RETURN}
        path = [(RETURN, iter(positions))]
        while path:
            here, others = path[-1]
            for other in others:
                if other not in seen and self.alive[other]:
                    seen.add(other)
                    path.append((other, iter(self._next(other))))
                    break
            else:
                path.pop()
                if path:
                    order.append(here)
        return order[::-1]

    def _next(self, position: int) -> list[int]:
        kind = self.kind[position]
        if kind == SPLIT:
            return list(self.targets[position])
        if kind == CHARACTER:
            return []
        found = [self.entry[position]]
        if self.nullable[self.entry[position]] or (kind == COUNT and self.bounds[position][0] == 0):
            found.append(self.follow[position])
        return found
