"""What the keywords for objects say."""

from __future__ import annotations

from typing import Any

from llamacy.errors import UnsupportedSchemaError
from llamacy.grammar.schema import names
from llamacy.grammar.schema.containers import ContainerReader, Kind, Step, applicators
from llamacy.grammar.schema.keywords import check_names, count, name_list, schema_map
from llamacy.grammar.schema.location import Place
from llamacy.grammar.schema.names import Names
from llamacy.grammar.schema.scalars import read_pattern
from llamacy.grammar.schema.shapes import ANY_OBJECT, ANYTHING, Node, ObjectShape, merge_objects
from llamacy.grammar.schema.strings import NotKnown

Shapes = list[ObjectShape]


def _properties_hold(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    children = schema_map(reader.places, place, "properties")
    if not children:
        return None
    return [ObjectShape(reader.nodes(children), declares=True, seen=Names.of(children) if track else names.NONE)]


def _properties_fail(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    found = []
    for name, child in schema_map(reader.places, place, "properties").items():
        node = reader.node(child, False)
        if node != reader.nothing:
            found.append(ObjectShape({name: node}, required=(name,)))
    return found


def _patterns(reader: ContainerReader, place: Place) -> list[tuple[Names, Place]]:
    schema: Any = place.schema
    if "patternProperties" not in schema:
        return []
    return [
        (Names.matching(read_pattern(place, pattern, "patternProperties")), child)
        for pattern, child in schema_map(reader.places, place, "patternProperties").items()
    ]


def _patterns_hold(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    patterns = _patterns(reader, place)
    seen = names.NONE
    if track:
        for matching, _ in patterns:
            seen = seen | matching
    rules = tuple([(matching, reader.node(child)) for matching, child in patterns])
    return [ObjectShape(rules=rules, speaks=True, seen=seen)]


def _patterns_fail(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    found: Shapes = []
    for matching, child in _patterns(reader, place):
        found += _has_one(matching, reader.node(child, False), reader)
    return found


def _has_one(allowed: Names, node: Node, reader: ContainerReader) -> Shapes:
    """Return the objects that have a property with a name and value of a kind."""
    if node == reader.nothing or allowed.is_empty:
        return []
    if allowed.words is not None and not allowed.inverted and len(allowed.words) == 1:
        (name,) = allowed.words
        return [ObjectShape({name: node}, required=(name,))]
    if allowed.is_all and not node:
        return [ObjectShape(minimum=1)]
    return [ObjectShape(minimum=1, some=((allowed, node),))]


def _additional(reader: ContainerReader, place: Place) -> Names:
    """Return the names that `additionalProperties` speaks of."""
    schema: Any = place.schema
    found = Names.but(schema_map(reader.places, place, "properties") if "properties" in schema else ())
    for matching, _ in _patterns(reader, place):
        found = found - matching
    return found


def _additional_hold(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    node = reader.node(reader.sub(place, "additionalProperties"))
    rules = () if not node else ((_additional(reader, place), node),)
    return [ObjectShape(rules=rules, speaks=True, seen=names.ALL if track else names.NONE)]


def _additional_fail(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    node = reader.node(reader.sub(place, "additionalProperties"), False)
    return [] if node == reader.nothing else _has_one(_additional(reader, place), node, reader)


def _allowed_names(reader: ContainerReader, place: Place) -> tuple[Names, bool]:
    """Return the names that `propertyNames` allows, and whether it should allow more."""
    strings = reader.scalars.read(reader.sub(place, "propertyNames")).strings
    return Names.matching(strings.folded()), strings.narrow


def _names_hold(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    allowed, narrow = _allowed_names(reader, place)
    return None if allowed.is_all else [ObjectShape(rules=((~allowed, reader.nothing),), narrow=narrow)]


def _names_fail(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    allowed, narrow = _allowed_names(reader, place)
    if narrow:
        raise place.error(str(NotKnown()), "propertyNames", UnsupportedSchemaError)
    return _has_one(~allowed, ANYTHING, reader)


def _required_hold(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    required = tuple(dict.fromkeys(_required(place)))
    return [ObjectShape(required=required)] if required else None


def _required_fail(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    return [_without(reader, name) for name in dict.fromkeys(_required(place))]


def _required(place: Place) -> list[str]:
    return name_list(place, place.schema["required"], "required")  # type: ignore[index]


def _without(reader: ContainerReader, name: str) -> ObjectShape:
    return ObjectShape({name: reader.nothing})


def _min_hold(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    return [ObjectShape(minimum=count(place, "minProperties"))]


def _min_fail(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    minimum = count(place, "minProperties")
    return [ObjectShape(maximum=minimum - 1)] if minimum else []


def _max_hold(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    schema: Any = place.schema
    maximum = count(place, "maxProperties")
    if "minProperties" in schema and count(place, "minProperties") > maximum:
        raise place.error(f"{maximum} is below the minProperties {schema['minProperties']}", "maxProperties")
    return [ObjectShape(maximum=maximum)]


def _max_fail(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    return [ObjectShape(minimum=count(place, "maxProperties") + 1)]


def _dependencies(reader: ContainerReader, place: Place, keyword: str) -> list[tuple[str, list[str] | Place]]:
    value: Any = place.schema[keyword]  # type: ignore[index]
    if not isinstance(value, dict):
        raise place.error(f"must be an object, not {value!r:.100}", keyword)
    check_names(place, value, keyword)
    found: list[tuple[str, list[str] | Place]] = []
    for name, needed in value.items():
        if keyword == "dependentRequired" or isinstance(needed, list):
            found.append((name, name_list(place, needed, keyword)))
        else:
            found.append((name, reader.places.child(place, needed, keyword, name)))
    return found


def _dependent(keyword: str) -> tuple[Step[ObjectShape], Step[ObjectShape]]:
    def holds(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
        found = [ANY_OBJECT]
        for name, needed in _dependencies(reader, place, keyword):
            with_name: Shapes = [ObjectShape(required=(name,))]
            if isinstance(needed, Place):
                then = reader.holds(needed, OBJECTS, track)
            else:
                then = [ObjectShape(required=tuple(dict.fromkeys(needed)))]
            options = [_without(reader, name), *reader.product(with_name, then, OBJECTS, place, keyword)]
            found = reader.product(found, options, OBJECTS, place, keyword)
        return found

    def fails(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
        found: Shapes = []
        for name, needed in _dependencies(reader, place, keyword):
            with_name: Shapes = [ObjectShape(required=(name,))]
            if isinstance(needed, Place):
                otherwise = reader.fails(needed, OBJECTS)
            else:
                otherwise = [_without(reader, other) for other in dict.fromkeys(needed)]
            found += reader.product(with_name, otherwise, OBJECTS, place, keyword)
        return found

    return holds, fails


def _narrow(reader: ContainerReader, place: Place, shape: ObjectShape) -> ObjectShape | None:
    """Return a shape with what `unevaluatedProperties` says of it."""
    if not shape.seen.is_all:
        node = reader.node(reader.sub(place, "unevaluatedProperties"))
        rules = shape.rules if not node else (*shape.rules, (~shape.seen, node))
        shape = shape._replace(rules=rules, seen=names.ALL)
    return shape._replace(speaks=True)


def _spoil(reader: ContainerReader, place: Place, shape: ObjectShape) -> Shapes:
    """Return what is left of a shape when `unevaluatedProperties` doesn't hold."""
    node = reader.node(reader.sub(place, "unevaluatedProperties"), False)
    return [
        merged._replace(seen=names.NONE)
        for one in _has_one(~shape.seen, node, reader)
        if (merged := merge_objects(shape, one, reader.nothing)) is not None
    ]


OBJECTS: Kind[ObjectShape] = Kind(
    "object", dict, ANY_OBJECT, merge_objects, {}, "unevaluatedProperties", _narrow, _spoil
)
OBJECTS.steps.update(applicators(OBJECTS))
OBJECTS.steps.update(
    {
        "properties": (_properties_hold, _properties_fail),
        "patternProperties": (_patterns_hold, _patterns_fail),
        "additionalProperties": (_additional_hold, _additional_fail),
        "propertyNames": (_names_hold, _names_fail),
        "required": (_required_hold, _required_fail),
        "minProperties": (_min_hold, _min_fail),
        "maxProperties": (_max_hold, _max_fail),
        "dependentRequired": _dependent("dependentRequired"),
        "dependentSchemas": _dependent("dependentSchemas"),
        "dependencies": _dependent("dependencies"),
    }
)
