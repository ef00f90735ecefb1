"""Grammars put together of GBNF, schemas and regular expressions."""

from __future__ import annotations

import json
import pickle
import warnings
from typing import Any

import pytest

from llamacy.errors import (
    AutomatonSizeError,
    GrammarError,
    GrammarSyntaxError,
    RegexSyntaxError,
    SchemaError,
    SchemaRelaxedWarning,
    UnsatisfiableSchemaError,
    UnsupportedSchemaError,
)
from llamacy.grammar import Grammar
from tests.grammar.native import native_matches

CALLS = """# calls of tools
root ::= "<tool_call>\\n" (call-weather | call-add) "\\n</tool_call>"
call-weather ::= "{\\"name\\": \\"weather\\", \\"arguments\\": " args-0 "}"
call-add ::= "{\\"name\\": \\"add\\", \\"arguments\\": " args-1 "}"
"""
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ADD = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": [1, 2.5]}}, "required": ["a", "b"]}


def call(name: str, arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def _const_of(uri: str) -> object:
    return {"const": uri}


def test_calls_of_tools(vocab: Any) -> None:
    grammar = Grammar.from_template(CALLS, schemas={"args-0": WEATHER, "args-1": ADD})
    assert grammar.text.startswith(CALLS)
    right = [call("weather", {"city": 'Köln "am" Rhein'}), call("add", {"a": -3, "b": 2.5})]
    wrong = [
        call("weather", {"a": 1, "b": 1}),
        call("add", {"city": "x"}),
        call("add", {"a": 1, "b": 3}),
        call("weather", {}),
        right[0] + "\n",
        "{}",
    ]
    for text in right:
        assert grammar.matches(text)
        assert grammar.accepts_prefix(text[:-9])
    for text in wrong:
        assert not grammar.matches(text)
    assert [native_matches(vocab, grammar.text, text) for text in right + wrong] == [True] * 2 + [False] * 6


def test_patterns_match_as_a_whole(vocab: Any) -> None:
    grammar = Grammar.from_template('root ::= id ":" v', patterns={"id": "[a-f]{3}|x", "v": "1?"})
    texts = ["abc:", "x:1", "abcd:", "xx:1", "ab:", "x:11"]
    assert [grammar.matches(text) for text in texts] == [True, True, False, False, False, False]
    assert [native_matches(vocab, grammar.text, text) for text in texts] == [True, True, False, False, False, False]


def test_rules_of_the_text_keep_their_names_and_what_they_say(vocab: Any) -> None:
    # these are what the compilers would call their own rules
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "array"}}, "required": ["a"]}
    text = """root ::= value string next json-0 pick-4
value ::= "V"
string ::= "S"
next ::= "N"
pick-4 ::= pattern-7
"""
    grammar = Grammar.from_template(text, schemas={"json-0": schema}, patterns={"pattern-7": "(ab)+|ac"})
    for ending in ("ab", "abab", "ac"):
        assert grammar.matches('VSN{"a":"x","b":[1,{"c":null}]}' + ending)
        assert native_matches(vocab, grammar.text, 'VSN{"a":"x","b":[1,{"c":null}]}' + ending)
    for text in ('VSN{"a":S}ab', 'VSN{"a":"x"N"b":[]}ab', 'VSN{"a":"x"}', '"x""x",{"a":"x"}ab'):
        assert not grammar.matches(text)


@pytest.mark.parametrize("name", ["json-0", "json-2", "value", "char", "root", "value-1"])
def test_names_of_schemas_are_free(name: str) -> None:
    schemas = {"s": {"type": "array"}, name: {"type": "object", "properties": {"k": {"$ref": "#"}}}}
    root = "start" if name == "root" else "root"
    grammar = Grammar.from_template(f"{root} ::= {name} s", root, schemas=schemas)
    assert grammar.matches('{"k": {"k": {}}}["a"]')
    assert not grammar.matches('{"k": 1}["a"]')
    assert not grammar.matches('["a"]{}')


def test_root_may_be_a_schema() -> None:
    grammar = Grammar.from_template("more ::= text+", "text", schemas={"text": {"const": "a"}})
    assert grammar.matches('"a"')
    assert not grammar.matches('"a""a"')


def test_template_of_nothing_but_text_is_that_text() -> None:
    text = 'root ::= "a" <[7]>'
    assert Grammar.from_template(text) == Grammar.from_string(text)


def test_sources_and_policy_are_those_of_schemas() -> None:
    source = '{"type": "object", "properties": {"a": {"type": "array", "items": true}}, "required": ["a"]}'
    grammar = Grammar.from_template("root ::= s b", schemas={"s": source, "b": {"const": None}}, whitespace="compact")
    assert grammar.matches('{"a":[1,2]}null')
    assert not grammar.matches('{"a": [1,2]}null')
    with pytest.raises(TypeError, match="no option 'whitspace'"):
        Grammar.from_template("root ::= s", schemas={"s": source}, whitspace="compact")
    resolved = Grammar.from_template(
        "root ::= s", schemas={"s": {"$ref": "urn:x"}}, resolver=lambda uri: {"const": uri}
    )
    assert resolved.matches('"urn:x"')


def test_digits_of_one_schema_say_nothing_of_another() -> None:
    schemas = {"wide": {"type": "integer", "minimum": 10**30}, "open": {"type": "integer", "minimum": 0}}
    grammar = Grammar.from_template('root ::= wide "," open', schemas=schemas)
    assert grammar.matches(f"{10**30},{10**23}")
    assert not grammar.matches(f"{10**30},{10**24}")


def test_tokens_triggers_and_pickle() -> None:
    grammar = Grammar.from_template("root ::= <[5]> s", schemas={"s": WEATHER})
    lazy = grammar.with_triggers(trigger_tokens=[5])
    assert (lazy.lazy, lazy.trigger_tokens, lazy.text) == (True, (5,), grammar.text)
    assert pickle.loads(pickle.dumps(lazy)) == lazy
    with pytest.raises(GrammarError, match="speaks of the token 5"):
        grammar.matches("x")


def test_same_template_again_is_the_same_grammar() -> None:
    first = Grammar.from_template(CALLS, schemas={"args-0": WEATHER, "args-1": ADD})
    assert Grammar.from_template(CALLS, schemas={"args-0": dict(WEATHER), "args-1": ADD}) is first
    assert Grammar.from_template(CALLS, schemas={"args-0": ADD, "args-1": WEATHER}) != first
    assert Grammar.from_template(CALLS, schemas={"args-0": WEATHER, "args-1": ADD}, whitespace="compact") != first


# what is refused


@pytest.mark.parametrize(
    ("schema", "error", "message"),
    [
        (
            {"type": "object", "properties": {"a": {"minLength": -1}}},
            SchemaError,
            "args-1: #/properties/a: minLength: must be a whole number",
        ),
        ({"type": "array", "uniqueItems": True}, UnsupportedSchemaError, "args-1: #: uniqueItems: "),
        ({"allOf": [{"const": 1}, {"const": 2}]}, UnsatisfiableSchemaError, "args-1: #: nothing can satisfy"),
        ('{"type": "object"', SchemaError, "args-1: #: the schema is no JSON"),
        ({"pattern": "("}, SchemaError, "args-1: #: pattern: "),
    ],
)
def test_error_of_a_schema_names_its_rule(schema: Any, error: type[SchemaError], message: str) -> None:
    with pytest.raises(error) as caught:
        Grammar.from_template(CALLS, schemas={"args-0": WEATHER, "args-1": schema})
    assert type(caught.value) is error
    assert caught.value.rule == "args-1"
    assert str(caught.value).startswith(message)


def test_error_of_a_pattern_names_its_rule() -> None:
    for pattern, error, message in (
        ("(", RegexSyntaxError, "p: "),
        ("(?:a|b)*a(?:a|b){20}", AutomatonSizeError, "p: pattern "),
        ("a\\bb", GrammarError, "p: pattern 'a\\\\bb': no text matches it"),
    ):
        with pytest.raises(error) as caught:
            Grammar.from_template("root ::= p", patterns={"p": pattern})
        assert (type(caught.value), caught.value.rule) == (error, "p")
        assert str(caught.value).startswith(message)


def test_other_errors_name_no_rule() -> None:
    with pytest.raises(SchemaError) as caught:
        Grammar.from_json_schema({"minLength": -1})
    assert caught.value.rule is None


@pytest.mark.parametrize(
    ("text", "schemas", "patterns", "message"),
    [
        ("root ::= a", {"a": True}, {"a": "x"}, "^a: the rule is defined twice, in schemas and in patterns"),
        ('root ::= "x"', {"a": True}, {}, "^a: schemas defines the rule, but no other one uses it"),
        ('root ::= "x"', {}, {"b": "x"}, "^b: patterns defines the rule, but no other one uses it"),
        ("root ::= a", {"a": True, "b c": True}, {}, "the key 'b c'; a rule is named with letters"),
        ("root ::= a", {"a": True, "": True}, {}, "the key ''"),
        ("root ::= a", {"a": True, "b\n": True}, {}, r"the key 'b\\n'"),
        ("", {}, {}, "the grammar is empty"),
        ("other ::= a", {"a": True}, {}, "no rule 'root' to begin with; its rules are: .*a, .*other"),
    ],
)
def test_names_that_are_wrong_are_refused(text: str, schemas: Any, patterns: Any, message: str) -> None:
    with pytest.raises(GrammarError, match=message):
        Grammar.from_template(text, schemas=schemas, patterns=patterns)


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ('root ::= a\na ::= "x"', 2, 1, "rule 'a' is defined here, and in schemas or patterns too"),
        ("root ::= a\n  b", 2, 4, "::= is expected here"),
        ("root ::= a b", 1, 12, "rule 'b' is not defined"),
        ("root ::= a | root a", 1, 1, "left recursion: rule 'root' begins with itself"),
    ],
)
def test_error_of_the_text_says_where(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(GrammarSyntaxError, match=message) as caught:
        Grammar.from_template(text, schemas={"a": True})
    assert (caught.value.line, caught.value.column) == (line, column)


def test_pattern_that_may_be_empty_can_make_a_rule_begin_with_itself() -> None:
    assert Grammar.from_template('root ::= "x" | p root "y"', patterns={"p": "a+"}).matches("aaxy")
    with pytest.raises(GrammarSyntaxError, match="left recursion"):
        Grammar.from_template('root ::= "x" | p root "y"', patterns={"p": "a*"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": b"root ::= a"}, "GBNF text, not bytes"),
        ({"text": "root ::= a", "root": 5}, "root is the name of a rule, not 5"),
        ({"text": "root ::= a", "schemas": [("a", True)]}, "schemas is a mapping"),
        ({"text": "root ::= a", "schemas": {1: True}}, "schemas has the key 1, which is no str"),
        ({"text": "root ::= a", "schemas": {"a": 5}}, "not of 5"),
        ({"text": "root ::= a", "patterns": {"a": b"x"}}, "^a: a pattern is a regular expression as text, not b'x'"),
    ],
)
def test_what_is_of_another_kind_is_a_type_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Grammar.from_template(**arguments)


def test_what_is_relaxed_is_told_with_the_rule_and_where_it_was_asked_for() -> None:
    schema = {"type": "array", "uniqueItems": True}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Grammar.from_template("root ::= s", schemas={"s": schema}, strict=False)
        Grammar.from_json_schema(schema, strict=False)
    assert [warning.category for warning in caught] == [SchemaRelaxedWarning] * 2
    assert [warning.filename for warning in caught] == [__file__] * 2
    assert str(caught[0].message).startswith("left out: s: #: uniqueItems: ")
    assert str(caught[1].message).startswith("left out: #: uniqueItems: ")


def test_fifty_tools_are_one_grammar(vocab: Any) -> None:
    names = [f"tool_{i}" for i in range(50)]
    schemas = {
        f"args-{i}": {"type": "object", "properties": {f"{name}_{j}": {"type": "string"} for j in range(8)}}
        for i, name in enumerate(names)
    }
    rules = ["root ::= " + " | ".join(f"call-{i}" for i in range(50))]
    rules += [f'call-{i} ::= "{name}" args-{i}' for i, name in enumerate(names)]
    grammar = Grammar.from_template("\n".join(rules), schemas=schemas)
    assert native_matches(vocab, grammar.text, 'tool_7{"tool_7_0": "x", "tool_7_7": "y"}')
    assert not native_matches(vocab, grammar.text, 'tool_7{"tool_8_0": "x"}')
    assert grammar.text.count("\nstring ::=") == 1
