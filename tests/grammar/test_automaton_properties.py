"""The algebra of automata against sets of texts."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from llamacy.grammar.automaton import (
    Dfa,
    chars,
    empty_string,
    everything,
    from_edges,
    lengths,
    literal,
    nothing,
)
from llamacy.grammar.charset import CharSet

LONGEST = 5
TEXTS = frozenset("".join(letters) for size in range(LONGEST + 1) for letters in itertools.product("abc", repeat=size))


class Language(NamedTuple):
    """A language as an automaton and as the set of its short texts over a, b and c."""

    dfa: Dfa
    texts: frozenset[str]


def _within(texts: set[str]) -> frozenset[str]:
    return frozenset(text for text in texts if len(text) <= LONGEST)


def _repeated(texts: frozenset[str], minimum: int, maximum: int | None) -> frozenset[str]:
    reached, found = frozenset([""]), frozenset([""] if minimum == 0 else [])
    for count in range(1, (minimum + LONGEST if maximum is None else maximum) + 1):
        reached = _within({one + two for one in reached for two in texts})
        if count >= minimum:
            found |= reached
    return found


def _repeat(language: Language, bounds: tuple[int, int | None]) -> Language:
    return Language(language.dfa.repeat(*bounds), _repeated(language.texts, *bounds))


def _concat(one: Language, two: Language) -> Language:
    return Language(one.dfa.concat(two.dfa), _within({x + y for x in one.texts for y in two.texts}))


leaves = st.sampled_from(
    [
        Language(nothing(), frozenset()),
        Language(everything(), TEXTS),
        Language(empty_string(), frozenset([""])),
        Language(literal("ab"), frozenset(["ab"])),
        Language(literal("bca"), frozenset(["bca"])),
        Language(chars(CharSet.of("bc")), frozenset("bc")),
        Language(chars(CharSet.of("a")), frozenset("a")),
        Language(lengths(1, 2), frozenset(text for text in TEXTS if 1 <= len(text) <= 2)),
        Language(lengths(2), frozenset(text for text in TEXTS if len(text) >= 2)),
    ]
)
counts = st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (1, 3), (2, None), (0, 0)])


def _extend(inner: st.SearchStrategy[Language]) -> st.SearchStrategy[Language]:
    return st.one_of(
        st.builds(lambda one, two: Language(one.dfa | two.dfa, one.texts | two.texts), inner, inner),
        st.builds(lambda one, two: Language(one.dfa & two.dfa, one.texts & two.texts), inner, inner),
        st.builds(lambda one, two: Language(one.dfa - two.dfa, one.texts - two.texts), inner, inner),
        st.builds(lambda one: Language(~one.dfa, TEXTS - one.texts), inner),
        st.builds(_concat, inner, inner),
        st.builds(_repeat, inner, counts),
    )


languages = st.recursive(leaves, _extend, max_leaves=6)


@settings(deadline=None, max_examples=300)
@given(languages)
def test_operations_are_those_of_sets_of_texts(language: Language) -> None:
    assert {text for text in TEXTS if language.dfa.accepts(text)} == language.texts


@settings(deadline=None)
@given(languages)
def test_automaton_is_in_normal_form(language: Language) -> None:
    dfa = language.dfa
    order = [0]
    for out in dfa.edges:
        assert len({target for _, target in out}) == len(out)
        assert [charset.first for charset, _ in out] == sorted(charset.first for charset, _ in out)
        for (one, _), (two, _) in itertools.combinations(out, 2):
            assert not one & two
        order.extend(target for _, target in out if target not in order)
    assert order == list(range(dfa.size))
    assert from_edges(dfa.edges, dfa.accepting) == dfa
    # Numbered anyhow and with every state twice, the same comes out.
    doubled = [[(charset, 2 * target) for charset, target in out] for out in dfa.edges for _ in range(2)]
    assert from_edges(doubled, [2 * state + twin for state in dfa.accepting for twin in (0, 1)]) == dfa
    # All states can be told apart: the languages from two states differ.
    futures = {_from(dfa, state) for state in range(dfa.size)}
    assert len(futures) == dfa.size


def _from(dfa: Dfa, state: int) -> Dfa:
    """Return the language of what may follow in a state."""
    edges = [[(charset, target + 1) for charset, target in out] for out in (dfa.edges[state], *dfa.edges)]
    return from_edges(edges, [end + 1 for end in dfa.accepting] + ([0] if state in dfa.accepting else []))


@settings(deadline=None)
@given(languages, languages, languages)
def test_laws_hold_as_equality(one: Language, two: Language, three: Language) -> None:
    a, b, c = one.dfa, two.dfa, three.dfa
    assert ~~a == a
    assert ~(a | b) == ~a & ~b
    assert a - b == a & ~b
    assert (a - b) | (a & b) == a
    assert a & (b | c) == (a & b) | (a & c)
    assert a | a == a & a == a
    assert hash((a - b) | (a & b)) == hash(a)
    assert (a == b) == ((a - b).is_empty and (b - a).is_empty)
    assert a.concat(b | c) == a.concat(b) | a.concat(c)
    assert a.concat(b).concat(c) == a.concat(b.concat(c))
    assert a.repeat(0).repeat(0) == a.repeat(0)
    assert a.repeat(2, 3) == a.concat(a) | a.concat(a).concat(a)
    assert a.repeat(0) == empty_string() | a.concat(a.repeat(0))


@settings(deadline=None)
@given(languages)
def test_words_are_the_first_texts(language: Language) -> None:
    dfa = language.dfa & chars(CharSet.of(("a", "c"))).repeat(0)
    expected = sorted(language.texts, key=lambda text: (len(text), text))
    longest_listed = len(expected)
    words = dfa.words(longest_listed)
    assert words == expected
    assert dfa.shortest() == next(iter(words), None) or not expected
    count = dfa.count()
    assert dfa.is_finite == (count is not None)
    if count is not None and (dfa.max_length or 0) <= LONGEST:
        assert count == len(expected)
        assert dfa.max_length == (max(map(len, expected)) if expected else None)
    if expected:
        assert dfa.min_length == len(expected[0])
    assert dfa.is_empty == (dfa.shortest() is None)
