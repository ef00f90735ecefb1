"""Definitions of tools, made into the one shape that templates read."""

from __future__ import annotations

import marshal
import re
from collections.abc import Mapping
from typing import Any

from llamacy.chat.plain import Plain, object_fields, short

#: What the name of a tool may be: OpenAI's rule, with dots and slashes as MCP servers have them.
NAME = re.compile(r"[A-Za-z0-9_.\-/]{1,128}\Z")
_SCHEMAS = ("parameters", "inputSchema", "input_schema")
# what MCP says to the client only
_MCP_ONLY = frozenset(["_meta", "annotations", "execution", "icons", "outputSchema", "title"])
_REFERENCES = frozenset(["$ref", "allOf", "anyOf", "oneOf"])


def normalise_tools(tools: Any) -> list[dict[str, Any]]:
    """Return tools as OpenAI's chat completions define them.

    Accepted are that shape (``{"type": "function", "function": {...}}``), bare functions (``{"name", "parameters"}``,
    as in `functions` of old and in the Responses API), and MCP's (``{"name", "inputSchema"}``), each a dict or a model
    with `model_dump`. Parameters that are missing, null or empty become an object without properties.

    Parameters
    ----------
    tools
        The tools of a request, or None.

    Returns
    -------
    list of dict
        New definitions, empty for None.

    Raises
    ------
    TypeError, ValueError
        A tool is wrong, or two have the same name; the error names the tool.

    Thread safety
    -------------
    May be called by several threads at once.
    """
    if tools is None:
        return []
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, (list, tuple)):
        raise TypeError(f"tools must be a list of tool definitions, not {type(tools).__name__}")
    made: list[dict[str, Any]] = []
    places: dict[str, int] = {}
    for index, tool in enumerate(tools):
        definition = _tool(tool, f"tools[{index}]")
        name = definition["function"]["name"]
        if name in places:
            raise ValueError(f"tools[{index}] has the same name as tools[{places[name]}]: {name!r}")
        places[name] = index
        made.append(definition)
    return made


class KeptTools(tuple[dict[str, Any], ...]):
    """Definitions that `normalise_tools` returned, for many prompts; a template gets a copy, which is soon made.

    Attributes
    ----------
    data
        What equal definitions have in common, and others haven't.
    n_items, n_bytes
        What a copy counts, see `Plain`.

    Thread safety: immutable, as long as nobody changes a definition; any number of threads.
    """

    data: bytes
    n_items: int
    n_bytes: int

    def __new__(cls, tools: list[dict[str, Any]]) -> KeptTools:
        self = super().__new__(cls, tools)
        plain = Plain()
        plain.copy(tools, "tools")
        self.n_items, self.n_bytes = plain.n_items, plain.n_bytes
        self.data = marshal.dumps(tools, 2)
        return self

    def copied(self, plain: Plain) -> list[dict[str, Any]]:
        """Return new definitions, and let `plain` count them."""
        plain.n_items += self.n_items
        plain.n_bytes += self.n_bytes
        made: list[dict[str, Any]] = marshal.loads(self.data)
        return made


def kept_tools(tools: Any) -> KeptTools:
    """Return what `normalise_tools` returns; tools that a request had lately need no work.

    Parameters
    ----------
    tools
        The tools of a request, or None.

    Raises
    ------
    TypeError, ValueError
        As for `normalise_tools`.

    Thread safety
    -------------
    May be called by several threads at once.
    """
    if tools is None:
        return _NO_TOOLS
    try:
        # parts that are referred to twice are written once, so this is quick whatever the tools are
        key = marshal.dumps(tools, 4)
    except ValueError:
        key = b""  # there is something in them that is no plain data
    found = _kept.pop(key, None)
    if found is None:
        found = KeptTools(normalise_tools(tools))
    if 0 < len(key) <= _MAX_KEY:
        while len(_kept) >= _MAX_KEPT:
            _kept.pop(next(iter(_kept), b""), None)
        _kept[key] = found
    return found


_NO_TOOLS = KeptTools([])
_MAX_KEPT, _MAX_KEY = 32, 1 << 20
# the least lately used first
_kept: dict[bytes, KeptTools] = {}


def _tool(tool: Any, where: str) -> dict[str, Any]:
    fields = _copied(tool, where)
    if "function" in fields:
        kind = fields.get("type", "function")
        if kind != "function":
            raise ValueError(f"{where}.type must be 'function', not {short(kind)}")
        function = _copied(fields["function"], f"{where}.function")
    else:
        if fields.pop("type", "function") != "function":
            raise ValueError(f"{where} is no function; only tools of type 'function' can be used here")
        function = fields
    name = function.get("name")
    if not isinstance(name, str) or not NAME.match(name):
        raise ValueError(
            f"{where} has the name {short(name)}; a name has 1 to 128 letters, digits or any of '_', '-', '.', '/'"
        )
    where = f"{where} ({name})"
    description = function.get("description")
    if description is not None and not isinstance(description, str):
        raise TypeError(f"{where}: the description must be a text, not {type(description).__name__}")
    more = {key: value for key, value in fields.items() if function is not fields and key not in ("type", "function")}
    return {"type": "function", "function": _function(function, where), **more}


def _function(function: dict[str, Any], where: str) -> dict[str, Any]:
    """Return a function with its parameters in place, and without what is null or says nothing to a model."""
    schemas = [key for key in _SCHEMAS if function.get(key)]
    if len(schemas) > 1:
        raise ValueError(f"{where} has both {schemas[0]} and {schemas[1]}")
    is_mcp = "inputSchema" in function
    given = schemas[0] if schemas else next((key for key in _SCHEMAS if key in function), None)
    made: dict[str, Any] = {}
    for key, value in function.items():
        if key == given:
            made["parameters"] = _parameters(value, where)
        elif value is not None and key not in _SCHEMAS and not (is_mcp and key in _MCP_ONLY):
            made[key] = value
    if given is None:
        made["parameters"] = _parameters(None, where)
    return made


def _parameters(parameters: Any, where: str) -> dict[str, Any]:
    """Return a schema of an object."""
    if not parameters and not isinstance(parameters, (bool, int, float)):
        return {"type": "object", "properties": {}}
    if not isinstance(parameters, dict):
        raise TypeError(f"{where}: the parameters must be a JSON Schema of an object, not {type(parameters).__name__}")
    if parameters.get("type", "object") != "object":
        raise ValueError(f"{where}: the parameters must be of type 'object', not {short(parameters['type'])}")
    made = parameters if "type" in parameters else {"type": "object", **parameters}
    if made.get("properties") is None and not _REFERENCES & made.keys():
        made["properties"] = {}
    return made


def _copied(value: Any, where: str) -> dict[str, Any]:
    fields = value if isinstance(value, Mapping) else object_fields(value)
    if fields is None:
        raise TypeError(f"{where} must be a dict or a model, not {type(value).__name__}")
    copied: dict[str, Any] = Plain().copy(fields, where)
    for key in copied:
        if not isinstance(key, str):
            raise TypeError(f"{where} has a key that is no text: {short(key)}")
    return copied
