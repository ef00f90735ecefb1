"""What is known of the functions."""

from __future__ import annotations

from typing import Any

import pytest

from llamacy.chat.output.tagged_calls import json_value
from llamacy.chat.output.tools import Tools, types_of

ROOT: dict[str, Any] = {
    "$defs": {
        "name": {"type": "string"},
        "loop": {"$ref": "#/$defs/loop"},
        "tree": {"anyOf": [{"$ref": "#/$defs/tree"}, {"$ref": "#/$defs/name"}]},
        "a/b~": {"enum": [1, None]},
    }
}


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["integer", "null"]}, {"integer", "null"}),
        ({"type": "string", "nullable": True}, {"string", "null"}),
        (
            {"enum": ["a", 1, True, None, 1.5, [], {}]},
            {"string", "integer", "boolean", "null", "number", "array", "object"},
        ),
        ({"const": "x"}, {"string"}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"string", "null"}),
        ({"oneOf": [{"type": "string"}, {"const": 1}]}, {"string", "integer"}),
        ({"anyOf": [{"type": "string"}, {}]}, set()),
        ({"allOf": [{"minLength": 1}, {"type": "string"}]}, {"string"}),
        ({"$ref": "#/$defs/name"}, {"string"}),
        ({"$ref": "#/$defs/a~1b~0"}, {"integer", "null"}),
        ({"$ref": "#/$defs/loop"}, set()),
        ({"$ref": "#/$defs/tree"}, set()),
        ({"$ref": "#/$defs/none"}, set()),
        ({"$ref": "other.json"}, set()),
        ({}, set()),
        (True, set()),
        (None, set()),
    ],
)
def test_types_of_a_schema(schema: object, types: set[str]) -> None:
    assert types_of(schema, ROOT) == types


@pytest.mark.timeout(20)
def test_types_of_a_circle_with_many_ways_are_found_at_once() -> None:
    root = {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 9}}}
    assert types_of({"$ref": "#/$defs/a"}, root) == set()


@pytest.mark.timeout(20)
def test_types_of_many_combinations_are_found_at_once() -> None:
    """A schema of which each level names the next one twice has 2**40 ways through it."""
    root = {"$defs": {str(n): {"anyOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(40)}}
    assert types_of({"$ref": "#/$defs/0"}, root) == set()


@pytest.mark.parametrize("parameters", [None, {}, "missing"])
def test_function_without_parameters_is_known(parameters: object) -> None:
    function = {"name": "f"} if parameters == "missing" else {"name": "f", "parameters": parameters}
    tools = Tools([{"type": "function", "function": function}])
    assert tools.knows("f")
    assert not tools.knows("g")
    assert tools.types("f", "x") == set()


def test_definitions_without_wrapper_are_functions() -> None:
    tools = Tools([{"name": "f", "inputSchema": {"type": "object", "properties": {"x": {"type": "string"}}}}])
    assert tools.types("f", "x") == {"string"}
    assert tools.types("f", "y") == set()
    assert tools.types("g", "x") == set()


@pytest.mark.parametrize(
    "tool", [{}, {"type": "function", "function": {"name": None}}, {"function": "f"}, {"name": ""}]
)
def test_function_without_a_name_is_refused(tool: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="tool 1 has no name"):
        Tools([{"name": "f"}, tool])


def test_any_function_is_known_when_none_is_told() -> None:
    assert Tools(None).knows("f")
    assert not Tools(None).knows("")
    assert not Tools([]).knows("f")


@pytest.mark.parametrize(
    ("text", "types", "value"),
    [
        ("123", {"string"}, '"123"'),
        ("123", {"integer"}, "123"),
        ("123", set(), "123"),
        ("1.5", {"integer", "string"}, '"1.5"'),
        ("12", {"integer", "string"}, "12"),
        ("null", {"string", "null"}, "null"),
        ("null", {"string"}, '"null"'),
        ("True", {"boolean"}, "true"),
        ("True", set(), "true"),
        ("{'a': None}", {"object"}, '{"a": null}'),
        (' {"a": 1} ', {"object"}, '{"a": 1}'),
        ("two", {"integer"}, '"two"'),
        ("a b", set(), '"a b"'),
        ('"q"', {"string", "null"}, '"q"'),
        ("", {"object"}, '""'),
    ],
)
def test_value_without_quotes_has_the_type_of_its_parameter(text: str, types: set[str], value: str) -> None:
    assert json_value(text, frozenset(types)) == value


def test_value_that_is_said_to_be_no_string_is_none() -> None:
    assert json_value("1.5", frozenset({"integer", "string"}), is_other=True) == "1.5"
