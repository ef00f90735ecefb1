"""Expressions that are refused: what is wrong, where, and that it takes no time."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamacy.errors import AutomatonSizeError, GrammarError, RegexSyntaxError, RegexUnsupportedError
from llamacy.grammar.regex import pattern_language

# Each by the grammar of ECMA-262 with the flag u.
WRONG = [
    ("(", 0, "never closed"), ("a(b", 1, "never closed"), ("(?:a", 0, "never closed"), ("a)", 1, "closes no group"),
    ("[a", 0, "never closed"), ("[", 0, "never closed"), ("[a-", 0, "never closed"),
    ("*a", 0, "repeats nothing"), ("a|*", 2, "repeats nothing"), ("(?:+)", 3, "repeats nothing"),
    ("a**", 2, "repeats nothing"), ("a{1}{2}", 4, "repeats nothing"), ("{1}", 0, "repeats nothing"),
    ("a++", 2, "repeats nothing"), ("^*", 1, "repeats a condition"), (r"\b+", 2, "repeats a condition"),
    ("(?=a)*", 5, "repeats a condition"), ("(?<!a){2}", 6, "repeats a condition"), ("$?", 1, "repeats a condition"),
    ("a{3,2}", 1, "can't repeat 3 to 2 times"), ("[b-a]", 1, "ends before it begins"), ("a\\", 1, "escapes nothing"),
    (r"\a", 0, "no escape"), (r"x\Z", 1, "no escape"), (r"\A", 0, "no escape"), (r"\z", 0, "no escape"),
    (r"\e", 0, "no escape"), (r"\Qa", 0, "no escape"), (r"\c1", 0, "no escape"), (r"\c", 0, "no escape"),
    (r"\01", 0, "no escape"), (r"[\B]", 1, "no escape"), (r"[\1]", 1, "no escape"), (r"[\k]", 1, "no escape"),
    (r"\x4", 0, "2 hexadecimal digits"), (r"\xg0", 0, "2 hexadecimal digits"), (r"\u12", 0, "4 hexadecimal digits"),
    (r"\u{110000}", 0, "up to 10FFFF"),
    (r"\u{}", 0, "up to 10FFFF"), (r"\u{12", 0, "up to 10FFFF"), (r"\pL", 0, "in braces"), (r"\p{L", 0, "in braces"),
    ("(?P<n>a)", 0, "opens no group"), ("(?>a)", 0, "opens no group"), ("(?#a)", 0, "opens no group"),
    ("(?", 0, "opens no group"), ("(?<a", 0, "identifier"), ("(?<1>a)", 0, "identifier"), ("(?<>a)", 0, "identifier"),
    ("(?<a-b>a)", 0, "identifier"),
]  # fmt: skip
REFUSED = [
    (r"(a)\1", 3, "back-references"), (r"(?<n>a)\k<n>", 7, "back-references"),
    (r"\p{Script=Greek}", 0, "'Script=Greek'"),
    (r"x\P{sc=Latn}", 1, "'sc=Latn'"), (r"\p{Greek}", 0, "'Greek'"), (r"\p{Emoji}", 0, "'Emoji'"), (r"[\p{}]", 1, "''"),
    ("(?i)a", 0, "inline flags"), ("(?s-i:a)", 0, "inline flags"), ("(" * 201 + ")" * 201, 200, "nested more than 200"),
    ("(?=" * 21 + ")" * 21, 60, "look-arounds are nested more than 20"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "position", "message"), WRONG)
def test_wrong_pattern_is_refused_with_its_place(pattern: str, position: int, message: str) -> None:
    with pytest.raises(RegexSyntaxError, match=message) as caught:
        pattern_language(pattern)
    assert (caught.value.pattern, caught.value.position) == (pattern, position)
    assert f"position {position}" in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, GrammarError)


@pytest.mark.parametrize(("pattern", "position", "message"), REFUSED)
def test_unsupported_pattern_is_refused_with_its_place(pattern: str, position: int, message: str) -> None:
    with pytest.raises(RegexUnsupportedError, match=message) as caught:
        pattern_language(pattern)
    assert (caught.value.pattern, caught.value.position) == (pattern, position)
    assert isinstance(caught.value, ValueError)


def test_long_pattern_is_shown_in_part() -> None:
    with pytest.raises(RegexSyntaxError) as caught:
        pattern_language("a" * 100_000 + ")")
    assert len(str(caught.value)) < 400
    assert caught.value.position == 100_000


def test_errors_can_be_pickled() -> None:
    with pytest.raises(RegexSyntaxError) as caught:
        pattern_language("a)")
    twin = pickle.loads(pickle.dumps(caught.value))
    assert (str(twin), twin.pattern, twin.position) == (str(caught.value), "a)", 1)


@pytest.mark.parametrize(
    "pattern",
    [
        "^[a-z]{0,20000}$", "^[a-z]{0,1000000000}$", "^[a-z]{99999999999999999999}$", "(?:^|$){99999999}",
        "(a|b)*a(a|b){25}$", "^(?:(?:(?:(?:a{1,9}){1,9}){1,9}){1,9}){1,9}$", "(?=(?:a|b)*a(?:a|b){25}$)",
        "a" * 15_000,
    ],
    ids=lambda pattern: pattern[:40],
)  # fmt: skip
def test_pattern_that_explodes_is_refused_with_the_number(pattern: str) -> None:
    with pytest.raises(AutomatonSizeError, match=r"more than \d+"):
        pattern_language(pattern)


@pytest.mark.parametrize("opening", ["(", "(?:", "(?=", "[", "(a|", "a{", "(?<"])
def test_thousands_of_openings_are_refused_or_read(opening: str) -> None:
    with pytest.raises((RegexSyntaxError, RegexUnsupportedError)):
        pattern_language(opening * 20_001 + "(")


def test_deepest_nesting_is_done() -> None:
    assert pattern_language("(a|" * 200 + "b" + ")*" * 200, search=False).size == 1
    assert pattern_language("(" * 200 + "a" + ")?" * 200, search=False).words(3) == ["", "a"]


@settings(deadline=None, max_examples=500)
@given(st.text("ab^$()[]{}|*+?.\\-,0123dwbBpPukx<>=!:", max_size=25))
def test_any_text_is_a_language_or_a_typed_error(pattern: str) -> None:
    try:
        language = pattern_language(pattern)
    except (RegexSyntaxError, RegexUnsupportedError, AutomatonSizeError):
        return
    word = language.shortest()
    assert word is None or language.accepts(word)
