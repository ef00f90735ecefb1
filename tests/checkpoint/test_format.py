"""Files of snapshots: what was written comes back, and what is damaged in any place is found out."""

from __future__ import annotations

import io
import json
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamacy.checkpoint.directory import load_file, save_file
from llamacy.checkpoint.fingerprint import Fingerprint
from llamacy.checkpoint.format import (
    address,
    file_size,
    read_head,
    read_snapshot,
    snapshot_from_bytes,
    snapshot_to_bytes,
    write_snapshot,
)
from llamacy.checkpoint.prefix import Media, Prefix
from llamacy.checkpoint.snapshot import Snapshot
from llamacy.errors import CheckpointError, CorruptCheckpointError, IncompatibleCheckpointError

FACTS = Fingerprint({"architecture": "llama", "n_vocab": 8, "type_k": "F16", "größe": 1.5, "unset": None, "on": True})


def made(*, media: bool = True, logits: bool = True) -> Snapshot:
    spans = [Media(0, b"one", 3, 2), Media(2, b"\x00\xff", 9, 9)] if media else []
    row = np.linspace(-1, 1, 8, dtype=np.float32) if logits else None
    return Snapshot(FACTS, Prefix([1, 2, 3, 7], spans), bytes(range(200)), row)


def written(folder: Path, content: bytes | Snapshot) -> Path:
    path = folder / "file"
    if isinstance(content, Snapshot):
        with path.open("wb") as file:
            write_snapshot(file, content)
    else:
        path.write_bytes(content)
    return path


def same(left: Snapshot, right: Snapshot) -> bool:
    return (
        left.fingerprint == right.fingerprint
        and left.prefix == right.prefix
        and left.state == right.state
        and (left.logits is None) == (right.logits is None)
        and (left.logits is None or left.logits.tobytes() == right.logits.tobytes())  # type: ignore[union-attr]
        and left.n_bytes == right.n_bytes
    )


@pytest.mark.parametrize("media", [False, True])
@pytest.mark.parametrize("logits", [False, True])
def test_what_was_written_is_read(tmp_path: Path, media: bool, logits: bool) -> None:
    snapshot = made(media=media, logits=logits)
    path = written(tmp_path, snapshot)
    assert path.stat().st_size == file_size(snapshot)
    with path.open("rb") as file:
        assert same(read_snapshot(file), snapshot)
        head = read_head(file)
    assert head.n_bytes == path.stat().st_size
    assert head.prefix == snapshot.prefix
    assert head.fingerprint == FACTS
    assert head.fingerprint.digest == FACTS.digest


@given(
    tokens=st.lists(st.integers(0, 7), min_size=1, max_size=30),
    places=st.lists(st.tuples(st.integers(0, 30), st.binary(max_size=5)), max_size=3),
    state=st.binary(max_size=50),
    logits=st.none() | st.lists(st.floats(width=32), min_size=8, max_size=8),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_snapshot_comes_back(tmp_path: Path, tokens: Any, places: Any, state: bytes, logits: Any) -> None:
    media = [Media(min(at, len(tokens)), key, 2, 3) for at, key in sorted(places)]
    row = None if logits is None else np.array(logits, np.float32)
    snapshot = Snapshot(FACTS, Prefix(tokens, media), state, row)
    with written(tmp_path, snapshot).open("rb") as file:
        assert same(read_snapshot(file), snapshot)


def test_bytes_and_files_hold_the_same(tmp_path: Path) -> None:
    snapshot = made()
    content = written(tmp_path, snapshot).read_bytes()
    assert snapshot_to_bytes(snapshot) == content
    assert same(snapshot_from_bytes(content), snapshot)
    for bad in (b"", content[:-1], b"x" + content[1:], content + b"x"):
        with pytest.raises(CorruptCheckpointError):
            snapshot_from_bytes(bad)
    path = tmp_path / "any name.bin"
    for _ in range(2):
        save_file(path, snapshot)
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o600
    assert same(load_file(str(path)), snapshot)
    assert {entry.name for entry in tmp_path.iterdir()} == {"file", "any name.bin"}


def test_files_that_can_not_be_are_told(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "nowhere" / "file", tmp_path / "folder"):
        with pytest.raises(CheckpointError, match="can't be written"):
            save_file(path, made())
    assert list(tmp_path.rglob("*")) == [tmp_path / "folder"]
    with pytest.raises(CorruptCheckpointError, match="can't be read"):
        load_file(tmp_path / "folder")
    with pytest.raises(FileNotFoundError):
        load_file(tmp_path / "none")
    (tmp_path / "bad").write_bytes(b"GGUF")
    with pytest.raises(CorruptCheckpointError, match="bad"):
        load_file(tmp_path / "bad")


def test_every_cut_is_found_out(tmp_path: Path) -> None:
    content = written(tmp_path, made()).read_bytes()
    for n in range(len(content)):
        with written(tmp_path, content[:n]).open("rb") as file:
            with pytest.raises(CorruptCheckpointError):
                read_head(file)
            with pytest.raises(CorruptCheckpointError):
                read_snapshot(file)


def test_every_changed_byte_is_found_out(tmp_path: Path) -> None:
    content = written(tmp_path, made()).read_bytes()
    for n in range(len(content)):
        damaged = bytearray(content)
        damaged[n] ^= 0x10
        with (
            written(tmp_path, bytes(damaged)).open("rb") as file,
            pytest.raises((CorruptCheckpointError, IncompatibleCheckpointError)),
        ):
            read_snapshot(file)


@pytest.mark.parametrize("content", [b"", b"GGUF" * 30, b"\0" * 1000, b"\x89LCYCKP\n", b"\x89LCYCKP\n" + b"\xff" * 100])
def test_foreign_file_is_found_out(tmp_path: Path, content: bytes) -> None:
    with (
        written(tmp_path, content).open("rb") as file,
        pytest.raises((CorruptCheckpointError, IncompatibleCheckpointError)),
    ):
        read_snapshot(file)


def framed(
    description: bytes, elements: bytes = b"", logits: bytes = b"", state: bytes = b"", version: int = 1
) -> bytes:
    """Return a file with right lengths and checksums, as the module's docstring lays it out."""
    frame = struct.pack("<8sIIQQQ", b"\x89LCYCKP\n", version, len(description), len(elements), len(logits), len(state))
    head = struct.pack("<I", zlib.crc32(frame + description + elements))
    return frame + head + description + elements + logits + state + struct.pack("<I", zlib.crc32(logits + state))


def described(**changes: Any) -> bytes:
    facts = {"byteorder": sys.byteorder, "media": [], "fingerprint": {"n_vocab": 8}} | changes
    return json.dumps({key: value for key, value in facts.items() if value != "absent"}).encode()


ONE = np.array([1], np.int32).tobytes()


def test_file_by_hand_is_read() -> None:
    # the layout is what the module says, not only what it writes
    snapshot = Snapshot(Fingerprint({"n_vocab": 8}), Prefix([1]), b"state", np.arange(8, dtype=np.float32))
    buffer = io.BytesIO()
    write_snapshot(buffer, snapshot)
    description = json.dumps(
        {"byteorder": sys.byteorder, "media": [], "fingerprint": {"n_vocab": 8}}, separators=(",", ":")
    ).encode()
    assert buffer.getvalue() == framed(description, ONE, np.arange(8, dtype=np.float32).tobytes(), b"state")


@pytest.mark.parametrize(
    "content",
    [
        framed(b"{", ONE),
        framed(b"[]", ONE),
        framed(b"\xff\xfe", ONE),
        framed(b"[" * 100_000, ONE),
        framed(b'{"byteorder": ' + b"9" * 5000 + b"}", ONE),
        framed(described(fingerprint="absent"), ONE),
        framed(described(fingerprint=[]), ONE),
        framed(described(fingerprint={"n_vocab": {}}), ONE),
        framed(described(fingerprint={"n_vocab": "8"}), ONE),
        framed(described(media=[[0, "zz", 1, 1]]), ONE),
        framed(described(media=[[0, "00", 1, 1]]), ONE),
        framed(described(media=[[-5, "00", 1, 1]]), ONE * 20),
        framed(described(media=[[0, "00", 10**30, 1]]), ONE * 20),
        framed(described(media=[[0.5, "00", 1, 1]]), ONE * 20),
        framed(described(media=5), ONE),
        framed(described()),
        framed(described(), ONE[:3]),
        framed(described(), np.array([8], np.int32).tobytes()),
        framed(described(), np.array([-1], np.int32).tobytes()),
        framed(described(), ONE, logits=b"\0" * 28),
        framed(described(), ONE, logits=b"\0" * 31),
    ],
)
def test_sound_frame_around_nonsense_is_found_out(tmp_path: Path, content: bytes) -> None:
    with written(tmp_path, content).open("rb") as file, pytest.raises(CorruptCheckpointError):
        read_snapshot(file)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (framed(described(), ONE, version=2), "version 2"),
        (framed(described(byteorder="middle"), ONE), "byte order"),
    ],
)
def test_other_version_or_byte_order_is_incompatible(tmp_path: Path, content: bytes, reason: str) -> None:
    with written(tmp_path, content).open("rb") as file, pytest.raises(IncompatibleCheckpointError, match=reason):
        read_snapshot(file)


def test_error_on_bytes_says_that_they_are_meant() -> None:
    with pytest.raises(CorruptCheckpointError, match="these 4 bytes are of no use: it ends too early"):
        snapshot_from_bytes(b"junk")


def test_lengths_beyond_the_file_are_not_allocated(tmp_path: Path) -> None:
    frame = struct.pack("<8sIIQQQ", b"\x89LCYCKP\n", 1, 2**31, 2**62, 2**62, 2**62)
    with (
        written(tmp_path, frame + b"\0" * 100).open("rb") as file,
        pytest.raises(CorruptCheckpointError, match="cut off"),
    ):
        read_head(file)


def test_address_depends_on_facts_and_elements() -> None:
    elements = Prefix([1, 2]).elements
    other = Fingerprint({**FACTS, "n_vocab": 9})
    found = {address(FACTS, elements), address(other, elements), address(FACTS, Prefix([1]).elements)}
    assert len(found) == 3
    assert address(Fingerprint(dict(reversed(list(FACTS.items())))), elements) in found
