"""Snapshots of real sequences: going on after a restore, and refusals that change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from llamacy.checkpoint.fingerprint import Fingerprint, context_fingerprint
from llamacy.checkpoint.prefix import Media, Prefix
from llamacy.checkpoint.snapshot import Restored, Snapshot, can_cut
from llamacy.core.sampler import SamplerChain
from llamacy.core.samplers import Sampler
from llamacy.errors import CheckpointError, ClosedError, CorruptCheckpointError, IncompatibleCheckpointError
from tests.helpers.arch import golden

from .conftest import KINDS, PROMPT, UNCUT, MakeContext, decode, fresh

TOLERANCE = 1e-5
AFTER = (265, 268, 272)


def go_on(context: Any, pos: int, seq_id: int = 0) -> np.ndarray:
    """Decode three more tokens, one at a time, and return all their logits."""
    return np.array([decode(context, [token], pos + i, seq_id) for i, token in enumerate(AFTER)])


def expected_rows(make_kind: MakeContext, name: str, tokens: list[int]) -> np.ndarray:
    """Return what `go_on` gives after these tokens in a context of its own."""
    context = make_kind(name)
    decode(context, tokens)
    return go_on(context, len(tokens))


@pytest.mark.parametrize("name", KINDS)
def test_restore_goes_on_as_fresh_evaluation(make_kind: MakeContext, name: str) -> None:
    source = make_kind(name)
    row = decode(source, PROMPT)
    snapshot = Snapshot.take(source, PROMPT, logits=row)
    target = make_kind(name, n_ctx=256)
    decode(target, PROMPT[5:20])
    restored = snapshot.restore(target)
    assert (restored.n_elements, restored.n_positions) == (len(PROMPT), len(PROMPT))
    assert np.array_equal(np.asarray(restored.logits), row)
    rows = go_on(target, len(PROMPT))
    assert np.abs(rows - expected_rows(make_kind, name, PROMPT)).max() <= TOLERANCE


@pytest.mark.parametrize("name", ["llama", "gemma3", "mamba2", "rwkv7", "qwen35"])
def test_greedy_tokens_after_restore_are_the_golden_ones(make_kind: MakeContext, name: str) -> None:
    greedy = golden(name)["greedy"]
    source = make_kind(name)
    snapshot = Snapshot.take(source, PROMPT, logits=decode(source, PROMPT))
    target = make_kind(name)
    restored = snapshot.restore(target)
    with SamplerChain([Sampler.greedy()]) as chain:
        candidates = restored.candidates()
        chain.apply(candidates)
        found = [candidates.token]
        while len(found) < len(greedy):
            decode(target, found[-1:], len(PROMPT) + len(found) - 1)
            found.append(chain.sample(target, -1))
    assert found == greedy


@pytest.mark.parametrize("name", ["llama", "target"])
@pytest.mark.parametrize("n", [1, 7, len(PROMPT) - 1])
def test_beginning_is_restored_where_memory_can_be_cut(make_kind: MakeContext, name: str, n: int) -> None:
    context = make_kind(name)
    snapshot = Snapshot.take(context, PROMPT, logits=decode(context, PROMPT))
    assert can_cut(context)
    restored = snapshot.restore(context, n_elements=n)
    assert (restored.n_elements, restored.n_positions, restored.logits) == (n, n, None)
    with pytest.raises(CheckpointError, match="decode a token before you sample"):
        restored.candidates()
    assert np.abs(decode(context, [7], n) - fresh(make_kind, name, [*PROMPT[:n], 7])).max() <= TOLERANCE


def test_restore_in_other_sequence_leaves_first_alone(make_kind: MakeContext) -> None:
    context = make_kind("llama", n_seq_max=2, n_ctx=256)
    decode(context, PROMPT)
    snapshot = Snapshot.take(context, PROMPT)
    before = context.state.seq_get(0)
    snapshot.restore(context, seq_id=1)
    assert context.state.seq_get(0) == before
    rows = go_on(context, len(PROMPT), 1)
    assert np.abs(rows - expected_rows(make_kind, "llama", PROMPT)).max() <= TOLERANCE


@pytest.mark.parametrize("logits", [False, True])
def test_n_bytes_is_the_sum_of_what_is_owned(make_kind: MakeContext, logits: bool) -> None:
    context = make_kind("llama")
    row = decode(context, PROMPT)
    snapshot = Snapshot.take(context, np.array(PROMPT, np.int32), logits=row if logits else None)
    assert snapshot.n_bytes == context.state.seq_size(0) + 4 * len(PROMPT) + (4 * context.n_vocab if logits else 0)
    row[:] = 0
    assert snapshot.logits is None or np.asarray(snapshot.logits).any()
    assert snapshot.prefix.tokens.tolist() == PROMPT


def test_snapshot_outlives_its_context(make_kind: MakeContext) -> None:
    source = make_kind("llama")
    snapshot = Snapshot.take(source, PROMPT, logits=decode(source, PROMPT))
    source.close()
    target = make_kind("llama")
    snapshot.restore(target)
    assert np.abs(go_on(target, len(PROMPT)) - expected_rows(make_kind, "llama", PROMPT)).max() <= TOLERANCE


def _of_other_type(make_kind: MakeContext) -> Snapshot:
    context = make_kind("llama", type_k="f16")
    decode(context, PROMPT)
    return Snapshot.take(context, PROMPT)


def _of_other_model(make_kind: MakeContext) -> Snapshot:
    context = make_kind("qwen35")
    decode(context, PROMPT)
    return Snapshot.take(context, PROMPT)


def _taken(make_kind: MakeContext, **params: Any) -> Snapshot:
    context = make_kind("llama", **params)
    decode(context, PROMPT)
    return Snapshot.take(context, PROMPT)


def _of_other_build(make_kind: MakeContext) -> Snapshot:
    snapshot = _taken(make_kind)
    facts = Fingerprint({**snapshot.fingerprint, "llama_cpp": "b1-00"})
    return Snapshot(facts, snapshot.prefix, snapshot.state)


def _too_long(make_kind: MakeContext) -> Snapshot:
    context = make_kind("llama", n_ctx=512)
    for start in range(0, 320, 64):
        decode(context, range(1, 65), start)
    return Snapshot.take(context, [*range(1, 65)] * 5)


def _damaged(make_kind: MakeContext) -> Snapshot:
    snapshot = _taken(make_kind)
    return Snapshot(snapshot.fingerprint, snapshot.prefix, snapshot.state[:-1])


@pytest.mark.parametrize(
    ("make", "options", "error", "reason"),
    [
        (_of_other_type, {}, IncompatibleCheckpointError, "type_k: F32 here, F16 there"),
        (_of_other_model, {}, IncompatibleCheckpointError, "architecture: llama here, qwen35 there"),
        (_of_other_build, {}, IncompatibleCheckpointError, "llama_cpp: .* here, b1-00 there"),
        (_too_long, {}, CheckpointError, "takes 320 cells"),
        (_damaged, {}, CheckpointError, "not a state for this context"),
        (_taken, {"seq_id": 1}, CheckpointError, "ids are from 0 to 0"),
        (_taken, {"seq_id": -1}, CheckpointError, "ids are from 0 to 0"),
        (_taken, {"n_elements": 0}, CheckpointError, "give a number from 1"),
        (_taken, {"n_elements": len(PROMPT) + 1}, CheckpointError, "give a number from 1"),
    ],
)
def test_refused_restore_changes_nothing(
    make_kind: MakeContext,
    make: Callable[..., Snapshot],
    options: dict[str, int],
    error: type[Exception],
    reason: str,
) -> None:
    snapshot = make(make_kind)
    context = make_kind("llama")
    decode(context, PROMPT[3:])
    before = context.state.get()
    with pytest.raises(error, match=reason) as raised:
        snapshot.restore(context, **options)
    assert "nothing was changed" in str(raised.value)
    assert context.state.get() == before


@pytest.mark.parametrize("swa_full", [False, True])
@pytest.mark.parametrize("name", UNCUT)
def test_cut_is_refused_where_memory_can_not_be_cut(make_kind: MakeContext, name: str, swa_full: bool) -> None:
    context = make_kind(name, swa_full=swa_full)
    decode(context, PROMPT)
    snapshot = Snapshot.take(context, PROMPT)
    assert not can_cut(context)
    decode(context, AFTER, len(PROMPT))
    before = context.state.get()
    with pytest.raises(CheckpointError, match="can't be cut; nothing was changed"):
        snapshot.restore(context, n_elements=len(PROMPT) - 1)
    assert context.state.get() == before


def test_state_of_other_tokens_is_found_out_and_leaves_empty_sequence(make_kind: MakeContext) -> None:
    snapshot = _taken(make_kind)
    wrong = Snapshot(snapshot.fingerprint, Prefix(PROMPT[:-2]), snapshot.state)
    context = make_kind("llama", n_seq_max=2, kv_unified=True)
    decode(context, PROMPT[3:])
    decode(context, PROMPT[:9], seq_id=1)
    other = context.state.seq_get(1)
    with pytest.raises(CorruptCheckpointError, match="sequence 0 is empty now"):
        wrong.restore(context)
    assert context.memory.seq_pos_max(0) == -1
    assert context.state.seq_get(1) == other
    assert np.abs(decode(context, PROMPT) - fresh(make_kind, "llama", PROMPT)).max() <= TOLERANCE


def test_restore_without_room_leaves_empty_sequence(make_kind: MakeContext) -> None:
    snapshot = _taken(make_kind)
    context = make_kind("llama", n_seq_max=2, kv_unified=True)
    # cells are shared, and all but a few are taken
    for start in range(0, 256 - 16, 16):
        decode(context, range(1, 17), start, 1)
    decode(context, PROMPT[:4])
    with pytest.raises(CheckpointError, match="sequence 0 is empty now"):
        snapshot.restore(context)
    assert context.memory.seq_pos_max(0) == -1
    assert context.memory.seq_pos_max(1) == 256 - 16 - 1


@pytest.mark.parametrize("tokens", [PROMPT[:-1], [*PROMPT, 5], []])
def test_take_of_other_tokens_than_decoded_is_refused(make_kind: MakeContext, tokens: list[int]) -> None:
    context = make_kind("llama")
    decode(context, PROMPT)
    with pytest.raises(CheckpointError):
        Snapshot.take(context, tokens)


def test_take_of_sequence_that_lost_its_beginning_is_refused(make_kind: MakeContext) -> None:
    context = make_kind("llama")
    decode(context, PROMPT)
    context.memory.seq_rm(0, 0, 4)
    with pytest.raises(CheckpointError, match="begins at position 4"):
        Snapshot.take(context, PROMPT)


def test_take_of_empty_sequence_is_refused(make_kind: MakeContext) -> None:
    with pytest.raises(CheckpointError, match="empty"):
        Snapshot.take(make_kind("llama"), [])


def test_take_while_a_shift_is_pending_is_refused(make_kind: MakeContext) -> None:
    context = make_kind("llama")
    decode(context, PROMPT)
    context.memory.seq_rm(0, 0, 4)
    context.memory.seq_add(0, 4, -1, -4)
    with pytest.raises(CheckpointError, match="decode something before"):
        Snapshot.take(context, PROMPT[4:])


def test_model_without_memory_is_refused(make_model: Any, make_context: Any, bert_path: Any) -> None:
    context = make_context(make_model(bert_path))
    with pytest.raises(CheckpointError, match="no memory"):
        Snapshot.take(context, PROMPT)


def test_closed_context_is_refused(make_kind: MakeContext) -> None:
    snapshot = _taken(make_kind)
    context = make_kind("llama")
    context.close()
    with pytest.raises(ClosedError):
        snapshot.restore(context)
    with pytest.raises(ClosedError):
        Snapshot.take(context, PROMPT)


@pytest.mark.parametrize("logits", [np.zeros(3, np.float32), np.zeros(512, np.float64)])
def test_row_of_wrong_size_or_type_is_refused(make_kind: MakeContext, logits: Any) -> None:
    context = make_kind("llama")
    decode(context, PROMPT)
    with pytest.raises(CheckpointError, match="logits"):
        Snapshot.take(context, PROMPT, logits=logits)


def test_token_beyond_vocabulary_is_refused(make_kind: MakeContext) -> None:
    context = make_kind("llama")
    decode(context, PROMPT)
    with pytest.raises(CheckpointError, match="vocabulary"):
        Snapshot.take(context, [*PROMPT[:-1], context.n_vocab])


def test_medium_at_the_end_may_leave_positions_without_cells(make_kind: MakeContext) -> None:
    context = make_kind("llama")
    decode(context, PROMPT)
    n = len(PROMPT)
    # 8 positions, of which the memory has cells in 5
    snapshot = Snapshot.take(context, PROMPT[: n - 5], media=[Media(n - 5, b"image", 5, 8)])
    restored = snapshot.restore(context)
    assert restored == Restored(n - 5 + 4, n + 3, None)
    assert snapshot.restore(context, n_elements=n - 5).n_positions == n - 5
    assert context.memory.seq_pos_max(0) == n - 6
    with pytest.raises(CheckpointError, match="within a medium"):
        snapshot.restore(context, n_elements=n - 3)


def test_context_of_other_stream_count_takes_unified_state(make_kind: MakeContext) -> None:
    snapshot = _taken(make_kind)
    context = make_kind("llama", n_seq_max=3, kv_unified=True)
    assert context_fingerprint(context) == snapshot.fingerprint
    snapshot.restore(context, seq_id=2)
    rows = go_on(context, len(PROMPT), 2)
    assert np.abs(rows - expected_rows(make_kind, "llama", PROMPT)).max() <= TOLERANCE
