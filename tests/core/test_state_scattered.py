"""States of sequences whose cells are scattered, or whose window is all that was restored."""

from __future__ import annotations

import numpy as np
import pytest

from llamacy.core.batch import Batch
from llamacy.errors import MemoryOperationError, StateError
from llamacy.types import FlashAttnType, GgmlType, StateFlags
from tests.helpers import toy_tokens
from tests.helpers.arch import context_params, model_file

TOKENS = toy_tokens("the quick brown fox jumps over the lazy dog")


def decode(context, tokens, pos, seq_id=0):
    with Batch(64) as batch:
        batch.extend(tokens, pos, [seq_id], logits="last")
        context.decode(batch)
    return np.array(context.logits(), np.float64)


def test_second_save_on_the_device_of_scattered_cells_is_refused(make_model, make_context):
    context = make_context(
        make_model(),
        n_ctx=64,
        n_seq_max=2,
        kv_unified=True,
        flash_attn_type=FlashAttnType.DISABLED,
        type_k=GgmlType.F32,
        type_v=GgmlType.F32,
    )
    decode(context, TOKENS[:8], 0)
    context.state.seq_get(0, StateFlags.ON_DEVICE)
    context.memory.seq_rm(0, 3)
    decode(context, TOKENS[:3], 0, seq_id=1)
    decode(context, TOKENS[3:8], 3)
    with pytest.raises(StateError, match="scattered"):
        context.state.seq_get(0, StateFlags.ON_DEVICE)
    # what it can do: another number of cells, or save to the host
    data = context.state.seq_get(0)
    expected = decode(context, TOKENS[8:9], 8)
    blob = context.state.seq_get(0, StateFlags.ON_DEVICE)
    context.memory.seq_rm(0)
    context.state.seq_set(0, data)
    np.testing.assert_allclose(decode(context, TOKENS[8:9], 8), expected, atol=1e-5)
    context.state.seq_set(0, blob, StateFlags.ON_DEVICE)
    assert context.memory.seq_pos_max(0) == 8


def test_hole_in_the_middle_scatters_cells_until_the_memory_is_cleared(make_model, make_context):
    context = make_context(make_model(), n_ctx=64)
    decode(context, TOKENS[:8], 0)
    context.state.seq_get(0, StateFlags.ON_DEVICE)
    context.memory.seq_rm(0, 2, 4)
    decode(context, TOKENS[8:10], 8)
    with pytest.raises(StateError, match="scattered"):
        context.state.seq_get(0, StateFlags.ON_DEVICE)
    context.memory.clear()
    decode(context, TOKENS[:8], 0)
    blob = context.state.seq_get(0, StateFlags.ON_DEVICE)
    context.state.seq_set(0, blob, StateFlags.ON_DEVICE)
    assert context.memory.seq_pos_max(0) == 7


@pytest.mark.parametrize("params", [{}, {"n_seq_max": 2, "kv_unified": False, "n_ctx": 128}])
def test_saves_on_the_device_go_on_after_cuts_of_the_end(make_model, make_context, params):
    context = make_context(make_model(), **{"n_ctx": 64, **params})
    decode(context, TOKENS[:8], 0)
    blobs = [context.state.seq_get(0, StateFlags.ON_DEVICE)]
    for _ in range(3):
        context.memory.seq_rm(0, 5)
        decode(context, TOKENS[5:8], 5)
        blobs.append(context.state.seq_get(0, StateFlags.ON_DEVICE))
    assert len(set(blobs)) == 4
    context.state.seq_set(0, blobs[-1], StateFlags.ON_DEVICE)
    assert context.memory.seq_pos_max(0) == 7


def test_cut_before_the_window_that_a_restore_brought_is_refused(make_model, make_context):
    # the state has the window of the layers with one, also in a context that keeps all of their cells
    context = make_context(make_model(model_file("gemma3")), **{**context_params("gemma3"), "swa_full": True})
    assert 0 < context.model.n_swa < 20
    decode(context, TOKENS[:30], 0)
    data = context.state.seq_get(0)
    context.memory.seq_rm(0, 10)  # while all is there, it can be cut
    context.memory.clear()
    context.state.seq_set(0, data)
    with pytest.raises(MemoryOperationError, match="window"):
        context.memory.seq_rm(0, 10)
    assert context.memory.seq_pos_max(0) == 29
