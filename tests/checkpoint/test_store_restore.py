"""Stores with real contexts: what they give goes on as a fresh evaluation does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy.checkpoint.disk import DiskStore
from llamacy.checkpoint.ram import RamStore
from llamacy.checkpoint.snapshot import Snapshot, can_cut
from llamacy.checkpoint.store import Store
from llamacy.errors import ClosedError

from .conftest import KINDS, PROMPT, MakeContext, decode

# cells that lie elsewhere are summed up in another order; a wrong state is off by more than 0.1
TOLERANCE = 1e-4


@pytest.fixture(params=["ram", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path, closing: Callable[[Any], Any]) -> Store[Any]:
    """A store of each kind."""
    return closing(RamStore() if request.param == "ram" else DiskStore(tmp_path))


@pytest.mark.parametrize("name", KINDS)
def test_two_chats_in_turn_decode_only_what_is_new(make_kind: MakeContext, store: Store[Any], name: str) -> None:
    context = make_kind(name)
    # what each chat gives in a context of its own, in the same pieces
    alone = [make_kind(name) for _ in range(2)]
    chats = [PROMPT[:6], PROMPT[5:0:-1]]
    for turn in range(3):
        for number in range(2):
            chats[number] = prompt = chats[number] + PROMPT[6 + 4 * turn : 10 + 4 * turn]
            restored = store.restore(context, prompt)
            start = 0 if restored is None else restored.n_positions
            assert start == (0 if turn == 0 else len(prompt) - 4)
            if restored is None:
                context.memory.clear()
            row = decode(context, prompt[start:], start)
            assert np.abs(row - decode(alone[number], prompt[start:], start)).max() <= TOLERANCE
            store.put(Snapshot.take(context, prompt, logits=row), can_cut=can_cut(context))
    assert (store.stats.n_hits, store.stats.n_misses) == (4, 2)
    assert store.stats.n_tokens_saved == (10 + 14) + (9 + 13)
    assert len(store) == (2 if can_cut(context) else 6)


def test_whole_prompt_needs_no_decode(make_kind: MakeContext, store: Store[Any]) -> None:
    context = make_kind("qwen35")
    row = decode(context, PROMPT)
    store.put(Snapshot.take(context, PROMPT, logits=row))
    context.memory.clear()
    restored = store.restore(context, PROMPT)
    assert restored is not None
    assert restored.n_positions == len(PROMPT)
    assert np.array_equal(restored.candidates().logits, row)


def test_snapshot_longer_than_the_context_is_passed_over(make_kind: MakeContext, store: Store[Any]) -> None:
    large, small = make_kind("llama", n_ctx=512), make_kind("llama", n_ctx=256)
    long = [PROMPT[i % 20] for i in range(320)]
    for start in range(0, 320, 64):
        decode(large, long[start : start + 64], start)
        if start == 64:
            store.put(Snapshot.take(large, long[:128]))
    store.put(Snapshot.take(large, long))
    restored = store.restore(small, long[:200])
    assert restored is not None
    assert restored.n_positions == 128
    restored = store.restore(large, long[:200])
    assert restored is not None
    assert restored.n_positions == 199


def test_nothing_of_use_changes_nothing(make_kind: MakeContext, store: Store[Any]) -> None:
    context = make_kind("llama")
    decode(context, PROMPT)
    store.put(Snapshot.take(context, PROMPT))
    before = context.state.get()
    assert store.restore(context, [7, 8, 9]) is None
    assert store.restore(context, [*PROMPT, 7], n_least=len(PROMPT)) is None
    assert context.state.get() == before
    context.close()
    with pytest.raises(ClosedError):
        store.restore(context, PROMPT)
