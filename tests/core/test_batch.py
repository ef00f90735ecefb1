"""Batches: columns, limits, and what goes wrong."""

from __future__ import annotations

import numpy as np
import pytest

from llamacy.core.batch import Batch
from llamacy.errors import BatchFullError, ClosedError


def test_add_fills_the_columns():
    with Batch(4, n_seq_max=2) as batch:
        assert batch.add(7, 3, (0, 1), logits=True) == 0
        assert batch.add(8, 4, 1) == 1
        assert batch.tokens.tolist() == [7, 8]
        assert batch.positions.tolist() == [3, 4]
        assert batch.seq_ids == [(0, 1), (1,)]
        assert batch.outputs == [0]
        assert (len(batch), batch.n_outputs, batch.space_left) == (2, 1, 2)


@pytest.mark.parametrize(("logits", "outputs"), [("last", [2]), ("all", [0, 1, 2]), ("none", []), (b"\1\0\1", [0, 2])])
def test_extend_marks_the_outputs(logits, outputs):
    with Batch(3) as batch:
        batch.extend(np.array([7, 8, 9], np.int32), 5, logits=logits)
        assert batch.outputs == outputs
        assert batch.positions.tolist() == [5, 6, 7]


@pytest.mark.parametrize(
    "tokens", [[1, 2], (1, 2), range(1, 3), np.array([1, 2], np.int32), np.array([1, 2], np.int64)]
)
def test_extend_takes_buffers_and_sequences(tokens):
    with Batch(2) as batch:
        batch.extend(tokens, 0)
        assert batch.tokens.tolist() == [1, 2]


def test_extend_nothing_changes_nothing():
    with Batch(2) as batch:
        batch.extend([], 0)
        assert len(batch) == 0


def test_full_batch_raises_and_is_unchanged():
    with Batch(2) as batch:
        batch.add(1, 0)
        with pytest.raises(BatchFullError, match="1 of 2"):
            batch.extend([1, 2], 1)
        assert batch.tokens.tolist() == [1]
        batch.add(2, 1)
        with pytest.raises(BatchFullError):
            batch.add(3, 2)
        assert batch.tokens.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda b: b.add(2**31, 0), OverflowError),
        (lambda b: b.add("x", 0), TypeError),
        (lambda b: b.add(1, -1), ValueError),
        (lambda b: b.add(1, 0, -1), ValueError),
        (lambda b: b.add(1, 0, ()), BatchFullError),
        (lambda b: b.add(1, 0, (0, 1)), BatchFullError),
        (lambda b: b.extend([1, 2], 2**31 - 1), ValueError),
        (lambda b: b.extend([1], 0, logits="some"), ValueError),
        (lambda b: b.extend([1], 0, logits=b"\1\1"), ValueError),
        (lambda b: b.extend([2**31], 0), OverflowError),
        (lambda b: b.extend_embeddings(np.zeros((1, 4), np.float32), 0), ValueError),
        (lambda b: b.set_output(0), IndexError),
        (lambda b: b.set_output(-1), IndexError),
    ],
)
def test_wrong_entry_raises_and_leaves_the_batch_empty(call, error):
    with Batch(4) as batch:
        with pytest.raises(error):
            call(batch)
        assert len(batch) == 0


@pytest.mark.parametrize(
    "kwargs",
    [
        {"capacity": 0},
        {"capacity": -1},
        {"capacity": 2**31 - 1},
        {"capacity": 1, "n_embd": -1},
        {"capacity": 1, "n_seq_max": 0},
        {"capacity": 1, "n_seq_max": 257},
        {"capacity": 1, "n_pos_per_embd": 4},
        {"capacity": 1, "n_embd": 4, "n_pos_per_embd": 3},
    ],
)
def test_wrong_size_raises(kwargs):
    with pytest.raises(ValueError, match="must be"):
        Batch(**kwargs)


def test_batch_that_does_not_fit_into_memory_raises():
    with pytest.raises(MemoryError):
        Batch(2**27, n_embd=2**20)


def test_embeddings_with_sections_of_positions():
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    with Batch(4, n_embd=3, n_pos_per_embd=4) as batch:
        batch.extend_embeddings(rows, np.arange(8, dtype=np.int32).reshape(4, 2))
        assert batch.positions.tolist() == [0, 1]
        assert batch.tokens.tolist() == []
        with pytest.raises(ValueError, match="4 positions"):
            batch.extend_embeddings(rows, 0)
        with pytest.raises(ValueError, match="shape"):
            batch.extend_embeddings(rows, np.zeros((4, 3), np.int32))
        with pytest.raises(ValueError, match="takes embeddings"):
            batch.add(1, 0)
        assert len(batch) == 2


def test_closed_batch_raises():
    batch = Batch(1)
    batch.close()
    batch.close()
    assert batch.closed
    assert "closed" in repr(batch)
    for use in (batch.clear, lambda: batch.add(1, 0), lambda: batch.extend([1], 0), lambda: batch.tokens):
        with pytest.raises(ClosedError):
            use()


def test_clear_and_set_output():
    with Batch(2) as batch:
        batch.extend([1, 2], 0)
        batch.set_output(0)
        batch.set_output(1, False)
        assert batch.outputs == [0]
        batch.clear()
        assert (len(batch), batch.space_left) == (0, 2)
        assert repr(batch) == "<Batch 0 of 2 tokens, 0 outputs>"
