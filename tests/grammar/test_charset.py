"""Sets of characters against Python's own sets of code points."""

from __future__ import annotations

import copy
import itertools
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamacy.grammar.charset import ANY, NONE, CharSet

# Stretches around all borders: the lowest characters, both sides of the surrogates, the highest ones.
STRETCHES = [(0, 40), (0xD7F0, 0xD7FF), (0xE000, 0xE010), (0x10FFE0, 0x10FFFF)]
WINDOW = frozenset(point for low, high in STRETCHES for point in range(low, high + 1))

points = st.sampled_from(sorted(WINDOW))
ranges = st.tuples(points, st.integers(0, 12)).map(lambda pair: (pair[0], min(pair[0] + pair[1], 0x10FFFF)))
lists = st.lists(ranges, max_size=7)


def members(charset: CharSet) -> set[int]:
    return {point for low, high in charset for point in range(low, high + 1)}


def characters(pairs: list[tuple[int, int]]) -> set[int]:
    return {point for low, high in pairs for point in range(low, high + 1) if not 0xD800 <= point <= 0xDFFF}


@given(lists)
def test_ranges_are_sorted_merged_and_clear_of_surrogates(pairs: list[tuple[int, int]]) -> None:
    charset = CharSet(pairs)
    assert members(charset) == characters(pairs)
    assert all(low <= high for low, high in charset)
    for (_, high), (low, _) in itertools.pairwise(charset):
        assert low > high + 1
    assert all(high < 0xD800 or low > 0xDFFF for low, high in charset)


@given(lists, lists)
def test_operators_are_those_of_sets(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    one, two = CharSet(first), CharSet(second)
    assert members(one | two) == members(one) | members(two)
    assert members(one & two) == members(one) & members(two)
    assert members(one - two) == members(one) - members(two)
    assert CharSet.union([one, two]) == one | two
    outside = ~one
    assert {point for point in WINDOW if outside.has(point)} == WINDOW - members(one)
    assert outside.size == 0x110000 - 0x800 - len(members(one))
    assert ~outside == one


@given(lists, lists)
def test_equal_sets_are_equal_objects(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    one, two = CharSet(first), CharSet(second)
    assert (one == two) == (members(one) == members(two))
    assert (one != two) == (members(one) != members(two))
    rebuilt = (one - two) | (one & two)
    assert rebuilt == one
    assert hash(rebuilt) == hash(one)


@given(lists)
def test_has_size_and_first_agree_with_the_members(pairs: list[tuple[int, int]]) -> None:
    charset, expected = CharSet(pairs), characters(pairs)
    assert {point for point in WINDOW if charset.has(point)} == WINDOW & expected
    assert all(charset.has(chr(point)) for point in expected)
    assert charset.size == len(expected)
    if expected:
        assert charset.first == min(expected)


def test_of_takes_texts_and_ranges() -> None:
    expected = CharSet([(0x20, 0x7E), (0xE9, 0xE9), (0x1F600, 0x1F600)])
    assert CharSet.of("é😀", ("a", "z"), (0x20, 0x7E)) == expected
    assert CharSet.of("cab") == CharSet.of(("a", "c")) == CharSet([(97, 99)])
    assert CharSet.of() == NONE


def test_any_is_all_characters_in_two_ranges() -> None:
    assert tuple(ANY) == ((0, 0xD7FF), (0xE000, 0x10FFFF))
    assert ANY == ~NONE == CharSet([(0, 0x10FFFF)])
    assert not ANY.has(0xD800)
    assert not ANY.has(0xDFFF)


def test_surrogates_are_left_out() -> None:
    assert CharSet.of("\ud800") == NONE
    assert CharSet([(0xD7FF, 0xE000)]) == CharSet.of("\ud7ff\ue000")


def test_set_equals_no_plain_tuple() -> None:
    assert CharSet.of("a") != ((97, 97),)
    assert CharSet.of("a") != "a"


@pytest.mark.parametrize("pair", [(5, 4), (-1, 4), (0, 0x110000)])
def test_bad_range_is_refused(pair: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="is no range of characters"):
        CharSet([pair])


def test_first_of_an_empty_set_is_refused() -> None:
    with pytest.raises(ValueError, match="empty CharSet has no first"):
        _ = NONE.first


def test_operators_refuse_other_types() -> None:
    for operation in ("__or__", "__and__", "__sub__"):
        assert getattr(ANY, operation)(((0, 1),)) is NotImplemented


@pytest.mark.parametrize("charset", [NONE, ANY, CharSet.of("a-z")], ids=["none", "any", "some"])
def test_copies_and_pickles_are_equal(charset: CharSet) -> None:
    for twin in (pickle.loads(pickle.dumps(charset)), copy.deepcopy(charset)):
        assert twin == charset
        assert type(twin) is CharSet


def test_repr_can_be_evaluated() -> None:
    charset = CharSet.of("ab", "z")
    assert eval(repr(charset)) == charset
