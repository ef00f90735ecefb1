"""Candidates: what they hold, and how others see it."""

from __future__ import annotations

from array import array

import numpy as np
import pytest

from llamacy.core.candidates import Candidates
from llamacy.core.sampler import Sampler

DTYPE = np.dtype([("id", "<i4"), ("logit", "<f4"), ("p", "<f4")])


@pytest.mark.parametrize(
    "logits",
    [
        [1.0, 3.0, 2.0],
        (1, 3, 2),
        array("f", [1, 3, 2]),
        array("d", [1, 3, 2]),
        np.array([1, 3, 2], np.float32),
        np.array([1, 3, 2], np.float64),
        memoryview(np.array([1, 3, 2], np.float32)),
        np.array([1, 0, 3, 0, 2], np.float32)[::2],
    ],
    ids=lambda logits: type(logits).__name__,
)
def test_candidates_take_any_numbers(logits: object) -> None:
    candidates = Candidates(logits)  # type: ignore[arg-type]
    assert list(candidates) == [(0, 1.0, 0.0), (1, 3.0, 0.0), (2, 2.0, 0.0)]
    assert (len(candidates), candidates.selected, candidates.token, candidates.sorted) == (3, -1, None, False)


@pytest.mark.parametrize("ids", [[7, 5, 9], array("i", [7, 5, 9]), np.array([7, 5, 9])])
def test_candidates_take_ids(ids: object) -> None:
    candidates = Candidates([0.5, 1.5, 2.5], ids)  # type: ignore[arg-type]
    assert list(candidates.ids) == [7, 5, 9]
    assert candidates[-1] == (9, 2.5, 0.0)


def test_candidates_take_an_output_row_without_changing_it() -> None:
    row = np.arange(5, dtype=np.float32)
    row.flags.writeable = False
    candidates = Candidates(row)
    np.asarray(candidates)["logit"] = 0
    assert list(row) == [0, 1, 2, 3, 4]


def test_array_shares_memory_and_can_be_written() -> None:
    candidates = Candidates([1.0, 2.0, 3.0])
    view = np.asarray(candidates)
    assert view.dtype == DTYPE
    assert view.flags.writeable
    assert view.shape == (3,)
    assert np.shares_memory(view, np.asarray(candidates))
    view["logit"][1] = 9.0
    assert candidates[1] == (1, 9.0, 0.0)
    with Sampler.greedy() as sampler:
        sampler.apply(candidates)
    assert candidates.token == 1


def test_view_of_many_dimensions_is_plain() -> None:
    view = memoryview(Candidates([1.0, 2.0]))
    assert (view.format, view.itemsize, view.shape, view.readonly) == ("T{i:id:f:logit:f:p:}", 12, (2,), False)
    assert bytes(view) == np.asarray(Candidates([1.0, 2.0])).tobytes()


def test_views_survive_samplers_that_shrink_and_move_the_data() -> None:
    candidates = Candidates(np.arange(10, dtype=np.float32))
    before = np.asarray(candidates)
    with Sampler.top_k(4) as top_k, Sampler.xtc(1.0, 0.01, seed=1) as xtc:
        top_k.apply(candidates)
        middle = np.asarray(candidates)
        xtc.apply(candidates)
    after = np.asarray(candidates)
    assert (before.shape, middle.shape) == ((10,), (4,))
    assert list(middle["id"]) == [9, 8, 7, 6] == list(before["id"][:4])
    # xtc moves the start of the array
    assert len(after) < 4
    assert np.shares_memory(after, middle)
    assert after["id"][-1] == 6
    del candidates
    assert before["logit"].sum() == pytest.approx(middle["logit"].sum() + before["logit"][4:].sum())


def test_sorted_flag_is_put_right_after_writing() -> None:
    candidates = Candidates([1.0, 2.0, 3.0])
    with Sampler.top_k(3) as top_k, Sampler.top_k(1) as top_1:
        top_k.apply(candidates)
        assert candidates.sorted
        np.asarray(candidates)["logit"] = [0.0, 7.0, 1.0]
        top_1.apply(candidates)
    assert list(candidates) == [(1, 7.0, 0.0)]


def test_fill_reuses_memory() -> None:
    candidates = Candidates(np.arange(10, dtype=np.float32))
    with Sampler.top_k(3) as sampler:
        sampler.apply(candidates)
    view = np.asarray(candidates)
    candidates.fill([5.0, 6.0], [1, 2])
    assert list(candidates) == [(1, 5.0, 0.0), (2, 6.0, 0.0)]
    assert np.shares_memory(view, np.asarray(candidates))
    del view
    candidates.fill(range(100))
    assert (len(candidates), candidates.selected, candidates.sorted) == (100, -1, False)


def test_copy_is_independent() -> None:
    candidates = Candidates([1.0, 2.0, 3.0], [4, 5, 6])
    copy = candidates.copy()
    np.asarray(copy)["logit"] = 0
    assert list(candidates.logits) == [1.0, 2.0, 3.0]
    assert list(copy.ids) == [4, 5, 6]
    assert list(copy.logits) == [0.0] * 3


def test_size_and_selected_can_be_set() -> None:
    candidates = Candidates([1.0, 2.0, 3.0], [4, 5, 6])
    candidates.selected = 2
    assert candidates.token == 6
    candidates.size = 2
    assert (len(candidates), candidates.selected) == (2, -1)
    assert repr(candidates) == "<Candidates size=2 selected=-1 sorted=False>"
