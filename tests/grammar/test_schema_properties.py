"""Random schemas: what their grammars write satisfies them, what satisfies them matches, and nothing else does."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
import warnings
from itertools import islice
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given, note, settings
from hypothesis import strategies as st

from llamacy.errors import SchemaError, SchemaRelaxedWarning, UnsatisfiableSchemaError
from llamacy.grammar import Grammar
from llamacy.grammar.parse import parse
from llamacy.grammar.schema import compile_schema
from llamacy.grammar.schema.policy import Policy
from tests.grammar import oracle
from tests.grammar.native import native_matches
from tests.grammar.oracle import value_of
from tests.grammar.schemas import instances, schemas
from tests.grammar.spelling import spellings
from tests.grammar.writer import random_text

DIALECTS = ("2020-12", "7")
MOST_TEXTS = 120

checked = settings(
    deadline=None,
    max_examples=int(os.environ.get("LLAMACY_TEST_EXAMPLES", "50")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def compiled(schema: Any, dialect: str, **policy: Any) -> Grammar:
    """Return the grammar; a schema that is refused is none for a test that needs it."""
    try:
        return Grammar.from_json_schema(schema, dialect=dialect, formats=False, **policy)
    except SchemaError as error:
        event(type(error).__name__)
        assume(False)
        raise


def no_text(text: str) -> bool:
    return False


def is_valid(schema: Any, dialect: str, value: Any) -> bool:
    try:
        return oracle.is_valid(schema, dialect, value)
    except RecursionError:
        # a reference that leads back to itself without going down in the value
        assume(False)
        raise


@pytest.mark.parametrize("dialect", DIALECTS)
@given(st.data(), st.integers(0, 2**32), st.booleans(), st.sampled_from(["compact", "single", "pretty"]))
@checked
def test_text_of_the_grammar_satisfies_the_schema(
    dialect: str, data: st.DataObject, seed: int, extra_keys: bool, whitespace: str
) -> None:
    schema = data.draw(schemas(dialect))
    grammar = compiled(schema, dialect, extra_keys=extra_keys, whitespace=whitespace)
    rules = parse(grammar.text, grammar.root)
    rng = random.Random(seed)
    for budget in (0, 5, 20, 60):
        text = random_text(rules, rng, budget)
        value = value_of(text)
        assert is_valid(schema, dialect, value), text
        assert grammar.matches(text)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(st.data())
@checked
def test_instance_matches_exactly_when_it_satisfies_the_schema(dialect: str, data: st.DataObject) -> None:
    schema = data.draw(schemas(dialect))
    try:
        matches = Grammar.from_json_schema(schema, dialect=dialect, formats=False, extra_keys=True).matches
    except UnsatisfiableSchemaError as error:
        note(str(error))
        matches = no_text
    except SchemaError:
        assume(False)
    for _ in range(3):
        value = data.draw(instances(schema))
        texts = list(islice(spellings(value), MOST_TEXTS))
        if is_valid(schema, dialect, value_of(texts[0])):
            event("valid")
            assert any(map(matches, texts)), texts[0]
        else:
            event("invalid")
            assert [text for text in texts if matches(text)] == []


@pytest.mark.parametrize("dialect", DIALECTS)
@given(st.data(), st.integers(0, 2**32), st.sampled_from(["declared", "required_first", "any"]))
@checked
def test_property_order_changes_no_meaning(dialect: str, data: st.DataObject, seed: int, order: str) -> None:
    schema = data.draw(schemas(dialect))
    grammar = compiled(schema, dialect, property_order=order)
    rng = random.Random(seed)
    for budget in (5, 40):
        text = random_text(parse(grammar.text, grammar.root), rng, budget)
        assert is_valid(schema, dialect, value_of(text)), text


@pytest.mark.parametrize("dialect", DIALECTS)
@given(st.data())
@checked
def test_compiling_changes_no_schema_and_raises_only_schema_errors(dialect: str, data: st.DataObject) -> None:
    schema = data.draw(schemas(dialect))
    before = copy.deepcopy(schema)
    order = json.dumps(schema)
    with contextlib.suppress(SchemaError):
        rules = compile_schema(schema, Policy(dialect=dialect))
        assert rules.root in rules.rules
        assert compile_schema(copy.deepcopy(schema), Policy(dialect=dialect)) == rules
    assert schema == before
    assert json.dumps(schema) == order


@pytest.mark.parametrize("dialect", DIALECTS)
@given(st.data())
@checked
def test_relaxed_grammar_still_takes_what_satisfies_the_schema(dialect: str, data: st.DataObject) -> None:
    schema = data.draw(schemas(dialect))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", SchemaRelaxedWarning)
        try:
            grammar = Grammar.from_json_schema(schema, dialect=dialect, formats=False, extra_keys=True, strict=False)
        except SchemaError:
            assume(False)  # also what follows from a combination, where no keyword can be left out for it
    event("relaxed" if told else "as it is")
    value = data.draw(instances(schema))
    texts = list(islice(spellings(value), MOST_TEXTS))
    if is_valid(schema, dialect, value_of(texts[0])):
        assert any(map(grammar.matches, texts)), texts[0]
    elif not told:
        assert not any(map(grammar.matches, texts))


@pytest.mark.parametrize("dialect", DIALECTS)
@given(st.data(), st.integers(0, 3), st.integers(0, 3), st.integers(0, 2**32))
@checked
def test_limits_of_the_policy_hold_where_the_schema_has_none(
    dialect: str, data: st.DataObject, longest_string: int, longest_array: int, seed: int
) -> None:
    schema = data.draw(schemas(dialect))
    grammar = compiled(
        schema, dialect, extra_keys=True, max_string_length=longest_string, max_array_length=longest_array
    )
    text = random_text(parse(grammar.text, grammar.root), random.Random(seed), 60)
    assert is_valid(schema, dialect, value_of(text)), text


@given(st.data(), st.sampled_from(DIALECTS), st.integers(0, 2**32))
@checked
def test_native_grammar_matches_the_same_texts(vocab: Any, data: st.DataObject, dialect: str, seed: int) -> None:
    schema = data.draw(schemas(dialect))
    grammar = compiled(schema, dialect, extra_keys=True)
    rng = random.Random(seed)
    text = random_text(parse(grammar.text, grammar.root), rng, 40)
    at = rng.randrange(len(text))
    changed = text[:at] + rng.choice(['"', "1", "}", "]", ",", " ", "a", ""]) + text[at + rng.randrange(2) :]
    for candidate in (text, changed):
        assert native_matches(vocab, grammar.text, candidate, grammar.root) is grammar.matches(candidate), candidate
