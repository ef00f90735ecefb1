"""Automata: what the functions that make them accept, their normal form, and their limits."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import pickle
import random

import pytest

from llamacy.errors import AutomatonSizeError, GrammarError
from llamacy.grammar.automaton import (
    MAX_STATES,
    Dfa,
    chars,
    choices,
    empty_string,
    everything,
    from_edges,
    lengths,
    literal,
    nothing,
)
from llamacy.grammar.charset import ANY, NONE, CharSet

A, B, C = (CharSet.of(letter) for letter in "abc")
TEXTS = ["".join(letters) for size in range(6) for letters in itertools.product("abc", repeat=size)]


def accepted(language: Dfa) -> list[str]:
    return [text for text in TEXTS if language.accepts(text)]


def test_nothing_accepts_nothing() -> None:
    assert accepted(nothing()) == []
    assert nothing().is_empty
    assert nothing().size == 1
    assert nothing().shortest() is None
    assert nothing().words(3) == []
    assert nothing().count() == 0
    assert nothing().min_length is None
    assert nothing().max_length is None
    assert nothing().is_finite


def test_everything_accepts_everything() -> None:
    assert accepted(everything()) == TEXTS
    assert everything().accepts("\0\U0010ffff\n")
    assert everything().is_everything
    assert everything().size == 1
    assert everything().count() is None
    assert (everything().min_length, everything().max_length) == (0, None)
    assert not everything().is_finite


def test_empty_string_accepts_only_itself() -> None:
    assert accepted(empty_string()) == [""]
    assert empty_string().words(5) == [""]
    assert (empty_string().min_length, empty_string().max_length, empty_string().count()) == (0, 0, 1)


def test_no_language_accepts_surrogates() -> None:
    assert not everything().accepts("\ud800")


def test_chars_accepts_one_character() -> None:
    assert accepted(chars(A | C)) == ["a", "c"]
    assert chars(NONE) == nothing()
    assert chars(ANY) == lengths(1, 1)


@pytest.mark.parametrize("text", ["", "a", "abcabc", "\0", "é😀\n"])
def test_literal_accepts_only_its_text(text: str) -> None:
    assert literal(text).words(2) == [text]
    assert literal(text).size == len(text) + 1


def test_choices_accepts_its_words_and_no_others() -> None:
    words = ["abc", "ab", "", "cab", "cabcab", "ab"]
    assert sorted(choices(words).words(99)) == sorted(set(words))
    assert choices(iter(words)) == choices(reversed(words))
    assert choices([]) == nothing()


def test_choices_shares_ends() -> None:
    # start, and after each of the three letters
    assert choices(["".join(word) for word in itertools.product("ab", "cd", "ef")]).size == 4


def test_choices_have_the_form_that_their_union_has() -> None:
    rng = random.Random(3)
    for _ in range(40):
        words = ["".join(rng.choices("ab\u00e9\U0001f600", k=rng.randrange(5))) for _ in range(rng.randrange(1, 12))]
        # a union is made of products and minimised, words are not
        assert choices(words) == functools.reduce(operator.or_, map(literal, words))


def test_choices_of_thousands_of_words_are_the_words() -> None:
    random_words = {"".join(random.Random(seed).choices("abcdefgh", k=seed % 9)) for seed in range(5000)}
    language = choices(random_words)
    assert language.count() == len(random_words)
    assert language.words(9999) == sorted(random_words, key=lambda word: (len(word), word))
    assert language == from_edges(language.edges, language.accepting)


@pytest.mark.parametrize(("text", "position"), [("\ud800", 0), ("ab\udfff", 2)])
def test_surrogate_in_a_word_is_refused(text: str, position: int) -> None:
    with pytest.raises(ValueError, match=f"at position {position}, which is no character"):
        choices(["ok", text])


@pytest.mark.parametrize(("minimum", "maximum"), [(0, 0), (0, 3), (2, 2), (2, None), (0, None), (3, 2), (-4, 1)])
def test_lengths_counts_characters(minimum: int, maximum: int | None) -> None:
    language = lengths(minimum, maximum)
    assert accepted(language) == [
        text for text in TEXTS if len(text) >= minimum and (maximum is None or len(text) <= maximum)
    ]
    assert language.accepts("😀é\0") == (minimum <= 3 and (maximum is None or maximum >= 3))


def test_equal_languages_are_equal_whatever_they_came_from() -> None:
    ways = [
        literal("a").repeat(2) | literal("b"),
        literal("b") | literal("aa").concat(literal("a").repeat(0)),
        ~(~literal("b") & ~lengths(2) & everything()) & (chars(A).repeat(2) | literal("b")),
        from_edges([[(A, 3), (B, 1)], [], [(A, 2)], [(A, 2)], [(C, 4)]], [1, 2]),
    ]
    assert len(set(ways)) == 1
    assert {way.edges for way in ways} == {(((A, 1), (B, 2)), ((A, 3),), (), ((A, 3),))}
    assert {way.accepting for way in ways} == {frozenset((2, 3))}


def test_language_equals_no_other_type() -> None:
    assert literal("a") != "a"
    assert literal("a").__or__("a") is NotImplemented  # type: ignore[operator]
    assert literal("a").__and__("a") is NotImplemented  # type: ignore[operator]
    assert literal("a").__sub__("a") is NotImplemented  # type: ignore[operator]


def test_pickle_is_equal() -> None:
    language = choices(["ab", "c"]).repeat(0)
    assert pickle.loads(pickle.dumps(language)) == language


def test_repr_shows_the_first_texts() -> None:
    assert repr(choices(["b", "a"])) == "<Dfa of 2 states: 'a', 'b'>"
    assert repr(chars(A).repeat(1)) == "<Dfa of 2 states: 'a', 'aa', 'aaa', …>"


def test_words_come_by_length_then_code_point_across_edges() -> None:
    # a and c lead one way, b another: their words still come in order
    language = chars(A | C).concat(literal("a")) | literal("bc") | literal("z")
    assert language.words(9) == ["z", "aa", "bc", "ca"]
    assert language.words(2) == ["z", "aa"]
    assert language.words(0) == []
    assert everything().words(3) == ["", "\0", "\x01"]


def test_long_words_need_no_recursion() -> None:
    assert chars(A).repeat(5000).shortest() == "a" * 5000
    assert literal("ab" * 5000).words(2) == ["ab" * 5000]


def test_count_is_exact_for_large_languages() -> None:
    assert lengths(0, 9).count() == sum((0x110000 - 0x800) ** size for size in range(10))
    assert chars(A | B).repeat(200, 200).count() == 2**200


@pytest.mark.parametrize(
    ("edges", "accepting", "message"),
    [
        ([], [], "no states"),
        ([[(A, 1)]], [0], "state 0 leads to state 1; give states from 0 to 0"),
        ([[(A, -1)]], [0], "leads to state -1"),
        ([[]], [1], "accepting state 1 isn't in the table"),
        ([[(A | B, 0), (B | C, 1)], []], [1], r"leads to two states on CharSet\(\(\(98, 98\),\)\)"),
    ],
)
def test_broken_table_is_refused(edges: list[list[tuple[CharSet, int]]], accepting: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_edges(edges, accepting)


def test_table_may_have_useless_parts() -> None:
    table = [
        [(A, 1), (B, 2), (A, 1), (NONE, 3), (C, 5)],
        [(A, 1), (B, 4)],
        [(A, 2)],
        [(A, 3)],  # out of reach
        [(B, 4)],  # leads nowhere
        [],
    ]
    assert from_edges(table, [1, 2, 3]) == (chars(A | B).concat(chars(A).repeat(0)))
    assert from_edges([[(A, 0)]], []) == nothing()
    assert from_edges([[(A, 1)], [(A, 0)]], [0, 1]) == chars(A).repeat(0)


@pytest.mark.parametrize(("minimum", "maximum"), [(-1, 2), (3, 2)])
def test_impossible_counts_are_refused(minimum: int, maximum: int) -> None:
    with pytest.raises(ValueError, match=f"can't repeat {minimum} to {maximum} times"):
        literal("a").repeat(minimum, maximum)


@pytest.mark.parametrize(
    "grow",
    [
        lambda: lengths(MAX_STATES),
        lambda: literal("a" * MAX_STATES),
        lambda: choices("".join(random.Random(seed).choices("abcdefgh", k=40)) for seed in range(3000)),
        lambda: chars(ANY).repeat(0, MAX_STATES + 1),
        lambda: literal("ab").repeat(10**12),
        lambda: everything().concat(literal("a")).concat(lengths(16, 16)),
        lambda: (lengths(0, 400).concat(literal("a"))).repeat(0, 40) & (lengths(0, 333).concat(literal("b"))).repeat(0),
        lambda: from_edges([[]] * (MAX_STATES + 1), [0]),
    ],
    ids=["lengths", "literal", "choices", "repeat", "count", "subsets", "product", "table"],
)
def test_too_large_is_refused_with_the_number(grow: object) -> None:
    with pytest.raises(AutomatonSizeError, match=r"needs more than \d+") as caught:
        grow()  # type: ignore[operator]
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, GrammarError)


def test_largest_automata_are_made() -> None:
    assert lengths(0, MAX_STATES - 1).size == MAX_STATES
    assert chars(A).repeat(0, MAX_STATES - 1).size == MAX_STATES


def test_loops_in_a_ring_are_minimised() -> None:
    # A ring of 60 states that accepts at every third is a ring of 3.
    ring = [[(A, (state + 1) % 60)] for state in range(60)]
    assert from_edges(ring, range(0, 60, 3)) == literal("aaa").repeat(0)
    assert from_edges(ring, range(0, 60, 7)).size == 60


def test_multiples_in_binary_take_one_state_a_remainder() -> None:
    # Hopcroft and Ullman's example: reading a binary number, only its remainder matters.
    zero, one = CharSet.of("0"), CharSet.of("1")
    for divisor in (3, 5, 7, 24):
        table = [[(zero, 2 * rest % divisor), (one, (2 * rest + 1) % divisor)] for rest in range(divisor)]
        language = from_edges(table, [0])
        assert all(language.accepts(f"{number:b}") == (number % divisor == 0) for number in range(200))
        odd, twos = divisor, 0
        while odd % 2 == 0:
            odd, twos = odd // 2, twos + 1
        assert language.size == odd + twos == divisor // math.gcd(divisor, 2**twos) + twos


def test_counting_stops_where_it_is_told_to() -> None:
    language = chars(CharSet.of("abc")).repeat(2, 2)
    assert [language.count(most) for most in (None, 1, 8, 9, 10)] == [9, 1, 8, 9, 9]
    assert literal("a").repeat(0).count(5) is None
