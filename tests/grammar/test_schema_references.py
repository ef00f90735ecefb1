"""References, identifiers, drafts, and the errors that name a place."""

from __future__ import annotations

from typing import Any

import pytest
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from llamacy.errors import SchemaError, UnsatisfiableSchemaError, UnsupportedSchemaError
from llamacy.grammar import Grammar

DIGIT = {"type": "integer", "minimum": 0, "maximum": 9}


def accepts(schema: Any, yes: str, no: str, **arguments: Any) -> None:
    grammar = Grammar.from_json_schema(schema, **arguments)
    assert grammar.matches(yes)
    assert not grammar.matches(no)


@pytest.mark.parametrize(
    ("reference", "definitions"),
    [
        ("#/$defs/d", {"d": DIGIT}),
        ("#/$defs/a~1b", {"a/b": DIGIT}),
        ("#/$defs/a~0b", {"a~b": DIGIT}),
        ("#/$defs/a%25b", {"a%b": DIGIT}),
        ("#/$defs/a%22b", {'a"b': DIGIT}),
        ("#/$defs/x/anyOf/1", {"x": {"anyOf": [{"type": "null"}, DIGIT]}}),
        ("#name", {"d": {"$anchor": "name", **DIGIT}}),
        ("other#/$defs/d", {"x": {"$id": "other", "$defs": {"d": DIGIT}}}),
        ("http://example.test/other", {"x": {"$id": "http://example.test/other", **DIGIT}}),
    ],
)
def test_reference_leads_to_its_definition(reference: str, definitions: dict[str, Any]) -> None:
    accepts({"$id": "http://example.test/root", "$ref": reference, "$defs": definitions}, "5", "10")


def test_outside_reference_needs_a_resolver() -> None:
    schema = {"type": "array", "items": {"$ref": "http://example.test/digit"}}
    with pytest.raises(SchemaError, match="resolver") as error:
        Grammar.from_json_schema(schema)
    assert (error.value.pointer, error.value.keyword) == ("#/items", "$ref")
    asked = []

    def resolver(uri: str) -> Any:
        asked.append(uri)
        return {"$ref": "#/definitions/d", "definitions": {"d": DIGIT}}

    accepts(schema, "[5]", "[10]", resolver=resolver)
    assert asked == ["http://example.test/digit"]
    registry = Registry().with_resource("http://example.test/digit", Resource(DIGIT, DRAFT202012))
    accepts(schema, "[5]", "[10]", resolver=registry)


def test_failing_resolver_is_named_as_the_cause() -> None:
    def resolver(uri: str) -> Any:
        raise KeyError(uri)

    with pytest.raises(SchemaError, match=r"example\.test") as error:
        Grammar.from_json_schema({"$ref": "http://example.test/x"}, resolver=resolver)
    assert isinstance(error.value.__cause__, KeyError)
    with pytest.raises(SchemaError, match="no schema"):
        Grammar.from_json_schema({"$ref": "http://example.test/x"}, resolver={"http://example.test/x": 5}.get)
    with pytest.raises(TypeError, match="resolver"):
        Grammar.from_json_schema({"$ref": "http://example.test/x"}, resolver=5)


@pytest.mark.parametrize(
    ("schema", "pointer", "keyword"),
    [
        ({"properties": {"a": {"$ref": "#/$defs/nope"}}}, "#/properties/a", "$ref"),
        ({"properties": {"a/b": {"enum": []}}}, "#/properties/a~1b", "enum"),
        ({"items": {"anyOf": []}}, "#/items", "anyOf"),
        ({"allOf": [{}, {"minLength": -1}]}, "#/allOf/1", "minLength"),
        ({"minItems": 3, "maxItems": 2}, "#", "maxItems"),
        ({"minLength": 3, "maxLength": 2}, "#", "maxLength"),
        ({"properties": {"a": {"minimum": "1"}}}, "#/properties/a", "minimum"),
        ({"properties": {"a": {"multipleOf": 0}}}, "#/properties/a", "multipleOf"),
        ({"patternProperties": {"(": {}}}, "#", "patternProperties"),
        ({"$schema": "http://example.test/mine"}, "#", "$schema"),
        ({"properties": {"a": {"pattern": "("}}}, "#/properties/a", "pattern"),
        ({"properties": {"a": {"const": float("nan")}}}, "#/properties/a", "const"),
        ({"properties": {"a": 5}}, "#/properties/a", None),
        ({"$ref": 5}, "#", "$ref"),
    ],
)
def test_error_names_the_place_and_the_keyword(schema: Any, pointer: str, keyword: str | None) -> None:
    with pytest.raises(SchemaError) as error:
        Grammar.from_json_schema(schema)
    assert (error.value.pointer, error.value.keyword) == (pointer, keyword)
    assert str(error.value).startswith(f"{pointer}: ")


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"not": {}},
        {"type": "string", "enum": [1, 2]},
        {"allOf": [{"const": 1}, {"const": 2}]},
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        {"type": "object", "properties": {"self": {"$ref": "#"}}, "required": ["self"]},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        {"type": "integer", "minimum": 3, "exclusiveMaximum": 3},
        {"type": "string", "pattern": "^a$", "minLength": 2},
    ],
)
def test_schema_that_nothing_satisfies_is_refused(schema: Any) -> None:
    with pytest.raises(UnsatisfiableSchemaError):
        Grammar.from_json_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}},
        {"anyOf": [{"type": "integer"}, {"$ref": "#"}]},
        {"not": {"$ref": "#"}},
        {"type": "object", "oneOf": [{"$ref": "#"}, {}]},
    ],
)
def test_reference_without_progress_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaError, match="refers to itself"):
        Grammar.from_json_schema(schema)


def test_recursion_through_members_is_a_rule() -> None:
    tree = {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"value": DIGIT, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
                "required": ["value"],
            }
        },
    }
    deep = '{"value":1}'
    for _ in range(200):
        deep = f'{{"value":2,"children":[{deep}]}}'
    accepts(tree, deep, deep.replace('{"value":1}', '{"value":10}'))


@pytest.mark.parametrize(
    ("dialect", "schema", "yes", "no"),
    [
        ("4", {"minimum": 3, "exclusiveMinimum": True, "type": "integer"}, "4", "3"),
        ("7", {"items": [{"type": "null"}], "additionalItems": False, "type": "array"}, "[null]", "[null,1]"),
        ("7", {"$ref": "#/definitions/d", "type": "null", "definitions": {"d": DIGIT}}, "5", "null"),
        ("2020-12", {"$ref": "#/definitions/d", "minimum": 4, "definitions": {"d": DIGIT}}, "5", "3"),
        ("2019-09", {"type": "array", "items": [{"type": "null"}]}, "[null,1]", "[1]"),
        (None, {"items": [{"type": "null"}], "type": "array"}, "[null,1]", "[1]"),
        (None, {"dependencies": {"a": ["b"]}, "type": "object"}, '{"a":1,"b":2}', '{"a":1}'),
    ],
)
def test_draft_decides_what_a_keyword_means(dialect: str | None, schema: Any, yes: str, no: str) -> None:
    accepts(schema, yes, no, dialect=dialect)


def test_list_of_items_is_refused_where_the_draft_has_prefix_items() -> None:
    with pytest.raises(SchemaError, match="prefixItems"):
        Grammar.from_json_schema({"items": [{}]}, dialect="2020-12")


def test_deep_schema_is_refused_without_recursion_error() -> None:
    schema: Any = {}
    for _ in range(20_000):
        schema = {"type": "array", "items": schema}
    with pytest.raises(SchemaError, match="deep"):
        Grammar.from_json_schema(schema)
    schema = {}
    for _ in range(1_000):
        schema = {"allOf": [schema]}
    with pytest.raises(SchemaError, match="lie in each other"):
        Grammar.from_json_schema(schema)


def test_schema_that_explodes_is_refused_with_the_number() -> None:
    branches = [{"required": [f"a{i}"]} for i in range(12)]
    schema = {"type": "object", "allOf": [{"anyOf": branches}, {"anyOf": branches}, {"anyOf": branches}]}
    with pytest.raises(UnsupportedSchemaError, match="512"):
        Grammar.from_json_schema(schema)


def test_one_place_written_in_many_is_one_rule() -> None:
    item = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^[a-z]{3}$"}}, "required": ["a"]}
    shared = {"$defs": {"i": item}, "type": "object", "properties": {str(n): {"$ref": "#/$defs/i"} for n in range(50)}}
    assert Grammar.from_json_schema(shared).text.count("[a-z]") == 1


def _cycle() -> Any:
    schema: dict[str, Any] = {}
    schema["anyOf"] = [schema, schema]
    return schema


def _shared(levels: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(levels):
        schema = {"anyOf": [schema, schema]}
    return schema


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (_cycle(), "contain itself"),
        (_shared(40), "contain itself"),
        ({"properties": {1: {}}}, "names must be strings"),
        ({"patternProperties": {None: {}}}, "names must be strings"),
        ({"dependentRequired": {1: ["a"]}}, "names must be strings"),
        ({"const": {1: 2}}, "names must be strings"),
        ('{"minimum":' + "9" * 5000 + "}", "digits"),
        ({"$ref": "//["}, r"//\["),
        ({"$id": "//[", "$ref": "a"}, "URI reference"),
        ({"properties": 2.0, "additionalProperties": False}, "properties"),
        ({"properties": [[]], "additionalProperties": {}}, "properties"),
        ({"type": "object", "required": ["\ud800"]}, "nothing can satisfy"),
    ],
)
def test_hostile_schema_is_a_typed_error_at_once(schema: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Grammar.from_json_schema(schema)


def test_resolver_with_a_broken_identifier_is_named() -> None:
    with pytest.raises(SchemaError, match="URI reference"):
        Grammar.from_json_schema({"$ref": "http://example.test/a"}, resolver=lambda _: {"$id": "//["})


def test_schemas_that_share_parts_are_read_once() -> None:
    assert Grammar.from_json_schema(_shared(14)).matches('"x"')


def test_numbers_of_other_kinds_are_what_they_are() -> None:
    class Float(float):
        def __repr__(self) -> str:
            return f"Float({float(self)})"

    accepts({"type": "number", "minimum": Float(1.5)}, "1.5", "1.4")


def test_overlapping_patterns_are_refused_with_the_number() -> None:
    patterns = {f"w{i}": {"type": "integer", "minimum": i} for i in range(40)}
    with pytest.raises(UnsupportedSchemaError, match="64") as error:
        Grammar.from_json_schema({"type": "object", "patternProperties": patterns})
    assert error.value.keyword == "patternProperties"
    accepts({"type": "object", "patternProperties": dict(list(patterns.items())[:3])}, '{"w0w2":2}', '{"w0w2":1}')


def test_type_beside_a_reference_of_an_older_draft_says_nothing() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/o", "type": "string"}},
        "required": ["a"],
        "definitions": {"o": {"type": "array", "items": {"const": 1}}},
    }
    grammar = Grammar.from_json_schema(schema)
    assert grammar.matches('{"a": [1]}')
    assert not grammar.matches('{"a": "x"}')
