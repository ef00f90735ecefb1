"""Saved states: sizes, and that going on after a restore is as if nothing had happened."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy.core.batch import Batch
from llamacy.errors import MemoryOperationError, StateError
from llamacy.types import StateFlags
from tests.helpers import data

ARCH = json.loads(data("arch.json").read_text())
PROMPT: list[int] = ARCH["prompt"]
# attention, sliding window, recurrent three times, hybrid
MODELS = ["llama", "target", "gemma3", "mamba", "mamba2", "rwkv7", "qwen35"]
# as the goldens were made
EXACT = {
    "n_ctx": 128,
    "n_batch": 64,
    "n_ubatch": 64,
    "type_k": "F32",
    "type_v": "F32",
    "flash_attn_type": "DISABLED",
}
TOLERANCE = 1e-5

MakeContext = Callable[..., Any]


@pytest.fixture
def make_state_context(make_model: Callable[..., Any], make_context: Callable[..., Any]) -> MakeContext:
    """Return a function that creates a context of a tests/data model, as the goldens were made."""

    def make(name: str, **params: Any) -> Any:
        return make_context(make_model(f"{name}.gguf"), **(EXACT | params))

    return make


def decode(context: Any, tokens: list[int], pos: int, seq_id: int = 0) -> np.ndarray:
    """Decode tokens one after the other and return the logits of the last one."""
    with Batch(64) as batch:
        batch.extend(tokens, pos, seq_id)
        context.decode(batch)
    return np.array(context.logits(-1))


def go_on(context: Any, pos: int, seq_id: int = 0) -> np.ndarray:
    """Decode three more tokens, one at a time, and return all their logits."""
    return np.array([decode(context, [token], pos + i, seq_id) for i, token in enumerate((265, 268, 272))])


@pytest.mark.parametrize("name", MODELS)
def test_state_seq_size_matches_golden(make_state_context: MakeContext, name: str) -> None:
    golden = ARCH["models"][name]
    context = make_state_context(name, n_seq_max=2)
    decode(context, PROMPT, 0)
    for i, token in enumerate(golden["greedy"]):
        decode(context, [token], len(PROMPT) + i)
    assert context.state.seq_size(0) == golden["state_bytes"]
    assert context.state.seq_size(0, StateFlags.PARTIAL_ONLY) == golden["state_partial_bytes"]
    assert len(context.state.seq_get(0)) == golden["state_bytes"]
    assert len(context.state.seq_get(0, StateFlags.PARTIAL_ONLY)) == golden["state_partial_bytes"]
    assert len(context.state.get()) == context.state.size()


def _whole(context: Any, folder: Path) -> Callable[[], None]:
    blob = context.state.get()
    return lambda: context.state.set(blob)


def _whole_file(context: Any, folder: Path) -> Callable[[], None]:
    context.state.save_file(folder / "whole.state", PROMPT)

    def restore() -> None:
        assert list(context.state.load_file(folder / "whole.state")) == PROMPT

    return restore


def _seq(context: Any, folder: Path) -> Callable[[], None]:
    blob = context.state.seq_get(0)
    return lambda: context.state.seq_set(0, blob)


def _seq_file(context: Any, folder: Path) -> Callable[[], None]:
    context.state.seq_save_file(folder / "seq.state", 0, PROMPT)

    def restore() -> None:
        assert list(context.state.seq_load_file(folder / "seq.state", 0)) == PROMPT

    return restore


def _on_device(context: Any, folder: Path) -> Callable[[], None]:
    blob = context.state.seq_get(0, StateFlags.ON_DEVICE)
    assert len(blob) == context.state.seq_size(0, StateFlags.ON_DEVICE)
    return lambda: context.state.seq_set(0, blob, StateFlags.ON_DEVICE)


@pytest.mark.parametrize("save", [_whole, _whole_file, _seq, _seq_file, _on_device])
@pytest.mark.parametrize("flash_attn_type", ["DISABLED", "ENABLED"])
@pytest.mark.parametrize("name", MODELS)
def test_restore_after_clear_goes_on_as_if_never_stopped(
    make_state_context: MakeContext, tmp_path: Path, name: str, flash_attn_type: str, save: Callable[..., Any]
) -> None:
    context = make_state_context(name, flash_attn_type=flash_attn_type)
    decode(context, PROMPT, 0)
    restore = save(context, tmp_path)
    expected = go_on(context, len(PROMPT))
    # restored cells lie elsewhere, and flash attention sums up in half precision in the order of the cells
    tolerance = TOLERANCE if flash_attn_type == "DISABLED" else 5e-3
    for _ in range(2):
        context.memory.clear()
        restore()
        assert context.memory.seq_pos_max(0) == len(PROMPT) - 1
        assert np.abs(go_on(context, len(PROMPT)) - expected).max() <= tolerance


@pytest.mark.parametrize("name", MODELS)
def test_restore_over_longer_sequence_replaces_it(make_state_context: MakeContext, name: str) -> None:
    context = make_state_context(name)
    decode(context, PROMPT, 0)
    blob = context.state.seq_get(0)
    expected = go_on(context, len(PROMPT))
    context.state.seq_set(0, blob)
    assert np.abs(go_on(context, len(PROMPT)) - expected).max() <= TOLERANCE


@pytest.mark.parametrize("kv_unified", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_restore_into_other_sequence_leaves_first_alone(
    make_state_context: MakeContext, name: str, kv_unified: bool
) -> None:
    context = make_state_context(name, n_seq_max=3, kv_unified=kv_unified, n_ctx=384)
    decode(context, PROMPT, 0)
    context.state.seq_set(2, context.state.seq_get(0))
    expected = go_on(context, len(PROMPT), 0)
    assert np.abs(go_on(context, len(PROMPT), 2) - expected).max() <= TOLERANCE


@pytest.mark.parametrize("name", MODELS)
def test_restore_in_other_context_with_other_n_ctx_goes_on(make_state_context: MakeContext, name: str) -> None:
    first = make_state_context(name)
    decode(first, PROMPT, 0)
    second = make_state_context(name, n_ctx=512)
    decode(second, [5, 6, 7], 0)
    second.state.set(first.state.get())
    assert np.abs(go_on(second, len(PROMPT)) - go_on(first, len(PROMPT))).max() <= TOLERANCE


def test_restore_of_two_states_in_turn_keeps_them_apart(make_state_context: MakeContext) -> None:
    context = make_state_context("llama")
    prompts = [PROMPT, [1, *reversed(PROMPT[1:])]]
    blobs, expected = [], []
    for prompt in prompts:
        context.memory.clear()
        decode(context, prompt, 0)
        blobs.append(context.state.seq_get(0))
        expected.append(go_on(context, len(prompt)))
    assert np.abs(expected[0] - expected[1]).max() > 0.1
    for index in (0, 1, 0, 1, 1, 0):
        context.state.seq_set(0, blobs[index])
        assert np.abs(go_on(context, len(PROMPT)) - expected[index]).max() <= TOLERANCE


@pytest.mark.parametrize("swa_full", [False, True])
def test_restore_past_sliding_window_goes_on(make_state_context: MakeContext, swa_full: bool) -> None:
    # the window of this model is 8; the prompt is five times as long
    context = make_state_context("gemma3", swa_full=swa_full, n_ubatch=8)
    prompt = PROMPT + PROMPT
    for start in range(0, len(prompt), 8):
        decode(context, prompt[start : start + 8], start)
    blob = context.state.seq_get(0)
    expected = go_on(context, len(prompt))
    context.memory.clear()
    context.state.seq_set(0, blob)
    assert np.abs(go_on(context, len(prompt)) - expected).max() <= TOLERANCE


@pytest.mark.parametrize("name", ["qwen35", "gemma3", "mamba"])
@pytest.mark.parametrize("flags", [StateFlags.PARTIAL_ONLY, StateFlags.PARTIAL_ONLY | StateFlags.ON_DEVICE])
def test_partial_restore_while_rest_is_in_place_goes_back(
    make_state_context: MakeContext, name: str, flags: StateFlags
) -> None:
    context = make_state_context(name)
    decode(context, PROMPT, 0)
    blob = context.state.seq_get(0, flags)
    expected = go_on(context, len(PROMPT))
    context.state.seq_set(0, blob, flags)
    context.memory.seq_rm(0, len(PROMPT), -1)
    assert np.abs(go_on(context, len(PROMPT)) - expected).max() <= TOLERANCE


def test_state_of_context_without_memory_is_its_header(
    make_model: Callable[..., Any], make_context: Callable[..., Any], bert_path: Path, tmp_path: Path
) -> None:
    context = make_context(make_model(bert_path), n_ctx=64)
    whole, seq = context.state.get(), context.state.seq_get(0)
    assert whole == b"\x04\0\0\0bert"
    assert len(seq) == 8
    context.state.set(whole)
    context.state.seq_set(0, seq)
    context.state.save_file(tmp_path / "state", [1, 2])
    assert list(context.state.load_file(tmp_path / "state")) == [1, 2]
    context.state.seq_save_file(tmp_path / "state", 0, [3])
    assert list(context.state.seq_load_file(tmp_path / "state", 0)) == [3]


def test_state_of_empty_sequence_clears_the_one_it_replaces(make_state_context: MakeContext) -> None:
    context = make_state_context("llama", n_seq_max=2)
    decode(context, PROMPT, 0)
    context.state.seq_set(0, context.state.seq_get(1))
    assert context.memory.seq_pos_max(0) == -1


@pytest.mark.parametrize("flags", [StateFlags.NONE, StateFlags.ON_DEVICE])
def test_get_into_writes_to_memory_of_caller(make_state_context: MakeContext, flags: StateFlags) -> None:
    context = make_state_context("llama")
    decode(context, PROMPT, 0)
    size = context.state.seq_size(0, flags)
    buffer = np.full(size + 5, 0xAB, np.uint8)
    assert context.state.seq_get_into(0, buffer, flags) == size
    assert buffer[size:].tolist() == [0xAB] * 5
    expected = go_on(context, len(PROMPT))
    context.state.seq_set(0, buffer[:size], flags)
    assert np.abs(go_on(context, len(PROMPT)) - expected).max() <= TOLERANCE


def test_get_into_whole_state_equals_get(make_state_context: MakeContext) -> None:
    context = make_state_context("qwen35")
    decode(context, PROMPT, 0)
    buffer = bytearray(context.state.size())
    assert context.state.get_into(buffer) == len(buffer)
    assert bytes(buffer) == context.state.get()


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_set_takes_any_contiguous_buffer(make_state_context: MakeContext, dtype: type) -> None:
    context = make_state_context("llama")
    decode(context, PROMPT, 0)
    blob = np.frombuffer(context.state.get(), np.uint8).copy()
    expected = go_on(context, len(PROMPT))
    context.state.set(blob[: len(blob) // 4 * 4].view(dtype) if len(blob) % 4 == 0 else blob)
    assert np.abs(go_on(context, len(PROMPT)) - expected).max() <= TOLERANCE


@pytest.mark.parametrize("restore_whole", [False, True])
def test_rollback_after_restore_is_refused(make_state_context: MakeContext, restore_whole: bool) -> None:
    # the snapshots that a recurrent memory rolls back to are not in a state
    context = make_state_context("qwen35", n_rs_seq=4)
    decode(context, PROMPT, 0)
    whole, seq = context.state.get(), context.state.seq_get(0)
    if restore_whole:
        context.state.set(whole)
    else:
        context.state.seq_set(0, seq)
    with pytest.raises(MemoryOperationError):
        context.memory.seq_rm(0, len(PROMPT) - 1, -1)


def test_state_with_pending_rollback_is_the_state_rolled_back_to(make_state_context: MakeContext) -> None:
    context = make_state_context("qwen35", n_rs_seq=4)
    decode(context, PROMPT[:-2], 0)
    expected = go_on(context, len(PROMPT) - 2)
    context.memory.clear()
    decode(context, PROMPT, 0)
    context.memory.seq_rm(0, len(PROMPT) - 2, -1)
    blob = context.state.seq_get(0)
    context.memory.clear()
    context.state.seq_set(0, blob)
    assert np.abs(go_on(context, len(PROMPT) - 2) - expected).max() <= TOLERANCE


def test_save_with_shift_pending_is_refused_until_next_decode(make_state_context: MakeContext) -> None:
    context = make_state_context("llama")
    decode(context, PROMPT, 0)
    blob = context.state.seq_get(0)
    context.memory.seq_rm(0, 4, 8)
    context.memory.seq_add(0, 8, -1, -4)
    for refused in (
        lambda: context.state.get(),
        lambda: context.state.seq_get(0),
        lambda: context.state.seq_get(0, StateFlags.ON_DEVICE),
        lambda: context.state.seq_set(0, blob),
    ):
        with pytest.raises(StateError, match="decode something"):
            refused()
    decode(context, [265], len(PROMPT) - 4)
    shifted = context.state.seq_get(0)
    expected = go_on(context, len(PROMPT) - 3)
    context.memory.clear()
    context.state.seq_set(0, shifted)
    assert np.abs(go_on(context, len(PROMPT) - 3) - expected).max() <= TOLERANCE


def test_save_with_copy_between_streams_pending_is_refused_until_next_decode(
    make_state_context: MakeContext,
) -> None:
    context = make_state_context("llama", n_seq_max=2)
    decode(context, PROMPT, 0)
    blob = context.state.seq_get(0)
    context.memory.seq_cp(0, 1)
    with pytest.raises(StateError, match="decode something"):
        context.state.seq_get(1)
    with pytest.raises(StateError, match="decode something"):
        context.state.seq_set(1, blob)
    decode(context, [265], len(PROMPT), 1)
    copied = context.state.seq_get(1)
    expected = go_on(context, len(PROMPT) + 1, 1)
    context.state.seq_set(0, copied)
    assert np.abs(go_on(context, len(PROMPT) + 1, 0) - expected).max() <= TOLERANCE


@pytest.mark.parametrize("kv_unified", [False, True])
def test_copy_of_rolled_back_sequence_waits_for_next_decode(make_state_context: MakeContext, kv_unified: bool) -> None:
    # llama.cpp goes on from the snapshot of another position in the copy, and aborts when both are saved
    context = make_state_context("qwen35", n_rs_seq=4, n_seq_max=2, kv_unified=kv_unified)
    decode(context, PROMPT, 0)
    context.memory.seq_rm(0, len(PROMPT) - 2, -1)
    with pytest.raises(MemoryOperationError, match="rolled back"):
        context.memory.seq_cp(0, 1)
    # a decode of another sequence does not change that
    decode(context, PROMPT[:3], 0, 1)
    with pytest.raises(MemoryOperationError, match="rolled back"):
        context.memory.seq_cp(0, 1)
    decode(context, [265], len(PROMPT) - 2, 0)
    context.memory.seq_rm(1)
    context.memory.seq_cp(0, 1)
    expected = decode(context, [268], len(PROMPT) - 1, 0)
    assert np.abs(decode(context, [268], len(PROMPT) - 1, 1) - expected).max() <= TOLERANCE
    assert len(context.state.get()) == context.state.size()


def test_copy_over_rolled_back_sequence_is_a_copy(make_state_context: MakeContext) -> None:
    context = make_state_context("qwen35", n_rs_seq=4, n_seq_max=2, kv_unified=True)
    decode(context, PROMPT, 0)
    decode(context, PROMPT[:9], 0, 1)
    context.memory.seq_rm(1, 7, -1)
    context.memory.seq_cp(0, 1)
    assert len(context.state.get()) == context.state.size()
    expected = go_on(context, len(PROMPT), 0)
    assert np.abs(go_on(context, len(PROMPT), 1) - expected).max() <= TOLERANCE


def test_recurrent_copy_needs_no_decode_before_save(make_state_context: MakeContext) -> None:
    context = make_state_context("mamba", n_seq_max=2)
    decode(context, PROMPT, 0)
    context.memory.seq_cp(0, 1)
    blob = context.state.seq_get(1)
    expected = go_on(context, len(PROMPT), 0)
    context.state.seq_set(0, blob)
    assert np.abs(go_on(context, len(PROMPT), 0) - expected).max() <= TOLERANCE
