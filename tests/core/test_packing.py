"""How texts are shared out over batches."""

from __future__ import annotations

from array import array
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamacy.core.packing import plan_packs


def packs(lengths: list[int], **limits: Any) -> list[list[int]]:
    order, ends = plan_packs(array("i", lengths), **limits)
    return [list(order[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]


def cost(plan: list[list[int]], lengths: list[int], best_tokens: float) -> float:
    return sum(1 + (sum(lengths[text] for text in pack) / best_tokens) ** 2 for pack in plan)


def least_cost(lengths: list[int], max_tokens: int, max_texts: int, best_tokens: float) -> float:
    """Return the cost of the best of all ways to cut the ordered texts."""
    ordered = sorted(lengths)
    n = len(ordered)
    costs = []
    for n_cuts in range(n):
        for cuts in combinations(range(1, n), n_cuts):
            parts = [ordered[a:b] for a, b in zip((0, *cuts), (*cuts, n), strict=True)]
            if all(len(part) <= max_texts and (len(part) == 1 or sum(part) <= max_tokens) for part in parts):
                costs.append(sum(1 + (sum(part) / best_tokens) ** 2 for part in parts))
    return min(costs)


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=9),
    max_tokens=st.integers(1, 120),
    max_texts=st.integers(1, 5),
    best_tokens=st.floats(1, 500),
)
def test_plan_costs_the_least_of_all_ways_to_cut(
    lengths: list[int], max_tokens: int, max_texts: int, best_tokens: float
) -> None:
    plan = packs(lengths, max_tokens=max_tokens, max_texts=max_texts, best_tokens=best_tokens)
    assert sorted(text for pack in plan for text in pack) == list(range(len(lengths)))
    assert all(len(pack) <= max_texts for pack in plan)
    assert all(len(pack) == 1 or sum(lengths[text] for text in pack) <= max_tokens for pack in plan)
    assert cost(plan, lengths, best_tokens) == pytest.approx(least_cost(lengths, max_tokens, max_texts, best_tokens))


def test_texts_come_in_order_of_their_length_and_equal_ones_as_given() -> None:
    order, _ = plan_packs(array("i", [3, 1, 3, 2, 1]), max_tokens=512, max_texts=64, best_tokens=100)
    assert list(order) == [1, 4, 3, 0, 2]


def test_short_texts_fill_batches_of_the_best_size() -> None:
    plan = packs([10] * 100, max_tokens=512, max_texts=64, best_tokens=200)
    assert {len(pack) for pack in plan} == {20}


def test_a_text_that_is_too_long_is_alone() -> None:
    assert packs([5, 900, 5], max_tokens=512, max_texts=64, best_tokens=200) == [[0, 2], [1]]


def test_no_texts_need_no_batch() -> None:
    order, ends = plan_packs(array("i"), max_tokens=1, max_texts=1, best_tokens=1)
    assert len(order) == len(ends) == 0


def test_many_texts_are_planned_as_few_are() -> None:
    lengths = [1 + (7 * index) % 90 for index in range(20_000)]
    plan = packs(lengths, max_tokens=512, max_texts=64, best_tokens=180)
    assert sorted(text for pack in plan for text in pack) == list(range(20_000))


@pytest.mark.parametrize(
    "limits",
    [
        {"max_tokens": 0, "max_texts": 1, "best_tokens": 1.0},
        {"max_tokens": 1, "max_texts": 0, "best_tokens": 1.0},
        {"max_tokens": 1, "max_texts": 1, "best_tokens": 0.0},
        {"max_tokens": 1, "max_texts": 1, "best_tokens": float("nan")},
    ],
)
def test_limits_out_of_range_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be from 1"):
        plan_packs(array("i", [1]), **limits)
