"""What a schema says of arrays and objects, as a list of shapes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from llamacy.errors import AutomatonSizeError, UnsupportedSchemaError
from llamacy.grammar.schema.apart import listed_values, neighbours
from llamacy.grammar.schema.keywords import schema_list, type_names
from llamacy.grammar.schema.location import NOTHING, Literal, Place, Places
from llamacy.grammar.schema.scalars import ScalarReader, Scalars, everything, shortest_numbers
from llamacy.grammar.schema.shapes import ANYTHING, ArrayShape, Node, ObjectShape
from llamacy.grammar.schema.strings import NotKnown
from llamacy.grammar.work import spend

S = TypeVar("S", ArrayShape, ObjectShape)

MAX_SHAPES = 512
# of `llamacy.grammar.work`: for two shapes that are merged
_STEPS = 12
_MAX_DEPTH = 100
_MAX_LOOKAHEAD = 3


class Kind(NamedTuple, Generic[S]):
    """Arrays, or objects.

    Attributes
    ----------
    name
        The type as schemas call it.
    python
        The type of such values.
    anything
        The shape that says nothing.
    merge
        Returns what two shapes have in common.
    steps
        What each keyword says: when it holds, and when it doesn't. None says nothing.
    unevaluated
        The keyword for members that nothing described, and what it says of a shape.
    """

    name: str
    python: type
    anything: S
    merge: Callable[[S, S, Node], S | None]
    steps: dict[str, tuple[Step[S], Step[S]]]
    unevaluated: str
    narrow: Callable[[ContainerReader, Place, S], S | None]
    spoil: Callable[[ContainerReader, Place, S], list[S]]


Step = Callable[["ContainerReader", Place, bool], "list[S] | None"]


class _StillOpen(Exception):
    """A schema is being read already."""


class ContainerReader:
    """Works out which arrays and objects satisfy a schema.

    Parameters
    ----------
    places
        The schema.
    scalars
        What it says of other values.
    kinds
        Arrays and objects.
    """

    def __init__(self, places: Places, scalars: ScalarReader, kinds: tuple[Kind[Any], ...]) -> None:
        self.places = places
        self.scalars = scalars
        self._kinds = kinds
        self.nothing: Node = frozenset((Literal(NOTHING, True),))
        self._open: set[tuple[Place, str]] = set()
        self._nodes: dict[Place, Node] = {}
        self._shapes: dict[tuple[Place, str, str], list[Any]] = {}
        self._values: dict[int, Place] = {}
        self._empty: dict[Node, bool] = {}
        self._lookahead = 0

    # nodes

    def node(self, place: Place, holds: bool = True) -> Node:
        """Return the node of the values that satisfy a schema, or that don't."""
        if holds:
            node = self._nodes.get(place)
            if node is None:
                says_nothing = place.schema is True or place.schema == {}
                node = self._nodes[place] = ANYTHING if says_nothing else frozenset((Literal(place, True),))
            return node
        if place is NOTHING:
            return ANYTHING
        return frozenset((Literal(place, False),)) if self.node(place) else self.nothing

    def nodes(self, places: dict[str, Place]) -> dict[str, Node]:
        """Return the nodes of the values that satisfy some schemas."""
        known, node = self._nodes, self.node
        return {name: known.get(place) or node(place) for name, place in places.items()}

    def read_scalars(self, node: Node) -> Scalars:
        """Return the scalars of a node."""
        if len(node) == 1:
            (literal,) = node
            return self._scalars_of(literal)
        listed = listed_values(node)
        if listed is not None:
            place = next(literal.place for literal in node if literal.holds)
            return self.scalars.of_values(place, [value for _, value in listed], "enum")
        found = everything()
        for literal in node:
            found = found & self._scalars_of(literal)
        return found

    def _scalars_of(self, literal: Literal) -> Scalars:
        found = self.scalars.read(literal.place)
        if literal.holds:
            return found
        try:
            return ~found
        except (AutomatonSizeError, NotKnown) as error:
            raise literal.place.error(str(error), None, UnsupportedSchemaError) from error

    def read(self, node: Node, kind: Kind[S]) -> list[S]:
        """Return the arrays or objects of a node."""
        if len(node) == 1:
            (literal,) = node
            return self._literal(literal, kind)
        found = [kind.anything]
        for literal in sorted(node, key=_by_pointer):
            found = self.product(found, self._literal(literal, kind), kind, literal.place, None)
        return found

    def is_empty(self, node: Node) -> bool:
        """Return whether a look at a few levels shows that nothing satisfies a node."""
        if not node:
            return False
        if self.nothing <= node:
            return True
        known = self._empty.get(node)
        if known is None:
            if self._lookahead >= _MAX_LOOKAHEAD:
                return False
            self._lookahead += 1
            try:
                known = self.read_scalars(node).is_empty and not any(self.read(node, kind) for kind in self._kinds)
            except _StillOpen:
                return False
            finally:
                self._lookahead -= 1
            self._empty[node] = known
        return known

    def few_values(self, node: Node, limit: int) -> dict[str, Any] | None:
        """Return all values of a node by their texts, or None when there are more or they are no scalars."""
        scalars = self.read_scalars(node)
        numbers, strings = scalars.numbers & shortest_numbers(), scalars.strings
        if not numbers.is_finite or not (strings.is_empty or strings.language.is_finite):
            return None
        if any(self.read(node, kind) for kind in self._kinds):
            return None
        values: list[Any] = [None] if scalars.null else []
        values += sorted(scalars.booleans)
        values += [json.loads(text) for text in numbers.words(limit + 1)]
        values += [] if strings.is_empty else strings.folded().words(limit + 1)
        return {json.dumps(value): value for value in values} if len(values) <= limit else None

    def blamed(self, place: Place, keyword: str) -> Place:
        """Return the place at which a keyword stands that `place` has, or refers to."""
        seen = set()
        while place not in seen:
            seen.add(place)
            schema = place.schema
            if not isinstance(schema, dict) or keyword in schema or "$ref" not in schema:
                break
            place = self.places.follow(place, schema["$ref"], "$ref")
        return place

    # shapes

    def product(self, a: list[S], b: list[S], kind: Kind[S], place: Place, keyword: str | None) -> list[S]:
        """Return what two lists of shapes have in common."""
        if len(b) == 1 and b[0] is kind.anything:
            return a
        if len(a) == 1 and a[0] is kind.anything:
            return b
        found: list[S] = []
        for one in a:
            for two in b:
                spend(_STEPS + (_size(one) + _size(two)) // 2)
                both = kind.merge(one, two, self.nothing)
                if both is not None and not self._has_empty_member(both):
                    found.append(both)
            self._bounded(found, place, keyword)
        return found

    def overlap(self, a: list[S], b: list[S], kind: Kind[S], place: Place) -> bool:
        """Return whether two lists of shapes may have something in common."""
        if any(isinstance(shape, ObjectShape) and shape.narrow for shape in (*a, *b)):
            return bool(a and b)
        return bool(self.product(a, b, kind, place, "oneOf"))

    def _bounded(self, shapes: list[S], place: Place, keyword: str | None) -> list[S]:
        if len(shapes) > MAX_SHAPES:
            keyword = keyword or place.branching_keyword
            raise place.error(
                f"there are more than {MAX_SHAPES} ways to satisfy it; split it, or use strict=False",
                keyword,
                UnsupportedSchemaError,
            )
        return shapes

    def _has_empty_member(self, shape: S) -> bool:
        if isinstance(shape, ArrayShape):
            return any(self.is_empty(shape.item(i)) for i in range(min(shape.minimum, len(shape.prefix) + 1)))
        return any(self.is_empty(node) for node in shape.needed())

    def _literal(self, literal: Literal, kind: Kind[S]) -> list[S]:
        return self.holds(literal.place, kind, False) if literal.holds else self.fails(literal.place, kind)

    def holds(self, place: Place, kind: Kind[S], track: bool) -> list[S]:
        """Return the shapes that satisfy a schema; with `track` they tell which members it evaluated."""
        return self._read(place, kind, "tracked" if track else "holds")

    def fails(self, place: Place, kind: Kind[S]) -> list[S]:
        """Return the shapes that don't satisfy a schema."""
        return self._read(place, kind, "fails")

    def _read(self, place: Place, kind: Kind[S], what: str) -> list[S]:
        key = (place, kind.name, what)
        found: list[S] | None = self._shapes.get(key)
        if found is None:
            if (place, kind.name) in self._open:
                if self._lookahead:
                    raise _StillOpen
                raise place.error("refers to itself, with nothing in between; such a schema describes nothing")
            if len(self._open) > _MAX_DEPTH:
                raise place.error(f"more than {_MAX_DEPTH} schemas that apply to one value lie in each other")
            self._open.add((place, kind.name))
            try:
                found = self._fails(place, kind) if what == "fails" else self._holds(place, kind, what == "tracked")
            finally:
                self._open.discard((place, kind.name))
            self._shapes[key] = found
        return found

    def _holds(self, place: Place, kind: Kind[S], track: bool) -> list[S]:
        schema = place.schema
        if isinstance(schema, bool):
            return [kind.anything] if schema else []
        dialect = place.resource.dialect
        if dialect.ref_stands_alone and "$ref" in schema:
            return self.holds(self.places.follow(place, schema["$ref"], "$ref"), kind, track)
        if "type" in schema and kind.name not in type_names(place):
            return []
        narrows = kind.unevaluated in schema and kind.unevaluated in dialect.keywords
        found = self._without_unevaluated(place, kind, track or narrows)
        if narrows:
            found = [left for shape in found if (left := kind.narrow(self, place, shape)) is not None]
        return found

    def _without_unevaluated(self, place: Place, kind: Kind[S], track: bool) -> list[S]:
        found = [kind.anything]
        for keyword, (holds, _) in self._steps(place, kind):
            try:
                options = holds(self, place, track)
            except AutomatonSizeError as error:
                raise place.error(str(error), keyword, UnsupportedSchemaError) from error
            if options is not None:
                found = self.product(found, options, kind, place, keyword)
        return found

    def _fails(self, place: Place, kind: Kind[S]) -> list[S]:
        schema = place.schema
        if isinstance(schema, bool):
            return [] if schema else [kind.anything]
        dialect = place.resource.dialect
        if dialect.ref_stands_alone and "$ref" in schema:
            return self.fails(self.places.follow(place, schema["$ref"], "$ref"), kind)
        if "type" in schema and kind.name not in type_names(place):
            return [kind.anything]
        found: list[S] = []
        for keyword, (_, fails) in self._steps(place, kind):
            try:
                options = fails(self, place, False)
            except AutomatonSizeError as error:
                raise place.error(str(error), keyword, UnsupportedSchemaError) from error
            for option in options or ():
                if option is kind.anything:
                    return [kind.anything]
                found.append(option)
        if kind.unevaluated in schema and kind.unevaluated in dialect.keywords:
            for shape in self._without_unevaluated(place, kind, True):
                found += kind.spoil(self, place, shape)
        return self._bounded(found, place, None)

    def _steps(self, place: Place, kind: Kind[S]) -> Iterable[tuple[str, tuple[Step[S], Step[S]]]]:
        known = place.resource.dialect.keywords
        for keyword in place.schema:  # type: ignore[union-attr]
            step = kind.steps.get(keyword)
            if step is not None and keyword in known:
                yield keyword, step

    # schemas that apply to the same value

    def sub(self, place: Place, keyword: str) -> Place:
        """Return the place of the one schema of a keyword."""
        return self.places.child(place, place.schema[keyword], keyword)  # type: ignore[index]

    def of_value(self, place: Place, value: Any) -> Place:
        """Return a schema for one value, whose members are schemas for its members."""
        made = self._values.get(id(value))
        if made is None:
            schema: dict[str, Any] = {"const": value}
            if isinstance(value, list):
                schema = {
                    "type": "array",
                    "prefixItems": [{"const": item} for item in value],
                    "minItems": len(value),
                    "maxItems": len(value),
                }
            elif isinstance(value, dict):
                schema = {
                    "type": "object",
                    "properties": {name: {"const": item} for name, item in value.items()},
                    "required": list(value),
                    "maxProperties": len(value),
                }
            made = self._values[id(value)] = self.places.made_of_values(place, schema)
        return made


def _size(shape: ArrayShape | ObjectShape) -> int:
    """Return about how many members a shape speaks of."""
    return len(shape.prefix) if isinstance(shape, ArrayShape) else len(shape.properties) + len(shape.required)


def _by_pointer(literal: Literal) -> tuple[str, bool]:
    return literal.place.pointer, literal.holds


def applicators(kind: Kind[S]) -> dict[str, tuple[Step[S], Step[S]]]:
    """Return what the keywords say that apply schemas to the value itself."""

    def values_of(place: Place, keyword: str) -> list[Any]:
        value: Any = place.schema[keyword]  # type: ignore[index]
        values = [value] if keyword == "const" else value
        if not isinstance(values, list):
            raise place.error(f"must be a list, not {values!r:.100}", keyword)
        return [one for one in values if isinstance(one, kind.python)]

    def value_holds(keyword: str) -> Step[S]:
        def step(reader: ContainerReader, place: Place, track: bool) -> list[S]:
            found: list[S] = []
            for value in values_of(place, keyword):
                found += reader.holds(reader.of_value(place, value), kind, False)
            return found

        return step

    def value_fails(keyword: str) -> Step[S]:
        def step(reader: ContainerReader, place: Place, track: bool) -> list[S]:
            found = [kind.anything]
            for value in values_of(place, keyword):
                other = reader.fails(reader.of_value(place, value), kind)
                found = reader.product(found, other, kind, place, keyword)
            return found

        return step

    def all_hold(reader: ContainerReader, place: Place, track: bool) -> list[S]:
        found = [kind.anything]
        for child in schema_list(reader.places, place, "allOf"):
            found = reader.product(found, reader.holds(child, kind, track), kind, place, "allOf")
        return found

    def some_fails(reader: ContainerReader, place: Place, track: bool) -> list[S]:
        found: list[S] = []
        for child in schema_list(reader.places, place, "allOf"):
            found += reader.fails(child, kind)
        return found

    def any_holds(reader: ContainerReader, place: Place, track: bool) -> list[S]:
        children = schema_list(reader.places, place, "anyOf")
        found: list[S] = []
        if not track:
            for child in children:
                found += reader.holds(child, kind, False)
            return found
        # which branches hold decides what they evaluated, so all combinations are told apart
        before = [kind.anything]
        for i, child in enumerate(children):
            here = reader.holds(child, kind, True)
            for later in children[i + 1 :]:
                either = reader.holds(later, kind, True) + reader.fails(later, kind)
                here = reader.product(here, either, kind, place, "anyOf")
            found += reader.product(before, here, kind, place, "anyOf")
            before = reader.product(before, reader.fails(child, kind), kind, place, "anyOf")
        return found

    def none_hold(reader: ContainerReader, place: Place, keyword: str) -> list[S]:
        found = [kind.anything]
        for child in schema_list(reader.places, place, keyword):
            found = reader.product(found, reader.fails(child, kind), kind, place, keyword)
        return found

    def one_holds(reader: ContainerReader, place: Place, track: bool) -> list[S]:
        children = schema_list(reader.places, place, "oneOf")
        shapes = [reader.holds(child, kind, False) for child in children]
        times = Counter(children)
        found: list[S] = []
        for child, near in zip(children, neighbours(shapes), strict=True):
            here = reader.holds(child, kind, track) if times[child] == 1 else []
            for other in near if here else ():
                if reader.overlap(here, shapes[other], kind, place):
                    here = reader.product(here, reader.fails(children[other], kind), kind, place, "oneOf")
            found += here
        return found

    def not_one_holds(reader: ContainerReader, place: Place, track: bool) -> list[S]:
        found = none_hold(reader, place, "oneOf")
        children = schema_list(reader.places, place, "oneOf")
        shapes = [reader.holds(child, kind, False) for child in children]
        for i, near in enumerate(neighbours(shapes)):
            for other in near:
                if other < i:
                    found = found + reader.product(shapes[i], shapes[other], kind, place, "oneOf")
        return found

    def branches(reader: ContainerReader, place: Place, track: bool, wanted: bool) -> list[S] | None:
        schema: Any = place.schema
        if "then" not in schema and "else" not in schema and not (track and wanted):
            return None if wanted else []
        condition = reader.sub(place, "if")
        found: list[S] = []
        for keyword, chosen in (
            ("then", reader.holds(condition, kind, track)),
            ("else", reader.fails(condition, kind)),
        ):
            options = [kind.anything] if wanted else []
            if keyword in schema:
                child = reader.sub(place, keyword)
                options = reader.holds(child, kind, track) if wanted else reader.fails(child, kind)
            found += reader.product(chosen, options, kind, place, keyword)
        return found

    def reference(keyword: str) -> tuple[Step[S], Step[S]]:
        def target(reader: ContainerReader, place: Place) -> Place:
            return reader.places.follow(place, place.schema[keyword], keyword)  # type: ignore[index]

        return (
            lambda reader, place, track: reader.holds(target(reader, place), kind, track),
            lambda reader, place, track: reader.fails(target(reader, place), kind),
        )

    return {
        "enum": (value_holds("enum"), value_fails("enum")),
        "const": (value_holds("const"), value_fails("const")),
        "allOf": (all_hold, some_fails),
        "anyOf": (any_holds, lambda reader, place, track: none_hold(reader, place, "anyOf")),
        "oneOf": (one_holds, not_one_holds),
        "not": (
            lambda reader, place, track: reader.fails(reader.sub(place, "not"), kind),
            lambda reader, place, track: reader.holds(reader.sub(place, "not"), kind, False),
        ),
        "if": (
            lambda reader, place, track: branches(reader, place, track, True),
            lambda reader, place, track: branches(reader, place, track, False),
        ),
        "$ref": reference("$ref"),
        "$dynamicRef": reference("$dynamicRef"),
        "$recursiveRef": reference("$recursiveRef"),
    }
