"""Log-probabilities of rows, against float64 arithmetic."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from llamacy.core.batch import Batch
from llamacy.core.logprobs import LogprobRecord, log_softmax_top
from llamacy.errors import SamplerError

SIZES = [1, 2, 15, 63, 64, 65, 128, 1000, 49_152]


def reference(row: NDArray[np.float32], k: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the log-softmax in float64, and the `k` highest tokens, equal ones by token id."""
    x = row.astype(np.float64)
    high = x.max()
    logprobs = x - high - np.log(np.exp(x - high).sum())
    return logprobs, np.argsort(-x, kind="stable")[:k]


def check(row: NDArray[np.float32], token: int, k: int) -> None:
    expected, order = reference(row, k)
    logprob, ids, logprobs = log_softmax_top(row, token, k)
    assert logprob == pytest.approx(expected[token], rel=1e-6, abs=1e-5)
    assert ids.tolist() == order.tolist()
    np.testing.assert_allclose(np.asarray(logprobs), expected[order], rtol=1e-6, atol=1e-5)


def rows(n: int) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(n)
    normal = rng.normal(0, 3, n)
    few = np.full(n, -np.inf)
    few[rng.integers(0, n, max(n // 20, 1))] = rng.normal(0, 3, max(n // 20, 1))
    made = {
        "normal": normal,
        "flat": np.zeros(n),
        "ties": np.round(normal),
        "plateau": np.where(rng.random(n) < 0.5, 2.5, normal),
        "peak": np.where(np.arange(n) == n // 2, 60.0, normal),
        "steep": normal * 100,
        "high": normal + 1e6,
        "low": normal - 1e6,
        "huge": normal * 1e30,
        "rising": np.linspace(-20, 20, n),
        "falling": np.linspace(20, -20, n),
        "few": few,
        "one": np.where(np.arange(n) == n - 1, -3.0, -np.inf),
    }
    return {name: row.astype(np.float32) for name, row in made.items()}


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", list(rows(2)))
def test_log_softmax_is_that_of_float64(n: int, kind: str) -> None:
    row = rows(n)[kind]
    for k in {0, min(1, n), min(5, n), min(40, n), min(n, 800), min(n, 3000)}:
        for token in {0, n // 2, n - 1, int(row.argmax())}:
            check(row, token, k)


def test_all_tokens_can_be_asked_for_in_order() -> None:
    row = rows(1000)["few"]
    check(row, 3, 1000)
    check(rows(5000)["normal"], 3, 5000)
    check(rows(5000)["ties"], 3, 5000)


@pytest.mark.parametrize("offset", range(9))
def test_row_may_begin_anywhere_in_memory(offset: int) -> None:
    row = rows(1000)["normal"]
    check(row[offset:], 7, 20)
    check(row[: 900 + offset], 7, 20)


@pytest.mark.parametrize("place", [0, 1, 63, 64, 127, 128, 199])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.nan])
def test_row_with_what_is_no_number_is_refused(place: int, bad: float) -> None:
    row = np.zeros(200, np.float32)
    row[place] = bad
    with pytest.raises(SamplerError, match="not a number or infinite"):
        log_softmax_top(row, 0)
    with pytest.raises(SamplerError, match="not a number or infinite"):
        log_softmax_top(row, 0, 200)


@pytest.mark.parametrize("n", [1, 64, 65])
def test_row_without_any_token_left_is_refused(n: int) -> None:
    with pytest.raises(SamplerError, match="every token is ruled out"):
        log_softmax_top(np.full(n, -np.inf, np.float32), 0, 1)


@pytest.mark.parametrize(
    ("n", "token", "k", "match"),
    [
        (5, 5, 0, "no token 5"),
        (5, -1, 0, "no token -1"),
        (0, 0, 0, "no token 0"),
        (5, 2**40, 0, "no token 1099511627776"),
        (5, 0, 6, "no 6 most probable"),
        (5, 0, -1, "no -1 most probable"),
    ],
)
def test_what_the_row_has_not_is_refused(n: int, token: int, k: int, match: str) -> None:
    with pytest.raises(SamplerError, match=match):
        log_softmax_top(np.zeros(n, np.float32), token, k)


def test_row_of_another_type_is_refused() -> None:
    with pytest.raises(ValueError, match="dtype"):
        log_softmax_top(np.zeros(5), 0)
    with pytest.raises(TypeError):
        log_softmax_top(None, 0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="contiguous"):
        log_softmax_top(np.zeros(10, np.float32)[::2], 0)


@pytest.mark.parametrize("n_top", [0, 1, 7])
def test_record_keeps_what_the_rows_said(n_top: int) -> None:
    record = LogprobRecord(n_top)
    kinds = [row for row in rows(300).values() if np.isfinite(row).all()]
    total = 0.0
    for i in range(200):
        row, token = kinds[i % len(kinds)], int(kinds[i % len(kinds)].argmax()) if i % 2 else 299
        record.append(row, token)
        total += float(log_softmax_top(row, token)[0])
    assert len(record) == 200
    assert record.n_top == n_top
    assert record.sum == pytest.approx(total)
    for i, (token, logprob, ids, logprobs) in enumerate(record):
        row = kinds[i % len(kinds)]
        assert token == record.tokens[i] == (int(row.argmax()) if i % 2 else 299)
        assert (logprob, ids, logprobs) == log_softmax_top(row, token, n_top)
        assert record.logprobs[i] == logprob
        assert type(ids) is type(logprobs) is array
    assert record[-1] == record[199]


def test_sum_is_the_logarithm_of_the_probability_of_the_text() -> None:
    record = LogprobRecord()
    assert record.sum == 0
    probabilities = np.float32([0.5, 0.25, 0.125, 0.125])
    for token in (0, 3, 1):
        record.append(np.log(probabilities), token)
    assert record.sum == pytest.approx(np.log(0.5 * 0.125 * 0.25), abs=1e-6)
    assert np.exp(record.logprobs) == pytest.approx([0.5, 0.125, 0.25], abs=1e-6)


def test_record_is_left_alone_by_a_row_that_is_refused() -> None:
    record = LogprobRecord(2)
    record.append(np.zeros(3, np.float32), 1)
    for row, token in (([0, np.nan, 0], 0), ([-np.inf] * 3, 0), ([0, 0, 0], 3), ([0], 0), ([], 0)):
        with pytest.raises(SamplerError):
            record.append(np.asarray(row, np.float32), token)
    assert len(record) == 1
    assert record.tokens.tolist() == [1]
    assert record.sum == pytest.approx(-np.log(3), abs=1e-6)


def test_empty_record_has_nothing() -> None:
    record = LogprobRecord(3)
    assert len(record) == 0
    assert list(record) == []
    assert record.tokens.tolist() == []
    assert record.logprobs.tolist() == []
    for index in (0, -1, 2**40):
        with pytest.raises(IndexError):
            record[index]


@pytest.mark.parametrize("n_top", [-1, 2**31])
def test_number_of_top_tokens_that_cannot_be_is_refused(n_top: int) -> None:
    with pytest.raises(ValueError, match="n_top"):
        LogprobRecord(n_top)


def test_more_top_tokens_than_the_row_has_are_refused_before_memory_is_taken() -> None:
    record = LogprobRecord(2**31 - 1)
    with pytest.raises(SamplerError, match="no 2147483647 most probable"):
        record.append(np.zeros(3, np.float32), 0)


def test_output_row_of_a_context_is_read_in_place(micro_model: Any, make_context: Any) -> None:
    context = make_context(micro_model)
    batch = Batch(4)
    for pos in range(4):
        batch.add(1000 + pos, pos, logits=True)
    context.decode(batch)
    record = LogprobRecord(5)
    for index in range(4):
        row = np.asarray(context.outputs.logits(index)).copy()
        check(row, 17, 20)
        record.append(context.outputs.logits(index), 17)
        expected, order = reference(row, 5)
        assert record[index][1] == pytest.approx(expected[17], abs=1e-5)
        assert record[index][2].tolist() == order.tolist()
