"""Repetitions that a text can be divided into in many ways, against sums of lengths."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from llamacy.errors import GrammarError
from llamacy.grammar.matcher import Matcher
from llamacy.grammar.parse import parse
from llamacy.grammar.tree import Choice, Node, Repeat, Rules

LONGEST = 60


def sums(one: set[int], other: set[int]) -> set[int]:
    return {a + b for a in one for b in other if a + b <= LONGEST}


def lengths(node: Node) -> set[int]:
    """Return how many letters the texts of a tree have that is about one letter only, up to `LONGEST`."""
    if isinstance(node, str):
        return {len(node)}
    if isinstance(node, Choice):
        return set().union(*map(lengths, node))
    if isinstance(node, Repeat):
        item, layer, found = lengths(node.item), {0}, set()
        for times in range((LONGEST + node.minimum if node.maximum is None else node.maximum) + 1):
            found |= layer if times >= node.minimum else set()
            layer = sums(layer, item)
        return found
    assert isinstance(node, tuple)
    found = {0}
    for item in node:
        found = sums(found, lengths(item))
    return found


def bigger(nodes: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(nodes, min_size=1, max_size=3)
    counted = st.builds(
        lambda item, low, more: Repeat(item, low, low + more), nodes, st.integers(0, 4), st.integers(0, 5)
    )
    return several.map(tuple) | several.map(Choice) | counted | st.builds(Repeat, nodes, st.integers(0, 4))


one_letter = st.recursive(st.sampled_from(["a", "aa", "aaa", "aaaaa", ""]), bigger, max_leaves=7)


@settings(deadline=None, max_examples=300)
@given(one_letter, one_letter)
def test_texts_of_one_letter_have_the_lengths_that_add_up(node: Node, last: Node) -> None:
    try:
        found = Matcher(Rules("root", {"root": (node, "b", last)}))
    except GrammarError as error:
        # llama.cpp takes a loop around what may be empty for a loop without end, and counts ways
        if "begins with itself" not in str(error) and "more than" not in str(error) and "too many" not in str(error):
            raise
        return
    before, after = lengths(node), lengths(last)
    assume(before and after)  # neither needs more letters than were counted
    for n in range(LONGEST):
        assert found.matches("a" * n + "b" + "a" * min(after)) is (n in before), n
        assert found.matches("a" * min(before) + "b" + "a" * n) is (n in after), n
        assert n > max(before) or found.accepts_prefix("a" * n), n


@pytest.mark.parametrize(("low", "high"), [(0, 2_000), (700, 2_000), (300, 301), (0, 1), (400, None)])
def test_long_text_that_can_be_divided_in_many_ways(low: int, high: int | None) -> None:
    found = Matcher(parse(f'root ::= ("aa" | "aaaaa"){{{low},{"" if high is None else high}}} "b"'))
    most = 2_000 if high is None else high
    fits = {2 * n - 2 * fives + 5 * fives for n in range(low, most + 1) for fives in range(n + 1)}
    assert max(fits) > 4
    for n in {0, 1, 2, 5, 2 * low - 1, 2 * low, 2 * low + 1, 2_500, 5 * most - 5, 5 * most - 3, 5 * most, 5 * most + 1}:
        if n >= 0 and (high is not None or n <= 4_000):
            assert found.matches("a" * n + "b") is (n in fits), n


def test_sets_do_not_grow_with_the_ways_to_divide_a_text() -> None:
    def n_sets(n: int) -> int:
        found = Matcher(parse('root ::= ("a" | "aa"){0,2000} "b"'))
        assert found.matches("a" * n + "b")
        return sum(map(len, found._members))

    # each way by itself would make it the third power
    assert n_sets(1_600) < 2.1 * n_sets(800)
    assert n_sets(800) < 2.1 * n_sets(400)
