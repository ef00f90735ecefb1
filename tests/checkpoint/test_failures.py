"""Failures that are made to happen, of files and of llama.cpp: typed errors, and what is live stays as it was."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamacy import Llama
from llamacy.checkpoint.directory import load_file, save_file
from llamacy.checkpoint.disk import DiskStore
from llamacy.checkpoint.fingerprint import Fingerprint
from llamacy.checkpoint.registry import Registry
from llamacy.checkpoint.snapshot import Snapshot
from llamacy.errors import CheckpointError, CorruptCheckpointError, IncompatibleCheckpointError, StateError
from tests.helpers import data

from .conftest import KINDS, PROMPT, UNCUT, MakeContext, decode
from .processes import snapshot_of

resource = pytest.importorskip("resource")

OTHER = [1, *PROMPT[:3:-1]]
AFTER = (265, 268, 272)
CUT = 12
TWO = {"n_seq_max": 2, "n_ctx": 256, "swa_full": False}


@contextmanager
def room_for(n_bytes: int) -> Iterator[None]:
    """Let no file of this process become longer than so many bytes, as if the disk were full then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Live:
    """A context whose two sequences hold something, and what goes on from it in a context that nothing happens to."""

    def __init__(self, make_kind: MakeContext, name: str) -> None:
        self.name = name
        self.context, beside = make_kind(name, **TWO), make_kind(name, **TWO)
        for context in (self.context, beside):
            decode(context, PROMPT, 0, 0)
            decode(context, OTHER, 0, 1)
        self.states = [self.context.state.seq_get(seq_id) for seq_id in (0, 1)]
        self.expected = [go_on(beside, len(tokens), seq_id) for seq_id, tokens in enumerate((PROMPT, OTHER))]

    def is_untouched(self, *seq_ids: int) -> bool:
        """Return whether sequences hold, bit for bit, what they held."""
        return all(self.context.state.seq_get(seq_id) == self.states[seq_id] for seq_id in seq_ids)

    def goes_on(self, *, restored: bool = False) -> bool:
        """Return whether both go on as if nothing had happened; this is the last thing that is done.

        What was restored may lie in other cells of a window, which are summed up in another order.
        """
        for seq_id, length in enumerate((len(PROMPT), len(OTHER))):
            difference = np.abs(go_on(self.context, length, seq_id) - self.expected[seq_id]).max()
            if difference > (1e-4 if restored else 0):
                return False
        return True


def go_on(context: Any, pos: int, seq_id: int) -> np.ndarray:
    return np.array([decode(context, [token], pos + i, seq_id) for i, token in enumerate(AFTER)])


@pytest.fixture
def live(make_kind: MakeContext, request: pytest.FixtureRequest) -> Live:
    return Live(make_kind, request.param)


each_kind = pytest.mark.parametrize("live", KINDS, indirect=True)


def snapshot_in(context: Any, facts: Callable[[Fingerprint], dict[str, Any]] = dict) -> Snapshot:
    """Return a snapshot of sequence 0, with other facts about where it is from."""
    snapshot = Snapshot.take(context, PROMPT)
    return Snapshot(Fingerprint(facts(snapshot.fingerprint)), snapshot.prefix, snapshot.state, snapshot.logits)


def refusal(restore: Callable[[Any], Any], argument: Any) -> str:
    """Return what a restore says that is refused or fails, or nothing."""
    try:
        restore(argument)
    except CheckpointError as error:
        return str(error)
    return ""


# the disk


def test_only_a_file_is_replaced_by_a_snapshot(tmp_path: Path) -> None:
    snapshot = snapshot_of([1, 2])
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("file")
    for path in (tmp_path / "pipe", tmp_path, "", ".", "a\0b", "\ud800"):
        with pytest.raises(CheckpointError, match="can't be written"):
            save_file(path, snapshot)
    assert (tmp_path / "pipe").is_fifo()
    for _ in range(2):
        save_file(tmp_path / "link", snapshot)
    assert (tmp_path / "link").is_symlink()
    assert load_file(tmp_path / "file").prefix == snapshot.prefix
    assert {entry.name for entry in tmp_path.iterdir()} == {"pipe", "link", "file"}
    for path in ("a\0b", "\ud800"):
        with pytest.raises(CheckpointError, match="can't be read"):
            load_file(path)


@each_kind
def test_full_disk_leaves_neither_files_nor_traces(live: Live, tmp_path: Path) -> None:
    snapshot = snapshot_in(live.context)
    save_file(tmp_path / "old", snapshot)
    old = (tmp_path / "old").read_bytes()
    store = DiskStore(tmp_path / "store")
    for n_bytes in {0, 1, 16, 300, len(old) // 2, len(old) - 1}:
        with room_for(n_bytes):
            for write in (lambda: store.put(snapshot), lambda: save_file(tmp_path / "old", snapshot)):
                with pytest.raises(CheckpointError):
                    write()
    assert list((tmp_path / "store").iterdir()) == []
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["old"]
    assert (tmp_path / "old").read_bytes() == old
    assert (len(store), store.n_bytes, store.stats.n_stored) == (0, 0, 0)
    assert live.is_untouched(0, 1)
    assert store.put(snapshot)
    assert DiskStore(tmp_path / "store").restore(live.context, [*PROMPT, 5]) is not None
    assert live.goes_on(restored=True)


@each_kind
def test_full_disk_for_files_of_llama_cpp(live: Live, tmp_path: Path) -> None:
    states = live.context.state
    states.seq_save_file(tmp_path / "file", 0, PROMPT)
    old = (tmp_path / "file").read_bytes()
    for n_bytes in (0, 5, len(old) // 2, len(old) - 1):
        with room_for(n_bytes), pytest.raises(StateError):
            states.seq_save_file(tmp_path / "file", 0, PROMPT)
        with room_for(n_bytes), pytest.raises(StateError):
            states.save_file(tmp_path / "whole", PROMPT)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == old
    assert live.is_untouched(0, 1)
    assert live.goes_on()


def test_full_disk_is_no_reason_for_a_request_to_fail(closing: Callable[[Any], Any], tmp_path: Path) -> None:
    params = {"n_ctx": 256, "n_threads": 1, "n_threads_batch": 1}
    llama, alone = (closing(Llama(data("qwen35.gguf"), cache=cache, **params)) for cache in (tmp_path, None))
    with room_for(1000):
        result = llama(PROMPT, max_tokens=8, temperature=0)
    assert result["choices"] == alone(PROMPT, max_tokens=8, temperature=0)["choices"]
    assert llama.stats.n_failed == 1
    assert list(tmp_path.iterdir()) == []
    llama(OTHER, max_tokens=8, temperature=0)
    assert len(list(tmp_path.iterdir())) == 1


@each_kind
def test_file_that_ends_early_anywhere_is_refused(live: Live, tmp_path: Path) -> None:
    path = tmp_path / "file"
    save_file(path, snapshot_in(live.context))
    content = path.read_bytes()
    for n in [*range(0, 400, 7), *range(400, len(content), len(content) // 20), len(content) - 1]:
        path.write_bytes(content[:n])
        with pytest.raises(CorruptCheckpointError):
            load_file(path).restore(live.context)
    assert live.is_untouched(0, 1)
    assert live.goes_on()


@each_kind
@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"llama_cpp": "b1-00"}, "llama_cpp"),
        ({"architecture": "gpt2"}, "architecture"),
        ({"n_embd": 4096}, "n_embd"),
        ({"type_k": "Q4_0"}, "type_k"),
        ({"flash_attn_type": "ENABLED"}, "flash_attn"),
    ],
)
def test_file_that_says_it_is_of_something_else_is_refused(
    live: Live, tmp_path: Path, other: dict[str, Any], reason: str
) -> None:
    save_file(tmp_path / "file", snapshot_in(live.context, lambda facts: {**facts, **other}))
    with pytest.raises(IncompatibleCheckpointError, match=reason):
        load_file(tmp_path / "file").restore(live.context)
    store = DiskStore(tmp_path / "store")
    store.put(snapshot_in(live.context, lambda facts: {**facts, **other}))
    assert store.restore(live.context, [*PROMPT, 5]) is None
    assert live.is_untouched(0, 1)
    assert live.goes_on()


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_file_of_another_model_is_refused(make_kind: MakeContext, tmp_path: Path, name: str, other: str) -> None:
    if name.split(".")[0] == other.split(".")[0]:
        other = "target"
    live, source = Live(make_kind, name), make_kind(other, **TWO)
    decode(source, PROMPT)
    save_file(tmp_path / "file", snapshot_in(source))
    with pytest.raises(IncompatibleCheckpointError):
        load_file(tmp_path / "file").restore(live.context)
    assert live.is_untouched(0, 1)
    assert live.goes_on()


# llama.cpp


@each_kind
def test_damage_in_each_field_of_a_state(live: Live) -> None:
    snapshot = snapshot_in(live.context)
    n_refused = n_midway = 0
    for at in range(0, min(len(snapshot.state), 700), 4):
        for value in (0, 1, 0x7FFFFFFF, 0xFFFFFFFF):
            state = bytearray(snapshot.state)
            struct.pack_into("<I", state, at, value)
            if state == snapshot.state:
                continue
            damaged = Snapshot(snapshot.fingerprint, snapshot.prefix, bytes(state))
            said = refusal(damaged.restore, live.context)
            if "nothing was changed" in said:
                n_refused += 1
                assert live.is_untouched(0)
                continue
            if said:
                n_midway += 1
                assert "sequence 0 is empty now" in said
                assert live.context.memory.seq_pos_max(0) == -1
            # damaged numbers of tensors can't be told
            snapshot.restore(live.context)
    assert n_refused > 10
    assert n_midway > 0 or live.context.memory.kind == "recurrent"
    assert live.is_untouched(0, 1)
    assert live.goes_on(restored=True)


@pytest.mark.parametrize("live", UNCUT, indirect=True)
def test_damage_in_each_field_of_a_checkpoint(live: Live) -> None:
    context = live.context
    snapshot = snapshot_in(context)
    n_refused = 0
    for at in range(0, 200, 4):
        for value in (0, 1, 0x7FFFFFFF, 0xFFFFFFFF):
            context.memory.seq_rm(0)
            decode(context, PROMPT[:CUT])
            with Registry(context) as registry:
                checkpoint = registry.capture(0, PROMPT[:CUT])
                assert checkpoint is not None
                decode(context, PROMPT[CUT:], CUT)
                before, data_ = context.state.seq_get(0), bytearray(checkpoint._data)
                struct.pack_into("<I", data_, at, value)
                checkpoint._data = bytes(data_)
                said = refusal(registry.restore, checkpoint)
                n_refused += bool(said)
                if "nothing was changed" in said:
                    assert context.state.seq_get(0) == before
                elif said:
                    assert "sequence 0 is empty now" in said
                    assert context.memory.seq_pos_max(0) == -1
                    assert not checkpoint.valid
    assert n_refused > 10
    snapshot.restore(context)
    assert live.is_untouched(0, 1)
    assert live.goes_on(restored=True)


@each_kind
def test_snapshot_that_is_longer_than_the_context_is_refused(live: Live, make_kind: MakeContext) -> None:
    large = make_kind(live.name, **(TWO | {"n_ctx": 1024}))
    tokens = [PROMPT[i % len(PROMPT)] for i in range(300)]
    for start in range(0, len(tokens), 50):
        decode(large, tokens[start : start + 50], start)
    snapshot = Snapshot.take(large, tokens)
    with pytest.raises(CheckpointError, match=r"300 cells.*nothing was changed"):
        snapshot.restore(live.context)
    assert live.is_untouched(0, 1)
    assert live.goes_on()
