"""Candidates that are wrong, and uses that would leave their memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llamacy.core.candidates import Candidates
from llamacy.core.sampler import Sampler
from llamacy.errors import SamplerError


@pytest.mark.parametrize("logits", [[], np.empty(0, np.float32)])
def test_no_candidates_are_refused(logits: Any) -> None:
    with pytest.raises(ValueError, match="at least one"):
        Candidates(logits)


def test_ids_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="3 logits but 2 ids"):
        Candidates([1, 2, 3], [1, 2])


@pytest.mark.parametrize("logits", ["abc", 5, [None], np.zeros((2, 2), np.float32), {"a": 1}])
def test_what_is_no_row_of_numbers_is_refused(logits: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        Candidates(logits)


@pytest.mark.parametrize("index", [3, -4, 1 << 40])
def test_index_out_of_range_raises(index: int) -> None:
    with pytest.raises(IndexError):
        Candidates([1, 2, 3])[index]


@pytest.mark.parametrize("size", [0, -1, 4])
def test_size_cannot_grow_or_vanish(size: int) -> None:
    candidates = Candidates([1, 2, 3])
    with pytest.raises(ValueError, match="1 to 3"):
        candidates.size = size


@pytest.mark.parametrize("selected", [-2, 3])
def test_selected_out_of_range_is_refused(selected: int) -> None:
    candidates = Candidates([1, 2, 3])
    with pytest.raises(ValueError, match="from 0 to 2"):
        candidates.selected = selected


def test_fill_that_must_move_raises_while_a_view_is_alive() -> None:
    candidates = Candidates([1, 2, 3])
    view = np.asarray(candidates)
    with pytest.raises(BufferError, match="1 views"):
        candidates.fill(range(4))
    assert list(view["logit"]) == [1, 2, 3]
    del view
    candidates.fill(range(4))


@pytest.mark.parametrize("logit", [float("nan"), float("inf"), 1e9])
@pytest.mark.parametrize(
    "sampler",
    [Sampler.top_k(200), Sampler.top_p(0.5), Sampler.typical(0.5), Sampler.dist(1), Sampler.greedy()],
    ids=lambda sampler: sampler.kind,
)
def test_logits_that_cannot_be_ordered_are_refused(sampler: Sampler, logit: float) -> None:
    # std::sort leaves the array when a comparison with NaN is in it
    logits = np.random.default_rng(0).normal(size=5000).astype(np.float32)
    logits[::3] = logit
    candidates = Candidates(logits)
    with pytest.raises(SamplerError, match="not a number or above"):
        sampler.apply(candidates)
    assert len(candidates) == 5000


@pytest.mark.parametrize("ids", [[0, 1, 100], [0, -1, 2]])
def test_token_ids_outside_of_the_vocabulary_are_refused(ids: list[int]) -> None:
    with Sampler.logit_bias(100, {1: 1.0}) as sampler, pytest.raises(SamplerError, match="outside of 0 to 99"):
        sampler.apply(Candidates([1.0, 2.0, 3.0], ids))
    with Sampler.greedy() as sampler:
        if min(ids) < 0:
            with pytest.raises(SamplerError, match="negative"):
                sampler.apply(Candidates([1.0, 2.0, 3.0], ids))
        else:
            sampler.apply(Candidates([1.0, 2.0, 3.0], ids))


def test_all_candidates_ruled_out_is_an_error() -> None:
    for sampler in (Sampler.greedy(), Sampler.dist(1), Sampler.mirostat_v2(1), Sampler.mirostat(4, 1)):
        with sampler, pytest.raises(SamplerError, match="ruled out"):
            sampler.apply(Candidates([-np.inf] * 4))
