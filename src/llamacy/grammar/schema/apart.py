"""Which schemas of a list can't hold for the same array or object, as is plain from a value that tells them apart.

A list of five hundred objects in which each has another constant as its ``kind`` has too many pairs to merge them all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from llamacy.grammar.schema.location import COMMENTS, Place
from llamacy.grammar.schema.shapes import ArrayShape, Node, ObjectShape

# values by type, so that true is not 1
Values = frozenset[tuple[type, Any]]
Where = str | int

_LISTING = COMMENTS | {"const", "enum"}
_PLAIN = frozenset((str, int, bool, type(None)))


def neighbours(shapes: Sequence[Sequence[ArrayShape] | Sequence[ObjectShape]]) -> list[list[int]]:
    """Return for each of some lists of shapes the others that may have something in common with it.

    Parameters
    ----------
    shapes
        What each schema of a list allows.
    """
    found: list[list[int]] = [[] for _ in shapes]
    some = [i for i, of_one in enumerate(shapes) if of_one]
    told = {i: _told(shapes[i]) for i in some}
    counted = Counter(where for i in some for where in told[i])
    if not counted:
        for i in some:
            found[i] = [j for j in some if j != i]
        return found
    ((where, _),) = counted.most_common(1)
    by_value: dict[tuple[type, Any], list[int]] = defaultdict(list)
    open_ended = [i for i in some if where not in told[i]]
    for i in some:
        for value in told[i].get(where, ()):
            by_value[value].append(i)
    for i in some:
        if where in told[i]:
            near = {j for value in told[i][where] for j in by_value[value]}
            near.update(open_ended)
            found[i] = sorted(near - {i})
        else:
            found[i] = [j for j in some if j != i]
    return found


def _told(shapes: Iterable[ArrayShape] | Iterable[ObjectShape]) -> dict[Where, Values]:
    """Return by property or index the values that a member has which is always there, where these are listed."""
    found: dict[Where, Values] | None = None
    for shape in shapes:
        here: dict[Where, Values] = {}
        if isinstance(shape, ArrayShape):
            members: Iterable[tuple[Where, Node]] = enumerate(shape.prefix[: shape.minimum])
        elif shape.narrow:
            return {}
        else:
            members = [(name, shape.properties[name]) for name in shape.required if name in shape.properties]
        for where, node in members:
            values = _listed(node)
            if values is not None:
                here[where] = values
        if found is not None:
            here = {where: values | found[where] for where, values in here.items() if where in found}
        found = here
    return found or {}


def listed_values(node: Node) -> Values | None:
    """Return the values of a node whose schemas do nothing but list values or rule some out; None for other nodes."""
    found: Values | None = None
    ruled_out: set[tuple[type, Any]] = set()
    for literal in node:
        schema: Any = literal.place.schema
        values = _listed_by(literal.place)
        if values is None or not schema.keys() <= _LISTING or ("const" in schema and "enum" in schema):
            return None
        if literal.holds:
            found = values if found is None else found & values
        else:
            ruled_out |= values
    return None if found is None else found - ruled_out


def _listed(node: Node) -> Values | None:
    """Return values that all values of a node are among, if a schema lists them."""
    for literal in node:
        values = _listed_by(literal.place) if literal.holds else None
        if values is not None:
            return values
    return None


def _listed_by(place: Place) -> Values | None:
    schema, dialect = place.schema, place.resource.dialect
    if not isinstance(schema, dict) or ("$ref" in schema and dialect.ref_stands_alone):
        return None
    if "const" in schema and "const" in dialect.keywords:
        values = [schema["const"]]
    elif isinstance(schema.get("enum"), list) and "enum" in dialect.keywords:
        values = schema["enum"]
    else:
        return None
    # a float may equal an integer that is written in another way, and containers are compared member by member
    return frozenset([(type(value), value) for value in values]) if all(type(v) in _PLAIN for v in values) else None
