"""What is written where a schema leaves a choice."""

from __future__ import annotations

import itertools
import json
from typing import Any

import jsonschema
import pytest

from llamacy.errors import SchemaError, SchemaRelaxedWarning, UnsupportedSchemaError
from llamacy.grammar import Grammar
from llamacy.grammar.schema import Policy

THREE = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "null"}},
    "required": ["b"],
}
VALUES = {"a": 1, "b": "x", "c": None}


def written(names: tuple[str, ...]) -> str:
    return json.dumps({name: VALUES[name] for name in names})


def all_orders() -> list[tuple[str, ...]]:
    return [order for n in range(4) for order in itertools.permutations("abc", n) if "b" in order]


def offered(**policy: Any) -> set[tuple[str, ...]]:
    grammar = Grammar.from_json_schema(THREE, **policy)
    assert not grammar.matches("{}")
    return {order for order in all_orders() if grammar.matches(written(order))}


def test_order_declared_writes_names_as_the_schema_does() -> None:
    assert offered() == {order for order in all_orders() if list(order) == sorted(order)}


def test_order_required_first_puts_required_names_before_others() -> None:
    rank = "bac".index
    assert offered(property_order="required_first") == {
        order for order in all_orders() if list(order) == sorted(order, key=rank)
    }


def test_order_any_takes_every_order_of_a_small_object() -> None:
    assert offered(property_order="any") == set(all_orders())


def test_order_any_keeps_counts_and_extra_keys() -> None:
    schema = {**THREE, "minProperties": 2, "maxProperties": 2}
    grammar = Grammar.from_json_schema(schema, property_order="any")
    assert {order for order in all_orders() if grammar.matches(written(order))} == {
        order for order in all_orders() if len(order) == 2
    }
    open_grammar = Grammar.from_json_schema(THREE, property_order="any", extra_keys=True)
    assert open_grammar.matches('{"c": null, "b": "x", "new": [1]}')
    assert not open_grammar.matches('{"c": 1, "b": "x", "new": [1]}')


@pytest.mark.parametrize(
    ("whitespace", "texts"),
    [
        ("compact", {'{"b":"x","c":null}'}),
        ("single", {'{"b":"x","c":null}', '{"b": "x", "c": null}', '{"b": "x","c":null}'}),
        ("pretty", {'{"b":"x","c":null}', '{"b": "x", "c": null}', '{\n  "b": "x",\n  "c": null\n}'}),
    ],
)
def test_whitespace_is_what_the_policy_says(whitespace: str, texts: set[str]) -> None:
    grammar = Grammar.from_json_schema(THREE, whitespace=whitespace)
    candidates = {
        '{"b":"x","c":null}',
        '{"b": "x", "c": null}',
        '{\n  "b": "x",\n  "c": null\n}',
        '{"b": "x","c":null}' if whitespace == "single" else '{"b":  "x"}',
        '{ "b" : "x" }' if whitespace != "pretty" else '{"b"\n:"x"}',
        '{"b": "x",\n\n"c": null}',
    }
    assert {text for text in candidates if grammar.matches(text)} == texts


def test_extra_keys_are_left_out_where_an_object_declares_its_own() -> None:
    assert not Grammar.from_json_schema(THREE).matches('{"b":"x","d":1}')
    assert Grammar.from_json_schema(THREE, extra_keys=True).matches('{"b":"x","d":1}')
    assert Grammar.from_json_schema({**THREE, "additionalProperties": True}).matches('{"b":"x","d":1}')
    assert Grammar.from_json_schema({"type": "object"}).matches('{"d":1}')
    # one more property than it names is asked for
    more = {"properties": {"a": {"type": "integer"}}, "type": "object", "required": ["a", "z"]}
    assert Grammar.from_json_schema(more).matches('{"a":1,"z":2}')


@pytest.mark.parametrize("name", ["ab", 'a"b', "a\\b", "", "ü", "]^-", "\n", "a\u2028b", "😀"])
def test_declared_name_never_passes_as_an_extra_one(name: str) -> None:
    grammar = Grammar.from_json_schema({"type": "object", "properties": {name: {"type": "integer"}}}, extra_keys=True)
    assert grammar.matches(json.dumps({name: 1}, ensure_ascii=False))
    assert not grammar.matches(json.dumps({name: "x"}, ensure_ascii=False))
    assert not grammar.matches(json.dumps({name: "x"}))  # nor with escapes
    assert not grammar.matches(json.dumps({"other": 1})[:-1] + ", " + json.dumps({name: "x"})[1:])
    assert grammar.matches(json.dumps({name + "x": "x"}, ensure_ascii=False))


def test_limits_hold_only_where_the_schema_is_open() -> None:
    grammar = Grammar.from_json_schema(
        {"type": "object", "properties": {"s": {"type": "string"}, "l": {"type": "array"}, "e": {"enum": ["abcdef"]}}},
        max_string_length=3,
        max_array_length=2,
    )
    assert grammar.matches('{"s":"abc","l":[1,2],"e":"abcdef"}')
    assert not grammar.matches('{"s":"abcd"}')
    assert not grammar.matches('{"l":[1,2,3]}')
    assert Grammar.from_json_schema({"minLength": 5, "type": "string"}, max_string_length=3).matches('"abcdefgh"')
    digits = Grammar.from_json_schema({"type": "integer"}, max_digits=3)
    assert [digits.matches(text) for text in ("999", "1000", "-999")] == [True, False, True]
    assert Grammar.from_json_schema({"type": "integer", "minimum": 12345}, max_digits=3).matches("12346")


def test_formats_are_comments_when_the_policy_says_so() -> None:
    schema = {"type": "string", "format": "date"}
    assert not Grammar.from_json_schema(schema).matches('"tomorrow"')
    assert Grammar.from_json_schema(schema, formats=False).matches('"tomorrow"')


def test_relaxed_keyword_is_named_in_a_warning_and_the_rest_is_enforced() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "array", "uniqueItems": True, "maxItems": 3, "items": {"type": "integer"}},
            "b": {"type": "string", "pattern": r"^(x)\1$", "maxLength": 4},
        },
    }
    before = json.dumps(schema)
    with pytest.raises(UnsupportedSchemaError) as refused:
        Grammar.from_json_schema(schema)
    assert (refused.value.pointer, refused.value.keyword) in {
        ("#/properties/a", "uniqueItems"),
        ("#/properties/b", "pattern"),
    }
    with pytest.warns(SchemaRelaxedWarning) as warned:
        grammar = Grammar.from_json_schema(schema, strict=False)
    told = sorted(str(warning.message) for warning in warned)
    assert len(told) == 2
    assert "#/properties/a: uniqueItems" in told[0]
    assert "#/properties/b: pattern" in told[1]
    assert grammar.matches('{"a":[1,1,1],"b":"zz"}')
    assert not grammar.matches('{"a":[1,1,1,1]}')
    assert not grammar.matches('{"b":"zzzzz"}')
    assert json.dumps(schema) == before


def test_relaxed_one_of_is_still_any_of() -> None:
    schema = {"oneOf": [{"type": "string", "format": "email"}, {"type": "string", "maxLength": 3}]}
    with pytest.warns(SchemaRelaxedWarning, match="oneOf"):
        grammar = Grammar.from_json_schema(schema, strict=False)
    assert grammar.matches('"abc"')
    assert grammar.matches('"a@b.example"')
    assert not grammar.matches("5")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"whitespace": "some"}, ValueError),
        ({"property_order": None}, ValueError),
        ({"extra_keys": 1}, TypeError),
        ({"max_string_length": -1}, ValueError),
        ({"max_digits": 0}, ValueError),
        ({"max_digits": None}, TypeError),
        ({"max_array_length": True}, TypeError),
        ({"dialect": "3"}, ValueError),
        ({"whitespaces": "compact"}, TypeError),
    ],
)
def test_wrong_option_is_refused_with_its_name(arguments: dict[str, Any], error: type[Exception]) -> None:
    (name,) = arguments
    with pytest.raises(error, match=name):
        Grammar.from_json_schema({}, **arguments)


def test_nearest_option_is_suggested() -> None:
    with pytest.raises(TypeError, match="whitespace"):
        Policy.from_arguments({"white_space": "compact"})


@pytest.mark.parametrize("schema", [None, 5, "5", b"{}", [], {"type": 5}, {"type": "strin"}, {"properties": []}])
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises((SchemaError, TypeError)):
        Grammar.from_json_schema(schema)


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"oneOf": [{}, {"maxProperties": 2}]}, "oneOf"),
        ({"dependentSchemas": {"a": {"minProperties": 4}, "b": {}}}, "dependentSchemas"),
        ({"type": "object", "not": {"maxProperties": 3}}, "not"),
    ],
)
def test_what_follows_from_a_combination_is_blamed_on_it_and_relaxed(schema: Any, keyword: str) -> None:
    with pytest.raises(UnsupportedSchemaError, match="minProperties") as refused:
        Grammar.from_json_schema(schema, extra_keys=True)
    assert refused.value.keyword == keyword
    with pytest.warns(SchemaRelaxedWarning, match=keyword):
        grammar = Grammar.from_json_schema(schema, extra_keys=True, strict=False)
    assert grammar.matches('{"a":1,"b":2,"c":3,"d":4}')


def test_equal_scalars_of_different_drafts_are_not_taken_for_one() -> None:
    leaf = {"type": "integer", "const": 5}
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "array",
        "items": [leaf, {"$schema": "http://json-schema.org/draft-07/schema#", "id": "x", "allOf": [leaf]}],
    }
    assert Grammar.from_json_schema(schema).matches("[1,5]")
    assert not Grammar.from_json_schema({**schema, "items": [leaf, {"type": "null"}]}).matches("[1,5]")


_MAIL = {"format": "email"}
# an address that the language of the format leaves out: it has more labels than that counts
_FAR = "a@b.b.b.b.b.b.b.b.b"
_FAR_ONLY = {"pattern": r"^a@(b\.){8}b$"}


def _property(schema: Any) -> Any:
    return {"type": "object", "properties": {"a": {"type": "string", **schema}}, "required": ["a"]}


@pytest.mark.parametrize(
    "schema",
    [
        {"not": _MAIL},
        {"not": {"propertyNames": _MAIL}},
        {"oneOf": [_MAIL, _FAR_ONLY]},
        {"oneOf": [_property(_MAIL), _property(_FAR_ONLY)]},
        {"propertyNames": {"oneOf": [_MAIL, _FAR_ONLY]}},
        {"oneOf": [{"propertyNames": _MAIL}, {"propertyNames": _FAR_ONLY}]},
        {"not": {"allOf": [_MAIL, _FAR_ONLY]}},
        {"if": {"type": "string", **_MAIL}, "else": {"type": "null"}},
        {
            "type": "array",
            "prefixItems": [{"type": "string"}],
            "contains": {"type": "string", **_MAIL},
            "minContains": 0,
            "maxContains": 0,
        },
    ],
)
def test_outside_of_a_format_that_is_enforced_in_part_is_refused(schema: Any) -> None:
    from jsonschema import Draft202012Validator

    assert not Grammar.from_json_schema({"type": "string", **_MAIL}).matches(json.dumps(_FAR))
    assert Draft202012Validator(_MAIL, format_checker=Draft202012Validator.FORMAT_CHECKER).is_valid(_FAR)
    with pytest.raises(UnsupportedSchemaError, match="negated"):
        Grammar.from_json_schema(schema)


def test_format_that_is_enforced_in_part_may_stand_beside_what_excludes_it_otherwise() -> None:
    grammar = Grammar.from_json_schema({"oneOf": [{"type": "string", **_MAIL}, {"type": "integer"}]})
    assert grammar.matches('"a@b.example"')
    assert grammar.matches("5")
    closed = {
        "type": "object",
        "properties": {"b": {"type": "integer"}},
        "required": ["b"],
        "additionalProperties": False,
    }
    objects = Grammar.from_json_schema({"oneOf": [_property(_MAIL), closed]})
    assert objects.matches('{"a": "a@b.example"}')
    assert objects.matches('{"b": 1}')


def test_extra_keys_are_offered_where_a_named_property_can_not_be_there() -> None:
    schema = {
        "type": "object",
        "minProperties": 1,
        "properties": {"a": {"type": "integer", "minimum": 2, "maximum": 1}},
    }
    assert Grammar.from_json_schema(schema).matches('{"b": 1}')


@pytest.mark.parametrize(
    ("n_values", "limits", "enforced"),
    [
        (10, {}, True),
        (11, {}, False),
        (28, {"maxItems": 3}, True),
        (29, {"maxItems": 3}, False),
        (109, {"maxItems": 2}, True),
        (110, {"maxItems": 2}, False),
        (129, {"maxItems": 2}, False),
    ],
)
def test_unique_items_are_enforced_up_to_a_size(n_values: int, limits: dict[str, int], enforced: bool) -> None:
    schema = {"type": "array", "uniqueItems": True, "items": {"enum": list(range(n_values))}, **limits}
    if not enforced:
        with pytest.raises(UnsupportedSchemaError, match="uniqueItems"):
            Grammar.from_json_schema(schema)
        return
    grammar = Grammar.from_json_schema(schema)
    last = n_values - 1
    assert grammar.matches(f"[{last},0]")
    assert not grammar.matches(f"[{last},{last}]")
    assert grammar.matches(f"[0,{last},1]") is (limits.get("maxItems") != 2)
    assert not grammar.matches("[3,1,2,3]")


@pytest.mark.parametrize("order", ["declared", "required_first", "any"])
def test_one_property_more_than_required_is_enforced_beside_open_keys(order: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": {"type": "integer"},
        "minProperties": 2,
    }
    grammar = Grammar.from_json_schema(schema, property_order=order)
    for text in ('{"a":1,"b":2}', '{"a":1,"x":2}', '{"a":1,"x":2,"x":3}', '{"a":1,"b":1,"x":2,"y":3}'):
        assert grammar.matches(text)
        assert jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))
    for text in ('{"a":1}', '{"b":1}', '{"b":1,"x":2}', '{"x":1,"x":2}', "{}"):
        assert not grammar.matches(text)
    with pytest.raises(UnsupportedSchemaError, match="a key may come twice"):
        Grammar.from_json_schema({**schema, "minProperties": 3})


@pytest.mark.parametrize("most", [10**13, 1e308])
def test_what_is_longer_than_any_memory_is_a_grammar_that_can_be_read(most: float) -> None:
    grammar = Grammar.from_json_schema({"type": "string", "not": {"maxLength": most}})
    assert not grammar.matches('"aa"')
    assert grammar.accepts_prefix('"aa')
    assert Grammar.from_json_schema({"type": "string", "maxLength": most}).matches('"aa"')
