"""Any order of decodes, cuts, copies, snapshots and checkpoints, against evaluations from scratch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from llamacy.checkpoint.prefix import Prefix
from llamacy.checkpoint.ram import RamStore
from llamacy.checkpoint.registry import Checkpoint, Registry
from llamacy.checkpoint.snapshot import Snapshot, can_cut
from llamacy.core.context import Context
from llamacy.core.model import Model
from llamacy.errors import CheckpointError, MemoryOperationError, StaleCheckpointError
from tests.helpers import data
from tests.helpers.arch import CONTEXT

from .conftest import decode

# name: file, parameters of the context; the sequences of some share a buffer
WALKS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, unified": ("llama", {"kv_unified": True}),
    "gemma3, window": ("gemma3", {"swa_full": False}),
    "gemma3, window, unified": ("gemma3", {"swa_full": False, "kv_unified": True}),
    "mamba": ("mamba", {}),
    "mamba2": ("mamba2", {}),
    "rwkv7": ("rwkv7", {}),
    "qwen35": ("qwen35", {}),
    "qwen35, unified": ("qwen35", {"kv_unified": True}),
    "qwen35, rollback": ("qwen35", {"n_rs_seq": 4}),
}
N_SEQ = 2
LONGEST = 40
# batches of other sizes, and cells in other places, are summed up in another order; a wrong state is off by much more
TOLERANCE = 2e-3

SEQ = st.integers(0, N_SEQ - 1)
PIECE = st.lists(st.integers(260, 264), min_size=1, max_size=5)


def told(error: Exception, reason: str) -> None:
    assert reason in str(error)


class Walk(RuleBasedStateMachine):
    """One context, and lists of what its sequences hold."""

    context: Any
    fresh: Any

    def __init__(self) -> None:
        super().__init__()
        self.context.memory.clear()
        self.registry = Registry(self.context)
        self.on_device = self.context.memory.kind in ("recurrent", "hybrid")
        self.device = Registry(self.context, on_device=self.on_device)
        self.store = RamStore(1 << 20)
        self.held: list[list[int]] = [[] for _ in range(N_SEQ)]
        self.rows: list[np.ndarray | None] = [None] * N_SEQ
        self.snapshots: list[Snapshot] = []
        self.checkpoints: list[tuple[Registry, Checkpoint]] = []

    def teardown(self) -> None:
        self.registry.close()
        self.device.close()

    @initialize(pieces=st.tuples(PIECE, PIECE))
    def begin(self, pieces: tuple[list[int], list[int]]) -> None:
        for seq_id, piece in enumerate(pieces):
            self.decode(seq_id, piece)

    @rule(piece=PIECE)
    def go_on(self, piece: list[int]) -> None:
        for seq_id in range(N_SEQ):
            self.decode(seq_id, piece)

    @rule(seq_id=SEQ, piece=PIECE)
    def decode(self, seq_id: int, piece: list[int]) -> None:
        if len(self.held[seq_id]) + len(piece) > LONGEST:
            self.clear(seq_id)
        held = self.held[seq_id]
        row = decode(self.context, piece, len(held), seq_id)
        held += piece
        self.rows[seq_id] = row
        assert np.abs(row - self.fresh(tuple(held))).max() <= TOLERANCE

    @rule(seq_id=SEQ, n_less=st.integers(1, 9))
    def cut(self, seq_id: int, n_less: int) -> None:
        n = len(self.held[seq_id]) - n_less
        if n < 0:
            return
        try:
            self.context.memory.seq_rm(seq_id, n, -1)
        except MemoryOperationError:
            assert n
            assert not can_cut(self.context)
            return
        del self.held[seq_id][n:]
        self.rows[seq_id] = None

    @rule(first=SEQ)
    def fork(self, first: int) -> None:
        second = 1 - first
        try:
            self.context.memory.seq_cp(first, second)
        except MemoryOperationError as error:
            told(error, "rolled back")
            return
        self.held[second] = list(self.held[first])
        self.rows[second] = self.rows[first]

    def clear(self, seq_id: int) -> None:
        self.context.memory.seq_rm(seq_id)
        self.held[seq_id], self.rows[seq_id] = [], None

    @rule(seq_id=SEQ, stored=st.booleans())
    def save(self, seq_id: int, stored: bool) -> None:
        if not self.held[seq_id]:
            return
        try:
            snapshot = Snapshot.take(self.context, self.held[seq_id], seq_id=seq_id, logits=self.rows[seq_id])
        except CheckpointError as error:
            told(error, "decode something before")
            return
        if stored:
            assert self.store.put(snapshot, can_cut=can_cut(self.context))
        else:
            self.snapshots = [*self.snapshots[-4:], snapshot]

    @precondition(lambda self: self.snapshots)
    @rule(seq_id=SEQ, number=st.integers(0, 4), part=st.none() | st.integers(1, LONGEST))
    def restore(self, seq_id: int, number: int, part: int | None) -> None:
        snapshot = self.snapshots[number % len(self.snapshots)]
        try:
            restored = snapshot.restore(self.context, seq_id=seq_id, n_elements=part)
        except CheckpointError as error:
            told(error, "nothing was changed")
            return
        self.restored(seq_id, snapshot.prefix, restored)

    @rule(seq_id=SEQ, other=SEQ, piece=PIECE)
    def restore_from_store(self, seq_id: int, other: int, piece: list[int]) -> None:
        wanted = Prefix(self.held[other] + piece)
        try:
            restored = self.store.restore(self.context, wanted, seq_id=seq_id)
        except CheckpointError as error:
            told(error, "nothing was changed")
            return
        if restored is not None:
            self.restored(seq_id, wanted, restored)

    def restored(self, seq_id: int, prefix: Prefix, restored: Any) -> None:
        self.held[seq_id] = prefix.tokens.tolist()[: restored.n_elements]
        self.rows[seq_id] = None if restored.logits is None else np.array(restored.logits)
        if restored.logits is not None:
            assert np.abs(self.rows[seq_id] - self.fresh(tuple(self.held[seq_id]))).max() <= TOLERANCE

    @rule(seq_id=SEQ, on_device=st.booleans())
    def capture(self, seq_id: int, on_device: bool) -> None:
        registry = self.device if on_device else self.registry
        try:
            checkpoint = registry.capture(seq_id, self.held[seq_id])
        except CheckpointError as error:
            told(error, "decode something before")
            return
        if checkpoint is not None:
            self.checkpoints = [*self.checkpoints[-7:], (registry, checkpoint)]
        else:
            assert not registry.needed or not self.held[seq_id]

    @precondition(lambda self: self.checkpoints)
    @rule(number=st.integers(0, 7))
    def go_back(self, number: int) -> None:
        registry, checkpoint = self.checkpoints[number % len(self.checkpoints)]
        valid = checkpoint.valid
        try:
            restored = registry.restore(checkpoint)
        except StaleCheckpointError as error:
            told(error, "nothing was changed")
            # on the device, a copy that is pending can't be told from one that was replaced
            assert not valid or registry is self.device
            return
        except CheckpointError as error:
            told(error, "decode something before")
            return
        assert valid
        seq_id, n = checkpoint.seq_id, restored.n_elements
        assert self.held[seq_id][:n] == checkpoint.prefix.tokens.tolist()
        del self.held[seq_id][n:]
        self.rows[seq_id] = None

    @invariant()
    def holds_what_it_should(self) -> None:
        for seq_id, held in enumerate(self.held):
            assert self.context.memory.seq_pos_max(seq_id) == len(held) - 1
            for registry in (self.registry, self.device):
                for checkpoint in registry.checkpoints(seq_id):
                    n = checkpoint.n_positions
                    assert 0 < n <= len(held)
                    assert checkpoint.prefix.tokens.tolist() == held[:n]


@pytest.mark.parametrize("name", WALKS)
def test_walk_goes_on_as_evaluated_from_scratch(name: str) -> None:
    file, params = WALKS[name]
    with Model(data(f"{file}.gguf")) as model:
        sizes = CONTEXT | {"n_ctx": 128 * N_SEQ, "n_seq_max": N_SEQ} | params
        with Context(model, **sizes) as context, Context(model, **CONTEXT) as scratch:
            known: dict[tuple[int, ...], np.ndarray] = {}

            def fresh(tokens: tuple[int, ...]) -> np.ndarray:
                if tokens not in known:
                    scratch.memory.clear()
                    known[tokens] = decode(scratch, tokens)
                return known[tokens]

            machine = type("Walk", (Walk,), {"context": context, "fresh": staticmethod(fresh)})
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=60,
                    stateful_step_count=40,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
