r"""Look-ahead, look-behind, ``\b`` and ``\B`` anywhere in an expression and in each other."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import assume, given, settings

from llamacy.grammar.automaton import Dfa, chars, choices, everything, lengths, literal, nothing
from llamacy.grammar.charset import CharSet
from llamacy.grammar.regex import pattern_language
from tests.grammar.regexes import LETTERS, Expression, expressions

TEXTS = ["".join(letters) for size in range(5) for letters in itertools.product(LETTERS, repeat=size)]


@settings(deadline=None, max_examples=500)
@given(expressions(looks=True))
def test_expression_is_found_where_the_definition_says(expression: Expression) -> None:
    found = pattern_language(expression.spell())
    whole = pattern_language(expression.spell(), search=False)
    for text in TEXTS:
        assert found.accepts(text) == expression.is_found(text), text
        assert whole.accepts(text) == expression.matches(text), text


@settings(deadline=None, max_examples=300)
@given(expressions(looks=True))
def test_expression_matches_what_python_matches(expression: Expression) -> None:
    # Before 3.14, Python's \B never holds in an empty text.
    assume(not expression.looks_behind)
    compiled = re.compile(expression.spell(python=True), re.ASCII)
    found = pattern_language(expression.spell())
    whole = pattern_language(expression.spell(), search=False)
    for text in TEXTS[1:]:
        assert found.accepts(text) == bool(compiled.search(text)), text
        assert whole.accepts(text) == bool(compiled.fullmatch(text)), text


LOWER = chars(CharSet.of(("a", "z"))).repeat(0)


def containing(text: str) -> Dfa:
    return everything().concat(literal(text)).concat(everything())


def test_look_ahead_at_the_front_is_an_intersection() -> None:
    assert pattern_language("^(?=.*a)(?=.*b)[a-z]*$") == LOWER & containing("a") & containing("b")
    assert pattern_language("^(?!.*foo)[a-z]*$") == LOWER - containing("foo")
    assert pattern_language("^(?!(?:if|else)$)[a-z]+$") == LOWER & lengths(1) & ~choices(["if", "else"])
    assert pattern_language("^(?=[^]{3,5}$)[a-z]*$") == LOWER & lengths(3, 5)


def test_look_ahead_at_every_step_rules_a_word_out() -> None:
    assert pattern_language("^(?:(?!foo)[a-z])*$") == LOWER - containing("foo")


def test_look_behind_at_the_end_is_an_intersection() -> None:
    assert pattern_language("^[a-z]*(?<!foo)$") == LOWER - everything().concat(literal("foo"))
    assert pattern_language("^[a-z]*(?<=a[a-z]{2,}b)$") == LOWER & pattern_language("^.*a.{2,}b$")


def test_word_boundary_finds_whole_words() -> None:
    language = pattern_language(r"\bcat\b")
    for text, expected in {
        "cat": True,
        "a cat.": True,
        "concat": False,
        "cats": False,
        "é-cat": True,
        "_cat": False,
    }.items():
        assert language.accepts(text) is expected


@pytest.mark.parametrize(
    "pattern",
    ["(?=a)b", "a(?!)", "(?<=b)^a", "a(?=b)$", r"a\bb", "(?!a)a", "(?<!a)(?<=a)", r"\b\B", "$(?=a)", "(?<=(?=b)a)c"],
)
def test_contradictions_match_nothing(pattern: str) -> None:
    assert pattern_language(pattern) == nothing()


@pytest.mark.parametrize(
    ("pattern", "same"),
    [
        ("(?=ab)a", "ab"),
        ("(?=(?=ab)a)", "ab"),
        ("(?!(?!a))b?", "a"),
        ("(?<=a)b", "ab"),
        ("(?<=a(?=b))", "ab"),
        ("(?<=a(?=b).c)", "abc"),
        ("(?<=(?<=a)b)c", "abc"),
        ("(?<!(?<!a)b)c", "^c|[^b]c|abc"),
        ("a(?=b|$)", "ab|a$"),
        ("(?:(?=a)){2,}a", "a"),
        ("(?=[^]*x$)(?=a)", "a[^]*x$"),
        (r"\Ba", r"\wa"),
        (r"\ba", r"^a|\Wa"),
        (r"(?=\ba)", r"^a|\Wa"),
        (r"(?<=a\b)", r"a$|a\W"),
        (r"(?<!\w)a(?!\w)", r"\ba\b"),
    ],
)
def test_look_around_means_the_same_as_without(pattern: str, same: str) -> None:
    assert pattern_language(pattern) == pattern_language(same)


def test_deep_look_arounds_are_done() -> None:
    assert pattern_language("(?=" * 20 + "a" + ")" * 20) == pattern_language("a")
    assert pattern_language("(?<!" * 20 + "a" + ")" * 20) == pattern_language("(?<!(?<!a))")
