"""Arrays as grammar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

from llamacy.errors import UnsupportedSchemaError
from llamacy.grammar.schema.automata import joined
from llamacy.grammar.schema.containers import ContainerReader
from llamacy.grammar.schema.location import Place
from llamacy.grammar.schema.rulebook import Rulebook, repeat
from llamacy.grammar.schema.shapes import ANY_ARRAY, ANYTHING, ArrayShape, Count
from llamacy.grammar.schema.shapes import Node as Members
from llamacy.grammar.tree import Choice, Node, Ref

_MAX_VALUES = 8
_MAX_COUNTS = 6


class _State(NamedTuple):
    """How far an array has come.

    Attributes
    ----------
    n_items
        Items so far, up to where more of them make no difference.
    counts
        How many counted for each count, up to where more of them make no difference.
    used
        Values that are in it, where that matters.
    repeated
        Some value is in it twice.
    """

    n_items: int
    counts: tuple[int, ...]
    used: frozenset[str] = frozenset()
    repeated: bool = False


class ArrayWriter:
    """Writes shapes of arrays.

    Parameters
    ----------
    book
        Where the rules go.
    reader
        What members may be.
    value
        Returns the grammar of a node.
    """

    def __init__(self, book: Rulebook, reader: ContainerReader, value: Callable[[Members], Node]) -> None:
        self._book = book
        self._reader = reader
        self._value = value

    def write(self, shape: ArrayShape, place: Place) -> Node | None:
        """Return the arrays of a shape, or None when there is none."""
        nothing = self._reader.nothing
        if shape._replace(seen=ANY_ARRAY.seen) == ANY_ARRAY:
            return self._book.shared("array")
        limit = self._book.policy.max_array_length
        if shape.maximum is None and limit is not None and limit >= max(shape.minimum, len(shape.prefix)):
            shape = shape._replace(maximum=limit)
        if shape.maximum is not None and shape.maximum < 2:
            if shape.repeating:
                return None
            shape = shape._replace(unique=False)
        if shape.counts or shape.unique or shape.repeating:
            return self._counted(shape, place)
        if not shape.prefix:
            if shape.maximum == 0 or nothing <= shape.rest:
                return self._book.list_of((), 0, 0)
            return self._book.list_of(self._value(shape.rest), shape.minimum, shape.maximum)
        return self._tuple(shape)

    def _tuple(self, shape: ArrayShape) -> Node:
        book = self._book
        end: tuple[Node, ...] = (*book.padding, "]")
        n = len(shape.prefix) if shape.maximum is None else min(len(shape.prefix), shape.maximum)
        # what may follow after the first i items, from the back
        follow: Node = "]" if not book.padding else end
        if shape.maximum is None or shape.maximum > n:
            more = book.add("more", (*book.comma, self._value(shape.rest)))
            most = None if shape.maximum is None else shape.maximum - n
            follow = joined([*repeat(more, max(shape.minimum - n, 0), most), *end])
        for i in range(n - 1, -1, -1):
            item = self._value(shape.prefix[i])
            node = joined([*(book.comma if i else ()), item, follow])
            follow = node if i < shape.minimum else book.add("items", Choice((node, joined(list(end)))))
        return joined(["[", *book.padding, follow])

    # arrays in which items depend on each other

    def _counted(self, shape: ArrayShape, place: Place) -> Node | None:
        if len(shape.counts) > _MAX_COUNTS:
            raise place.error(
                f"more than {_MAX_COUNTS} conditions on how many items there are of a kind at once",
                "contains",
                UnsupportedSchemaError,
            )
        alphabet = self._alphabet(shape, place) if shape.unique or shape.repeating else None
        start = _State(0, (0,) * len(shape.counts))
        refs: dict[_State, Ref] = {}
        pending: list[_State] = []

        def go(state: _State) -> Ref:
            if state not in refs:
                refs[state] = self._book.new("items")
                pending.append(state)
            return refs[state]

        go(start)
        while pending:
            state = pending.pop()
            options: list[Node] = []
            if self._may_end(shape, state):
                options.append(joined([*self._book.padding, "]"]))
            comma = () if state == start else self._book.comma
            for item, after in self._steps(shape, state, alphabet):
                options.append(joined([*comma, item, go(after)]))
            self._book.define(refs[state], options[0] if len(options) == 1 else Choice(options))
            self._book.has_dead = True  # a count may be out of reach
        return joined(["[", *self._book.padding, refs[start]])

    @staticmethod
    def _may_end(shape: ArrayShape, state: _State) -> bool:
        if state.n_items < shape.minimum or (shape.repeating and not state.repeated):
            return False
        return all(n >= count.minimum for n, count in zip(state.counts, shape.counts, strict=True))

    def _steps(
        self, shape: ArrayShape, state: _State, alphabet: dict[str, Members] | None
    ) -> Iterator[tuple[Node, _State]]:
        """Yield each kind of item that may come next, and the state after it."""
        if shape.maximum is not None and state.n_items >= shape.maximum:
            return
        last = max([len(shape.prefix), shape.minimum, *[count.start for count in shape.counts]])
        index = state.n_items + 1 if shape.maximum is not None else min(state.n_items + 1, last + 1)
        for members, counts in self._countings(shape, state):
            if alphabet is None:
                yield self._value(members), _State(index, counts)
                continue
            for text, value in alphabet.items():
                if (shape.unique and text in state.used) or self._reader.is_empty(members | value):
                    continue
                repeated = state.repeated or text in state.used
                used = frozenset() if repeated else state.used | {text}
                yield self._value(members | value), _State(index, counts, used, repeated)

    def _countings(self, shape: ArrayShape, state: _State) -> Iterator[tuple[Members, tuple[int, ...]]]:
        item = shape.item(state.n_items)
        ways: list[list[tuple[Members, int]]] = []
        for n, count in zip(state.counts, shape.counts, strict=True):
            ways.append(list(self._counting(n, count, state.n_items)))
        for way in product(*ways):
            members = item
            for more, _ in way:
                members = members | more
            if not self._reader.is_empty(members):
                yield members, tuple([n for _, n in way])

    def _counting(self, n: int, count: Count, index: int) -> Iterator[tuple[Members, int]]:
        """Yield what an item is when it counts and when it doesn't, and how many there are then."""
        if index < count.start:
            yield ANYTHING, n
            return
        if count.maximum is None:
            if n < count.minimum:
                yield count.node, n + 1
            yield ANYTHING, n  # one that counts may as well not be needed
            return
        if n < count.maximum:
            yield count.node, n + 1
        for members in self._not(count.node):
            yield members, n

    def _not(self, members: Members) -> list[Members]:
        """Return nodes that together are all values that are not in a node."""
        return [frozenset((literal.place.no if literal.holds else literal.place.yes,)) for literal in members]

    def _alphabet(self, shape: ArrayShape, place: Place) -> dict[str, Members]:
        """Return all values that an item may have, when these are few."""
        found: dict[str, Members] = {}
        n = len(shape.prefix) + 1 if shape.maximum is None else min(len(shape.prefix) + 1, shape.maximum)
        for i in range(n):
            node = shape.item(i)
            if self._reader.is_empty(node):
                continue
            values = self._reader.few_values(node, _MAX_VALUES)
            if values is None:
                raise self._reader.blamed(place, "uniqueItems").error(
                    "can only be enforced where the items have at most "
                    f"{_MAX_VALUES} values that are no arrays or objects, or where there is at most one item",
                    "uniqueItems",
                    UnsupportedSchemaError,
                )
            for text, value in values.items():
                found[text] = self._reader.node(self._reader.of_value(place, value))
        if len(found) > _MAX_VALUES:
            raise self._reader.blamed(place, "uniqueItems").error(
                f"can only be enforced where the items have at most {_MAX_VALUES} values, not {len(found)}",
                "uniqueItems",
                UnsupportedSchemaError,
            )
        return found
