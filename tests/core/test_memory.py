"""Sequence operations on every kind of memory, against llama.cpp's goldens and against evaluating anew."""

from __future__ import annotations

import numpy as np
import pytest

from llamacy.core.batch import Batch
from llamacy.core.memory import Memory
from llamacy.errors import MemoryOperationError
from tests.helpers import toy_tokens
from tests.helpers.arch import KINDS, context_params, golden, model_file


def decode(context, tokens, pos=0, seq_id=0):
    with Batch(len(tokens)) as batch:
        batch.extend(tokens, pos, seq_id)
        context.decode(batch)
    return np.array(context.logits(-1))


@pytest.mark.parametrize("name", KINDS)
def test_positions_after_the_prompt_are_the_golden_ones(make_model, make_context, name):
    context = make_context(make_model(model_file(name)), **context_params(name))
    memory = context.memory
    assert memory.seq_pos_min(0) == memory.seq_pos_max(0) == -1
    decode(context, golden(name)["prompt"])
    assert memory.seq_pos_min(0) == golden(name)["pos_min"]
    assert memory.seq_pos_max(0) == golden(name)["pos_max"]
    assert memory.can_shift == bool(golden(name)["can_shift"])


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_seq_rm_of_the_tail_gives_the_same_logits_or_is_refused(make_model, make_context, name, n):
    possible, _ = golden(name)["seq_rm_tail"][str(n)]
    context = make_context(make_model(model_file(name)), **context_params(name))
    prompt = golden(name)["prompt"]
    decode(context, prompt)
    if not possible:
        with pytest.raises(MemoryOperationError):
            context.memory.seq_rm(0, len(prompt) - n)
        assert context.memory.seq_pos_max(0) == len(prompt) - 1
        return
    context.memory.seq_rm(0, len(prompt) - n)
    assert context.memory.seq_pos_max(0) == len(prompt) - n - 1
    logits = decode(context, prompt[-n:], len(prompt) - n)
    np.testing.assert_allclose(logits, golden(name)["logits"], atol=1e-4)


@pytest.mark.parametrize("name", ["qwen35.rs4", "qwen35_mtp.rs4"])
def test_rollback_beyond_the_last_decode_is_refused(make_model, make_context, name):
    # llama.cpp says yes and restores a stale state: it keeps snapshots of the last micro-batch only
    context = make_context(make_model(model_file(name)), **context_params(name))
    prompt = golden(name)["prompt"]
    decode(context, prompt[:-2])
    decode(context, prompt[-2:-1], len(prompt) - 2)
    decode(context, prompt[-1:], len(prompt) - 1)
    with pytest.raises(MemoryOperationError, match="rollback"):
        context.memory.seq_rm(0, len(prompt) - 2)
    with pytest.raises(MemoryOperationError, match="rollback"):
        context.memory.seq_rm(0, len(prompt) - 1)


@pytest.mark.parametrize("name", ["qwen35.rs4"])
def test_rollback_is_possible_once_between_two_decodes(make_model, make_context, name):
    context = make_context(make_model(model_file(name)), **context_params(name))
    prompt = golden(name)["prompt"]
    decode(context, prompt)
    with pytest.raises(MemoryOperationError):
        context.memory.seq_rm(0, len(prompt) - 5)
    context.memory.seq_rm(0, len(prompt) - 2)
    with pytest.raises(MemoryOperationError):
        context.memory.seq_rm(0, len(prompt) - 3)


def test_seq_rm_past_the_sliding_window_is_refused(make_model, make_context):
    # without the whole cache, llama.cpp removes the tail, keeps nothing, and decodes garbage
    model = make_model("gemma3.gguf")
    tokens = toy_tokens("the quick brown fox jumps over the lazy dog. " * 20)
    params = {**context_params("gemma3"), "swa_full": False, "n_ubatch": 64, "n_batch": 64, "n_ctx": 2048}
    context, whole = make_context(model, **params), make_context(model, **{**params, "swa_full": True})
    for start in range(0, len(tokens), 64):
        decode(context, tokens[start : start + 64], start)
        decode(whole, tokens[start : start + 64], start)
    assert context.memory.seq_pos_min(0) > 0
    with pytest.raises(MemoryOperationError, match="sliding window"):
        context.memory.seq_rm(0, 10)
    assert context.memory.seq_pos_max(0) == len(tokens) - 1
    whole.memory.seq_rm(0, 10)
    fresh = make_context(model, **params)
    decode(fresh, tokens[:10])
    expected = decode(fresh, [265], 10)
    np.testing.assert_allclose(decode(whole, [265], 10), expected, atol=1e-3)
    context.memory.seq_rm(0)
    decode(context, tokens[:10])
    np.testing.assert_allclose(decode(context, [265], 10), expected, atol=1e-3)


@pytest.mark.parametrize("name", ["llama", "gemma3", "mamba", "rwkv7", "qwen35"])
def test_seq_cp_of_a_whole_sequence_continues_alike(make_model, make_context, name):
    params = {**context_params(name), "n_seq_max": 2, "n_ctx": 256}
    context = make_context(make_model(model_file(name)), **params)
    prompt = golden(name)["prompt"]
    decode(context, prompt)
    context.memory.seq_cp(0, 1)
    assert context.memory.seq_pos_max(1) == len(prompt) - 1
    first = decode(context, [265], len(prompt), 0)
    second = decode(context, [265], len(prompt), 1)
    np.testing.assert_allclose(first, second, atol=1e-4)


def test_seq_cp_of_a_part_between_streams_is_refused(make_model, make_context):
    context = make_context(make_model(), n_seq_max=2, n_ctx=512)
    decode(context, toy_tokens("hello"))
    with pytest.raises(MemoryOperationError, match="kv_unified"):
        context.memory.seq_cp(0, 1, 0, 3)
    assert context.memory.seq_pos_max(1) == -1
    unified = make_context(make_model(), n_seq_max=2, kv_unified=True)
    decode(unified, toy_tokens("hello"))
    unified.memory.seq_cp(0, 1, 0, 3)
    assert unified.memory.seq_pos_max(1) == 2


def test_seq_cp_to_itself_changes_nothing(make_model, make_context):
    context = make_context(make_model())
    decode(context, toy_tokens("hello"))
    context.memory.seq_cp(0, 0)
    assert context.memory.seq_pos_max(0) == len(toy_tokens("hello")) - 1


def test_seq_keep_removes_the_others(make_model, make_context):
    context = make_context(make_model(), n_seq_max=3, n_ctx=768)
    for seq_id in range(3):
        decode(context, toy_tokens("hi"), 0, seq_id)
    context.memory.seq_keep(1)
    assert [context.memory.seq_pos_max(seq_id) >= 0 for seq_id in range(3)] == [False, True, False]


def test_seq_add_shifts_positions(make_model, make_context):
    model = make_model("llama.gguf")
    tokens = toy_tokens("hello world")
    context = make_context(model, **context_params("llama"))
    decode(context, tokens)
    context.memory.seq_rm(0, 0, 2)
    context.memory.seq_add(0, 2, -1, -2)
    assert (context.memory.seq_pos_min(0), context.memory.seq_pos_max(0)) == (0, len(tokens) - 3)
    fresh = make_context(model, **context_params("llama"))
    decode(fresh, tokens[2:])
    # not the logits of a fresh evaluation: deeper layers saw the removed tokens
    assert np.isfinite(decode(context, [265], len(tokens) - 2)).all()


def test_seq_div_divides_positions(make_model, make_context):
    context = make_context(make_model())
    decode(context, [5] * 8)
    context.memory.seq_div(0, 0, -1, 2)
    assert context.memory.seq_pos_max(0) == 3
    with pytest.raises(ValueError, match="d must be"):
        context.memory.seq_div(0, 0, -1, 0)


@pytest.mark.parametrize("file", ["qwen35.gguf"])
def test_shifting_mrope_positions_is_refused(make_model, make_context, file):
    context = make_context(make_model(file))
    decode(context, [5, 6])
    assert not context.memory.can_shift
    with pytest.raises(MemoryOperationError):
        context.memory.seq_add(0, 0, -1, 1)
    with pytest.raises(MemoryOperationError):
        context.memory.seq_div(0, 0, -1, 2)


def test_shifting_a_partial_sliding_window_is_refused(make_model, make_context):
    context = make_context(make_model("gemma3.gguf"), swa_full=False, n_ctx=4096)
    decode(context, [5, 6])
    assert not context.memory.can_shift
    with pytest.raises(MemoryOperationError):
        context.memory.seq_add(0, 0, -1, 1)


def test_shifting_out_of_the_range_of_positions_is_refused(make_model, make_context):
    context = make_context(make_model())
    decode(context, [5, 6])
    with pytest.raises(ValueError, match="range"):
        context.memory.seq_add(0, 0, -1, 2**31 - 1)


@pytest.mark.parametrize("n_seq_max", [1, 2])
@pytest.mark.parametrize("seq_id", [-1, 2, 255, 256, 2**31 - 1])
def test_sequence_id_out_of_range_raises(make_model, make_context, n_seq_max, seq_id):
    memory = make_context(make_model(), n_seq_max=n_seq_max, n_ctx=512).memory
    for call in (
        memory.seq_pos_min,
        memory.seq_pos_max,
        memory.seq_keep,
        memory.seq_rm,
        lambda s: memory.seq_cp(s, 0),
        lambda s: memory.seq_cp(0, s),
        lambda s: memory.seq_add(s, 0, -1, 1),
        lambda s: memory.seq_div(s, 0, -1, 2),
    ):
        with pytest.raises(ValueError, match="sequence ids"):
            call(seq_id)


@pytest.mark.parametrize(
    ("file", "kind"),
    [("llama.gguf", "attention"), ("gemma3.gguf", "swa"), ("mamba.gguf", "recurrent"), ("qwen35.gguf", "hybrid")],
)
def test_kind_and_repr(make_model, make_context, file, kind):
    memory = make_context(make_model(file)).memory
    assert memory.kind == kind
    assert kind in repr(memory)


def test_model_without_memory_has_none(make_model, make_context, bert_path):
    assert make_context(make_model(bert_path)).memory is None


def test_memory_cannot_be_made():
    with pytest.raises(TypeError):
        Memory()


def test_clear_empties_all(make_model, make_context):
    context = make_context(make_model(), n_seq_max=2, n_ctx=512)
    decode(context, [5], 0, 0)
    decode(context, [5], 0, 1)
    context.memory.clear(data=False)
    assert context.memory.seq_pos_max(0) == context.memory.seq_pos_max(1) == -1
