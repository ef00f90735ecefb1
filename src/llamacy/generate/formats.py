"""What a chat request says of the form of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamacy.grammar import Grammar

_OBJECT = {"type": "object"}


def format_grammar(response_format: Any) -> Grammar | None:
    """Return the grammar of an answer, or None when it may be any text.

    Parameters
    ----------
    response_format
        None, a `Grammar`, or one of ``{"type": "text"}``, ``{"type": "json_object"}`` (also with a ``"schema"``),
        ``{"type": "json_schema", "json_schema": {"schema": …}}``, ``{"type": "regex", "pattern": …}``,
        ``{"type": "grammar", "grammar": …}``; of these, the last two are not OpenAI's. A class of pydantic, or its
        like, is a JSON schema. With ``"strict": False`` beside a schema, what of it can't be enforced is left out.

    Raises
    ------
    TypeError, ValueError
        It is no such thing.
    GrammarError
        The schema, pattern or grammar can't be used.

    Warns
    -----
    SchemaRelaxedWarning
        Something of a schema was left out.
    """
    if response_format is None:
        return None
    from llamacy.grammar import Grammar

    kind, value = _kind(response_format)
    if kind == "text":
        return None
    if kind == "regex":
        return Grammar.from_regex(value)
    if kind == "schema":
        return Grammar.from_json_schema(value)
    if kind == "relaxed":
        return Grammar.from_json_schema(value, strict=False)
    return value if isinstance(value, Grammar) else Grammar.from_string(value)


def _kind(response_format: Any) -> tuple[str, Any]:
    """Return which kind of form it is, and its schema, pattern or grammar."""
    from llamacy.grammar import Grammar

    if isinstance(response_format, Grammar):
        return "grammar", response_format
    if hasattr(response_format, "model_json_schema"):
        return "schema", response_format
    if hasattr(response_format, "model_dump"):
        response_format = response_format.model_dump(by_alias=True, exclude_none=True)
    if not isinstance(response_format, Mapping):
        raise TypeError(f"response_format must be a dict with a type, or a Grammar, not {response_format!r:.100}")
    kind = response_format.get("type")
    if kind == "text":
        return "text", None
    if kind == "json_object":
        schema = response_format.get("schema")
        return "schema", _objects(schema)
    if kind == "json_schema":
        inner = response_format.get("json_schema", response_format)
        if not isinstance(inner, Mapping) or "schema" not in inner:
            raise ValueError(
                'response_format of type "json_schema" needs its schema: {"type": "json_schema", "json_schema": '
                '{"name": …, "schema": {…}}}'
            )
        strict = inner.get("strict")
        if strict is not None and not isinstance(strict, bool):
            raise TypeError(f"strict of a json_schema must be True or False, not {strict!r:.60}")
        return "relaxed" if strict is False else "schema", inner["schema"]
    if kind == "regex":
        return "regex", _text(response_format, "pattern", "regex")
    if kind == "grammar":
        grammar = response_format.get("grammar")
        return "grammar", grammar if isinstance(grammar, Grammar) else _text(response_format, "grammar", "grammar")
    raise ValueError(
        f'response_format of type {kind!r:.50} is unknown; there are "text", "json_object", "json_schema", "regex", '
        '"grammar"'
    )


def _objects(schema: Any) -> Any:
    """Return the schema of objects: one that says nothing still means an object."""
    if schema is None or schema is True or schema == {}:
        return _OBJECT
    if isinstance(schema, Mapping) and "type" not in schema and "$ref" not in schema:
        return {**schema, **_OBJECT}
    return schema


def _text(response_format: Mapping[str, Any], *names: str) -> str:
    for name in names:
        if isinstance(response_format.get(name), str):
            text: str = response_format[name]
            return text
    raise ValueError(f"response_format of type {response_format['type']!r} needs a text under {names[0]!r}")
