"""The functions that a model may call, as far as reading its calls needs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_MAX_DEPTH = 16  # of combinations and references
_SCALARS = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}

Schema = Mapping[str, Any]


class Tools:
    """Names of functions, and what their parameters are.

    Parameters
    ----------
    tools
        Definitions as OpenAI writes them, ``{"type": "function", "function": {...}}``, or the functions themselves;
        None when they aren't known, so that any name may be called.

    Raises
    ------
    ValueError
        A function has no name.
    """

    __slots__ = ("_schemas", "names")

    def __init__(self, tools: Iterable[Mapping[str, Any]] | None) -> None:
        self._schemas: dict[str, Schema] = {}
        for number, tool in enumerate(tools or ()):
            function = tool.get("function", tool)
            name = function.get("name") if isinstance(function, Mapping) else None
            if not isinstance(name, str) or not name:
                raise ValueError(f"tool {number} has no name: {tool!r:.100}")
            self._schemas[name] = parameters_of(function)
        self.names = None if tools is None else frozenset(self._schemas)

    def knows(self, name: str) -> bool:
        """Tell whether there may be a function of that name."""
        return bool(name) and (self.names is None or name in self.names)

    def types(self, name: str, parameter: str) -> frozenset[str]:
        """Return the JSON types that a parameter may have; none when that isn't known."""
        schema = self._schemas.get(name, {})
        properties = schema.get("properties")
        if not isinstance(properties, Mapping):
            return frozenset()
        declared = properties.get(parameter, schema.get("additionalProperties"))
        return types_of(declared, schema)

    def schema(self, name: str) -> Schema:
        """Return the schema of a function's arguments."""
        return self._schemas.get(name, {})


def parameters_of(function: Mapping[str, Any]) -> Schema:
    """Return the schema of a function's arguments; an object without declared properties when it says nothing."""
    schema = function.get("parameters") or function.get("inputSchema")
    return schema if isinstance(schema, Mapping) else {"type": "object", "properties": {}}


def types_of(schema: object, root: Schema) -> frozenset[str]:
    """Return the JSON types that a schema allows; none when it doesn't say.

    Parameters
    ----------
    schema
        The schema.
    root
        Where its references begin.
    """
    return _types(schema, root, {}, 0)


def _types(schema: object, root: Schema, known: dict[str, frozenset[str]], depth: int) -> frozenset[str]:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return frozenset()
    declared = schema.get("type")
    options = schema.get("anyOf", schema.get("oneOf"))
    found: frozenset[str] = frozenset()
    if isinstance(declared, str):
        found = frozenset({declared})
    elif isinstance(declared, list):
        found = frozenset(name for name in declared if isinstance(name, str))
    elif isinstance(schema.get("enum"), list):
        found = frozenset(_SCALARS[type(value)] for value in schema["enum"] if type(value) in _SCALARS)
    elif "const" in schema:
        found = frozenset({_SCALARS[type(schema["const"])]}) if type(schema["const"]) in _SCALARS else found
    elif isinstance(reference := schema.get("$ref"), str):
        if reference not in known:
            known[reference] = frozenset()  # what a circle knows of itself
            known[reference] = _types(_resolve(reference, root), root, known, depth + 1)
        found = known[reference]
    elif isinstance(options, list) and options:
        kinds = [_types(option, root, known, depth + 1) for option in options]
        found = frozenset().union(*kinds) if all(kinds) else found
    elif isinstance(schema.get("allOf"), list):
        found = next(filter(None, (_types(part, root, known, depth + 1) for part in schema["allOf"])), found)
    return found | {"null"} if found and schema.get("nullable") is True else found


def resolved(schema: object, root: Schema) -> object:
    """Return what a schema refers to, if it does nothing else."""
    for _ in range(_MAX_DEPTH):
        parts = schema.get("allOf") if isinstance(schema, Mapping) else None
        if isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str):
            schema = _resolve(schema["$ref"], root)
        elif isinstance(parts, list) and len(parts) == 1 and isinstance(schema, Mapping) and "type" not in schema:
            schema = parts[0]
        else:
            break
    return schema


def _resolve(reference: str, root: Schema) -> object:
    if not reference.startswith("#"):
        return None
    target: object = root
    for step in reference[1:].split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        target = target.get(step) if isinstance(target, Mapping) else None
    return target
