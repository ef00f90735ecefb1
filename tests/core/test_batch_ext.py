"""Extended batches: what a context computes with them, against NumPy and against ordinary batches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy.core.batch import Batch
from llamacy.core.batch_ext import ExtendedBatch
from llamacy.core.process import process
from tests.core.test_adapter import EXACT
from tests.helpers import BOS, data
from tests.helpers.reference import Reference

TOKENS = [BOS, 268, 265, 272, 272, 275]
ARCH = json.loads(data("arch.json").read_text())
PROMPT: list[int] = ARCH["prompt"]


@pytest.fixture
def context(make_model: Callable[..., Any], make_context: Callable[..., Any]) -> Any:
    return make_context(make_model("llama.gguf"), **EXACT)


def rows(context: Any, n: int) -> np.ndarray:
    return np.array([np.array(context.logits(i)) for i in range(n)])


def fill(batch: ExtendedBatch, tokens: list[int], seq_id: int = 0) -> list[int]:
    """Add tokens, all of them outputs."""
    indices = [batch.add_token(seq_id, token) for token in tokens]
    for index in indices:
        batch.set_output(index)
    return indices


def test_tokens_without_positions_equal_reference(context: Any) -> None:
    with ExtendedBatch(context) as batch:
        assert (batch.n_tokens, batch.capacity, batch.context) == (0, context.n_batch, context)
        assert fill(batch, TOKENS) == list(range(len(TOKENS)))
        assert (len(batch), batch.n_tokens, batch.n_outputs) == (6, 6, 6)
        process(batch)
        expected = Reference(data("llama.gguf")).logits(TOKENS)
        assert np.abs(rows(context, len(TOKENS)) - expected).max() <= 1e-3
        assert context.memory.seq_pos_max(0) == len(TOKENS) - 1


def test_same_batch_again_goes_on_from_memory(context: Any) -> None:
    with ExtendedBatch(context) as batch:
        fill(batch, TOKENS)
        process(batch)
        process(batch)
        expected = Reference(data("llama.gguf")).logits(TOKENS * 2)[len(TOKENS) :]
        assert np.abs(rows(context, len(TOKENS)) - expected).max() <= 1e-3


def test_explicit_positions_equal_reference(context: Any) -> None:
    with ExtendedBatch(context) as batch:
        for index in fill(batch, TOKENS):
            batch.set_pos(index, 7 + index)
        process(batch)
        expected = Reference(data("llama.gguf")).logits(TOKENS, positions=range(7, 13))
        assert np.abs(rows(context, len(TOKENS)) - expected).max() <= 1e-3
        assert context.memory.seq_pos_min(0) == 7
        batch.clear()
        # after a clear, positions go on from what the memory holds
        fill(batch, [265])
        process(batch)
        assert context.memory.seq_pos_max(0) == 13


def test_only_outputs_have_rows(context: Any) -> None:
    with ExtendedBatch(context) as batch:
        indices = fill(batch, TOKENS)
        batch.set_output(indices[2], False)
        batch.set_output(indices[3], False)
        assert batch.n_outputs == 4
        process(batch, "decode")
    from llamacy.errors import OutputError

    for index in (2, 3):
        with pytest.raises(OutputError):
            context.logits(index)
    expected = Reference(data("llama.gguf")).logits(TOKENS)
    assert np.abs(np.array(context.logits(-1)) - expected[-1]).max() <= 1e-3


@pytest.mark.parametrize("name", ["llama", "target", "gemma3", "mamba", "rwkv7", "qwen35"])
def test_logits_equal_those_of_ordinary_batch(
    make_model: Callable[..., Any], make_context: Callable[..., Any], name: str
) -> None:
    model = make_model(f"{name}.gguf")
    first, second = make_context(model, **EXACT), make_context(model, **EXACT)
    with Batch(len(PROMPT)) as batch:
        batch.extend(PROMPT, 0, logits="all")
        first.decode(batch)
    with ExtendedBatch(second) as extended:
        fill(extended, PROMPT)
        process(extended)
    assert np.array_equal(rows(first, len(PROMPT)), rows(second, len(PROMPT)))


@pytest.mark.parametrize("kv_unified", [False, True])
def test_sequences_are_kept_apart(
    make_model: Callable[..., Any], make_context: Callable[..., Any], kv_unified: bool
) -> None:
    context = make_context(make_model("llama.gguf"), n_seq_max=3, kv_unified=kv_unified, **(EXACT | {"n_ctx": 768}))
    texts = {0: TOKENS, 2: list(reversed(TOKENS))}
    with ExtendedBatch(context) as batch:
        where: dict[int, list[int]] = {0: [], 2: []}
        for pair in zip(*texts.values(), strict=False):
            for seq_id, token in zip(texts, pair, strict=False):
                where[seq_id] += fill(batch, [token], seq_id)
        process(batch)
    for seq_id, indices in where.items():
        expected = Reference(data("llama.gguf")).logits(texts[seq_id])
        got = np.array([np.array(context.logits(index)) for index in indices])
        assert np.abs(got - expected).max() <= 1e-3


def test_entry_of_two_sequences_is_in_both(make_model: Callable[..., Any], make_context: Callable[..., Any]) -> None:
    context = make_context(make_model("llama.gguf"), n_seq_max=2, kv_unified=True, **EXACT)
    with ExtendedBatch(context) as batch:
        for index in fill(batch, TOKENS):
            batch.add_seq(index, 1)
            batch.add_seq(index, 1)
            batch.add_seq(index, 0)
        process(batch)
        assert [context.memory.seq_pos_max(seq_id) for seq_id in (0, 1)] == [5, 5]
        batch.clear()
        fill(batch, [265], 1)
        process(batch)
    expected = Reference(data("llama.gguf")).logits([*TOKENS, 265])
    assert np.abs(np.array(context.logits(-1)) - expected[-1]).max() <= 1e-3
    assert context.memory.seq_pos_max(0) == 5


def test_embeddings_of_tokens_equal_tokens(context: Any) -> None:
    reference = Reference(data("llama.gguf"))
    table = reference.weights["token_embd.weight"].astype(np.float32)
    with ExtendedBatch(context) as batch:
        for token in TOKENS:
            row = table[token].copy()
            batch.set_output(batch.add_embd(0, row))
            row[:] = np.nan  # the batch has a copy
        process(batch)
    assert np.abs(rows(context, len(TOKENS)) - reference.logits(TOKENS)).max() <= 1e-3


def test_tokens_and_embeddings_mixed_equal_tokens(context: Any) -> None:
    reference = Reference(data("llama.gguf"))
    table = reference.weights["token_embd.weight"].astype(np.float32)
    with ExtendedBatch(context) as batch:
        for i, token in enumerate(TOKENS):
            if i % 2:
                index = batch.add(0)
                batch.set_embd_token(index, table[token])
            else:
                index = batch.add_token(0, token)
            batch.set_output(index)
        process(batch)
    assert np.abs(rows(context, len(TOKENS)) - reference.logits(TOKENS)).max() <= 1e-3


def test_embedding_takes_rows_and_sequences(context: Any) -> None:
    row = [0.5] * 64
    with ExtendedBatch(context) as batch:
        batch.add_embd(0, row)
        batch.add_embd(0, np.full((1, 64), 0.5, np.float32))
        batch.add_embd(0, np.full((2, 32), 0.5, np.float32))
        for index in range(3):
            batch.set_output(index)
        process(batch)
    expected = Reference(data("llama.gguf")).logits([0, 0, 0], embeddings=np.full((3, 64), 0.5))
    assert np.abs(rows(context, 3) - expected).max() <= 1e-3


def test_encode_of_model_without_memory_equals_ordinary_batch(
    make_model: Callable[..., Any], make_context: Callable[..., Any], bert_path: Path
) -> None:
    model = make_model(bert_path)
    params = {"n_ctx": 64, "embeddings": True}
    first, second = make_context(model, **params), make_context(model, **params)
    tokens = [5, 6, 7, 8]
    with Batch(4) as batch:
        batch.extend(tokens, 0)
        first.encode(batch)
    for kind in ("encode", "decode"):
        with ExtendedBatch(second) as extended:
            fill(extended, tokens)
            process(extended, kind)
        assert np.array_equal(np.array(first.seq_embeddings(0)), np.array(second.seq_embeddings(0)))


def test_encoder_and_decoder_equal_ordinary_batches(
    make_model: Callable[..., Any], make_context: Callable[..., Any], t5_path: Path
) -> None:
    model = make_model(t5_path)
    first, second = make_context(model), make_context(model)
    with Batch(4) as batch:
        batch.extend([5, 6, 7, 1], 0)
        first.encode(batch)
        batch.clear()
        batch.add(0, 0, logits=True)
        first.decode(batch)
    with ExtendedBatch(second) as extended:
        fill(extended, [5, 6, 7, 1])
        process(extended, "encode")
        extended.clear()
        fill(extended, [0])
        process(extended, "decode")
    assert np.array_equal(np.array(first.logits(-1)), np.array(second.logits(-1)))


@pytest.mark.parametrize("case", [0, 1])
def test_hidden_states_of_target_drive_multi_token_prediction(
    make_model: Callable[..., Any], make_context: Callable[..., Any], case: int
) -> None:
    # the first draft of llama.cpp's own driver
    prompt = ARCH["spec_prompts"][case]
    expected = ARCH["traces"][f"mtp.case{case}.n4.p0.0"]["steps"][0]["draft"]
    model = make_model("qwen35_mtp.gguf", load_mtp=True)
    target = make_context(model, **EXACT)
    target.set_embeddings_nextn(True, masked=False)
    with ExtendedBatch(target) as batch:
        fill(batch, prompt[:-1])
        process(batch)
    hidden = np.array(target.outputs.nextn())
    assert hidden.shape == (len(prompt) - 1, model.n_embd_out)
    head = make_context(model, ctx_type="MTP", ctx_other=target, **EXACT)
    head.set_embeddings_nextn(True, masked=True)
    states = [np.zeros(model.n_embd_out, np.float32), *hidden]
    with ExtendedBatch(head) as batch:
        for token, state in zip(prompt[:-1], states, strict=False):
            batch.set_embd_state(batch.add_token(0, token), state)
        process(batch)
        token, state = prompt[-1], states[-1]
        drafted: list[int] = []
        for _ in expected:
            batch.clear()
            index = batch.add_token(0, token)
            batch.set_embd_state(index, state)
            batch.set_output(index)
            process(batch)
            token = int(np.argmax(np.array(head.logits(index))))
            state = np.array(head.outputs.nextn(index))
            drafted.append(token)
    assert drafted == expected


def test_rollback_after_process_goes_back(make_model: Callable[..., Any], make_context: Callable[..., Any]) -> None:
    context = make_context(make_model("qwen35.gguf"), n_rs_seq=4, **EXACT)
    with ExtendedBatch(context) as batch:
        fill(batch, PROMPT)
        process(batch)
        expected = np.array(context.logits(len(PROMPT) - 1))
        context.memory.seq_rm(0, len(PROMPT) - 2, -1)
        batch.clear()
        fill(batch, PROMPT[-2:])
        process(batch)
    assert np.abs(np.array(context.logits(1)) - expected).max() <= 1e-4


def test_view_of_row_shows_next_decode_that_fits(context: Any) -> None:
    with ExtendedBatch(context) as batch:
        fill(batch, TOKENS)
        process(batch)
        view = np.asarray(context.logits(0))
        before = view.copy()
        process(batch)
        assert not np.array_equal(view, before)
        del view
