"""Grammars as trees.

A node is made of the plainest type that can carry it, because a schema with hundreds of properties makes thousands:

====================  ================================================
``str``               these characters, one after the other
``tuple``             a sequence of nodes; ``()`` is the empty text
`CharSet`             one character of a set
`Choice`              one of several nodes
`Repeat`              a node several times over
`Ref`                 what a rule says
`Token`               one token of the vocabulary, whatever its text is
====================  ================================================

All are immutable and hashable, so equal parts of a grammar can share one rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Union

from llamacy.grammar.charset import CharSet


class Choice(tuple["Node", ...]):
    """One of several nodes."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Choice) and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__

    def __repr__(self) -> str:
        return f"Choice({tuple.__repr__(self)})"


class Ref(str):
    """What the rule of this name says.

    A `str` of its own class: equal only to another `Ref`.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __repr__(self) -> str:
        return f"Ref({str.__repr__(self)})"


class Repeat:
    """A node several times over.

    Attributes
    ----------
    item
        The node.
    minimum, maximum
        How often; `maximum` is None when there is no limit.
    """

    __slots__ = ("item", "maximum", "minimum")

    item: Node
    minimum: int
    maximum: int | None

    def __init__(self, item: Node, minimum: int, maximum: int | None = None) -> None:
        self.item = item
        self.minimum = minimum
        self.maximum = maximum

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Repeat):
            return NotImplemented
        return (self.minimum, self.maximum, self.item) == (other.minimum, other.maximum, other.item)

    def __hash__(self) -> int:
        return hash((Repeat, self.item, self.minimum, self.maximum))

    def __repr__(self) -> str:
        return f"Repeat({self.item!r}, {self.minimum}, {self.maximum})"


class Token(NamedTuple):
    """One token of the vocabulary, by its text or its number.

    Attributes
    ----------
    token
        The text that stands for exactly one token, brackets included (``"<think>"``), or the number of the token.
    negated
        Any token but this one.
    """

    token: str | int
    negated: bool = False


Node = Union[str, tuple["Node", ...], CharSet, Choice, Repeat, Ref, Token]  # noqa: UP007 (a name in it is not defined yet)


class Rules(NamedTuple):
    """A whole grammar.

    Attributes
    ----------
    root
        Name of the rule that a text must match.
    rules
        The rules by name, in the order in which they are written.
    """

    root: str
    rules: Mapping[str, Node]


def refs(node: Node) -> Iterator[str]:
    """Yield the names of the rules that a node uses."""
    pending = [node]
    while pending:
        part = pending.pop()
        kind = type(part)
        if kind is Ref:
            yield str(part)
        elif kind is tuple or kind is Choice:
            pending.extend(part)  # type: ignore[arg-type]
        elif isinstance(part, Repeat):
            pending.append(part.item)
