"""What one kind of array or object looks like.

A *node* is a set of literals that hold together: schemas that a value satisfies, and schemas that it doesn't. A *shape*
says of a container which node each of its members belongs to. Unlike scalars, containers can't be worked out to their
end (they may contain themselves), so a schema is a list of shapes, and the members stay nodes until they are written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from llamacy.grammar.schema import names
from llamacy.grammar.schema.location import Literal, Place
from llamacy.grammar.schema.names import Names

Node = frozenset[Literal]

ANYTHING: Node = frozenset()


class Count(NamedTuple):
    """How many items of an array are of one kind.

    Attributes
    ----------
    start
        Index of the first item that counts.
    node
        The kind.
    minimum, maximum
        How many there are; `maximum` is None when there is no limit.
    """

    start: int
    node: Node
    minimum: int
    maximum: int | None


class SeenItems(NamedTuple):
    """Which items of an array some schema described.

    Attributes
    ----------
    first
        That many from the start; None for all.
    containing
        And those that satisfy one of these.
    """

    first: int | None = 0
    containing: tuple[Place, ...] = ()

    def __or__(self, other: SeenItems) -> SeenItems:
        if self.first is None or other.first is None:
            return SeenItems(None)
        return SeenItems(max(self.first, other.first), self.containing + other.containing)


class ArrayShape(NamedTuple):
    """One kind of array.

    Attributes
    ----------
    prefix
        The first items.
    rest
        The items after them.
    minimum, maximum
        How many items there are.
    counts
        How many are of a kind.
    unique
        No two items are equal.
    repeating
        Some two items are equal.
    seen
        What `unevaluatedItems` leaves alone.
    """

    prefix: tuple[Node, ...] = ()
    rest: Node = ANYTHING
    minimum: int = 0
    maximum: int | None = None
    counts: tuple[Count, ...] = ()
    unique: bool = False
    repeating: bool = False
    seen: SeenItems = SeenItems()

    def item(self, index: int) -> Node:
        """Return the node of an item."""
        return self.prefix[index] if index < len(self.prefix) else self.rest


class ObjectShape(NamedTuple):
    """One kind of object.

    Attributes
    ----------
    properties
        Nodes of properties by name, in the order in which the schema names them.
    rules
        Nodes of the properties whose names are in a set.
    required
        Names that must be there.
    minimum, maximum
        How many properties there are.
    some
        At least one property has a name in the set and a value in the node.
    declares
        The schema has `properties`.
    speaks
        The schema says something of properties that it doesn't name.
    seen
        What `unevaluatedProperties` leaves alone.
    narrow
        Some names that should be allowed are not, so that another shape without common objects may have some.
    """

    properties: dict[str, Node] = {}  # noqa: RUF012 (never changed)
    rules: tuple[tuple[Names, Node], ...] = ()
    required: tuple[str, ...] = ()
    minimum: int = 0
    maximum: int | None = None
    some: tuple[tuple[Names, Node], ...] = ()
    declares: bool = False
    speaks: bool = False
    seen: Names = names.NONE
    narrow: bool = False

    def value(self, name: str) -> Node:
        """Return the node of a property."""
        node = self.properties.get(name, ANYTHING)
        for allowed, extra in self.rules:
            if allowed.has(name):
                node = node | extra
        return node

    def needed(self) -> Iterable[Node]:
        """Return the nodes of the properties that must be there, each once."""
        if self.rules:
            return dict.fromkeys(map(self.value, self.required))
        properties = self.properties
        return dict.fromkeys([properties.get(name, ANYTHING) for name in self.required])


ANY_ARRAY = ArrayShape()
ANY_OBJECT = ObjectShape()


def merge_arrays(a: ArrayShape, b: ArrayShape, nothing: Node) -> ArrayShape | None:
    """Return the arrays of both shapes, or None when there is none for a plain reason."""
    n = max(len(a.prefix), len(b.prefix))
    prefix = tuple([a.item(i) | b.item(i) for i in range(n)])
    maximum = _lower(a.maximum, b.maximum)
    rest = a.rest | b.rest
    if nothing <= rest:
        maximum = _lower(maximum, n)
    for i, node in enumerate(prefix):
        if nothing <= node:
            maximum = _lower(maximum, i)
            break
    minimum = max(a.minimum, b.minimum)
    if (maximum is not None and minimum > maximum) or ((a.unique or b.unique) and (a.repeating or b.repeating)):
        return None
    return ArrayShape(
        prefix,
        rest,
        minimum,
        maximum,
        a.counts + b.counts,
        a.unique or b.unique,
        a.repeating or b.repeating,
        a.seen | b.seen,
    )


def merge_objects(a: ObjectShape, b: ObjectShape, nothing: Node) -> ObjectShape | None:
    """Return the objects of both shapes, or None when there is none for a plain reason."""
    properties = dict(a.properties)
    for name, node in b.properties.items():
        properties[name] = properties[name] | node if name in properties else node
    required = a.required
    if b.required:
        known = set(required)
        required += tuple([name for name in b.required if name not in known])
    maximum = _lower(a.maximum, b.maximum)
    minimum = max(a.minimum, b.minimum)
    if maximum is not None and max(minimum, len(required)) > maximum:
        return None
    merged = ObjectShape(
        properties,
        a.rules + b.rules,
        required,
        minimum,
        maximum,
        a.some + b.some,
        a.declares or b.declares,
        a.speaks or b.speaks,
        a.seen | b.seen,
        a.narrow or b.narrow,
    )
    return None if any(nothing <= node for node in merged.needed()) else merged


def _lower(a: int | None, b: int | None) -> int | None:
    if a is None:
        return b
    return a if b is None else min(a, b)
