"""Values of keywords, checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llamacy.errors import UnsupportedSchemaError
from llamacy.grammar.schema.location import Place, Places

# a text with more members or characters than this is longer than any memory; as an upper bound it is none
MAX_COUNT = 10**12
TYPES = frozenset(("null", "boolean", "number", "integer", "string", "array", "object"))


def type_names(place: Place) -> frozenset[str]:
    """Return the types that a schema allows."""
    schema = place.schema
    assert isinstance(schema, dict)
    value = schema.get("type")
    if type(value) is str and value in TYPES:
        return _ONE[value]
    if isinstance(value, list) and value and all(isinstance(name, str) and name in TYPES for name in value):
        return frozenset(value)
    raise place.error(
        f"must be one of {', '.join(sorted(TYPES))}, or a list of these with at least one, not {value!r:.100}", "type"
    )


_ONE = {name: frozenset((name,)) for name in TYPES}


def count(place: Place, keyword: str) -> int:
    """Return the value of a keyword that counts something."""
    value: Any = place.schema[keyword]  # type: ignore[index]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise place.error(f"must be a whole number of at least 0, not {value!r:.100}", keyword)
    if value > MAX_COUNT and keyword.startswith("min"):
        raise place.error(f"no text has room for {value}", keyword, UnsupportedSchemaError)
    return min(value, MAX_COUNT + 1)  # below a `not` it is a lower bound, which is written out


def schema_list(places: Places, place: Place, keyword: str) -> list[Place]:
    """Return the schemas of a keyword that has a list of them, with at least one."""
    value: Any = place.schema[keyword]  # type: ignore[index]
    if not isinstance(value, list):
        raise place.error(f"must be a list of schemas, not {value!r:.100}", keyword)
    if not value:
        raise place.error("is an empty list; it must have at least one schema", keyword)
    return [places.child(place, schema, keyword, str(i)) for i, schema in enumerate(value)]


def schema_map(places: Places, place: Place, keyword: str) -> dict[str, Place]:
    """Return the schemas of a keyword that has an object of them."""
    value: Any = place.schema[keyword]  # type: ignore[index]
    if not isinstance(value, dict):
        raise place.error(f"must be an object of schemas, not {value!r:.100}", keyword)
    check_names(place, value, keyword)
    return places.children(place, keyword, value)


def check_names(place: Place, names: Iterable[Any], keyword: str) -> None:
    """Refuse names that are no strings, which JSON has none of."""
    try:
        "".join(names)
    except TypeError:
        name = next(name for name in names if not isinstance(name, str))
        raise place.error(f"names must be strings, not {name!r:.60}", keyword) from None


def name_list(place: Place, value: Any, keyword: str) -> list[str]:
    """Return the names of a keyword that lists property names."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise place.error(f"must be a list of property names, not {value!r:.100}", keyword)
    return value
