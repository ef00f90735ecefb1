"""`normalise_tools`: OpenAI's definitions, bare functions, MCP's."""

from __future__ import annotations

from typing import Any

import pytest

from llamacy.chat.tool_definitions import normalise_tools

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
EMPTY = {"type": "object", "properties": {}}


def tool(**function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", **function}}


def test_definition_of_openai_stays_as_it_is() -> None:
    given = [tool(description="d", parameters=SCHEMA, strict=True)]
    made = normalise_tools(given)
    assert made == given
    assert list(made[0]["function"]) == ["name", "description", "parameters", "strict"]
    made[0]["function"]["parameters"]["properties"]["b"] = {}
    assert given == [tool(description="d", parameters=SCHEMA, strict=True)]
    assert normalise_tools(None) == normalise_tools([]) == []


def test_other_shapes_become_that_of_openai() -> None:
    expected = [tool(description="d", parameters=SCHEMA)]
    assert normalise_tools([{"name": "f", "description": "d", "parameters": SCHEMA}]) == expected
    assert normalise_tools([{"type": "function", "name": "f", "description": "d", "parameters": SCHEMA}]) == expected
    mcp = {
        "name": "f",
        "title": "F",
        "description": "d",
        "inputSchema": SCHEMA,
        "outputSchema": EMPTY,
        "annotations": {"readOnlyHint": True},
    }
    assert normalise_tools([mcp]) == expected
    assert normalise_tools([{"name": "f", "description": "d", "input_schema": SCHEMA}]) == expected


def test_models_are_tools() -> None:
    class Model:
        def model_dump(self) -> dict[str, Any]:
            return {"name": "f", "description": None, "inputSchema": {"type": "object"}, "title": None}

    assert normalise_tools([Model()]) == [tool(parameters=EMPTY)]


@pytest.mark.parametrize(
    "parameters", [None, {}, {"type": "object"}, {"properties": {}}, {"type": "object", "properties": None}]
)
def test_parameters_that_say_nothing_are_an_object_without_properties(parameters: Any) -> None:
    for key in ("parameters", "inputSchema"):
        assert normalise_tools([{"name": "f", key: parameters}]) == [tool(parameters=EMPTY)]
    assert normalise_tools([tool()]) == [tool(parameters=EMPTY)]


def test_reference_needs_no_properties() -> None:
    schema = {"$ref": "#/$defs/a", "$defs": {"a": SCHEMA}}
    assert normalise_tools([tool(parameters=schema)]) == [tool(parameters={"type": "object", **schema})]


@pytest.mark.parametrize(
    ("tools", "error", "match"),
    [
        ("x", TypeError, "tools must be a list"),
        ({"name": "f"}, TypeError, "tools must be a list"),
        ([3], TypeError, r"tools\[0\] must be a dict"),
        ([{}], ValueError, r"tools\[0\] has the name None"),
        ([tool(), {"name": "a b"}], ValueError, r"tools\[1\] has the name 'a b'"),
        ([{"name": ""}], ValueError, r"tools\[0\] has the name ''"),
        ([{"name": "x" * 129}], ValueError, r"tools\[0\] has the name"),
        ([{"name": "f\n"}], ValueError, r"tools\[0\] has the name"),
        ([tool(), {"name": "f"}], ValueError, r"tools\[1\] has the same name as tools\[0\]: 'f'"),
        ([{"type": "function", "function": 3}], TypeError, r"tools\[0\]\.function must be a dict"),
        ([{"type": "web_search"}], ValueError, r"tools\[0\] is no function"),
        ([{"type": "custom", "function": {"name": "f"}}], ValueError, r"tools\[0\]\.type"),
        ([tool(parameters=[1])], TypeError, r"tools\[0\] \(f\): the parameters"),
        ([tool(parameters=0)], TypeError, r"tools\[0\] \(f\): the parameters"),
        (
            [tool(parameters={"type": "string"})],
            ValueError,
            r"tools\[0\] \(f\): the parameters must be of type 'object'",
        ),
        ([tool(description=3)], TypeError, r"tools\[0\] \(f\): the description"),
        ([tool(parameters=SCHEMA, inputSchema=SCHEMA)], ValueError, r"tools\[0\] \(f\) has both"),
        ([{"name": "f", 3: 4}], TypeError, r"tools\[0\] has a key"),
    ],
)
def test_wrong_tool_is_named(tools: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        normalise_tools(tools)


def test_schema_that_holds_itself_is_refused() -> None:
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = {"a": schema}
    with pytest.raises(ValueError, match=r"tools\[0\]"):
        normalise_tools([tool(parameters=schema)])
