"""Faults of other projects with saved states and prompt caches; the ids are those of the public fault cases."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy.checkpoint.disk import DiskStore
from llamacy.checkpoint.prefix import Prefix
from llamacy.checkpoint.ram import RamStore
from llamacy.checkpoint.registry import Registry
from llamacy.checkpoint.snapshot import Snapshot

from .conftest import KINDS, PROMPT, MakeContext, decode
from .processes import FACTS, snapshot_of

TOLERANCE = 1e-4


def in_batches(context: Any, tokens: list[int], start: int = 0, size: int = 8) -> np.ndarray:
    """Decode tokens from one on, in batches that begin at multiples of a size; return the last row."""
    row = None
    while start < len(tokens):
        end = min(len(tokens), (start // size + 1) * size)
        row = decode(context, tokens[start:end], start)
        start = end
    assert row is not None
    return row


def greedy(context: Any, row: np.ndarray, pos: int, n: int) -> list[int]:
    """Return the likeliest tokens that follow."""
    tokens = []
    for index in range(n):
        tokens.append(int(row.argmax()))
        row = decode(context, tokens[-1:], pos + index)
    return tokens


@pytest.mark.parametrize("name", KINDS)
def test_kv_001_alternating_snapshots_stay_apart(make_kind: MakeContext, name: str) -> None:
    context = make_kind(name)
    prompts = [PROMPT, [PROMPT[0], *reversed(PROMPT[1:])]]
    taken, expected = [], []
    for prompt in prompts:
        context.memory.clear()
        row = decode(context, prompt)
        taken.append(Snapshot.take(context, prompt, logits=row))
        expected.append(greedy(context, row, len(prompt), 6))
    assert expected[0] != expected[1]
    for index in (0, 1, 0, 1, 1, 0):
        restored = taken[index].restore(context)
        assert greedy(context, np.array(restored.logits), len(PROMPT), 6) == expected[index]


def test_kv_005_history_edited_in_the_middle_many_times_does_not_drift(make_kind: MakeContext) -> None:
    context, cold = make_kind("qwen35"), make_kind("qwen35")
    chosen = random.Random(5)
    held: list[int] = []
    messages: list[list[int]] = []
    n_decoded = n_asked = 0
    with Registry(context) as registry:
        for _ in range(20):
            messages += [[chosen.randrange(260, 280) for _ in range(3)] for _ in range(2)]
            if len(messages) > 4:
                messages[-4] = [259]
            prompt = [token for message in messages for token in message]
            if len(prompt) > 120:
                break
            # what sequence and prompt share, or the latest checkpoint in it
            if held != prompt[: len(held)]:
                checkpoint = registry.find(0, prompt)
                start = 0 if checkpoint is None else registry.restore(checkpoint).n_positions
                if checkpoint is None:
                    context.memory.seq_rm(0)
                del held[start:]
            n_asked += len(prompt)
            row = None
            while len(held) < len(prompt):
                end = min(len(prompt), (len(held) // 8 + 1) * 8)
                n_decoded += end - len(held)
                row = decode(context, prompt[len(held) : end], len(held))
                held += prompt[len(held) : end]
                registry.capture(0, held)
            cold.memory.clear()
            assert row is not None
            assert np.abs(row - in_batches(cold, prompt)).max() <= TOLERANCE
    assert n_decoded < n_asked / 2


@pytest.mark.parametrize("name", ["qwen35", "mamba2"])
def test_kv_006_system_prompt_is_reused_from_disk(make_kind: MakeContext, tmp_path: Path, name: str) -> None:
    context, later, cold = (make_kind(name) for _ in range(3))
    decode(context, PROMPT)
    with DiskStore(tmp_path) as store:
        store.put(Snapshot.take(context, PROMPT))
    context.close()
    question = [265, 268, 272]
    with DiskStore(tmp_path) as store:
        restored = store.restore(later, PROMPT + question)
    assert restored is not None
    assert restored.n_positions == len(PROMPT)
    row = decode(later, question, len(PROMPT))
    decode(cold, PROMPT)
    expected = greedy(cold, decode(cold, question, len(PROMPT)), len(PROMPT) + 3, 8)
    assert greedy(later, row, len(PROMPT) + 3, 8) == expected


def test_kv_008_checkpoints_are_found_by_position(make_kind: MakeContext) -> None:
    context = make_kind("qwen35")
    with Registry(context) as registry:
        for start in range(0, 20, 8):
            decode(context, PROMPT[start : start + 8], start)
            registry.capture(0, PROMPT[: start + 8])
        checkpoint = registry.find(0, [*PROMPT[:17], 7, 8, 9])
        assert checkpoint is not None
        assert registry.restore(checkpoint).n_positions == 16


@pytest.mark.parametrize("spoil", ["flip", "cut"])
def test_kv_009_failed_restore_does_not_poison_what_follows(make_kind: MakeContext, tmp_path: Path, spoil: str) -> None:
    context, cold = make_kind("llama"), make_kind("llama")
    store = DiskStore(tmp_path)
    store.put(Snapshot.take(context, PROMPT, logits=decode(context, PROMPT)))
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content if spoil == "flip" else content[: len(content) // 2])
    context.memory.clear()
    assert store.restore(context, [*PROMPT, 7]) is None
    assert store.stats.n_corrupt == 1
    assert np.array_equal(decode(context, PROMPT), decode(cold, PROMPT))


@pytest.mark.parametrize("name", KINDS)
def test_kv_011_what_is_told_to_be_restored_is_there(make_kind: MakeContext, tmp_path: Path, name: str) -> None:
    context = make_kind(name)
    decode(context, PROMPT)
    DiskStore(tmp_path).put(Snapshot.take(context, PROMPT))
    later = make_kind(name)
    restored = DiskStore(tmp_path).restore(later, [*PROMPT, 1, 2, 3, 4])
    assert restored is not None
    assert restored.n_positions == len(PROMPT) == later.memory.seq_pos_max(0) + 1


def test_kv_012_longest_of_all_wins_whatever_was_restored_before(make_kind: MakeContext) -> None:
    context = make_kind("llama")
    store = RamStore()
    decode(context, PROMPT)
    store.put(Snapshot.take(context, PROMPT))
    assert store.restore(context, PROMPT[:11]) is not None
    assert context.memory.seq_pos_max(0) == 9
    restored = store.restore(context, [*PROMPT, 5, 6], n_least=10)
    assert restored is not None
    assert restored.n_positions == len(PROMPT)


def test_kv_013_miss_is_no_error(make_kind: MakeContext) -> None:
    context = make_kind("llama")
    store = RamStore()
    assert store.restore(context, PROMPT) is None
    decode(context, PROMPT)
    store.put(Snapshot.take(context, PROMPT))
    assert store.restore(context, PROMPT[5:9]) is None


@pytest.mark.parametrize("kind", ["ram", "disk"])
def test_kv_015_budget_holds_at_all_times(tmp_path: Path, kind: str) -> None:
    budget = 1 << 20
    store = RamStore(budget) if kind == "ram" else DiskStore(tmp_path, budget)
    for number in range(200):
        store.put(snapshot_of([number % 16, number // 16], n_state_bytes=10_000 + 997 * (number % 50)))
        assert store.n_bytes <= budget
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= budget
    assert store.stats.n_stored == 200
    assert store.stats.n_evicted == 200 - len(store)
    assert store.get(FACTS, Prefix([199 % 16, 199 // 16])) is not None


@pytest.mark.parametrize("swa_full", [False, True])
def test_kv_017_window_is_complete_after_a_prompt_of_twice_its_length(make_kind: MakeContext, swa_full: bool) -> None:
    context, cold = (make_kind("gemma3", swa_full=swa_full) for _ in range(2))
    prompt = PROMPT + PROMPT
    assert len(prompt) > 2 * context.model.n_swa
    snapshot = Snapshot.take(context, prompt, logits=in_batches(context, prompt))
    context.memory.clear()
    restored = snapshot.restore(context)
    expected = greedy(cold, in_batches(cold, prompt), len(prompt), 16)
    assert greedy(context, np.array(restored.logits), len(prompt), 16) == expected
