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
from llamacy.grammar.schema.automata import AutomatonWriter, in_json, joined
from llamacy.grammar.schema.containers import ContainerReader
from llamacy.grammar.schema.location import Place
from llamacy.grammar.schema.names import Names, is_text
from llamacy.grammar.schema.rulebook import Rulebook, repeat
from llamacy.grammar.schema.shapes import ANY_OBJECT, ANYTHING, ObjectShape
from llamacy.grammar.schema.shapes import Node as Members
from llamacy.grammar.tree import Choice, Node

# the part of a shape that says which objects it has
_N_SAYING = ObjectShape._fields.index("declares") + 1
_SAYING_NOTHING = ANY_OBJECT[:_N_SAYING]
_MAX_ANY_ORDER = 6
_MAX_DEMANDS = 4
_MAX_KINDS = 64
_LONG = 500
_LONG_SEQUENCE = 24


# what an object has so far: the number of its properties, up to where more of them make no difference, above one bit
# for each demand that is met
_State = int
_START: _State = 0
# a value with the white space before it, and which demands it meets
_Value = tuple[tuple[Node, ...], int]
# a named property: the name as it stands after the opening quote with the colon, its values, whether it must be there
_Slot = tuple[str, list[_Value], bool]


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
    """Writes one shape of objects.

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
        self,
        book: Rulebook,
        reader: ContainerReader,
        value: Callable[[Members], Node],
        shape: ObjectShape,
        place: Place,
    ) -> None:
        self._book = book
        self._reader = reader
        self._value = value
        self._shape = shape
        self._place = place

    def write(self) -> Node | None:
        """Return the objects of the shape, or None when there is none."""
        book, shape = self._book, self._shape
        if shape[:_N_SAYING] == _SAYING_NOTHING:
            return book.shared("object")
        if len(shape.some) > _MAX_DEMANDS:
            raise self._place.error(
                f"has more than {_MAX_DEMANDS} conditions that some property must meet", None, UnsupportedSchemaError
            )
        self._next = book.shared("next")
        self._close = book.brace
        self._n_demands = len(shape.some)
        self._all_met = (1 << self._n_demands) - 1
        self._named = [*shape.properties, *[name for name in shape.required if name not in shape.properties]]
        self._slots = self._make_slots()
        self._n_required = sum([required for _, _, required in self._slots]) if shape.required else 0
        self._extras = self._make_extras()
        self._most = self._last_count()
        # nothing but the order of the properties matters
        self._plain = not self._most and not self._all_met and shape.maximum != 0
        self._states = range((self._most + 1) << self._n_demands)
        if book.policy.property_order == "any" and len(self._slots) <= _MAX_ANY_ORDER:
            keys = self._in_any_order()
        else:
            keys = self._in_order()
        ways: list[Node] = [] if keys is None else [joined(['"', keys])]
        if not self._n_required and self._is_complete(_START):
            ways.append(self._close)
        if not ways:
            return None
        body = ways[0] if len(ways) == 1 else Choice(ways)
        return joined(["{", *book.padding, body])

    # what there is to write

    def _make_slots(self) -> list[_Slot]:
        shape, nothing, value = self._shape, self._reader.nothing, self._value
        order = self._named
        required = set(shape.required)
        if self._book.policy.property_order == "required_first":
            order = sorted(order, key=lambda name: name not in required)
        slots: list[_Slot] = []
        written: dict[Members, list[_Value]] = {}
        colon = self._book.colon
        properties, rules = shape.properties, shape.rules
        for name in order:
            members = shape.value(name) if rules else properties.get(name, ANYTHING)
            if nothing <= members or not (name.isascii() or is_text(name)):
                if name in required:
                    return [("", [], True)]
                continue
            values = written.get(members)
            if shape.some:
                values = [((*colon, value(joint)), met) for joint, met in self._meeting(members, name)]
            elif values is None:
                values = written[members] = [((*colon, value(members)), 0)]
            slots.append((encode_basestring(name)[1:] + ":", values, name in required))
        return slots

    def _meeting(self, members: Members, name: str) -> Iterator[tuple[Members, int]]:
        """Yield what a value is for each set of demands that it meets."""
        possible = [i for i, (allowed, _) in enumerate(self._shape.some) if allowed.has(name)]
        for n in range(len(possible) + 1):
            for met in combinations(possible, n):
                joint = members
                for i in met:
                    joint = joint | self._shape.some[i][1]
                if not met or not self._reader.is_empty(joint):
                    yield joint, sum([1 << i for i in met])

    def _make_extras(self) -> list[_Extra]:
        shape = self._shape
        asks_for_more = bool(shape.some) or (shape.minimum > 0 and shape.minimum > self._count_possible())
        if shape.declares and not (shape.speaks or self._book.policy.extra_keys or asks_for_more):
            return []
        left: list[tuple[Names, Members]] = [(Names.but(self._named), ANYTHING)]
        for allowed, members in shape.rules:
            split = []
            for names_left, members_left in left:
                for part, joint in (
                    (names_left & allowed, members_left | members),
                    (names_left - allowed, members_left),
                ):
                    if not part.is_empty and not self._reader.nothing <= joint:
                        split.append((part, joint))
            left = split
            if len(left) > _MAX_KINDS:
                raise self._reader.blamed(self._place, "patternProperties").error(
                    f"patterns that overlap make more than {_MAX_KINDS} kinds of names",
                    "patternProperties",
                    UnsupportedSchemaError,
                )
        return [_Extra(self._pair(allowed, members), allowed, members) for allowed, members in left]

    def _count_possible(self) -> int:
        """Return how many of the named properties can be there at all."""
        return sum([not self._reader.is_empty(self._shape.value(name)) for name in self._named])

    def _pair(self, allowed: Names, members: Members) -> Node:
        book = self._book
        if allowed.is_all:
            key: Node = (*repeat(book.shared("char"), 0, book.policy.max_string_length), '":')
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
        minimum = 0 if shape.minimum <= self._n_required else shape.minimum
        if minimum > self._n_required + 1 and self._extras:
            # a repeated key is one property; which keys came before is more than a grammar can know, but one key that
            # no one named is always a property more
            raise self._reader.blamed(self._place, "minProperties").error(
                f"{shape.minimum} can't be enforced where keys are open: a key may come twice; name the properties, or "
                "set additionalProperties to false",
                "minProperties",
                UnsupportedSchemaError,
            )
        maximum = shape.maximum
        self._counts_to_maximum = maximum is not None and (bool(self._extras) or maximum < len(self._slots))
        return maximum if maximum is not None and self._counts_to_maximum else minimum

    def _is_complete(self, state: _State) -> bool:
        if state & self._all_met != self._all_met:
            return False
        return self._most == 0 or state >> self._n_demands >= min(self._shape.minimum, self._most)

    def _after(self, state: _State, met: int) -> _State | None:
        """Return the state after one more property, or None when there is one too many."""
        count = state >> self._n_demands
        if self._shape.maximum is not None and self._counts_to_maximum and count >= self._shape.maximum:
            return None
        return min(count + 1, self._most) << self._n_demands | (state & self._all_met) | met

    # in order

    def _in_order(self) -> Node | None:
        """Return the keys and values, from the first key on."""
        slots, states, plain, add = self._slots, self._states, self._plain, self._book.add
        # by state: what starts with a key, and what follows a value
        picks = self._pick_extras()
        if plain and len(slots) < _LONG:
            return self._in_plain_order(picks[_START])
        may_close = True
        follow = [self._follow(state, picks[state], may_close) for state in states]
        n_together = 1 + len(slots) // _LONG
        together: list[list[Node]] = [[] for _ in states]
        for i in range(len(slots) - 1, -1, -1):
            key, values, required = slots[i]
            rule = not required or (i > 0 and not slots[i - 1][2])
            before, picks = picks, []
            for state in states:
                ways: list[Node] = []
                for value, met in values:
                    after = state if plain else self._after(state, met)
                    rest = None if after is None else follow[after]
                    if rest is not None:
                        ways.append((key, *value, *rest) if type(rest) is tuple else (key, *value, rest))
                later = None if required else before[state]
                if n_together > 1:
                    ways = [self._book.add("property", way) for way in ways]
                    if later is not None and i % n_together:
                        ways += together[state]
                        later = None
                    together[state] = ways if later is None else [*ways, later]
                if later is not None:
                    ways.append(later)
                picks.append(add("pick", Choice(ways)) if len(ways) > 1 else self._choice(ways, rule))
            may_close = may_close and not required
            if plain:
                follow[_START] = self._follow(_START, picks[_START], may_close)
            elif i:
                follow = [self._follow(state, picks[state], may_close) for state in states]
        return picks[_START]

    def _in_plain_order(self, pick: Node | None) -> Node | None:
        """Return the same where nothing but the order matters, as in most objects; `pick` are the keys no one named."""
        slots, add, following, close = self._slots, self._book.add, self._next, self._close
        may_close = True
        for i in range(len(slots) - 1, -1, -1):
            key, values, required = slots[i]
            if not values:
                return None
            rest: Node = () if pick is None else (following, *pick) if type(pick) is tuple else (following, pick)
            if may_close:
                rest = Choice((rest, close)) if rest else close
            way = (key, *values[0][0], *rest) if type(rest) is tuple else (key, *values[0][0], rest)
            may_close = may_close and not required
            if pick is not None and not required:
                pick = add("pick", Choice((way, pick)))
            elif not required or (i and not slots[i - 1][2]) or len(way) > _LONG_SEQUENCE:
                pick = add("pick", way)
            else:
                pick = way
        return pick

    def _choice(self, ways: list[Node], rule: bool) -> Node | None:
        """Return one of some ways, as a rule when it is used more than once or long."""
        if len(ways) > 1:
            return self._book.add("pick", Choice(ways))
        if not ways:
            return None
        (node,) = ways
        if type(node) is tuple and (rule or len(node) > _LONG_SEQUENCE):
            return self._book.add("pick", node)
        return node

    def _follow(self, state: _State, pick: Node | None, may_close: bool) -> Node | None:
        """Return what may come after a value: the end, or a comma and what starts with a key."""
        more = None if pick is None else ((self._next, *pick) if type(pick) is tuple else (self._next, pick))
        if may_close and (self._plain or self._is_complete(state)):
            return self._close if more is None else Choice((more, self._close))
        return more

    def _pick_extras(self) -> list[Node | None]:
        """Return by state what starts with a key that no one named."""
        if not self._extras:
            return [None] * len(self._states)
        pairs = [self._book.add("pair", extra.pair) for extra in self._extras]
        refs = [self._book.new("extra") for _ in self._states]
        for state in self._states:
            ways: list[Node] = []
            after = self._after(state, 0)
            if after is not None:
                rest: list[Node] = [(self._next, refs[after])]
                if self._is_complete(after):
                    rest.append(self._close)
                # whether anything can come after it is only known at the end; a rule that can't is taken out there
                ways += [joined([pair, Choice(rest) if len(rest) > 1 else rest[0]]) for pair in pairs]
                ways += self._last_extras(after)
            self._book.define(refs[state], ways[0] if len(ways) == 1 else Choice(ways))
            self._book.has_dead |= not ways or not self._plain
        return list(refs)

    def _last_extras(self, state: _State) -> Iterator[Node]:
        """Yield properties that meet the demands that are left, as the last ones of an object.

        They come last, because a key that comes again would replace the value.
        """
        missing = [i for i in range(self._n_demands) if not state >> i & 1]
        if not missing or state >> self._n_demands < min(self._shape.minimum, self._most):
            return
        if len(missing) > 1:
            raise self._place.error(
                "several conditions that some property must meet can't be enforced where keys are open",
                None,
                UnsupportedSchemaError,
            )
        allowed, members = self._shape.some[missing[0]]
        for extra in self._extras:
            both = extra.allowed & allowed
            joint = extra.members | members
            if not both.is_empty and not self._reader.is_empty(joint):
                yield joined([self._pair(both, joint), self._close])

    # in any order

    def _in_any_order(self) -> Node | None:
        """Return the keys and values when the named ones may come in any order."""
        n = len(self._slots)
        extras = self._pick_extras()
        made: list[list[Node | None]] = []
        for left in range(1 << n):
            chosen = [i for i in range(n) if left >> i & 1]
            needed = {i for i in chosen if self._slots[i][2]}
            made.append([])
            for state in self._states:
                ways: list[Node] = []
                for i in chosen:
                    key, values, _ = self._slots[i]
                    for value, met in values:
                        after = self._after(state, met)
                        if after is not None:
                            rest = self._follow(after, made[left & ~(1 << i)][after], not needed - {i})
                            if rest is not None:
                                ways.append(joined([key, *value, rest]))
                extra = extras[state]
                if not needed and extra is not None:
                    ways.append(extra)
                made[left].append(self._choice(ways, left != (1 << n) - 1))
        return made[-1][_START]
