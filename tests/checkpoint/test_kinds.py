"""Going on after a restore, a cut, a copy, a shift and a checkpoint: every kind of memory, every kind of context."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from llamacy.checkpoint.registry import Registry
from llamacy.checkpoint.snapshot import Snapshot
from llamacy.errors import CheckpointError, MemoryOperationError
from tests.helpers.models import LlamaShape, write_llama

from .conftest import KINDS, PROMPT, MakeContext, decode

# what other sequences hold, and what all go on with
OTHER = [1, *PROMPT[:3:-1]]
AFTER = (265, 268, 272)
N_SEQ = 3
CUT = 12
TOLERANCE = 1e-5
# rounding of one more sum, in six layers of gemma3, or of a position that is stored with 11 bits
ELSEWHERE = 1e-4
ROUNDED_AGAIN = 1e-2

F16 = {"flash_attn_type": "enabled", "type_k": "f16", "type_v": "f16"}
PARAMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "flash attention": F16,
    "on the host": {"offload_kqv": False, "op_offload": False},
    "micro-batches of 8": {"n_ubatch": 8},
    "shared": {"kv_unified": True},
    "window only": {"swa_full": False},
    "window only, shared, micro-batches of 8": {"swa_full": False, "kv_unified": True, "n_ubatch": 8},
}
QUANTIZED = {
    "q8_0": {"type_k": "q8_0", "type_v": "q8_0"},
    "q4_0, q8_0": {"type_k": "q4_0", "type_v": "q8_0"},
    "q8_0, shared": {"type_k": "q8_0", "type_v": "q8_0", "kv_unified": True},
}
# the heads of the models in tests/data are too small for quantized caches
WIDE = "heads of 64"
CASES = [(name, params) for name in KINDS for params in PARAMS if name == "gemma3" or "window" not in params]
CASES += [(WIDE, params) for params in QUANTIZED]


class Kind(NamedTuple):
    """One kind of memory in one kind of context of three sequences."""

    make: Callable[[], Any]
    params: str

    def alone(self, *pieces: list[int], beside: tuple[int, ...] = ()) -> np.ndarray:
        """Return what follows these pieces in sequence 0 of a context that computes nothing else after them.

        The sequences `beside` are filled before, so that the cells are the same ones in a buffer that all share.
        """
        context, pos = self.make(), 0
        for other in beside:
            decode(context, OTHER, 0, other)
        for piece in pieces:
            decode(context, piece, pos)
            pos += len(piece)
        rows = go_on(context, pos)
        context.close()
        return rows


@pytest.fixture
def kind(make_kind: MakeContext, make_model: Any, model_dir: Path, request: pytest.FixtureRequest) -> Kind:
    """One of `CASES`."""
    name, params = request.param
    sizes = {"n_seq_max": N_SEQ, "n_ctx": 128 * N_SEQ}
    if name != WIDE:
        return Kind(lambda: make_kind(name, **(sizes | PARAMS[params])), params)
    shape = LlamaShape(n_vocab=288, n_layer=2, n_embd=128, n_head=2, n_head_kv=2)
    model = make_model(write_llama(model_dir / "heads-of-64.gguf", shape))
    return Kind(lambda: make_kind("llama", model, **(sizes | F16 | QUANTIZED[params])), params)


every_kind = pytest.mark.parametrize("kind", CASES, indirect=True, ids=", ".join)


def go_on(context: Any, pos: int, seq_id: int = 0) -> np.ndarray:
    return np.array([decode(context, [token], pos + i, seq_id) for i, token in enumerate(AFTER)])


def check(rows: np.ndarray, expected: np.ndarray, tolerance: float = TOLERANCE) -> None:
    assert np.abs(rows - expected).max() <= tolerance


@every_kind
@pytest.mark.parametrize("seq_id", [0, 2])
def test_restore(kind: Kind, seq_id: int) -> None:
    source, target = kind.make(), kind.make()
    row = decode(source, PROMPT, 0, 1)
    snapshot = Snapshot.take(source, PROMPT, seq_id=1, logits=row)
    for other in range(N_SEQ):
        decode(target, OTHER, 0, other)
    restored = snapshot.restore(target, seq_id=seq_id)
    assert np.array_equal(np.asarray(restored.logits), row)
    tolerance = ELSEWHERE if "shared" in kind.params else TOLERANCE
    check(go_on(target, len(PROMPT), seq_id), kind.alone(PROMPT), tolerance)
    for other in {0, 1, 2} - {seq_id}:
        check(go_on(target, len(OTHER), other), kind.alone(OTHER), tolerance)


@every_kind
@pytest.mark.parametrize("n_less", [1, 4, 9])
def test_cut(kind: Kind, n_less: int) -> None:
    context = kind.make()
    decode(context, OTHER, 0, 1)
    decode(context, PROMPT)
    before, n = context.state.get(), len(PROMPT) - n_less
    try:
        context.memory.seq_rm(0, n, -1)
    except MemoryOperationError:
        assert context.state.get() == before
        assert context.memory.kind != "attention"
        n = len(PROMPT)
    check(go_on(context, n), kind.alone(PROMPT[:n], beside=(1,)))


@every_kind
def test_fork(kind: Kind) -> None:
    context = kind.make()
    decode(context, PROMPT)
    decode(context, OTHER, 0, 2)
    for copy in (1, 2):
        context.memory.seq_cp(0, copy)
    decode(context, OTHER, len(PROMPT), 1)
    decode(context, PROMPT, len(PROMPT))
    check(go_on(context, len(PROMPT), 2), kind.alone(PROMPT))
    check(go_on(context, len(PROMPT + OTHER), 1), kind.alone(PROMPT, OTHER))
    check(go_on(context, 2 * len(PROMPT)), kind.alone(PROMPT, PROMPT))


@every_kind
def test_shift_of_a_whole_sequence(kind: Kind) -> None:
    # attention sees only how far apart positions are, and recurrent state none of them
    context = kind.make()
    decode(context, OTHER, 0, 1)
    decode(context, PROMPT)
    before, by = context.state.get(), 7
    try:
        context.memory.seq_add(0, 0, -1, by)
    except MemoryOperationError:
        assert context.state.get() == before
        assert not context.memory.can_shift
        by = 0
    assert context.memory.seq_pos_max(0) == len(PROMPT) - 1 + by
    if by and kind.params in QUANTIZED:
        # what is rotated is quantized again: near, and nothing to promise
        assert np.isfinite(go_on(context, len(PROMPT) + by)).all()
        return
    tolerance = ROUNDED_AGAIN if by and kind.params == "flash attention" else ELSEWHERE
    check(go_on(context, len(PROMPT) + by), kind.alone(PROMPT, beside=(1,)), tolerance)


@every_kind
@pytest.mark.parametrize("on_device", [False, True])
def test_checkpoint(kind: Kind, on_device: bool) -> None:
    context = kind.make()
    if on_device and context.memory.kind not in ("recurrent", "hybrid"):
        with pytest.raises(CheckpointError, match="on the device"):
            Registry(context, on_device=True)
        return
    with Registry(context, on_device=on_device) as registry:
        decode(context, OTHER, 0, 1)
        decode(context, PROMPT[:CUT])
        checkpoint = registry.capture(0, PROMPT[:CUT])
        decode(context, PROMPT[CUT:], CUT)
        if checkpoint is None:
            assert not registry.needed
            context.memory.seq_rm(0, CUT)
        else:
            assert registry.restore(checkpoint).n_positions == CUT
        check(go_on(context, CUT), kind.alone(PROMPT[:CUT], beside=(1,)))


@pytest.mark.parametrize("n_kept", [0, 1, 4])
@pytest.mark.parametrize("n_dropped", [1, 6, 13])
def test_shift_after_a_part_was_dropped(
    make_kind: MakeContext, make_model: Any, model_dir: Path, n_kept: int, n_dropped: int
) -> None:
    # in one layer no key has seen the tokens that go; in more layers, what is left isn't what a fresh evaluation gives
    model = make_model(write_llama(model_dir / "one-layer.gguf", LlamaShape(n_vocab=288)))
    context, gap, cold = (make_kind("llama", model) for _ in range(3))
    n_left = len(PROMPT) - n_dropped
    for shifted in (context, gap):
        decode(shifted, PROMPT)
        shifted.memory.seq_rm(0, n_kept, n_kept + n_dropped)
    context.memory.seq_add(0, n_kept + n_dropped, -1, -n_dropped)
    assert (context.memory.seq_pos_min(0), context.memory.seq_pos_max(0)) == (0, n_left - 1)
    decode(cold, PROMPT[:n_kept] + PROMPT[n_kept + n_dropped :])
    expected = go_on(cold, n_left)
    check(go_on(context, n_left), expected)
    # the test can tell: where what is kept stays further away, it gives something else
    if n_kept:
        assert np.abs(go_on(gap, len(PROMPT)) - expected).max() > 1e-3


@pytest.mark.parametrize("type_k", ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"])
def test_shift_of_quantized_heads_that_llama_cpp_does_not_turn_is_refused(
    make_kind: MakeContext, make_model: Any, model_dir: Path, type_k: str
) -> None:
    # its graph of the shift takes a matrix for granted that it has for multiples of 64 only
    shape = LlamaShape(n_vocab=288, n_layer=2, n_head=2, n_head_kv=2)
    model = make_model(write_llama(model_dir / "heads-of-32.gguf", shape))
    context = make_kind("llama", model, flash_attn_type="enabled", type_k=type_k)
    decode(context, PROMPT)
    before = context.state.get()
    assert not context.memory.can_shift
    for shift in (lambda: context.memory.seq_add(0, 4, -1, 3), lambda: context.memory.seq_div(0, 0, -1, 2)):
        with pytest.raises(MemoryOperationError, match="multiple of 64"):
            shift()
    assert context.state.get() == before
    go_on(context, len(PROMPT))
