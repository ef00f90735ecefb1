"""Prefixes: elements of tokens and media, and what they come to in positions and cells."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamacy.checkpoint.prefix import ELEMENT, MEDIA_ELEMENTS, Media, Prefix, common_length

TOKENS = st.lists(st.integers(0, 2**31 - 1), max_size=12)


@st.composite
def prefixes(draw: Any) -> tuple[list[int], list[Media]]:
    """Tokens and media among them."""
    tokens = draw(TOKENS)
    places = sorted(draw(st.lists(st.integers(0, len(tokens)), max_size=3)))
    return tokens, [
        Media(at, draw(st.binary(max_size=4)), draw(st.integers(1, 9)), draw(st.integers(1, 9))) for at in places
    ]


def items(tokens: list[int], media: list[Media]) -> list[int | Media]:
    """Return tokens and media in one list."""
    mixed: list[int | Media] = []
    for at in range(len(tokens) + 1):
        mixed += [medium for medium in media if medium.at == at]
        mixed += tokens[at : at + 1]
    return mixed


@given(prefixes())
def test_prefix_agrees_with_list_of_items(made: tuple[list[int], list[Media]]) -> None:
    tokens, media = made
    prefix = Prefix(tokens, media)
    assert prefix.tokens.tolist() == tokens
    assert prefix.n_bytes == len(prefix.elements) + sum(len(medium.key) for medium in media)
    ends, n, n_positions, n_cells = {0}, 0, 0, 0
    for item in items(tokens, media):
        n_before = n
        n += MEDIA_ELEMENTS if isinstance(item, Media) else 1
        length = item.n_positions if isinstance(item, Media) else 1
        n_positions += length
        n_cells += item.n_tokens if isinstance(item, Media) else 1
        ends.add(n)
        assert prefix.positions(n) == n_positions
        assert prefix.cells(n) == n_cells
        assert prefix.last_length(n) == length
        assert all(prefix.whole(k) == n_before for k in range(n_before, n))
    assert len(prefix) == n == prefix.whole(n)
    assert prefix.n_positions == n_positions
    for end in ends:
        head = prefix.head(end)
        assert head.elements == prefix.elements[: end * ELEMENT]
        assert head == Prefix(head.tokens, head.media)


@given(prefixes(), prefixes())
def test_equal_elements_mean_equal_content(
    left: tuple[list[int], list[Media]], right: tuple[list[int], list[Media]]
) -> None:
    assert (Prefix(*left).elements == Prefix(*right).elements) == (left == right)


@given(st.lists(st.integers(0, 1)), st.lists(st.integers(0, 1)))
def test_common_length_is_that_of_a_loop(left: list[int], right: list[int]) -> None:
    n = 0
    while n < min(len(left), len(right)) and left[n] == right[n]:
        n += 1
    assert common_length(Prefix(left).elements, Prefix(right).elements) == n


@pytest.mark.parametrize(
    "tokens",
    [array("i", [3, 1, 2]), np.array([3, 1, 2], np.int32), np.array([3, 1, 2], np.int64), (3, 1, 2), iter([3, 1, 2])],
)
def test_tokens_of_any_form_are_taken(tokens: Any) -> None:
    assert Prefix(tokens).elements == np.array([3, 1, 2], np.int32).tobytes()


@pytest.mark.parametrize("tokens", [[-1], [1, 2**31], ["a"], [1.5], np.array([0.5]), np.array([2**40])])
def test_wrong_tokens_are_refused(tokens: Any) -> None:
    with pytest.raises(ValueError):
        Prefix(tokens)


@pytest.mark.parametrize(
    "media",
    [
        [Media(4, b"", 1, 1)],
        [Media(-1, b"", 1, 1)],
        [Media(2, b"", 1, 1), Media(1, b"", 1, 1)],
        [Media(0, b"", 0, 1)],
        [Media(0, b"", 1, 0)],
    ],
)
def test_wrong_media_are_refused(media: list[Media]) -> None:
    with pytest.raises(ValueError, match="a medium"):
        Prefix([1, 2, 3], media)
