"""Any order of decodes, cuts, copies, snapshots, checkpoints and aborts, against evaluations from scratch.

LLAMACY_WALKS is the number of walks of each kind of memory, LLAMACY_WALK_SEED an integer to begin with.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from llamacy.checkpoint.fingerprint import Fingerprint
from llamacy.checkpoint.prefix import Prefix
from llamacy.checkpoint.ram import RamStore
from llamacy.checkpoint.registry import Checkpoint, Registry
from llamacy.checkpoint.snapshot import Snapshot, can_cut
from llamacy.core.context import Context
from llamacy.core.model import Model
from llamacy.errors import CheckpointError, DecodeAbortedError, MemoryOperationError, StaleCheckpointError
from tests.helpers import data
from tests.helpers.arch import CONTEXT

from .conftest import decode

FLASH_ATTENTION = {"flash_attn_type": "enabled", "type_k": "f16", "type_v": "f16"}
# name: file, parameters of the context; the sequences of some share a buffer
WALKS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, unified": ("llama", {"kv_unified": True}),
    "llama, micro-batches": ("llama", {"n_ubatch": 4}),
    "llama, flash attention": ("llama", FLASH_ATTENTION),
    "gemma3": ("gemma3", {}),
    "gemma3, window, micro-batches": ("gemma3", {"swa_full": False, "n_ubatch": 4}),
    "gemma3, window": ("gemma3", {"swa_full": False}),
    "gemma3, window, unified": ("gemma3", {"swa_full": False, "kv_unified": True}),
    "mamba": ("mamba", {}),
    "mamba2": ("mamba2", {}),
    "mamba2, micro-batches": ("mamba2", {"n_ubatch": 4}),
    "rwkv7": ("rwkv7", {}),
    "qwen35": ("qwen35", {}),
    "qwen35, unified": ("qwen35", {"kv_unified": True}),
    "qwen35, rollback": ("qwen35", {"n_rs_seq": 4}),
}
N_SEQ = 2
N_WALKS = int(os.environ.get("LLAMACY_WALKS", "8"))
N_STEPS = 40
LONGEST = 40
# batches of other sizes, and cells in other places, are summed up in another order; a wrong state is off by much more
TOLERANCE = 2e-3

SEQ = st.integers(0, N_SEQ - 1)
PIECE = st.lists(st.integers(260, 264), min_size=1, max_size=5)
LONG_PIECE = st.lists(st.integers(260, 264), min_size=6, max_size=18)


def told(error: Exception, reason: str) -> None:
    assert reason in str(error)


class Walk(RuleBasedStateMachine):
    """One context, and lists of what its sequences hold.

    How far a decode comes that is aborted is a matter of chance, so no rule has a precondition.
    """

    make: Callable[[], Any]
    fresh: Any
    n_steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.store = RamStore(1 << 20)
        self.snapshots: list[Snapshot] = []
        self.open()

    def open(self) -> None:
        self.context = self.make()
        self.registry = Registry(self.context)
        self.on_device = self.context.memory.kind in ("recurrent", "hybrid")
        self.device = Registry(self.context, on_device=self.on_device)
        self.held: list[list[int]] = [[] for _ in range(N_SEQ)]
        self.rows: list[np.ndarray | None] = [None] * N_SEQ
        self.checkpoints: list[tuple[Registry, Checkpoint]] = []

    def teardown(self) -> None:
        self.context.close()

    @rule()
    def close(self) -> None:
        checkpoints = self.checkpoints
        self.context.close()
        assert self.registry.closed
        assert not any(checkpoint.valid for _, checkpoint in checkpoints)
        self.open()

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

    @rule(seq_id=SEQ, piece=LONG_PIECE)
    def abort(self, seq_id: int, piece: list[int]) -> None:
        if len(self.held[seq_id]) + len(piece) > LONGEST:
            self.clear(seq_id)
        held, ended = self.held[seq_id], threading.Event()

        def abort_it() -> None:
            while not ended.is_set():
                self.context.abort()

        thread = threading.Thread(target=abort_it)
        thread.start()
        try:
            row = decode(self.context, piece, len(held), seq_id)
        except DecodeAbortedError:
            row = None
        finally:
            ended.set()
            thread.join()
        n = self.context.memory.seq_pos_max(seq_id) + 1
        if row is not None:
            assert n == len(held) + len(piece)
            assert np.abs(row - self.fresh((*held, *piece))).max() <= TOLERANCE
        elif self.context.memory.kind in ("recurrent", "hybrid"):
            assert n == 0
        else:
            assert len(held) <= n < len(held) + len(piece)
        self.held[seq_id] = [*held, *piece][:n]
        self.rows[seq_id] = row

    @rule(seq_id=SEQ, by=st.integers(1, 9))
    def shift_and_back(self, seq_id: int, by: int) -> None:
        memory = self.context.memory
        if not memory.can_shift:
            with pytest.raises(MemoryOperationError):
                memory.seq_add(seq_id, 0, -1, by)
            return
        memory.seq_add(seq_id, 0, -1, by)
        memory.seq_add(seq_id, 0, -1, -by)

    @rule(seq_id=SEQ)
    def keep(self, seq_id: int) -> None:
        self.context.memory.seq_keep(seq_id)
        self.held[1 - seq_id], self.rows[1 - seq_id] = [], None

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

    @rule(seq_id=SEQ, number=st.integers(0, 4), part=st.none() | st.integers(1, LONGEST))
    def restore(self, seq_id: int, number: int, part: int | None) -> None:
        if not self.snapshots:
            return
        snapshot = self.snapshots[number % len(self.snapshots)]
        try:
            restored = snapshot.restore(self.context, seq_id=seq_id, n_elements=part)
        except CheckpointError as error:
            told(error, "nothing was changed")
            return
        self.restored(seq_id, snapshot.prefix, restored)

    @rule(seq_id=SEQ, number=st.integers(0, 4), where=st.none() | st.integers(0, 10**6), bit=st.integers(0, 7))
    def restore_damaged(self, seq_id: int, number: int, where: int | None, bit: int) -> None:
        if not self.snapshots:
            return
        snapshot = self.snapshots[number % len(self.snapshots)]
        facts, state = snapshot.fingerprint, bytearray(snapshot.state)
        if where is None:
            facts = Fingerprint({**facts, "llama_cpp": "another"})
        else:
            state[where % len(state)] ^= 1 << bit
        try:
            Snapshot(facts, snapshot.prefix, bytes(state)).restore(self.context, seq_id=seq_id)
        except CheckpointError as error:
            if "nothing was changed" not in str(error):
                told(error, f"sequence {seq_id} is empty now")
                self.held[seq_id], self.rows[seq_id] = [], None
            return
        # numbers of tensors: only files have checksums
        assert where is not None
        self.clear(seq_id)

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

    @rule(number=st.integers(0, 7))
    def go_back(self, number: int) -> None:
        if not self.checkpoints:
            return
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
        type(self).n_steps += 1
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
        # what is rounded to 16 bits is rounded in the evaluation from scratch, too
        rounding = FLASH_ATTENTION if params is FLASH_ATTENTION else {}
        with Context(model, **CONTEXT | rounding) as scratch:
            known: dict[tuple[int, ...], np.ndarray] = {}

            def fresh(tokens: tuple[int, ...]) -> np.ndarray:
                if tokens not in known:
                    scratch.memory.clear()
                    known[tokens] = decode(scratch, tokens)
                return known[tokens]

            parts = {
                "make": staticmethod(lambda: Context(model, **sizes)),
                "fresh": staticmethod(fresh),
            }
            machine = type("Walk", (Walk,), parts)
            if "LLAMACY_WALK_SEED" in os.environ:
                seed(int(os.environ["LLAMACY_WALK_SEED"]))(machine)
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=N_WALKS,
                    stateful_step_count=N_STEPS,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
            print(f"{name}: {machine.n_steps} steps")
