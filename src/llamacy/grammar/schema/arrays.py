"""What the keywords for arrays say."""

from __future__ import annotations

from typing import Any

from llamacy.errors import UnsupportedSchemaError
from llamacy.grammar.schema.containers import ContainerReader, Kind, Step, applicators
from llamacy.grammar.schema.keywords import count
from llamacy.grammar.schema.location import Place
from llamacy.grammar.schema.shapes import ANY_ARRAY, ANYTHING, ArrayShape, Count, Node, SeenItems, merge_arrays

Shapes = list[ArrayShape]


def _first_items(reader: ContainerReader, place: Place) -> list[Place]:
    """Return the schemas of the first items, by whichever keyword has them."""
    schema: Any = place.schema
    dialect = place.resource.dialect
    for keyword in ("prefixItems", "items"):
        value = schema.get(keyword)
        if isinstance(value, list) and keyword in dialect.keywords:
            if keyword == "items" and not dialect.legacy_items:
                raise place.error("must be one schema; the first items are described by prefixItems", "items")
            return [reader.places.child(place, one, keyword, str(i)) for i, one in enumerate(value)]
        if keyword == "prefixItems" and value is not None and keyword in dialect.keywords:
            raise place.error(f"must be a list of schemas, not {value!r:.100}", keyword)
    return []


def _says_of_first(keyword: str) -> tuple[Step[ArrayShape], Step[ArrayShape]]:
    def holds(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
        if not isinstance(place.schema[keyword], list):  # type: ignore[index]
            return _rest_holds(reader, place, keyword, track)
        first = _first_items(reader, place)
        seen = SeenItems(len(first)) if track else SeenItems()
        prefix = tuple([reader.node(child) for child in first])
        if any(prefix) or track:
            merged = merge_arrays(ANY_ARRAY, ArrayShape(prefix, seen=seen), reader.nothing)
            return [] if merged is None else [merged]
        return None

    def fails(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
        if not isinstance(place.schema[keyword], list):  # type: ignore[index]
            return _rest_fails(reader, place, keyword)
        found = []
        for i, child in enumerate(_first_items(reader, place)):
            node = reader.node(child, False)
            if node != reader.nothing:
                found.append(ArrayShape((ANYTHING,) * i + (node,), minimum=i + 1))
        return found

    return holds, fails


def _rest_holds(reader: ContainerReader, place: Place, keyword: str, track: bool) -> Shapes | None:
    child = reader.sub(place, keyword)
    seen = SeenItems(None) if track else SeenItems()
    n = len(_first_items(reader, place))
    node = reader.node(child)
    if not node:
        return [ArrayShape(seen=seen)] if track else None
    merged = merge_arrays(ANY_ARRAY, ArrayShape((ANYTHING,) * n, node, seen=seen), reader.nothing)
    return [] if merged is None else [merged]


def _rest_fails(reader: ContainerReader, place: Place, keyword: str) -> Shapes | None:
    n = len(_first_items(reader, place))
    node = reader.node(reader.sub(place, keyword), False)
    return _has_one(n, node, reader)


def _has_one(start: int, node: Node, reader: ContainerReader) -> Shapes:
    """Return the arrays that have an item of a node from some index on."""
    if node == reader.nothing:
        return []
    if not node:
        return [ArrayShape(minimum=start + 1)]
    return [ArrayShape(minimum=start + 1, counts=(Count(start, node, 1, None),))]


def _additional_holds(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    schema: Any = place.schema
    if not isinstance(schema.get("items"), list):
        return None
    return _rest_holds(reader, place, "additionalItems", track)


def _additional_fails(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    schema: Any = place.schema
    if not isinstance(schema.get("items"), list):
        return None
    return _rest_fails(reader, place, "additionalItems")


def _contains(place: Place) -> tuple[int, int | None]:
    schema: Any = place.schema
    known = place.resource.dialect.keywords
    minimum = count(place, "minContains") if "minContains" in schema and "minContains" in known else 1
    maximum = count(place, "maxContains") if "maxContains" in schema and "maxContains" in known else None
    return minimum, maximum


def _contains_holds(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    minimum, maximum = _contains(place)
    child = reader.sub(place, "contains")
    node = reader.node(child)
    seen = SeenItems()
    if track and place.resource.dialect.contains_evaluates:
        seen = SeenItems(None) if not node else SeenItems(0, (child,))
    if maximum is not None and minimum > maximum:
        return []
    if not node:
        return [ArrayShape(minimum=minimum, maximum=maximum, seen=seen)]
    if node == reader.nothing:
        return [ArrayShape(seen=seen)] if minimum == 0 else []
    counts = (Count(0, node, minimum, maximum),) if minimum or maximum is not None else ()
    return [ArrayShape(minimum=minimum, counts=counts, seen=seen)]


def _contains_fails(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    minimum, maximum = _contains(place)
    node = reader.node(reader.sub(place, "contains"))
    found: Shapes = []
    if minimum > 0:
        found += _counted(reader, node, 0, minimum - 1)
    if maximum is not None:
        found += _counted(reader, node, maximum + 1, None)
    return found


def _counted(reader: ContainerReader, node: Node, minimum: int, maximum: int | None) -> Shapes:
    if not node:
        return [ArrayShape(minimum=minimum, maximum=maximum)]
    if node == reader.nothing:
        return [ANY_ARRAY] if minimum == 0 else []
    return [ArrayShape(minimum=minimum, counts=(Count(0, node, minimum, maximum),))]


def _min_items_holds(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    return [ArrayShape(minimum=count(place, "minItems"))]


def _min_items_fails(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    minimum = count(place, "minItems")
    return [ArrayShape(maximum=minimum - 1)] if minimum else []


def _max_items_holds(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    schema: Any = place.schema
    maximum = count(place, "maxItems")
    if "minItems" in schema and count(place, "minItems") > maximum:
        raise place.error(f"{maximum} is below the minItems {schema['minItems']}", "maxItems")
    return [ArrayShape(maximum=maximum)]


def _max_items_fails(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    return [ArrayShape(minimum=count(place, "maxItems") + 1)]


def _is_unique(place: Place) -> bool:
    value: Any = place.schema["uniqueItems"]  # type: ignore[index]
    if not isinstance(value, bool):
        raise place.error(f"must be true or false, not {value!r:.100}", "uniqueItems")
    return value


def _unique_holds(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    return [ArrayShape(unique=True)] if _is_unique(place) else None


def _unique_fails(reader: ContainerReader, place: Place, track: bool) -> Shapes | None:
    return [ArrayShape(minimum=2, repeating=True)] if _is_unique(place) else []


def _narrow(reader: ContainerReader, place: Place, shape: ArrayShape) -> ArrayShape | None:
    """Return a shape with what `unevaluatedItems` says of it, or None when nothing is left."""
    if shape.seen.first is None:
        return shape
    node = _unseen(reader, place, shape.seen, True)
    merged = merge_arrays(shape, ArrayShape((ANYTHING,) * shape.seen.first, node), reader.nothing)
    return None if merged is None else merged._replace(seen=SeenItems(None))


def _spoil(reader: ContainerReader, place: Place, shape: ArrayShape) -> Shapes:
    """Return what is left of a shape when `unevaluatedItems` doesn't hold."""
    if shape.seen.first is None:
        return []
    node = _unseen(reader, place, shape.seen, False)
    return [
        merged._replace(seen=SeenItems())
        for one in _has_one(shape.seen.first, node, reader)
        if (merged := merge_arrays(shape, one, reader.nothing)) is not None
    ]


def _unseen(reader: ContainerReader, place: Place, seen: SeenItems, holds: bool) -> Node:
    child = reader.sub(place, "unevaluatedItems")
    if not seen.containing:
        return reader.node(child, holds)
    if any(one.resource is not place.resource or one.scope != place.scope for one in seen.containing):
        raise place.error(
            "can't be told together with a contains that stands in another document",
            "unevaluatedItems",
            UnsupportedSchemaError,
        )
    either = {"anyOf": [child.schema, *[one.schema for one in seen.containing]]}
    return reader.node(reader.places.made(place, either), holds)


ARRAYS: Kind[ArrayShape] = Kind("array", list, ANY_ARRAY, merge_arrays, {}, "unevaluatedItems", _narrow, _spoil)
ARRAYS.steps.update(applicators(ARRAYS))
ARRAYS.steps.update(
    {
        "prefixItems": _says_of_first("prefixItems"),
        "items": _says_of_first("items"),
        "additionalItems": (_additional_holds, _additional_fails),
        "contains": (_contains_holds, _contains_fails),
        "minItems": (_min_items_holds, _min_items_fails),
        "maxItems": (_max_items_holds, _max_items_fails),
        "uniqueItems": (_unique_holds, _unique_fails),
    }
)
