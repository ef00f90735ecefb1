"""The steps that a grammar may take: counted the same whatever was made before, and enough for what is sensible."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest

from llamacy.errors import AutomatonSizeError, UnsupportedSchemaError
from llamacy.grammar import Grammar, work
from llamacy.grammar.numbers import multiple_of
from llamacy.grammar.regex import pattern_language
from llamacy.grammar.schema import compile_schema

_HARD = {
    "counted repeats in each other": lambda: Grammar.from_regex(r"(?:.{1,255}\.){0,50}"),
    "one of two letters long ago": lambda: Grammar.from_regex(r"(?:a|b)*a(?:a|b){20}"),
    "many look-aheads": lambda: Grammar.from_regex("".join(f"(?=.*{letter})" for letter in "abcdefghijklmnop") + ".*"),
    "look-ahead beside counted repeats": lambda: Grammar.from_regex(r"(?!\w)((\w{2,30}|[^x]*)){0,300}"),
    "look-ahead in counted repeats": lambda: Grammar.from_regex(r"((((?!ab)\w)*|([^x]|a)\d\d)){0,300}"),
    "counted repeats three deep": lambda: Grammar.from_regex(r"(((a|b){1,20}c|b){1,20}c|b){1,20}c"),
    "several multiples": lambda: compile_schema({"allOf": [{"multipleOf": n} for n in (7, 11, 13, 17)]}),
    "one of several multiples": lambda: compile_schema({"anyOf": [{"multipleOf": n} for n in (7, 11, 13, 17, 19)]}),
    "a prime": lambda: compile_schema({"type": "integer", "multipleOf": 9973}),
    "sixteen patterns": lambda: compile_schema({"allOf": [{"pattern": letter} for letter in "abcdefghijklmnop"]}),
}


def steps_of(schema: Any, policy: Any = None) -> int:
    """Return how many steps a schema takes."""

    @work.limited
    def run() -> int:
        compile_schema(schema, policy)
        return work.MAX_STEPS - work.steps_left()

    return run()


@pytest.mark.parametrize("name", _HARD)
def test_what_takes_too_long_is_refused_each_time(name: str) -> None:
    for _ in range(2):
        with pytest.raises((AutomatonSizeError, UnsupportedSchemaError), match=r"more than [0-9]+ (states|steps)"):
            _HARD[name]()


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "string"}, "b": {"type": "array", "items": {"type": "integer", "minimum": 5}}}},
        {"$ref": "#/$defs/node", "$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}}},
        {"oneOf": [{"required": ["a"]}, {"not": {"properties": {"b": {"pattern": "^x(?=y)"}}}}], "minProperties": 1},
        {"type": "array", "contains": {"const": 1}, "uniqueItems": True, "items": {"enum": [1, 2, 3, None]}},
        {"enum": [{"a": [1, {"b": 2}]}, "c", 0.5]},
    ],
)
def test_nothing_is_left_to_the_garbage_collector(schema: Any) -> None:
    compile_schema(schema)
    gc.collect()
    gc.disable()
    try:
        compile_schema(schema)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_steps_are_the_same_whatever_was_made_before() -> None:
    schema = {
        "properties": {
            "a": {"pattern": "^[a-f]{2,40}(xy|zz)+$", "maxLength": 77, "type": "string"},
            "b": {"type": "integer", "multipleOf": 37, "minimum": -12345},
            "c": {"type": "string", "format": "date"},
        },
        "minProperties": 1,
    }
    first = steps_of(schema)
    assert 1000 < first < work.MAX_STEPS // 2
    assert steps_of(json.loads(json.dumps(schema))) == first


def test_what_is_used_twice_is_counted_once() -> None:
    pattern = {"type": "string", "pattern": "^[0-9]{2,60}(ab|cd)*$"}
    twice = {"properties": {"a": dict(pattern, description=[]), "b": dict(pattern, description=[])}}
    other = {"properties": {"a": pattern, "b": dict(pattern, pattern="^[0-9]{2,61}(ab|cd)*$")}}
    once = steps_of({"properties": {"a": pattern}})
    assert once <= steps_of(twice) < 1.6 * once
    assert steps_of(other) > 1.9 * once


def test_steps_add_up_over_a_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    one = {"type": "string", "pattern": "^[a-z]{3,50}-1$"}
    two = {"type": "string", "pattern": "^[a-z]{3,50}-2$"}
    enough = max(steps_of(one), steps_of(two)) + 10
    monkeypatch.setattr(work, "MAX_STEPS", enough)
    assert compile_schema(one)
    assert compile_schema(two)
    with pytest.raises(UnsupportedSchemaError, match=f"more than {enough} steps") as caught:
        compile_schema({"properties": {"a": one, "b": two}})
    assert caught.value.pointer == "#/properties/a" or caught.value.pointer == "#/properties/b"
    with pytest.raises(UnsupportedSchemaError, match="steps") as caught:
        Grammar.from_template("root ::= a b", schemas={"a": one, "b": two})
    assert caught.value.rule == "b"


def test_automata_by_themselves_are_limited_each_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not pattern_language("[a-z]{3,50}-3", search=False).is_empty
    monkeypatch.setattr(work, "MAX_STEPS", 20)
    with pytest.raises(AutomatonSizeError, match="more than 20 steps"):
        multiple_of(41)


def test_alternatives_that_a_constant_tells_apart_are_not_compared() -> None:
    def tagged(n: int) -> dict[str, Any]:
        return {
            "oneOf": [
                {"properties": {"kind": {"const": f"k{i}"}, f"v{i}": {"type": "string"}}, "required": ["kind"]}
                for i in range(n)
            ]
        }

    small, large = steps_of(tagged(100)), steps_of(tagged(200))
    assert large < 2.5 * small
