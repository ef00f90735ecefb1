"""Faults that users of such compilers reported: each must be enforced, refused or warned of as its tag says.

Every text is put to the matcher of this package and to that of llama.cpp.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

import jsonschema
import pytest

from llamacy.errors import GrammarError, SchemaError, SchemaRelaxedWarning
from llamacy.grammar import Grammar
from tests.grammar.native import native_matches
from tests.helpers import data

CASES = json.loads(data("json-schema.json").read_text(encoding="utf-8"))


def by_id(case: dict[str, Any]) -> str:
    return case["id"]


def tag(case: dict[str, Any]) -> str:
    return case["expected"].partition(":")[0]


def compiled(case: dict[str, Any], **policy: Any) -> Grammar | SchemaError:
    """Return the grammar of a case, or the error that refused it."""
    with warnings.catch_warnings():
        if tag(case) == "ENFORCE-OR-WARN":
            warnings.simplefilter("ignore", SchemaRelaxedWarning)
        try:
            return Grammar.from_json_schema(case["case"], **policy)
        except SchemaError as error:
            return error


def enforced(case: dict[str, Any], **policy: Any) -> Grammar | None:
    """Return the grammar of a case, or None when it was refused as its tag allows."""
    found = compiled(case, **policy)
    if isinstance(found, Grammar):
        return found
    assert tag(case) in ("REFUSE", "ENFORCE-OR-REFUSE"), f"refused: {found}"
    assert found.pointer.startswith("#")
    assert found.pointer in str(found)
    return None


def adds_keys(case: dict[str, Any], text: str) -> bool:
    """Whether a text has keys that the schema allows without naming them, which only `extra_keys` offers."""
    schema = case["case"]
    if not isinstance(schema, dict) or "properties" not in schema or "additionalProperties" in schema:
        return False
    value = json.loads(text)
    return isinstance(value, dict) and not set(value) <= set(schema["properties"])


def test_all_cases_are_here() -> None:
    assert len(CASES) == len({case["id"] for case in CASES}) == 76
    assert {tag(case) for case in CASES} == {"ENFORCE", "ENFORCE-OR-REFUSE", "ENFORCE-OR-WARN", "REFUSE"}


@pytest.mark.parametrize("case", CASES, ids=by_id)
def test_reported_fault_is_not_in_the_matcher(case: dict[str, Any]) -> None:
    grammar = enforced(case, extra_keys=True)
    if tag(case) == "REFUSE":
        assert grammar is None, f"this has no text at all, but compiled:\n{grammar}"
    if grammar is None:
        return
    assert [text for text in case["accept"] if not grammar.matches(text)] == []
    assert [text for text in case["reject"] if grammar.matches(text)] == []


@pytest.mark.parametrize("case", CASES, ids=by_id)
def test_reported_fault_is_not_there_without_extra_keys(case: dict[str, Any]) -> None:
    grammar = enforced(case)
    if grammar is None:
        return
    for text in case["accept"]:
        assert grammar.matches(text) or adds_keys(case, text), text
    assert [text for text in case["reject"] if grammar.matches(text)] == []


@pytest.mark.parametrize("case", [case for case in CASES if tag(case) != "REFUSE"], ids=by_id)
def test_reported_fault_is_not_in_the_native_grammar(case: dict[str, Any], vocab: Any) -> None:
    grammar = enforced(case, extra_keys=True)
    if grammar is None:
        return
    assert [text for text in case["accept"] if not native_matches(vocab, grammar.text, text, grammar.root)] == []
    assert [text for text in case["reject"] if native_matches(vocab, grammar.text, text, grammar.root)] == []


@pytest.mark.parametrize("case", CASES, ids=by_id)
def test_schema_is_left_as_it_was(case: dict[str, Any]) -> None:
    before = json.dumps(case["case"])
    compiled(case, extra_keys=True)
    assert json.dumps(case["case"]) == before


def case_of(name: str) -> dict[str, Any]:
    return next(case for case in CASES if case["id"] == name)


def test_js_010_missing_definition_is_named_with_the_place_that_refers_to_it() -> None:
    with pytest.raises(SchemaError, match="#/\\$defs/nope") as caught:
        Grammar.from_json_schema(case_of("JS-010")["case"])
    assert caught.value.pointer == "#/properties/a"
    assert caught.value.keyword == "$ref"


def test_js_012_reference_to_itself_is_refused_by_name() -> None:
    with pytest.raises(SchemaError, match="#/\\$defs/a"):
        Grammar.from_json_schema(case_of("JS-012")["case"])


def test_js_078_empty_enum_is_refused_where_it_is() -> None:
    with pytest.raises(SchemaError) as caught:
        Grammar.from_json_schema(case_of("JS-078")["case"])
    assert caught.value.pointer == "#/properties/a"


@pytest.mark.parametrize("length", [1999, 2000, 2001, 100_000])
def test_js_126_long_strings_of_any_limit_behave_alike(length: int, vocab: Any) -> None:
    schema = {"type": "string", "maxLength": length}
    grammar = Grammar.from_json_schema(schema)
    for text, matches in (('""', True), ('"hello"', True), ("5", False), (f'"{"x" * 1000}"', True)):
        assert grammar.matches(text) is matches
        assert native_matches(vocab, grammar.text, text, grammar.root) is matches
    assert grammar.matches(f'"{"x" * length}"')
    assert not grammar.matches(f'"{"x" * (length + 1)}"')


def test_gr_004_grammar_that_cannot_be_read_says_where() -> None:
    with pytest.raises(GrammarError, match="line 1, column"):
        Grammar.from_string('root ::= "a')


def test_gr_004_identity_escape_is_understood_or_refused_where_it_is() -> None:
    schema = {"type": "object", "properties": {"p": {"type": "string", "pattern": "^hi\\!$"}}, "required": ["p"]}
    found = compiled({"case": schema, "expected": "ENFORCE-OR-REFUSE"})
    if isinstance(found, SchemaError):
        assert (found.pointer, found.keyword) == ("#/properties/p", "pattern")
    else:
        assert found.matches('{"p":"hi!"}')
        assert not found.matches('{"p":"hi"}')


def test_gr_006_schema_that_cannot_be_enforced_is_named_and_can_be_relaxed_there_alone() -> None:
    schema = {
        "type": "object",
        "properties": {"q": {"type": "string", "pattern": "^(a+)b\\1$"}, "n": {"type": "integer"}},
        "required": ["q", "n"],
        "additionalProperties": False,
    }
    with pytest.raises(SchemaError) as caught:
        Grammar.from_json_schema(schema)
    assert (caught.value.pointer, caught.value.keyword) == ("#/properties/q", "pattern")
    with pytest.warns(SchemaRelaxedWarning, match="#/properties/q"):
        relaxed = Grammar.from_json_schema(schema, strict=False)
    assert relaxed.matches('{"q":"no such thing","n":1}')
    assert not relaxed.matches('{"q":"x","n":"1"}')


@pytest.mark.parametrize("whitespace", ["compact", "single", "pretty"])
def test_gr_007_white_space_comes_to_an_end(whitespace: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    grammar = Grammar.from_json_schema(schema, whitespace=whitespace)
    complete = '{"a":1}'
    assert grammar.matches(complete)
    for at in range(len(complete) + 1):
        for blank in (" ", "\n", "\t"):
            assert not grammar.accepts_prefix(complete[:at] + 100 * blank)


def test_gr_009_each_run_starts_afresh(vocab: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    grammar = Grammar.from_json_schema(schema)
    assert not native_matches(vocab, grammar.text, '{"a":', grammar.root)
    for _ in range(3):
        assert native_matches(vocab, grammar.text, '{"a":1}', grammar.root)
        assert grammar.matches('{"a":1}')


def test_gr_011_deep_groups_are_refused() -> None:
    with pytest.raises(GrammarError):
        Grammar.from_string("root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('root ::= root "a" | "b"', "root"),
        ('root ::= a\na ::= b? root\nb ::= "x"', "root|a"),
        ('root ::= x* root "z"\nx ::= "q"?', "root|x"),
    ],
)
def test_gr_012_left_recursion_is_refused(text: str, rule: str) -> None:
    with pytest.raises(GrammarError, match=rule):
        Grammar.from_string(text)


def test_gr_014_schema_nested_20000_deep_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(20_000):
        schema = {"type": "array", "items": schema}
    with pytest.raises(SchemaError, match=r"deep|nest"):
        Grammar.from_json_schema(schema)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "root",
        "root ::=",
        "root ::= [",
        'root ::= "a',
        'foo ::= "a"',
        "root ::= undefined-rule",
        'root ::= "\\q"',
        'root ::= "a"{3,1}',
        "\0",
    ],
)
def test_gr_015_grammar_that_is_wrong_is_refused(text: str) -> None:
    if text == "root ::=":
        # llama.cpp reads an empty rule here: the grammar of the empty text
        try:
            grammar = Grammar.from_string(text)
        except GrammarError:
            return
        assert grammar.matches("")
        assert not grammar.matches("a")
        return
    with pytest.raises(GrammarError):
        Grammar.from_string(text)


# jsonschema follows a reference to itself without end
@pytest.mark.parametrize(
    "case", [case for case in CASES if tag(case) != "REFUSE" and case["id"] != "JS-014"], ids=by_id
)
def test_accepted_texts_satisfy_the_schema(case: dict[str, Any]) -> None:
    # the lists themselves against another implementation, so that a slip in them can't pass for a rule
    schema = case["case"]
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    for text in case["accept"]:
        kind(schema).validate(json.loads(text))
