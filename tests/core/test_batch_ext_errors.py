"""Extended batches that are refused: rules that llama.cpp asserts, or takes for granted."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy.core._handle import live_handles
from llamacy.core.adapter import adapters_set
from llamacy.core.batch import Batch
from llamacy.core.batch_ext import DecisionOrder, ExtendedBatch
from llamacy.core.context import Context
from llamacy.core.control_vector import control_vector_set
from llamacy.core.model import Model
from llamacy.core.process import process
from llamacy.errors import (
    BatchFullError,
    ClosedError,
    ConcurrentUseError,
    InUseError,
    InvalidBatchError,
    MemorySlotError,
)
from tests.core.test_adapter import EXACT
from tests.core.test_batch_ext import TOKENS, fill, rows
from tests.helpers import data
from tests.helpers.reference import Reference
from tests.helpers.threads import held_in_process


@pytest.fixture
def context(make_model: Callable[..., Any], make_context: Callable[..., Any]) -> Any:
    return make_context(make_model("llama.gguf"), n_batch=16, n_seq_max=2, **EXACT)


@pytest.fixture
def batch(context: Any) -> Any:
    with ExtendedBatch(context) as batch:
        yield batch


def assert_usable(batch: ExtendedBatch) -> None:
    """Check that a cleared batch computes what it should on a cleared memory."""
    batch.clear()
    batch.context.memory.clear()
    fill(batch, TOKENS)
    process(batch)
    expected = Reference(data("llama.gguf")).logits(TOKENS)
    assert np.abs(rows(batch.context, len(TOKENS)) - expected).max() <= 1e-3


@pytest.mark.parametrize("seq_id", [-1, 2, 256, 2**31 - 1])
def test_unknown_sequence_is_refused_and_adds_nothing(batch: ExtendedBatch, seq_id: int) -> None:
    index = batch.add_token(0, 1)
    for refused in (
        lambda: batch.add(seq_id),
        lambda: batch.add_token(seq_id, 1),
        lambda: batch.add_embd(seq_id, np.zeros(64, np.float32)),
        lambda: batch.add_seq(index, seq_id),
    ):
        with pytest.raises(ValueError, match="sequence"):
            refused()
    assert len(batch) == 1
    process(batch)


@pytest.mark.parametrize("token", [-1, 288, 2**31 - 1])
def test_unknown_token_is_refused_and_adds_nothing(batch: ExtendedBatch, token: int) -> None:
    with pytest.raises(ValueError, match="vocabulary"):
        batch.add_token(0, token)
    assert len(batch) == 0
    batch.add_token(0, 5)
    process(batch)


def test_full_batch_takes_no_more(batch: ExtendedBatch) -> None:
    assert batch.capacity == 16
    fill(batch, [5] * 16)
    for refused in (
        lambda: batch.add(0),
        lambda: batch.add_token(0, 5),
        lambda: batch.add_embd(0, np.zeros(64, np.float32)),
    ):
        with pytest.raises(BatchFullError):
            refused()
    assert len(batch) == 16
    process(batch)


@pytest.mark.parametrize("index", [-1, 1, 2**31 - 1])
def test_unknown_entry_is_refused(batch: ExtendedBatch, index: int) -> None:
    batch.add_token(0, 5)
    row = np.zeros(64, np.float32)
    for refused in (
        lambda: batch.set_pos(index, 0),
        lambda: batch.set_output(index),
        lambda: batch.add_seq(index, 1),
        lambda: batch.set_embd_token(index, row),
        lambda: batch.set_embd_state(index, row),
        lambda: batch.set_decision_order(index, DecisionOrder.OPTION),
    ):
        with pytest.raises(IndexError):
            refused()


def test_empty_batch_is_refused(batch: ExtendedBatch) -> None:
    for kind in ("decode", "encode"):
        with pytest.raises(InvalidBatchError):
            process(batch, kind)


def test_entry_that_stayed_empty_is_refused(batch: ExtendedBatch) -> None:
    batch.add(0)
    with pytest.raises(InvalidBatchError):
        process(batch)
    assert_usable(batch)


@pytest.mark.parametrize("width", [0, 1, 63, 65, 128])
def test_embedding_of_wrong_width_spoils_batch_until_clear(batch: ExtendedBatch, width: int) -> None:
    batch.add_embd(0, np.zeros(64, np.float32))
    with pytest.raises(InvalidBatchError, match="64"):
        batch.add_embd(0, np.zeros(width, np.float32))
    for refused in (lambda: batch.add_token(0, 5), lambda: batch.add(0), lambda: process(batch)):
        with pytest.raises(InvalidBatchError, match="clear"):
            refused()
    assert_usable(batch)


@pytest.mark.parametrize("width", [0, 1, 63, 65])
def test_embedding_of_wrong_width_for_entry_changes_nothing(batch: ExtendedBatch, width: int) -> None:
    index = batch.add(0)
    with pytest.raises(InvalidBatchError):
        batch.set_embd_token(index, np.zeros(width, np.float32))
    batch.set_embd_token(index, np.zeros(64, np.float32))
    process(batch)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32])
def test_embedding_of_wrong_type_is_refused(batch: ExtendedBatch, dtype: type) -> None:
    with pytest.raises(ValueError, match="float32"):
        batch.add_embd(0, np.zeros(64, dtype))
    with pytest.raises(ValueError, match="float32"):
        batch.add_embd(0, np.zeros(128, np.float32)[::2])
    assert len(batch) == 0


def test_embeddings_out_of_order_or_twice_are_refused(batch: ExtendedBatch) -> None:
    # native code would read them as if they were in order
    row = np.zeros(64, np.float32)
    first, second = batch.add(0), batch.add(0)
    batch.set_embd_token(second, row)
    for index in (first, second):
        with pytest.raises(InvalidBatchError, match="already"):
            batch.set_embd_token(index, row)
    assert_usable(batch)


def test_tokens_with_embeddings_beside_tokens_without_are_refused(batch: ExtendedBatch) -> None:
    batch.set_embd_token(batch.add_token(0, 5), np.zeros(64, np.float32))
    batch.add_token(0, 6)
    with pytest.raises(InvalidBatchError) as caught:
        process(batch)
    assert caught.value.log
    assert_usable(batch)


def test_state_for_ordinary_context_is_refused(batch: ExtendedBatch) -> None:
    index = batch.add_token(0, 5)
    with pytest.raises(InvalidBatchError, match="others take none"):
        batch.set_embd_state(index, np.zeros(64, np.float32))
    process(batch)


def test_multi_token_prediction_without_states_is_refused(
    make_model: Callable[..., Any], make_context: Callable[..., Any]
) -> None:
    # the graph asserts that there are some
    model = make_model("qwen35_mtp.gguf", load_mtp=True)
    head = make_context(model, ctx_type="MTP", ctx_other=make_context(model, **EXACT), **EXACT)
    with Batch(1) as ordinary:
        ordinary.add(5, 0)
        with pytest.raises(InvalidBatchError, match="hidden state"):
            head.decode(ordinary)
    head.warm_up()
    with ExtendedBatch(head) as batch:
        batch.add_token(0, 5)
        with pytest.raises(InvalidBatchError, match="hidden state"):
            process(batch)
        with pytest.raises(InvalidBatchError):
            batch.set_embd_state(0, np.zeros(model.n_embd_out - 1, np.float32))
        batch.set_embd_state(0, np.zeros(model.n_embd_out, np.float32))
        with pytest.raises(InvalidBatchError, match="already"):
            batch.set_embd_state(0, np.zeros(model.n_embd_out, np.float32))
        process(batch)
        # tokens and embeddings can't be mixed here either
        batch.clear()
        batch.set_embd_state(batch.add_token(0, 5), np.zeros(model.n_embd_out, np.float32))
        batch.set_embd_state(batch.add_embd(0, np.zeros(model.n_embd, np.float32)), np.zeros(64, np.float32))
        for index in range(2):
            batch.set_pos(index, 1 + index if index == 0 else [2, 2, 2, 2])
        with pytest.raises(InvalidBatchError):
            process(batch)


@pytest.mark.parametrize("pos", [-1, 2**31 - 1, 2**40, [0, 0], [], [0, 0, 0, 0]])
def test_wrong_position_is_refused(batch: ExtendedBatch, pos: Any) -> None:
    batch.add_token(0, 5)
    with pytest.raises((ValueError, OverflowError)):
        batch.set_pos(0, pos)
    process(batch)


@pytest.mark.parametrize("positions", [[0, 0], [1, 0], [0, 2], [5, 5, 6], [0, 1, 1]])
def test_positions_out_of_order_are_refused(batch: ExtendedBatch, positions: list[int]) -> None:
    for pos in positions:
        batch.set_pos(batch.add_token(0, 5), pos)
    with pytest.raises(InvalidBatchError):
        process(batch)
    assert batch.context.memory.seq_pos_max(0) == -1
    assert_usable(batch)


def test_position_that_memory_has_already_is_refused(batch: ExtendedBatch) -> None:
    fill(batch, TOKENS)
    process(batch)
    for pos in (0, 5, 7):
        batch.clear()
        batch.set_pos(batch.add_token(0, 5), pos)
        with pytest.raises(InvalidBatchError) as caught:
            process(batch)
        assert caught.value.memory_restored
        assert batch.context.memory.seq_pos_max(0) == 5


def test_image_embedding_needs_its_four_positions(
    make_model: Callable[..., Any], make_context: Callable[..., Any]
) -> None:
    context = make_context(make_model("qwen35.gguf"), **EXACT)
    with ExtendedBatch(context) as batch:
        index = batch.add_embd(0, np.zeros(context.model.n_embd, np.float32))
        with pytest.raises(InvalidBatchError, match="four positions"):
            process(batch)
        for wrong in (0, [0], [0, 0, 0], [0, 0, 0, -1]):
            with pytest.raises(ValueError, match="position"):
                batch.set_pos(index, wrong)
        batch.set_pos(index, [0, 0, 0, 0])
        batch.set_output(index)
        process(batch)
        assert np.isfinite(np.array(context.logits(0))).all()


def test_learned_positions_past_their_end_are_refused(
    make_model: Callable[..., Any], make_context: Callable[..., Any], bert_path: Path
) -> None:
    context = make_context(make_model(bert_path), n_ctx=64, embeddings=True)
    with ExtendedBatch(context) as batch:
        batch.set_pos(batch.add_token(0, 5), 64)
        with pytest.raises(InvalidBatchError, match="64"):
            process(batch)
        batch.set_pos(0, 63)
        process(batch)


def test_encoding_with_decoder_is_refused(batch: ExtendedBatch) -> None:
    fill(batch, TOKENS)
    with pytest.raises(InvalidBatchError, match="no encoder"):
        process(batch, "encode")
    assert_usable(batch)


def test_non_causal_batch_larger_than_micro_batch_is_refused(
    make_model: Callable[..., Any], make_context: Callable[..., Any], bert_path: Path
) -> None:
    context = make_context(make_model("llama.gguf"), n_batch=16, n_ubatch=4, **EXACT)
    context.causal_attn = False
    bert = make_context(make_model(bert_path), n_ctx=64, n_batch=16, n_ubatch=4, embeddings=True)
    for limited in (context, bert):
        with ExtendedBatch(limited) as batch:
            n = limited.n_ubatch
            fill(batch, [5] * (n + 1))
            with pytest.raises(InvalidBatchError, match="n_ubatch"):
                process(batch)
            batch.clear()
            fill(batch, [5] * n)
            process(batch)


def test_more_outputs_than_allowed_are_refused(
    make_model: Callable[..., Any], make_context: Callable[..., Any]
) -> None:
    context = make_context(make_model("llama.gguf"), n_outputs_max=2, **EXACT)
    with ExtendedBatch(context) as batch:
        fill(batch, TOKENS)
        with pytest.raises(InvalidBatchError, match="n_outputs_max"):
            process(batch)
        for index in range(4):
            batch.set_output(index, False)
        process(batch)


def test_memory_without_room_is_reported_and_unchanged(
    make_model: Callable[..., Any], make_context: Callable[..., Any]
) -> None:
    context = make_context(make_model("llama.gguf"), **(EXACT | {"n_ctx": 256}))
    with ExtendedBatch(context) as batch:
        fill(batch, [5] * 200)
        process(batch)
        with pytest.raises(MemorySlotError):
            process(batch)
        assert context.memory.seq_pos_max(0) == 199


def test_decode_that_would_move_views_is_refused(batch: ExtendedBatch) -> None:
    fill(batch, [5])
    process(batch)
    view = memoryview(batch.context.logits(0))
    batch.clear()
    fill(batch, TOKENS)
    with pytest.raises(BufferError):
        process(batch)
    assert batch.context.memory.seq_pos_max(0) == 0
    view.release()
    process(batch)


@pytest.mark.parametrize("kind", ["", "both", None, 1])
def test_unknown_kind_is_refused(batch: ExtendedBatch, kind: Any) -> None:
    fill(batch, [5])
    with pytest.raises(ValueError, match="kind"):
        process(batch, kind)


@pytest.mark.parametrize("order", [-1, 5, 2**31])
def test_unknown_decision_order_is_refused(batch: ExtendedBatch, order: int) -> None:
    batch.add_token(0, 5)
    with pytest.raises(ValueError, match="DecisionOrder"):
        batch.set_decision_order(0, order)
    # a model without such a head does not look at it
    batch.set_decision_order(0, DecisionOrder.QUESTION_CHOICE)
    process(batch)


def test_closed_batch_is_refused(context: Any) -> None:
    batch = ExtendedBatch(context)
    batch.add_token(0, 5)
    assert "1 of 16 entries" in repr(batch)
    batch.close()
    batch.close()
    assert batch.closed
    assert (len(batch), repr(batch)) == (0, "<ExtendedBatch closed>")
    for refused in (
        lambda: batch.add(0),
        lambda: batch.add_token(0, 5),
        lambda: batch.clear(),
        lambda: batch.set_output(0),
        lambda: process(batch),
    ):
        with pytest.raises(ClosedError):
            refused()


def test_closing_context_closes_its_batches(make_model: Callable[..., Any], make_context: Callable[..., Any]) -> None:
    context = make_context(make_model("llama.gguf"), **EXACT)
    batch = ExtendedBatch(context)
    batch.add_token(0, 5)
    context.close()
    assert batch.closed
    with pytest.raises(ClosedError):
        process(batch)
    with pytest.raises(ClosedError):
        ExtendedBatch(context)


def test_batch_keeps_its_context_and_model_alive() -> None:
    before = live_handles()
    batch = ExtendedBatch(Context(Model(data("llama.gguf")), n_threads=1, n_threads_batch=1, **EXACT))
    gc.collect()
    fill(batch, TOKENS)
    process(batch)
    del batch
    gc.collect()
    assert live_handles() == before


def test_batch_in_use_or_context_in_use_is_refused(
    make_model: Callable[..., Any], make_context: Callable[..., Any], tmp_path: Path
) -> None:
    context = make_context(make_model("llama.gguf"), embeddings=True, **EXACT)
    blob = context.state.seq_get(0)
    with ExtendedBatch(context) as batch, ExtendedBatch(context) as other:
        batch.add_token(0, 5)
        other.add_token(0, 5)
        with held_in_process(batch):
            for refused in (
                lambda: batch.clear(),
                lambda: batch.add(0),
                lambda: batch.close(),
                lambda: process(batch),
            ):
                with pytest.raises(InUseError):
                    refused()
            for refused in (
                lambda: process(other),
                lambda: ExtendedBatch(context),
                lambda: context.state.get(),
                lambda: context.state.set(b""),
                lambda: context.state.seq_get(0, 2),
                lambda: context.state.seq_set(0, blob),
                lambda: context.state.save_file(tmp_path / "state"),
                lambda: adapters_set(context, []),
                lambda: control_vector_set(context, None),
            ):
                with pytest.raises(ConcurrentUseError):
                    refused()
            with pytest.raises(InUseError):
                context.close()
        assert context.memory.seq_pos_max(0) == 0
        process(other)
    assert not list(tmp_path.iterdir())
