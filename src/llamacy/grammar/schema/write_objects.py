"""Objects as grammar.

After each key and value comes either the end of the object or a comma and the next key. What may come next depends on
how far the order of the properties has come, so there is a rule for each property that starts with its key::

    pick-1 ::= "a\\":" value (next pick-2 | "}") | pick-2

Made from the last property to the first, that is two references a property, whatever their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from json.encoder import encode_basestring
from typing import NamedTuple

from llamacy.errors import UnsupportedSchemaError
from llamacy.grammar import automaton
from llamacy.grammar.schema import names
from llamacy.grammar.schema.automata import AutomatonWriter, in_json, joined
from llamacy.grammar.schema.containers import ContainerReader
from llamacy.grammar.schema.location import Place
from llamacy.grammar.schema.names import Names
from llamacy.grammar.schema.rulebook import Rulebook
from llamacy.grammar.schema.shapes import ANY_OBJECT, ANYTHING, Node as Members, ObjectShape
from llamacy.grammar.tree import Choice, Node, Ref

_MAX_ANY_ORDER = 6
_MAX_DEMANDS = 4
_LONG = 500
_LONG_SEQUENCE = 64


class _State(NamedTuple):
    """What an object has so far.

    Attributes
    ----------
    count
        How many properties, up to where more of them make no difference.
    met
        Which demands.
    """

    count: int = 0
    met: frozenset[int] = frozenset()


_START = _State()


class _Slot(NamedTuple):
    """A named property.

    Attributes
    ----------
    key
        Its name as it stands after the opening quote, with the colon.
    values
        Its value, and which demands it meets, in each way it may.
    required
        Whether it must be there.
    """

    key: str
    values: list[tuple[tuple[Node, ...], frozenset[int]]]
    required: bool


class _Extra(NamedTuple):
    """Keys that no one named.

    Attributes
    ----------
    pair
        Key after the opening quote, and value.
    allowed, members
        The same as sets.
    """

    pair: Node
    allowed: Names
    members: Members


class ObjectWriter:
    """Writes shapes of objects.

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
        self._close: Node = joined([*book.padding, "}"])

    def write(self, shape: ObjectShape, place: Place) -> Node | None:
        """Return the objects of a shape, or None when there is none."""
        if shape._replace(seen=names.NONE, speaks=False) == ANY_OBJECT:
            return self._book.shared("object")
        if len(shape.some) > _MAX_DEMANDS:
            raise place.error(
                f"has more than {_MAX_DEMANDS} conditions that some property must meet", None, UnsupportedSchemaError
            )
        return _ObjectBody(self, shape, place).write()


class _ObjectBody:
    """One shape being written."""

    def __init__(self, writer: ObjectWriter, shape: ObjectShape, place: Place) -> None:
        self._book = writer._book
        self._reader = writer._reader
        self._value = writer._value
        self._close = writer._close
        self._next = self._book.shared("next")
        self._shape = shape
        self._place = place
        self._demands = frozenset(range(len(shape.some)))
        self._named = list(dict.fromkeys([*shape.properties, *shape.required]))
        self._slots = self._make_slots()
        self._extras = self._make_extras()
        self._most = self._last_count()

    def write(self) -> Node | None:
        """Return the grammar."""
        if self._book.policy.property_order == "any" and len(self._slots) <= _MAX_ANY_ORDER:
            keys = self._in_any_order()
        else:
            keys = self._in_order()
        ways: list[Node] = [] if keys is None else [joined(['"', keys])]
        if self._may_close(_START, 0):
            ways.append(self._close)
        if not ways:
            return None
        body = ways[0] if len(ways) == 1 else Choice(ways)
        return joined(["{", *self._book.padding, body])

    # what there is to write

    def _make_slots(self) -> list[_Slot]:
        shape, nothing, value = self._shape, self._reader.nothing, self._value
        order = self._named
        required = set(shape.required)
        if self._book.policy.property_order == "required_first":
            order = sorted(order, key=lambda name: name not in required)
        slots = []
        colon = self._book.colon
        for name in order:
            members = shape.value(name) if shape.rules else shape.properties.get(name, ANYTHING)
            if nothing <= members:
                if name in required:
                    return [_Slot("", [], True)]
                continue
            key = encode_basestring(name)[1:] + ":"
            if not name.isascii() and any("\ud800" <= c <= "\udfff" for c in name):
                raise self._place.error(f"the name {name!r} has a lone surrogate, which no text can hold", "properties")
            if shape.some:
                values = [((*colon, value(joint)), met) for joint, met in self._meeting(members, name)]
            else:
                values = [((*colon, value(members)), _START.met)]
            slots.append(_Slot(key, values, name in required))
        return slots

    def _meeting(self, members: Members, name: str) -> Iterator[tuple[Members, frozenset[int]]]:
        """Yield what a value is for each set of demands that it meets."""
        possible = [i for i, (allowed, _) in enumerate(self._shape.some) if allowed.has(name)]
        for n in range(len(possible) + 1):
            for met in combinations(possible, n):
                joint = members
                for i in met:
                    joint = joint | self._shape.some[i][1]
                if not met or not self._reader.is_empty(joint):
                    yield joint, frozenset(met)

    def _make_extras(self) -> list[_Extra]:
        shape = self._shape
        asks_for_more = shape.minimum > len(self._slots) or bool(shape.some)
        if shape.declares and not (shape.speaks or self._book.policy.extra_keys or asks_for_more):
            return []
        left: list[tuple[Names, Members]] = [(Names.but(self._named), ANYTHING)]
        for allowed, members in shape.rules:
            split = []
            for names_left, members_left in left:
                for part, joint in ((names_left & allowed, members_left | members), (names_left - allowed, members_left)):
                    if not part.is_empty and not self._reader.nothing <= joint:
                        split.append((part, joint))
            left = split
        return [_Extra(self._pair(allowed, members), allowed, members) for allowed, members in left]

    def _pair(self, allowed: Names, members: Members) -> Node:
        book = self._book
        if allowed.is_all:
            key: Node = (*book.repeat(book.shared("char"), 0, book.policy.max_string_length, "chars"), '":')
        else:
            language = allowed.language
            limit = book.policy.max_string_length
            if limit is not None and language.max_length is None and (language.min_length or 0) <= limit:
                language = language & automaton.lengths(0, limit)
            key = AutomatonWriter(book, "key", language, in_json, '":').write()
        return joined([key, *book.colon, self._value(members)])

    def _last_count(self) -> int:
        """Return the number of properties from which on more of them make no difference."""
        shape = self._shape
        n_required = sum(slot.required for slot in self._slots)
        minimum = 0 if shape.minimum <= n_required else shape.minimum
        if minimum > 1 and self._extras:
            # a repeated key is one property; which keys came before is more than a grammar can know
            raise self._place.error(
                f"{shape.minimum} can't be enforced where keys are open: a key may come twice; name the properties, or "
                "set additionalProperties to false",
                "minProperties",
                UnsupportedSchemaError,
            )
        maximum = shape.maximum
        if maximum is not None and not self._extras and maximum >= len(self._slots):
            maximum = None
        return minimum if maximum is None else maximum

    def _may_close(self, state: _State, n_passed: int) -> bool:
        if any(slot.required for slot in self._slots[n_passed:]):
            return False
        return self._is_complete(state)

    def _is_complete(self, state: _State) -> bool:
        return state.met == self._demands and (state.count >= self._shape.minimum or self._most == 0)

    def _after(self, state: _State, met: frozenset[int]) -> _State | None:
        """Return the state after one more property, or None when there is one too many."""
        if self._most == 0 and self._shape.maximum != 0:
            return state if not met else _State(0, state.met | met)
        if self._shape.maximum is not None and state.count >= self._shape.maximum:
            return None
        return _State(min(state.count + 1, self._most), state.met | met)

    # in order

    def _in_order(self) -> Node | None:
        """Return the keys and values, from the first key on."""
        slots = self._slots
        states = self._states(len(slots))
        # by state: what starts with a key, and what follows a value
        picks = self._pick_extras(states)
        may_close = True
        follow = {state: self._follow(state, picks[state], may_close) for state in states}
        n_together = 1 + len(slots) // _LONG
        together: dict[_State, list[Node]] = {}
        plain = not self._most and not self._demands
        for i in range(len(slots) - 1, -1, -1):
            key, values, required = slots[i]
            rule = not required or (i > 0 and not slots[i - 1].required)
            if not plain:
                states = self._states(i)
            before = picks
            picks = {}
            for state in states:
                ways: list[Node] = []
                for value, met in values:
                    after = state if plain else self._after(state, met)
                    rest = None if after is None else follow[after]
                    if rest is not None:
                        ways.append(_sequence(key, value, rest))
                later = None if required else before.get(state)
                if n_together > 1:
                    ways = [self._book.add("property", way) for way in ways]
                    if later is not None and i % n_together:
                        ways += together[state]
                        later = None
                    together[state] = ways if later is None else [*ways, later]
                if later is not None:
                    ways.append(later)
                picks[state] = self._choice(ways, rule)
            may_close = may_close and not required
            if i:
                follow = {state: self._follow(state, picks[state], may_close) for state in states}
        return picks[_START]

    def _states(self, n: int) -> list[_State]:
        """Return the states that an object can be in before its property number `n`, or at any time after the last."""
        if self._most == 0 and not self._demands:
            return [_START]
        counts = range(min(self._most, n) + 1) if n < len(self._slots) else range(self._most + 1)
        subsets = [frozenset(met) for k in range(len(self._demands) + 1) for met in combinations(self._demands, k)]
        return [_State(count, met) for count in counts for met in subsets]

    def _choice(self, ways: list[Node], rule: bool) -> Node | None:
        if not ways:
            return None
        node = ways[0] if len(ways) == 1 else Choice(ways)
        if rule or (type(node) is tuple and len(node) > _LONG_SEQUENCE) or (len(ways) > 1):
            return node if type(node) is Ref else self._book.add("pick", node)
        return node

    def _follow(self, state: _State, pick: Node | None, may_close: bool) -> Node | None:
        """Return what may come after a value: the end, or a comma and what starts with a key."""
        more = None if pick is None else ((self._next, *pick) if type(pick) is tuple else (self._next, pick))
        if may_close and self._is_complete(state):
            return self._close if more is None else Choice((more, self._close))
        return more

    def _pick_extras(self, states: list[_State]) -> dict[_State, Node | None]:
        """Return by state what starts with a key that no one named."""
        if not self._extras:
            return dict.fromkeys(states)
        pairs = [self._book.add("pair", extra.pair) for extra in self._extras]
        refs = {state: self._book.new("extra") for state in states}
        found: dict[_State, Node | None] = {}
        for state in states:
            ways: list[Node] = []
            after = self._after(state, frozenset())
            if after is not None:
                rest: list[Node] = [(self._next, refs[after])]
                if self._is_complete(after):
                    rest.append(self._close)
                # whether anything can come after it is only known at the end; a rule that can't is taken out there
                ways += [joined([pair, Choice(rest) if len(rest) > 1 else rest[0]]) for pair in pairs]
                ways += self._last_extras(after)
            self._book.define(refs[state], ways[0] if len(ways) == 1 else Choice(ways))
            self._book.has_dead |= not ways or bool(self._most or self._demands)
            found[state] = refs[state] if ways else None
        return found

    def _last_extras(self, state: _State) -> Iterator[Node]:
        """Yield properties that meet the demands that are left, as the last ones of an object.

        They come last, because a key that comes again would replace the value.
        """
        missing = self._demands - state.met
        if not missing or state.count < min(self._shape.minimum, self._most):
            return
        if len(missing) > 1:
            raise self._place.error(
                "several conditions that some property must meet can't be enforced where keys are open", None,
                UnsupportedSchemaError,
            )
        (i,) = missing
        allowed, members = self._shape.some[i]
        for extra in self._extras:
            both = extra.allowed & allowed
            joint = extra.members | members
            if not both.is_empty and not self._reader.is_empty(joint):
                yield joined([self._pair(both, joint), self._close])

    # in any order

    def _in_any_order(self) -> Node | None:
        """Return the keys and values when the named ones may come in any order."""
        n = len(self._slots)
        states = self._states(n)
        extras = self._pick_extras(states)
        made: dict[tuple[int, _State], Node | None] = {}
        for left in range(1 << n):
            chosen = [i for i in range(n) if left >> i & 1]
            may_close = not any(self._slots[i].required for i in chosen)
            for state in states:
                ways: list[Node] = []
                for i in chosen:
                    for value, met in self._slots[i].values:
                        after = self._after(state, met)
                        remaining = left & ~(1 << i)
                        if after is not None:
                            closes = not any(self._slots[k].required for k in chosen if k != i)
                            rest = self._follow(after, made[remaining, after], closes)
                            if rest is not None:
                                ways.append(_sequence(self._slots[i].key, value, rest))
                if may_close and extras[state] is not None:
                    ways.append(extras[state])  # type: ignore[arg-type]
                made[left, state] = self._choice(ways, left != (1 << n) - 1)
        return made[(1 << n) - 1, _START]


def _sequence(key: str, value: tuple[Node, ...], rest: Node) -> Node:
    """Return a property and what follows it."""
    return (key, *value, *rest) if type(rest) is tuple else (key, *value, rest)
