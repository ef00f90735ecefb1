"""Whether a schema is plain data of a sensible size."""

from __future__ import annotations

from itertools import chain
from typing import Any

from llamacy.errors import SchemaError

MAX_DEPTH = 1_000
MAX_VALUES = 500_000
_SCALARS = {str, int, float, bool, type(None)}
_ONLY_OBJECTS = {dict}


def check_plain(schema: Any) -> None:
    """Refuse a schema that is too deep or too large, as one that contains itself is.

    Levels are looked at as a whole, which takes a fraction of the time of looking at one value after the other.

    Raises
    ------
    SchemaError
        It is.
    """
    level = [schema]
    n_values = 0
    for _ in range(MAX_DEPTH):
        kinds = set(map(type, level))
        if kinds <= _SCALARS:
            return
        objects, lists = level, []
        if kinds != _ONLY_OBJECTS:
            objects = [value for value in level if isinstance(value, dict)]
            lists = [value for value in level if isinstance(value, list)]
        level = list(chain.from_iterable(map(dict.values, objects)))
        if lists:
            level += chain.from_iterable(lists)
        n_values += len(level)
        if n_values > MAX_VALUES:
            raise SchemaError(
                f"has more than {MAX_VALUES} values; does it contain itself? ($ref is the way to say that)"
            )
    raise SchemaError(f"more than {MAX_DEPTH} levels lie in each other; that is too deep")
