"""Checkpoints of live sequences: going back, and what makes them invalid."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamacy.checkpoint.prefix import MEDIA_ELEMENTS, Media, Prefix
from llamacy.checkpoint.registry import Registry, pauses
from llamacy.checkpoint.snapshot import Snapshot
from llamacy.core.control_vector import ControlVector
from llamacy.errors import (
    CheckpointError,
    ClosedError,
    InvalidBatchError,
    MemoryOperationError,
    StaleCheckpointError,
    StateError,
)
from llamacy.types import StateFlags

from .conftest import PROMPT, UNCUT, MakeContext, decode

TOLERANCE = 1e-5
CUT = 12


def made(make_kind: MakeContext, name: str, **params: Any) -> Any:
    """Return a context whose window, where it has one, can't be cut."""
    return make_kind(name, swa_full=False, **params)


def in_two_pieces(context: Any, registry: Registry | None = None, seq_id: int = 0) -> Any:
    """Decode the prompt in two pieces; return the checkpoint between them, which the registry takes."""
    decode(context, PROMPT[:CUT], 0, seq_id)
    checkpoint = registry.capture(seq_id, PROMPT[:CUT]) if registry is not None else None
    decode(context, PROMPT[CUT:], CUT, seq_id)
    return checkpoint


@pytest.mark.parametrize(
    ("name", "on_device"), [(name, False) for name in UNCUT] + [(name, True) for name in UNCUT if name != "gemma3"]
)
def test_going_back_goes_on_as_if_nothing_had_come_after(make_kind: MakeContext, name: str, on_device: bool) -> None:
    context, alone = made(make_kind, name), made(make_kind, name)
    decode(alone, PROMPT[:CUT])
    expected = [decode(alone, [token], CUT + i) for i, token in enumerate((265, 268, 272))]
    with Registry(context, on_device=on_device) as registry:
        checkpoint = in_two_pieces(context, registry)
        for _ in range(2):
            restored = registry.restore(checkpoint)
            assert restored == (CUT, CUT, None)
            assert context.memory.seq_pos_max(0) == CUT - 1
            found = [decode(context, [token], CUT + i) for i, token in enumerate((265, 268, 272))]
            assert np.abs(np.array(found) - np.array(expected)).max() <= TOLERANCE


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_memory_that_can_be_cut_needs_none(make_kind: MakeContext, name: str) -> None:
    context = make_kind(name)
    with Registry(context) as registry:
        assert not registry.needed
        assert in_two_pieces(context, registry) is None
        assert len(registry) == 0


def test_registry_of_none_takes_none(make_kind: MakeContext) -> None:
    context = make_kind("qwen35")
    with Registry(context, n_most=0) as registry:
        assert registry.needed
        assert in_two_pieces(context, registry) is None
        assert registry.find(0, PROMPT) is None


def test_empty_sequence_gives_none(make_kind: MakeContext) -> None:
    context = make_kind("mamba")
    with Registry(context) as registry:
        assert registry.capture(0, []) is None
        in_two_pieces(context)
        context.memory.clear()
        with pytest.raises(CheckpointError, match="positions up to -1"):
            registry.capture(0, PROMPT)
        assert len(registry) == 0


def test_latest_beginning_is_found_and_leaves_a_token(make_kind: MakeContext) -> None:
    context = make_kind("qwen35")
    with Registry(context) as registry:
        taken = {}
        for start in range(0, 20, 4):
            decode(context, PROMPT[start : start + 4], start)
            taken[start + 4] = registry.capture(0, PROMPT[: start + 4])
        assert registry.find(0, [*PROMPT, 5]) is taken[20]
        # the whole prompt: without logits, its last token has to be decoded again
        assert registry.find(0, PROMPT) is taken[16]
        assert registry.find(0, [*PROMPT[:9], 5]) is taken[8]
        assert registry.find(0, PROMPT[:3]) is None
        assert registry.find(0, [5, *PROMPT]) is None
        registry.restore(taken[8])
        assert registry.checkpoints(0) == [taken[4], taken[8]]
        assert not taken[12].valid
        with pytest.raises(StaleCheckpointError, match="nothing was changed"):
            registry.restore(taken[12])
        assert context.memory.seq_pos_max(0) == 7


def test_same_place_again_is_the_same_checkpoint(make_kind: MakeContext) -> None:
    context = make_kind("qwen35")
    decode(context, PROMPT)
    with Registry(context) as registry:
        first = registry.capture(0, PROMPT)
        assert registry.capture(0, Prefix(PROMPT)) is first
        assert len(registry) == 1
        assert registry.n_bytes == first.n_bytes == context.state.seq_size(0, 1) + 4 * len(PROMPT)


@pytest.fixture
def two(make_kind: MakeContext) -> Any:
    """A hybrid context with two sequences that hold the prompt, and checkpoints of them at 4, 8 and 12."""
    context = make_kind("qwen35", n_seq_max=3)
    with with_checkpoints(context) as registry:
        yield context, registry


def with_checkpoints(context: Any) -> Registry:
    """Let two sequences hold the prompt, and return checkpoints of them at 4, 8 and 12."""
    registry = Registry(context)
    for seq_id in (0, 1):
        for start in range(0, 12, 4):
            decode(context, PROMPT[start : start + 4], start, seq_id)
            registry.capture(seq_id, PROMPT[: start + 4])
    return registry


ALL = [4, 8, 12]


PARTIAL = StateFlags.PARTIAL_ONLY
DEVICE = StateFlags.PARTIAL_ONLY | StateFlags.ON_DEVICE


@pytest.mark.parametrize(
    ("name", "mutate", "first", "second"),
    [
        ("mamba2", lambda c: c.memory.seq_rm(0, 5, 6), [4], ALL),
        ("mamba2", lambda c: c.memory.seq_rm(0, 6, 6), ALL, ALL),
        ("mamba2", lambda c: c.memory.seq_rm(0), [], ALL),
        ("mamba2", lambda c: c.memory.seq_rm(0, -1, 2), [], ALL),
        ("mamba2", lambda c: c.memory.seq_rm(2), ALL, ALL),
        ("mamba2", lambda c: c.memory.seq_add(0, 8, -1, 4), [4, 8], ALL),
        ("mamba2", lambda c: c.memory.seq_add(0, 8, -1, -3), [4], ALL),
        ("mamba2", lambda c: c.memory.seq_add(0, 8, -1, 0), ALL, ALL),
        ("mamba2", lambda c: c.memory.seq_div(0, 8, -1, 2), [4], ALL),
        ("mamba2", lambda c: c.memory.seq_div(0, 8, -1, 1), ALL, ALL),
        ("qwen35.rs4", lambda c: c.memory.seq_rm(1, 10, -1), ALL, [4, 8]),
        ("unified", lambda c: c.memory.seq_cp(0, 1, 4, 6), ALL, [4]),
        ("unified", lambda c: c.memory.seq_keep(1), [], ALL),
        ("qwen35", lambda c: c.memory.seq_cp(0, 0), ALL, ALL),
        ("qwen35", lambda c: c.memory.seq_cp(2, 0), [], ALL),
        ("qwen35", lambda c: c.memory.seq_keep(1), [], ALL),
        ("qwen35", lambda c: c.memory.seq_keep(2), [], []),
        ("qwen35", lambda c: c.memory.clear(), [], []),
        ("qwen35", lambda c: c.state.set(c.state.get()), [], []),
        ("qwen35", lambda c: c.state.seq_set(1, c.state.seq_get(0)), ALL, []),
        ("qwen35", lambda c: c.state.seq_set(1, c.state.seq_get(0, PARTIAL), PARTIAL), ALL, ALL),
        ("qwen35", lambda c: decode(c, [260], 12), ALL, ALL),
        ("qwen35", lambda c: c.state.seq_get(0, DEVICE), ALL, ALL),
        # what is refused touches nothing
        ("qwen35", lambda c: refused(c.memory.seq_rm, 0, 7, -1), ALL, ALL),
        ("qwen35", lambda c: refused(c.memory.seq_add, 0, 8, -1, 4), ALL, ALL),
        ("qwen35", lambda c: refused(c.memory.seq_cp, 0, 1, 4, 6), ALL, ALL),
        ("qwen35", lambda c: refused(decode, c, [260], 11), ALL, ALL),
        ("qwen35", lambda c: refused(c.state.seq_set, 1, c.state.seq_get(0)[:-1]), ALL, ALL),
    ],
)
def test_mutation_drops_what_it_touches_and_nothing_else(
    make_kind: MakeContext, name: str, mutate: Callable[[Any], None], first: list[int], second: list[int]
) -> None:
    kind, params = ("qwen35", {"kv_unified": True}) if name == "unified" else (name, {})
    context = make_kind(kind, n_seq_max=3, **params)
    with with_checkpoints(context) as registry:
        before = {seq_id: registry.checkpoints(seq_id) for seq_id in (0, 1)}
        mutate(context)
        for seq_id, expected in ((0, first), (1, second)):
            assert [checkpoint.n_positions for checkpoint in registry.checkpoints(seq_id)] == expected
            assert [checkpoint.n_positions for checkpoint in before[seq_id] if checkpoint.valid] == expected
        lasts = [context.memory.seq_pos_max(seq_id) for seq_id in range(3)]
        for checkpoint in before[0] + before[1]:
            if not checkpoint.valid:
                with pytest.raises(StaleCheckpointError):
                    registry.restore(checkpoint)
        assert [context.memory.seq_pos_max(seq_id) for seq_id in range(3)] == lasts


def refused(call: Callable[..., Any], *args: Any) -> None:
    with pytest.raises((InvalidBatchError, MemoryOperationError, StateError)):
        call(*args)


def test_state_that_fails_midway_drops_the_checkpoints_of_the_sequence(make_kind: MakeContext) -> None:
    context = make_kind("qwen35", n_seq_max=3)
    with with_checkpoints(context) as registry:
        other = make_kind("qwen35", n_seq_max=3, type_k="F16")
        decode(other, PROMPT)
        with pytest.raises(StateError, match="sequence 0 is empty now"):
            context.state.seq_set(0, other.state.seq_get(0))
        assert registry.checkpoints(0) == []
        assert [checkpoint.n_positions for checkpoint in registry.checkpoints(1)] == ALL


def test_copy_of_a_sequence_has_its_checkpoints_for_free(two: Any, make_kind: MakeContext) -> None:
    context, registry = two
    n_bytes = registry.n_bytes
    context.memory.seq_cp(0, 2)
    decode(context, PROMPT[12:16], 12, 2)
    assert [checkpoint.n_positions for checkpoint in registry.checkpoints(2)] == ALL
    assert registry.n_bytes == n_bytes + sum(4 * n for n in ALL)
    checkpoint = registry.find(2, [*PROMPT[:8], 7])
    assert registry.restore(checkpoint).n_positions == 8
    alone = make_kind("qwen35")
    decode(alone, PROMPT[:4])
    decode(alone, PROMPT[4:8], 4)
    assert np.abs(decode(context, [7], 8, 2) - decode(alone, [7], 8)).max() <= TOLERANCE
    assert [checkpoint.n_positions for checkpoint in registry.checkpoints(0)] == ALL


def test_restore_while_a_copy_is_pending_is_refused_and_keeps_the_checkpoint(two: Any) -> None:
    context, registry = two
    checkpoint = registry.checkpoints(0)[1]
    context.memory.seq_cp(0, 2)
    with pytest.raises(CheckpointError, match="nothing was changed"):
        registry.restore(checkpoint)
    assert checkpoint.valid
    decode(context, PROMPT[12:16], 12, 2)
    assert registry.restore(checkpoint).n_positions == 8


def test_sequence_that_lost_its_end_makes_its_checkpoints_stale(two: Any) -> None:
    context, registry = two
    checkpoint = registry.checkpoints(0)[-1]
    context.memory.seq_rm(0)
    decode(context, PROMPT[:4])
    before = context.state.get()
    with pytest.raises(StaleCheckpointError, match="nothing was changed"):
        registry.restore(checkpoint)
    assert context.state.get() == before
    assert not checkpoint.valid


def test_failure_midway_empties_the_sequence_and_all_registries(make_kind: MakeContext) -> None:
    context = made(make_kind, "gemma3", n_seq_max=2)
    wrong = made(make_kind, "gemma3", n_seq_max=2, type_k="f16")
    with Registry(context) as registry, Registry(context) as other, Registry(wrong) as source:
        mine, theirs = in_two_pieces(context, registry), other.capture(0, PROMPT)
        beside = in_two_pieces(context, registry, 1)
        # llama.cpp finds out about the type when it has begun
        mine._data = in_two_pieces(wrong, source)._data
        with pytest.raises(CheckpointError, match="sequence 0 is empty now"):
            registry.restore(mine)
        assert context.memory.seq_pos_max(0) == -1
        assert (mine.valid, theirs.valid, beside.valid) == (False, False, True)
        assert registry.restore(beside).n_positions == CUT


def test_stop_between_restore_and_cut_empties_the_sequence(two: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    context, registry = two
    first, second = registry.checkpoints(0)[:2]

    def stopped(prefix: Prefix) -> range:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules[Registry.__module__], "last_positions", stopped)
    with pytest.raises(KeyboardInterrupt):
        registry.restore(second)
    assert context.memory.seq_pos_max(0) == -1
    assert (first.valid, second.valid) == (False, False)
    assert context.memory.seq_pos_max(1) == 11


def test_snapshot_that_replaces_a_sequence_makes_its_checkpoints_invalid(two: Any) -> None:
    context, registry = two
    snapshot = Snapshot.take(context, PROMPT[:12])
    assert len(registry.checkpoints(0)) == 3
    snapshot.restore(context)
    assert registry.checkpoints(0) == []
    assert len(registry.checkpoints(1)) == 3


def test_device_place_taken_by_another_registry_is_noticed(make_kind: MakeContext) -> None:
    context = make_kind("qwen35")
    with (
        Registry(context, on_device=True) as first,
        Registry(context, on_device=True) as second,
        Registry(context) as host,
    ):
        decode(context, PROMPT[:8])
        old, kept = first.capture(0, PROMPT[:8]), host.capture(0, PROMPT[:8])
        decode(context, PROMPT[8:12], 8)
        new = second.capture(0, PROMPT[:12])
        assert [checkpoint.valid for checkpoint in (old, kept, new)] == [False, True, True]
        with pytest.raises(StaleCheckpointError):
            first.restore(old)
        assert second.restore(new).n_positions == 12
        # one that nobody told
        context.state.seq_get(0, 3)
        before = context.state.get()
        with pytest.raises(StaleCheckpointError):
            second.restore(new)
        assert context.state.get() == before


def test_limits_drop_the_least_recently_used(make_kind: MakeContext) -> None:
    context = make_kind("mamba", n_seq_max=2)
    size = context.state.seq_size(0, 1)
    with Registry(context, n_most=3) as registry:
        for start in range(0, 20, 4):
            decode(context, PROMPT[start : start + 4], start)
            registry.capture(0, PROMPT[: start + 4])
            registry.capture(0, PROMPT[: start + 4])
            assert len(registry) <= 3
        assert [checkpoint.n_positions for checkpoint in registry.checkpoints(0)] == [12, 16, 20]
        size = registry.checkpoints(0)[0].n_bytes
    with Registry(context, n_bytes_most=2 * size + 100) as registry:
        context.memory.clear()
        for start in range(0, 12, 4):
            decode(context, PROMPT[start : start + 4], start)
            registry.capture(0, PROMPT[: start + 4])
            assert registry.n_bytes <= 2 * size + 100
        assert [checkpoint.n_positions for checkpoint in registry.checkpoints(0)] == [8, 12]
    with Registry(context, n_bytes_most=10) as registry:
        assert registry.capture(0, PROMPT[:12]) is None
        assert len(registry) == 0


def test_other_adapters_hide_checkpoints_until_they_are_back(make_kind: MakeContext) -> None:
    context = make_kind("qwen35")
    with Registry(context) as registry:
        checkpoint = in_two_pieces(context, registry)
        rows = np.full((1, context.model.n_embd), 0.1, np.float32)
        context.set_adapter_cvec(ControlVector(rows))
        assert registry.find(0, PROMPT) is None
        with pytest.raises(StaleCheckpointError, match="control vector"):
            registry.restore(checkpoint)
        context.set_adapter_cvec(None)
        assert registry.find(0, PROMPT) is checkpoint
        assert registry.restore(checkpoint).n_positions == CUT


def test_checkpoint_of_another_registry_is_refused(two: Any) -> None:
    context, registry = two
    with Registry(context) as other, pytest.raises(StaleCheckpointError):
        other.restore(registry.checkpoints(0)[0])


def test_registry_and_context_do_not_keep_each_other_alive(make_kind: MakeContext) -> None:
    context = make_kind("qwen35")
    registry = Registry(context)
    gone = weakref.ref(registry)
    del registry
    gc.collect()
    assert gone() is None
    context.memory.clear()  # nobody is left to be told


@pytest.mark.parametrize("observer", [None, 5, "text", object()])
def test_what_can_not_be_told_is_no_observer(make_kind: MakeContext, observer: object) -> None:
    context = make_kind("qwen35")
    with pytest.raises(TypeError, match="invalidate"):
        context.memory.observe(observer)
    context.memory.clear()


def test_observer_that_can_not_be_closed_is_reported_and_the_others_are_closed(
    make_kind: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def invalidate(self, seq_id: int | None, from_pos: int = 0) -> None: ...

        def inherit(self, seq_id_src: int, seq_id_dst: int) -> None: ...

        def invalidate_device(self, seq_id: int) -> None: ...

        def close(self) -> None:
            raise RuntimeError("of a test")

    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda info: reported.append(str(info.exc_value)))
    context = make_kind("qwen35")
    broken = Broken()
    context.memory.observe(broken)
    registry = Registry(context)
    context.close()
    assert reported == ["of a test"]
    assert registry.closed


def test_closed_context_closes_all_of_its_registries(make_kind: MakeContext) -> None:
    context = make_kind("qwen35")
    registries = [Registry(context), Registry(context)]
    checkpoint = in_two_pieces(context, registries[0])
    context.close()
    assert all(registry.closed for registry in registries)
    assert not checkpoint.valid
    for call in (lambda: registries[0].capture(0, PROMPT), lambda: registries[0].restore(checkpoint)):
        with pytest.raises(ClosedError):
            call()


def test_closed_context_closes_the_registry(make_kind: MakeContext) -> None:
    context = make_kind("qwen35")
    registry = Registry(context)
    checkpoint = in_two_pieces(context, registry)
    context.close()
    with pytest.raises(ClosedError):
        registry.restore(checkpoint)
    assert registry.closed
    assert len(registry) == 0


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_attention_on_the_device_is_refused(make_kind: MakeContext, name: str) -> None:
    with pytest.raises(CheckpointError, match="can't be kept on the device"):
        Registry(made(make_kind, name), on_device=True)


@pytest.mark.parametrize("limits", [{"n_most": -1}, {"n_bytes_most": -1}])
def test_negative_limit_is_refused(make_kind: MakeContext, limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="negative"):
        Registry(make_kind("qwen35"), **limits)


def test_sequence_that_is_none_is_refused(make_kind: MakeContext) -> None:
    with Registry(make_kind("qwen35")) as registry, pytest.raises(CheckpointError, match="ids are from 0 to 0"):
        registry.capture(1, PROMPT)


def test_pauses_are_at_borders_multiples_media_and_before_the_last_token() -> None:
    prefix = Prefix(range(20), [Media(7, b"", 5, 5)])
    # elements 7 to 10 are the medium
    assert pauses(prefix, 0, borders=(3, 9, 15, 24, 99, -1)) == [3, 7, 11, 15, 23]
    assert pauses(prefix, 11, borders=(3, 15)) == [15, 23]
    assert pauses(prefix, 0, interval=5) == [5, 7, 11, 15, 20, 23]
    assert pauses(prefix, 23) == []
    assert pauses(Prefix([]), 0) == []
    assert pauses(Prefix([1]), 0) == []


@given(
    n=st.integers(0, 30),
    places=st.lists(st.integers(0, 30), max_size=2),
    n_held=st.integers(0, 40),
    interval=st.integers(0, 9),
)
def test_pauses_never_cut_media_nor_repeat(n: int, places: list[int], n_held: int, interval: int) -> None:
    media = [Media(min(at, n), b"", 1, 1) for at in sorted(places)]
    prefix = Prefix(range(n), media)
    found = pauses(prefix, n_held, interval=interval, borders=range(len(prefix)))
    inside = {
        medium.at + number * MEDIA_ELEMENTS + k for number, medium in enumerate(media) for k in range(1, MEDIA_ELEMENTS)
    }
    assert found == [place for place in range(n_held + 1, len(prefix)) if place > 0 and place not in inside]


def test_registry_is_shown_with_what_it_holds(make_kind: MakeContext) -> None:
    context = make_kind("mamba")
    decode(context, [1, 2, 3])
    registry = Registry(context)
    checkpoint = registry.capture(0, [1, 2, 3])
    assert checkpoint is not None
    assert repr(registry) == f"<Registry of 1 checkpoints, {registry.n_bytes} bytes>"
    registry.close()
    assert repr(registry) == "<Registry closed>"
    assert repr(Registry(make_kind("llama"))) == "<Registry of a memory that needs no checkpoints>"
