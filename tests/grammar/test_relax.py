"""What strict=False leaves out: never so that less is allowed, and never without a word."""

from __future__ import annotations

import json
import warnings
from typing import Any

import jsonschema
import pytest

from llamacy.errors import SchemaRelaxedWarning, UnsatisfiableSchemaError, UnsupportedSchemaError
from llamacy.grammar import Grammar

UNIQUE = {"type": "array", "uniqueItems": True}
BACK = {"type": "string", "pattern": "(.)\\1"}


def relaxed(schema: Any, **policy: Any) -> tuple[Grammar, list[str]]:
    """Return the grammar of a schema that can't be enforced, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        grammar = Grammar.from_json_schema(schema, strict=False, **policy)
    assert {warning.category for warning in caught} == {SchemaRelaxedWarning}
    return grammar, [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("schema", "blamed", "instances"),
    [
        ({"not": UNIQUE}, "#: not: ", [[1, 1], 5]),
        (
            {"not": {"properties": {"a": UNIQUE}}},
            "#: not, because of #/not/properties/a: uniqueItems: ",
            [{"a": [1, 1]}],
        ),
        (
            {"not": {"properties": {"a": {"$ref": "#/$defs/u"}}}, "$defs": {"u": UNIQUE}},
            "#: not, because of #/$defs/u: uniqueItems: ",
            [{"a": [1, 1]}],
        ),
        ({"not": {"not": BACK}}, "#: not, because of #/not/not: pattern: ", ["aa"]),
        ({"oneOf": [UNIQUE, {"type": "array", "minItems": 2}]}, "#: oneOf: ", [[1], [1, 1]]),
        ({"oneOf": [BACK, {"type": "number"}]}, "#: oneOf, because of #/oneOf/0: pattern: ", ["aa", 1]),
        ({"if": BACK, "then": {"maxLength": 2}, "else": {"minLength": 3}}, "#: if, because of #/if: ", ["aa", "abc"]),
        (
            {"type": "array", "contains": BACK, "maxContains": 1},
            "#: contains, because of #/contains: pattern: ",
            [["aa", "ab"]],
        ),
        (
            {"patternProperties": {"(.)\\1": {"type": "string"}}, "additionalProperties": False},
            "#: additionalProperties, because of #: patternProperties: ",
            [{"aa": "x"}],
        ),
        (
            {"allOf": [{"patternProperties": {"(.)\\1": {"type": "string"}}}], "unevaluatedProperties": False},
            "#: unevaluatedProperties, because of #/allOf/0: patternProperties: ",
            [{"aa": "x"}],
        ),
        ({"properties": {"a": {"items": BACK}}}, "#/properties/a/items: pattern: ", [{"a": ["aa"]}]),
    ],
)
def test_what_satisfied_the_schema_still_does(schema: Any, blamed: str, instances: list[Any]) -> None:
    with pytest.raises(UnsupportedSchemaError, match="strict=False"):
        Grammar.from_json_schema(schema)
    grammar, messages = relaxed(schema, extra_keys=True)
    assert messages[0].startswith(f"left out: {blamed}")
    for instance in instances:
        assert jsonschema.Draft202012Validator(schema).is_valid(instance)
        assert grammar.matches(json.dumps(instance))


def test_equal_schemas_are_each_told() -> None:
    _, messages = relaxed({"properties": {"a": dict(BACK), "b": dict(BACK)}})
    assert [message.split(": ")[1] for message in messages] == ["#/properties/a", "#/properties/b"]


def test_texts_that_a_format_lacks_are_not_called_impossible() -> None:
    schema = {"type": "string", "format": "idn-hostname", "const": "xn--mnchen-3ya.de"}
    with pytest.raises(UnsupportedSchemaError, match=r"format: none of the texts .* that can be offered") as caught:
        Grammar.from_json_schema(schema)
    assert (caught.value.pointer, caught.value.keyword) == ("#", "format")
    grammar, _ = relaxed(schema)
    assert grammar.matches('"xn--mnchen-3ya.de"')
    with pytest.raises(UnsatisfiableSchemaError):
        Grammar.from_json_schema({"type": "string", "format": "uuid", "const": "x"})


def test_other_keys_are_offered_where_the_named_ones_are_impossible() -> None:
    nothing = {"type": "integer", "minimum": 2, "maximum": 1}
    for impossible in (nothing, {"allOf": [{"const": 1}, {"const": 2}]}, False):
        grammar = Grammar.from_json_schema({"type": "object", "minProperties": 1, "properties": {"a": impossible}})
        assert grammar.matches('{"b": 1}')
        assert not grammar.matches("{}")
        assert not grammar.matches('{"a": 1}')


def test_heavy_keywords_in_vain_have_an_end() -> None:
    heavy = {f"p{i}": {"type": "string", "pattern": f"{i}(?:a|b)*a(?:a|b){{20}}"} for i in range(90)}
    with pytest.warns(SchemaRelaxedWarning), pytest.raises(UnsupportedSchemaError, match="states"):
        Grammar.from_json_schema({"properties": heavy}, strict=False)
