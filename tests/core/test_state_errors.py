"""States that a context can't take: each is refused with a typed error, and the context goes on working."""

from __future__ import annotations

import contextlib
import resource
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy.core.batch import Batch
from llamacy.errors import ClosedError, StateError
from llamacy.types import StateFlags
from tests.core.test_state import EXACT, PROMPT, TOLERANCE, MakeContext, decode, go_on, make_state_context
from tests.helpers import models

__all__ = ["make_state_context"]

ON_DEVICE = StateFlags.ON_DEVICE
KINDS = ["llama", "gemma3", "mamba", "qwen35"]


@pytest.fixture
def context(make_state_context: MakeContext) -> Any:
    """A context of a llama with the prompt in sequence 0."""
    context = make_state_context("llama", n_seq_max=2)
    decode(context, PROMPT, 0)
    return context


def assert_usable(context: Any) -> None:
    """Check that a prompt gives what it gives on a context that nothing happened to."""
    from llamacy.core.context import Context

    context.memory.clear()
    with Context(context.model, n_threads=1, n_threads_batch=1, **EXACT) as fresh:
        expected = decode(fresh, PROMPT, 0)
    assert np.abs(decode(context, PROMPT, 0) - expected).max() <= TOLERANCE


@pytest.mark.parametrize("seq_id", [-1, 2, 99, 256, 2**31, 2**70])
def test_sequence_out_of_range_is_refused(context: Any, tmp_path: Path, seq_id: int) -> None:
    blob = context.state.seq_get(0)
    path = tmp_path / "state"
    context.state.seq_save_file(path, 0)
    for refused in (
        lambda: context.state.seq_size(seq_id),
        lambda: context.state.seq_get(seq_id),
        lambda: context.state.seq_get(seq_id, ON_DEVICE),
        lambda: context.state.seq_get_into(seq_id, bytearray(10**6)),
        lambda: context.state.seq_set(seq_id, blob),
        lambda: context.state.seq_save_file(path, seq_id),
        lambda: context.state.seq_load_file(path, seq_id),
    ):
        with pytest.raises(StateError, match="n_seq_max"):
            refused()
    assert context.memory.seq_pos_max(0) == len(PROMPT) - 1


def test_sequence_that_one_stream_would_take_is_refused(make_state_context: MakeContext) -> None:
    # with one stream llama.cpp takes ids up to 255 and the cells can't be reached any more
    context = make_state_context("llama")
    decode(context, PROMPT, 0)
    with pytest.raises(StateError):
        context.state.seq_set(99, context.state.seq_get(0))


@pytest.mark.parametrize("flags", [4, 8, -1, 2**32])
def test_unknown_flags_are_refused(context: Any, flags: int) -> None:
    with pytest.raises(ValueError, match="flags"):
        context.state.seq_get(0, flags)
    with pytest.raises(ValueError, match="flags"):
        context.state.seq_set(0, b"", flags)


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff" * 7, b"\xff" * 4096, bytes(4096), b"GGUF" * 100])
@pytest.mark.parametrize("name", KINDS)
def test_garbage_is_refused_before_anything_changes(make_state_context: MakeContext, name: str, data: bytes) -> None:
    context = make_state_context(name)
    decode(context, PROMPT, 0)
    for refused in (
        lambda: context.state.set(data),
        lambda: context.state.seq_set(0, data),
        lambda: context.state.seq_set(0, data, StateFlags.PARTIAL_ONLY),
        lambda: context.state.seq_set(0, data, ON_DEVICE),
    ):
        with pytest.raises(StateError, match="nothing was changed"):
            refused()
    assert context.memory.seq_pos_max(0) == len(PROMPT) - 1


def test_whole_state_that_claims_a_name_of_4_gib_is_refused_at_once(context: Any) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(StateError, match="architecture"):
        context.state.set(b"\xff\xff\xff\xff" + bytes(100))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 2**16


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("whole", [False, True])
def test_truncated_or_extended_state_is_refused_before_anything_changes(
    make_state_context: MakeContext, name: str, whole: bool
) -> None:
    context = make_state_context(name)
    decode(context, PROMPT, 0)
    blob = save(context, whole)
    sizes = {
        *range(min(len(blob), 300)),
        *range(len(blob) - 40, len(blob)),
        len(blob) // 2,
        len(blob) // 3,
    }
    for damaged in [*(blob[:size] for size in sorted(sizes)), blob + b"\0", blob + blob]:
        with pytest.raises(StateError, match="nothing was changed"):
            restore(context, damaged, whole)
    assert context.memory.seq_pos_max(0) == len(PROMPT) - 1
    assert_usable(context)


def save(context: Any, whole: bool) -> bytes:
    return context.state.get() if whole else context.state.seq_get(0)


def restore(context: Any, blob: bytes, whole: bool) -> None:
    if whole:
        context.state.set(blob)
    else:
        context.state.seq_set(0, blob)


def patched(blob: bytes, offset: int, value: int) -> bytes:
    return blob[:offset] + struct.pack("<I", value & 0xFFFFFFFF) + blob[offset + 4 :]


# offsets into the state of a sequence: header (8), then n_stream and n_cells, or n_cells alone for recurrent
# memory
@pytest.mark.parametrize("pos", [-1, -2, -(2**31), 2**31 - 1])
@pytest.mark.parametrize(("name", "offset"), [("llama", 16), ("gemma3", 16), ("mamba", 12), ("qwen35", 16)])
def test_cell_with_impossible_position_is_refused(
    make_state_context: MakeContext, name: str, offset: int, pos: int
) -> None:
    context = make_state_context(name)
    decode(context, PROMPT, 0)
    blob = context.state.seq_get(0)
    assert struct.unpack_from("<i", blob, offset)[0] in (0, len(PROMPT) - 1)
    with pytest.raises(StateError, match="position"):
        context.state.seq_set(0, patched(blob, offset, pos))
    assert_usable(context)


@pytest.mark.parametrize("n_seq_ids", [0, 2, 2**31, 2**32 - 1])
def test_cell_of_impossible_number_of_sequences_is_refused(context: Any, n_seq_ids: int) -> None:
    with pytest.raises(StateError, match="number of sequences"):
        context.state.seq_set(0, patched(context.state.seq_get(0), 20, n_seq_ids))
    assert_usable(context)


def test_recurrent_state_with_two_cells_is_refused(make_state_context: MakeContext) -> None:
    # llama.cpp asserts that there is one
    context = make_state_context("mamba", n_seq_max=4)
    decode(context, PROMPT, 0)
    blob = context.state.seq_get(0)
    header, cell, rest = blob[:8], blob[12:20], blob[20:]
    layers, data = rest[:8], rest[8:]
    rows = b""
    while data:
        size = struct.unpack_from("<Q", data, 4)[0]
        rows += data[: 12 + size] + data[12 : 12 + size]
        data = data[12 + size :]
    two = header + struct.pack("<I", 2) + cell + cell + layers + rows
    with pytest.raises(StateError, match="recurrent cells"):
        context.state.seq_set(0, two)
    assert_usable(context)


@pytest.mark.parametrize("seq_id", [-1, 2, 255, 256, 2**31 - 1])
def test_whole_state_with_cell_of_unknown_sequence_is_refused(make_state_context: MakeContext, seq_id: int) -> None:
    context = make_state_context("llama", n_seq_max=2, kv_unified=True)
    decode(context, PROMPT, 0)
    blob = context.state.get()
    # arch (4 + 5), n_stream, n_cells, pos, n_seq_id, seq_id
    assert struct.unpack_from("<IIiIi", blob, 9) == (1, len(PROMPT), 0, 1, 0)
    with pytest.raises(StateError, match="sequence"):
        context.state.set(patched(blob, 25, seq_id))
    assert_usable(context)


def test_whole_state_with_cell_in_stream_of_other_sequence_is_refused(context: Any) -> None:
    blob = context.state.get()
    assert struct.unpack_from("<IIiIi", blob, 9) == (2, len(PROMPT), 0, 1, 0)
    with pytest.raises(StateError, match="sequence"):
        context.state.set(patched(blob, 25, 1))
    assert_usable(context)


def test_state_of_other_architecture_is_refused_before_anything_changes(
    context: Any, make_state_context: MakeContext
) -> None:
    other = make_state_context("target", n_seq_max=2)
    decode(other, PROMPT, 0)
    with pytest.raises(StateError, match="architecture"):
        context.state.set(other.state.get())
    assert context.memory.seq_pos_max(0) == len(PROMPT) - 1


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("params", [{"type_k": "F16"}, {"type_v": "F16"}, {"flash_attn_type": "ENABLED"}])
def test_state_of_context_with_other_cache_is_refused_with_reason(
    context: Any, make_state_context: MakeContext, params: dict[str, Any], whole: bool
) -> None:
    other = make_state_context("llama", n_seq_max=2, **params)
    decode(other, PROMPT, 0)
    decode(context, PROMPT, 0, 1)
    blob = save(other, whole)
    with pytest.raises(StateError, match="is empty now") as caught:
        restore(context, blob, whole)
    assert caught.value.log
    # what was left is as the message says
    assert context.memory.seq_pos_max(0) == -1
    assert context.memory.seq_pos_max(1) == (-1 if whole else len(PROMPT) - 1)
    assert_usable(context)


def test_sequence_state_of_other_model_is_refused_and_leaves_others(
    context: Any, make_state_context: MakeContext
) -> None:
    # nothing in the state of a sequence names the architecture: layers and row sizes tell
    other = make_state_context("target", n_seq_max=2)
    decode(other, PROMPT, 0)
    decode(context, PROMPT, 0, 1)
    blob = save(other, False)
    with pytest.raises(StateError, match="sequence 0 is empty now"):
        restore(context, blob, False)
    assert context.memory.seq_pos_max(1) == len(PROMPT) - 1
    assert_usable(context)


@pytest.mark.parametrize("whole", [False, True])
def test_state_of_context_with_other_number_of_streams_says_so(
    context: Any, make_state_context: MakeContext, whole: bool
) -> None:
    other = make_state_context("llama", n_seq_max=1)
    decode(other, PROMPT, 0)
    blob = save(other, whole)
    with pytest.raises(StateError, match="n_seq_max or kv_unified"):
        restore(context, blob, whole)
    assert context.memory.seq_pos_max(0) == len(PROMPT) - 1


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("whole", [False, True])
def test_state_that_does_not_fit_is_refused(make_state_context: MakeContext, name: str, whole: bool) -> None:
    # 256 cells each for one sequence, 512 in one for two
    large = make_state_context(name, n_ctx=512)
    small = make_state_context(name, n_ctx=256)
    prompt = (PROMPT * 20)[:400]
    for start in range(0, len(prompt), 50):
        decode(large, prompt[start : start + 50], start)
    decode(small, PROMPT, 0)
    if name == "mamba":
        small.state.set(large.state.get())  # one cell holds any length
        return
    blob = save(large, whole)
    with pytest.raises(StateError, match="is empty now"):
        restore(small, blob, whole)
    assert small.memory.seq_pos_max(0) == -1
    assert_usable(small)


@pytest.mark.parametrize("name", ["gemma3", "qwen35"])
def test_full_and_partial_states_are_not_mixed_up(make_state_context: MakeContext, name: str) -> None:
    context = make_state_context(name)
    decode(context, PROMPT, 0)
    full, partial = context.state.seq_get(0), context.state.seq_get(0, StateFlags.PARTIAL_ONLY)
    with pytest.raises(StateError):
        context.state.seq_set(0, full, StateFlags.PARTIAL_ONLY)
    with pytest.raises(StateError):
        context.state.seq_set(0, partial)
    assert_usable(context)


# states that are kept on the device: llama.cpp aborts where the data is not the one the bytes describe


def test_on_device_restore_without_save_is_refused(context: Any, make_state_context: MakeContext) -> None:
    other = make_state_context("llama", n_seq_max=2)
    decode(other, PROMPT, 0)
    blob = other.state.seq_get(0, ON_DEVICE)
    with pytest.raises(StateError, match="not saved on the device by this context"):
        context.state.seq_set(0, blob, ON_DEVICE)
    assert context.memory.seq_pos_max(0) == len(PROMPT) - 1


def test_on_device_restore_of_sequence_without_save_is_refused(context: Any) -> None:
    blob = bytearray(context.state.seq_get(0, ON_DEVICE))
    blob[4] = 1
    with pytest.raises(StateError, match="not saved on the device"):
        context.state.seq_set(0, blob, ON_DEVICE)


def test_on_device_state_is_stale_after_next_save(context: Any) -> None:
    first = context.state.seq_get(0, ON_DEVICE)
    context.memory.seq_rm(0, len(PROMPT) - 1, -1)
    decode(context, [280], len(PROMPT) - 1)
    second = context.state.seq_get(0, ON_DEVICE)
    # the metadata is the same, byte for byte: only the save it belongs to differs
    assert first[:-8] == second[:-8]
    with pytest.raises(StateError, match="saved there again"):
        context.state.seq_set(0, first, ON_DEVICE)
    context.state.seq_set(0, second, ON_DEVICE)


@pytest.mark.parametrize("name", KINDS)
def test_on_device_state_that_was_changed_is_refused(make_state_context: MakeContext, name: str) -> None:
    context = make_state_context(name)
    decode(context, PROMPT, 0)
    blob = context.state.seq_get(0, ON_DEVICE)
    for offset in range(len(blob)):
        damaged = bytearray(blob)
        damaged[offset] ^= 0x10
        with pytest.raises(StateError):
            context.state.seq_set(0, damaged, ON_DEVICE)
    for size in range(len(blob)):
        with pytest.raises(StateError):
            context.state.seq_set(0, blob[:size], ON_DEVICE)
    context.state.seq_set(0, blob, ON_DEVICE)
    assert_usable(context)


@pytest.mark.parametrize("name", KINDS)
def test_on_device_restore_with_other_flags_is_refused(make_state_context: MakeContext, name: str) -> None:
    context = make_state_context(name)
    decode(context, PROMPT, 0)
    plain, device = context.state.seq_get(0), context.state.seq_get(0, ON_DEVICE)
    for blob, flags in (
        (device, StateFlags.NONE),
        (device, ON_DEVICE | StateFlags.PARTIAL_ONLY),
        (plain, ON_DEVICE),
    ):
        with pytest.raises(StateError, match="nothing was changed"):
            context.state.seq_set(0, blob, flags)


@pytest.mark.parametrize("types", [("Q8_0", "F16"), ("Q8_0", "Q8_0"), ("Q4_0", "Q4_0")])
def test_on_device_save_of_quantized_cache_is_refused(
    make_model: Callable[..., Any], make_context: Callable[..., Any], tmp_path: Path, types: tuple[str, str]
) -> None:
    # tests/data has heads of 16, which quantized caches don't take
    shape = models.LlamaShape(n_vocab=288, n_head=2, n_head_kv=1)
    path = models.write_llama(tmp_path / "llama.gguf", shape)
    params = {"type_k": types[0], "type_v": types[1], "flash_attn_type": "ENABLED"}
    context = make_context(make_model(path), **(EXACT | params))
    decode(context, PROMPT, 0)
    for flags in (ON_DEVICE, ON_DEVICE | StateFlags.PARTIAL_ONLY):
        with pytest.raises(StateError, match="without ON_DEVICE"):
            context.state.seq_get(0, flags)
    blob = context.state.seq_get(0)
    expected = go_on(context, len(PROMPT))
    context.state.seq_set(0, blob)
    assert np.abs(go_on(context, len(PROMPT)) - expected).max() <= TOLERANCE


def test_on_device_empty_sequence_after_full_one_restores_as_empty(context: Any) -> None:
    context.state.seq_get(0, ON_DEVICE)
    context.memory.seq_rm(0)
    empty = context.state.seq_get(0, ON_DEVICE)
    decode(context, PROMPT, 0)
    context.state.seq_set(0, empty, ON_DEVICE)
    assert context.memory.seq_pos_max(0) == -1


# buffers and handles


def test_buffer_that_is_too_small_or_read_only_is_refused(context: Any) -> None:
    size = context.state.seq_size(0)
    small = bytearray(b"\xab" * (size - 1))
    with pytest.raises(StateError, match=f"{size} bytes"):
        context.state.seq_get_into(0, small)
    with pytest.raises(StateError, match="bytes"):
        context.state.get_into(bytearray())
    assert small == b"\xab" * (size - 1)
    with pytest.raises((BufferError, TypeError, ValueError)):
        context.state.get_into(bytes(size * 2))
    with pytest.raises((BufferError, TypeError, ValueError)):
        context.state.set(np.zeros((64, 64), np.uint8)[:, ::2])


def test_closed_context_is_refused(make_state_context: MakeContext, tmp_path: Path) -> None:
    context = make_state_context("llama")
    context.close()
    for refused in (
        lambda: context.state.size(),
        lambda: context.state.get(),
        lambda: context.state.set(b""),
        lambda: context.state.seq_get(0),
        lambda: context.state.save_file(tmp_path / "state"),
    ):
        with pytest.raises(ClosedError):
            refused()
    assert not list(tmp_path.iterdir())


# files


def test_file_that_can_not_be_written_is_refused_and_nothing_is_left(context: Any, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "missing" / "state", tmp_path / "folder", "", "nul\0byte"):
        with pytest.raises(StateError):
            context.state.save_file(path)
        with pytest.raises(StateError):
            context.state.seq_save_file(path, 0)
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


@contextlib.contextmanager
def file_size_limit() -> Iterator[None]:
    """Let files of this process grow to 4096 bytes; as no fixture, since pytest may be writing to a longer one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("n_left_over", [1, 100, 10_000])
def test_file_that_does_not_fit_on_disk_leaves_old_one_alone(
    context: Any, make_state_context: MakeContext, tmp_path: Path, n_left_over: int
) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"old")
    # short enough to be lost in the buffer of the C library, and long enough to fail in the middle
    n_tokens = (4096 + n_left_over) // 4
    for save in (
        lambda: context.state.seq_save_file(path, 1, range(n_tokens)),
        lambda: context.state.save_file(path, range(n_tokens)),
    ):
        with pytest.raises(StateError), file_size_limit():
            save()
    assert [child.name for child in tmp_path.iterdir()] == ["state"]
    assert path.read_bytes() == b"old"
    assert_usable(context)


@pytest.mark.parametrize("whole", [False, True])
def test_file_that_can_not_be_read_is_refused_before_anything_changes(
    context: Any, tmp_path: Path, whole: bool
) -> None:
    path = tmp_path / "state"

    def load(source: Any, capacity: int | None = None) -> Any:
        if whole:
            return context.state.load_file(source, capacity)
        return context.state.seq_load_file(source, 0, capacity)

    if whole:
        context.state.save_file(path, PROMPT)
    else:
        context.state.seq_save_file(path, 0, PROMPT)
    good = path.read_bytes()
    magic, version, n_tokens = struct.unpack_from("=III", good)
    assert (magic, version, n_tokens) == (
        0x6767736E if whole else 0x67677371,
        11 if whole else 4,
        len(PROMPT),
    )
    assert list(np.frombuffer(good, np.int32, n_tokens, 12)) == PROMPT
    for capacity in (len(PROMPT) - 1, 0):
        with pytest.raises(StateError, match=f"{len(PROMPT)} tokens"):
            load(path, capacity)
    for source in (tmp_path / "missing", ""):
        with pytest.raises(FileNotFoundError):
            load(source)
    for source in (tmp_path, "nul\0byte"):
        with pytest.raises(StateError):
            load(source)
    for damaged in (
        b"",
        good[:11],
        b"GGUF" + good[4:],
        patched(good, 4, version + 1),
        patched(good, 8, 2**32 - 1),
        patched(good, 8, n_tokens + 1),
        patched(good, 8, n_tokens - 1),
        good[: 12 + 4 * n_tokens],
        good[:-1],
        good + b"\0",
    ):
        path.write_bytes(damaged)
        with pytest.raises(StateError):
            load(path)
    # the two kinds of files are not taken for each other
    path.write_bytes(good)
    with pytest.raises(StateError, match="is not a file with the state"):
        context.state.seq_load_file(path, 0) if whole else context.state.load_file(path, 0)
    assert context.memory.seq_pos_max(0) == len(PROMPT) - 1
    assert list(load(path, len(PROMPT))) == PROMPT
    assert path.read_bytes() == good


def test_file_with_no_tokens_and_with_many_round_trips(context: Any, tmp_path: Path) -> None:
    path = tmp_path / "state"
    for tokens in ([], range(10_000), np.arange(5, dtype=np.int32), np.arange(5, dtype=np.int64)):
        context.state.seq_save_file(path, 0, tokens)
        assert list(context.state.seq_load_file(path, 1)) == [int(token) for token in tokens]
        context.state.save_file(path, tokens)
        assert list(context.state.load_file(path)) == [int(token) for token in tokens]


def test_file_name_outside_ascii_round_trips(context: Any, tmp_path: Path) -> None:
    path = tmp_path / "zustand \u00e4\u4e2d \U0001f600.bin"
    context.state.save_file(path, [1])
    assert list(context.state.load_file(str(path))) == [1]
    assert [child.name for child in tmp_path.iterdir()] == [path.name]


def test_batch_is_decoded_after_failed_restore_from_file(context: Any, tmp_path: Path) -> None:
    path = tmp_path / "state"
    context.state.seq_save_file(path, 0, PROMPT)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2 :] = b""
    path.write_bytes(raw)
    with pytest.raises(StateError):
        context.state.seq_load_file(path, 0)
    with Batch(1) as batch:
        batch.add(265, len(PROMPT), logits=True)
        context.decode(batch)
