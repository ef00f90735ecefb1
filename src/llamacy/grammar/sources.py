"""JSON Schemas from what describes data in Python: dicts, JSON text, pydantic models, dataclasses, annotations."""

from __future__ import annotations

import json
import sys
import typing
from decimal import Decimal
from functools import cache
from typing import Any, NoReturn

from llamacy._imports import import_whole
from llamacy.errors import SchemaError


def schema_of(source: object) -> dict[str, Any] | bool:
    """Return the JSON Schema that something stands for.

    Parameters
    ----------
    source
        A schema as a dict, a bool or JSON text; a pydantic model class or `TypeAdapter`; or, when pydantic 2 is
        installed, a dataclass, a `TypedDict` or any annotation that pydantic knows (``list[int]``, ``Literal["a"]``).

    Returns
    -------
    dict or bool
        The schema; the same object when a dict or bool was given.

    Raises
    ------
    TypeError
        The source is nothing of that kind.
    SchemaError
        JSON text can't be read, or pydantic has no JSON Schema for the type.
    ImportError
        The type needs pydantic 2, which is not installed.
    """
    if isinstance(source, (bool, dict)):
        return source
    if isinstance(source, str):
        return _from_json(source)
    loaded = sys.modules.get("pydantic")
    adapter = getattr(loaded, "TypeAdapter", ())
    if isinstance(source, adapter):
        return _from_pydantic(source)
    if isinstance(source, getattr(loaded, "BaseModel", ())):
        raise TypeError(f"a JSON Schema is made of a model class, not of an object of it; give {type(source).__name__}")
    if isinstance(source, type) or _is_annotation(source):
        return _from_pydantic(_pydantic().TypeAdapter, source)
    raise TypeError(
        "a JSON Schema is made of a dict, bool or JSON text, of a pydantic model class or TypeAdapter, or of a type; "
        f"not of {source!r:.100}"
    )


# JSON text


@cache
def _decoder() -> json.JSONDecoder:
    # Decimal: a bound is the number that was written, however many digits it has
    return json.JSONDecoder(parse_float=Decimal, parse_constant=_no_constant, object_pairs_hook=_without_duplicates)


def _from_json(text: str) -> dict[str, Any] | bool:
    try:
        schema = _decoder().decode(text)
    except json.JSONDecodeError as error:
        raise SchemaError(f"the schema is no JSON: {error}") from None
    except RecursionError:
        raise SchemaError("the schema is nested too deep to be read") from None
    except SchemaError:
        raise
    except ValueError as error:
        raise SchemaError(f"the schema can't be read: {error}") from None
    if not isinstance(schema, (dict, bool)):
        raise SchemaError(f"a schema must be an object or a boolean, not {schema!r:.100}")
    return schema


def _no_constant(name: str) -> NoReturn:
    raise SchemaError(f"the schema is no JSON: there is no number {name}")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        name = next(name for name in names if names.count(name) > 1)
        raise SchemaError(f"the schema says {name!r} twice in one object; which one counts is not defined")
    return found


# pydantic


def _is_annotation(source: object) -> bool:
    """Say whether something that is no class stands for a type."""
    return (
        source is Any
        or typing.get_origin(source) is not None
        or hasattr(source, "__supertype__")  # NewType
        or type(source).__name__ == "TypeAliasType"
    )


def _pydantic() -> Any:
    try:
        pydantic = import_whole("pydantic")
    except ImportError:
        raise ImportError(
            "a JSON Schema of a type needs pydantic: pip install 'llamacy[pydantic]', or give the schema as a dict"
        ) from None
    if not hasattr(pydantic, "TypeAdapter"):
        raise ImportError(f"a JSON Schema of a type needs pydantic 2, not {pydantic.VERSION}")
    return pydantic


def _from_pydantic(adapter: Any, *arguments: object) -> dict[str, Any]:
    """Return the schema of an adapter, or of the one that a class makes of the arguments."""
    errors = import_whole("pydantic.errors")
    failures = (errors.PydanticUserError, errors.PydanticUndefinedAnnotation)
    name = arguments[0] if arguments else adapter
    try:
        schema: dict[str, Any] = (adapter(*arguments) if arguments else adapter).json_schema()
    except failures as error:
        raise SchemaError(f"pydantic has no JSON Schema for {name!r:.100}: {error}") from error
    return schema
