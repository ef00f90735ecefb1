"""Arrays as grammar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import comb
from typing import NamedTuple

from llamacy.errors import UnsupportedSchemaError
from llamacy.grammar.schema.automata import joined
from llamacy.grammar.schema.containers import ContainerReader
from llamacy.grammar.schema.location import Place
from llamacy.grammar.schema.rulebook import Rulebook, repeat
from llamacy.grammar.schema.shapes import ANY_ARRAY, ANYTHING, ArrayShape, Count
from llamacy.grammar.schema.shapes import Node as Members
from llamacy.grammar.tree import Choice, Node, Ref
from llamacy.grammar.work import spend

# values that items may have where it matters which are used, and ways to use one more
_MAX_VALUES = 128
_MAX_CHOICES = 12_000
# of `llamacy.grammar.work`: for a way to go on
_STEPS = 4
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
    """Writes one shape of arrays.

    Parameters
    ----------
    book
        Where the rules go.
    reader
        What members may be.
    value
        Returns the grammar of a node.
    shape, place
        The shape, and the schema that it comes from.
    """

    def __init__(
        self, book: Rulebook, reader: ContainerReader, value: Callable[[Members], Node], shape: ArrayShape, place: Place
    ) -> None:
        self._book = book
        self._reader = reader
        self._value = value
        self._shape = shape
        self._place = place

    def write(self) -> Node | None:
        """Return the arrays of the shape, or None when there is none."""
        shape = self._shape
        if shape._replace(seen=ANY_ARRAY.seen) == ANY_ARRAY:
            return self._book.shared("array")
        limit = self._book.policy.max_array_length
        if shape.maximum is None and limit is not None and limit >= max(shape.minimum, len(shape.prefix)):
            shape = self._shape = shape._replace(maximum=limit)
        if shape.maximum is not None and shape.maximum < 2:
            if shape.repeating:
                return None
            shape = self._shape = shape._replace(unique=False)
        if shape.counts or shape.unique or shape.repeating:
            return self._counted()
        if not shape.prefix:
            if shape.maximum == 0 or self._reader.nothing <= shape.rest:
                return self._book.list_of((), 0, 0)
            return self._book.list_of(self._value(shape.rest), shape.minimum, shape.maximum)
        return self._tuple()

    def _tuple(self) -> Node:
        book, shape = self._book, self._shape
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

    def _counted(self) -> Node | None:
        shape = self._shape
        if len(shape.counts) > _MAX_COUNTS:
            raise self._place.error(
                f"more than {_MAX_COUNTS} conditions on how many items there are of a kind at once",
                "contains",
                UnsupportedSchemaError,
            )
        alphabet = self._alphabet() if shape.unique or shape.repeating else None
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
            if self._may_end(state):
                options.append(joined([*self._book.padding, "]"]))
            comma = () if state == start else self._book.comma
            for item, after in self._steps(state, alphabet):
                options.append(joined([*comma, item, go(after)]))
            spend(_STEPS * len(options))
            self._book.define(refs[state], options[0] if len(options) == 1 else Choice(options))
            self._book.has_dead = True  # a count may be out of reach
        return joined(["[", *self._book.padding, refs[start]])

    def _may_end(self, state: _State) -> bool:
        shape = self._shape
        if state.n_items < shape.minimum or (shape.repeating and not state.repeated):
            return False
        return all(n >= count.minimum for n, count in zip(state.counts, shape.counts, strict=True))

    def _steps(self, state: _State, alphabet: dict[str, Members] | None) -> Iterator[tuple[Node, _State]]:
        """Yield each kind of item that may come next, and the state after it."""
        shape = self._shape
        if shape.maximum is not None and state.n_items >= shape.maximum:
            return
        last = max([len(shape.prefix), shape.minimum, *[count.start for count in shape.counts]])
        index = state.n_items + 1 if shape.maximum is not None else min(state.n_items + 1, last + 1)
        for members, counts in self._countings(state):
            if alphabet is None:
                yield self._value(members), _State(index, counts)
                continue
            for text, value in alphabet.items():
                if (shape.unique and text in state.used) or self._reader.is_empty(members | value):
                    continue
                repeated = state.repeated or text in state.used
                # it no longer matters what was used once a value is there twice, or nothing more may come
                used = frozenset() if repeated or index == shape.maximum else state.used | {text}
                yield self._value(members | value), _State(index, counts, used, repeated)

    def _countings(self, state: _State) -> Iterator[tuple[Members, tuple[int, ...]]]:
        item = self._shape.item(state.n_items)
        ways: list[list[tuple[Members, int]]] = []
        for n, count in zip(state.counts, self._shape.counts, strict=True):
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
        return [self._reader.node(literal.place, not literal.holds) for literal in members]

    def _alphabet(self) -> dict[str, Members]:
        """Return all values that an item may have, when these are few."""
        shape = self._shape
        found: dict[str, Members] = {}
        n = len(shape.prefix) + 1 if shape.maximum is None else min(len(shape.prefix) + 1, shape.maximum)
        for i in range(n):
            node = shape.item(i)
            if self._reader.is_empty(node):
                continue
            values = self._reader.few_values(node, _MAX_VALUES)
            if values is None:
                raise self._reader.blamed(self._place, "uniqueItems").error(
                    f"can only be enforced where the items have few values (up to {_MAX_VALUES}) that are no arrays or "
                    "objects, or where there is at most one item",
                    "uniqueItems",
                    UnsupportedSchemaError,
                )
            for text, value in values.items():
                found[text] = self._reader.node(self._reader.of_value(self._place, value))
        most = len(found) if shape.maximum is None else min(len(found), shape.maximum)
        n_choices = len(found) * sum([comb(len(found), n_used) for n_used in range(most)])
        if n_choices > _MAX_CHOICES:
            raise self._reader.blamed(self._place, "uniqueItems").error(
                f"up to {most} of {len(found)} values, each once, take {n_choices} steps from one set of values to the "
                f"next, above the {_MAX_CHOICES} that are written; allow fewer values, or set maxItems lower",
                "uniqueItems",
                UnsupportedSchemaError,
            )
        return found
