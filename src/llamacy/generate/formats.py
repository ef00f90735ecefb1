"""What a chat request says of the form of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamacy.grammar import Grammar

_OBJECT = {"type": "object"}


def format_grammar(
    response_format: Any, thinking_end: str | None = None, *, thinking_start: str = ""
) -> Grammar | None:
    """Return the grammar of an answer, or None when it may be any text.

    Parameters
    ----------
    response_format
        None, a `Grammar`, or one of ``{"type": "text"}``, ``{"type": "json_object"}`` (also with a ``"schema"``),
        ``{"type": "json_schema", "json_schema": {"schema": …}}``, ``{"type": "regex", "pattern": …}``,
        ``{"type": "grammar", "grammar": …}``; of these, the last two are not OpenAI's. A class of pydantic, or its
        like, is a JSON schema.
    thinking_end
        What thinking ends with, for a model that thinks before it answers; the grammar then lets it.
    thinking_start
        What it begins with; empty when the prompt has begun it.

    Raises
    ------
    TypeError, ValueError
        It is no such thing.
    GrammarError
        The schema, pattern or grammar can't be used.
    """
    from llamacy.grammar import Grammar

    kind, value = _kind(response_format)
    if kind == "text":
        return None
    if kind == "grammar":
        if thinking_end is None:
            return value if isinstance(value, Grammar) else Grammar.from_string(value)
        return _after_thinking_of_grammar(value, thinking_start, thinking_end)
    if thinking_end is None:
        return Grammar.from_regex(value) if kind == "regex" else Grammar.from_json_schema(value)
    patterns = {"thought": _until(thinking_end)}
    schemas = {}
    if kind == "regex":
        patterns["answer"] = value
    else:
        schemas["answer"] = value
    begins = f"({_literal(thinking_start)} thought)?" if thinking_start else "thought"
    return Grammar.from_template(f"root ::= {begins} answer", schemas=schemas, patterns=patterns)


def _kind(response_format: Any) -> tuple[str, Any]:
    """Return which kind of form it is, and its schema, pattern or grammar."""
    from llamacy.grammar import Grammar

    if response_format is None:
        return "text", None
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
        return "schema", inner["schema"]
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


def _after_thinking_of_grammar(value: Any, thinking_start: str, thinking_end: str) -> Grammar:
    """Return a grammar that lets thinking come before what another grammar allows."""
    from llamacy.grammar import Grammar

    grammar = value if isinstance(value, Grammar) else Grammar.from_string(value)
    names = {line.split("::=")[0].strip() for line in grammar.text.splitlines() if "::=" in line}
    root = "with-thinking"
    while root in names:
        root += "-"
    thought = f"{root}-thought"
    begins = f"({_literal(thinking_start)} {thought})?" if thinking_start else thought
    return Grammar.from_template(
        f"{root} ::= {begins} {grammar.root}\n{grammar.text}", root, patterns={thought: _until(thinking_end)}
    )


def _until(end: str) -> str:
    """Return a regular expression for text up to a word, with it and the blanks after it."""
    escaped = "".join(f"\\{char}" if not (char.isalnum() or char.isspace() or char in "<>_") else char for char in end)
    return rf"(?:(?!{escaped})[\s\S])*{escaped}\s{{0,2}}"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
