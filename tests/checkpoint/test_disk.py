"""The disk store: files that are damaged, other processes, and processes that are killed."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llamacy.checkpoint import directory
from llamacy.checkpoint.disk import DiskStore
from llamacy.checkpoint.format import file_size
from llamacy.checkpoint.prefix import Prefix
from llamacy.errors import CheckpointError
from tests.helpers import REPO

from .processes import FACTS, is_right, snapshot_of


def process(*arguments: object) -> subprocess.Popen[bytes]:
    """Start a process of tests.checkpoint.processes."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.checkpoint.processes", *map(str, arguments)],
        cwd=REPO,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # communicate() leaves out what readline() has read ahead
        bufsize=0,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def stored(folder: Path, *prompts: list[int]) -> list[Path]:
    """Store snapshots and return their files, in that order."""
    with DiskStore(folder) as store:
        for tokens in prompts:
            store.put(snapshot_of(tokens))
    return [folder / directory.snapshot_name(snapshot_of(tokens)) for tokens in prompts]


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)


def test_snapshots_are_there_in_the_next_process(tmp_path: Path) -> None:
    done = process("write", tmp_path, 3)
    out, err = done.communicate(timeout=60)
    assert (done.returncode, out) == (0, b"0\n1\n2\n"), err
    store = DiskStore(tmp_path)
    hit = store.get(FACTS, Prefix([2, 0, 5]))
    assert hit is not None
    assert is_right(hit.snapshot)
    assert len(store) == 3


def test_files_are_for_the_user_alone(tmp_path: Path) -> None:
    (path,) = stored(tmp_path / "new" / "folder", [1])
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_store_sees_what_others_store_and_remove(tmp_path: Path) -> None:
    first, second = DiskStore(tmp_path), DiskStore(tmp_path)
    for tokens in ([1], [1, 2], [1, 2, 3]):
        first.put(snapshot_of(tokens))
        hit = second.get(FACTS, Prefix([1, 2, 3, 4]))
        assert hit is not None
        assert hit.snapshot.prefix.tokens.tolist() == tokens
    second.remove(snapshot_of([1, 2, 3]))
    hit = first.get(FACTS, Prefix([1, 2, 3, 4]))
    assert hit is not None
    assert hit.n_elements == 2


def test_change_within_a_tick_of_the_clock_is_seen(tmp_path: Path) -> None:
    first, second = DiskStore(tmp_path), DiskStore(tmp_path)
    first.put(snapshot_of([1]))
    assert second.get(FACTS, Prefix([1, 0])) is not None
    changed = tmp_path.stat()
    first.put(snapshot_of([2]))
    os.utime(tmp_path, ns=(changed.st_atime_ns, changed.st_mtime_ns))
    assert second.get(FACTS, Prefix([2, 0])) is not None


def test_use_by_another_keeps_a_file(tmp_path: Path) -> None:
    capacity = 2 * file_size(snapshot_of([1]))
    first, second = DiskStore(tmp_path, capacity), DiskStore(tmp_path, capacity)
    first.put(snapshot_of([1]))
    first.put(snapshot_of([2]))
    assert second.get(FACTS, Prefix([1, 0])) is not None
    first.put(snapshot_of([3]))
    assert second.get(FACTS, Prefix([1, 0])) is not None
    assert second.get(FACTS, Prefix([2, 0])) is None


def test_damaged_state_is_reported_and_the_next_best_is_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, path = stored(tmp_path, [1], [1, 2])
    damage(path)
    store = DiskStore(tmp_path)
    with caplog.at_level(logging.WARNING, "llamacy.checkpoint"):
        hit = store.get(FACTS, Prefix([1, 2, 3]))
    assert hit is not None
    assert hit.snapshot.prefix.tokens.tolist() == [1]
    assert [path.name in record.getMessage() for record in caplog.records] == [True]
    assert (store.stats.n_corrupt, store.stats.n_hits, store.stats.n_entries) == (1, 1, 1)
    # one put anew is found again
    store.put(snapshot_of([1, 2]))
    hit = store.get(FACTS, Prefix([1, 2, 3]))
    assert hit is not None
    assert is_right(hit.snapshot)
    assert store.stats.n_corrupt == 1


def _cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _foreign(path: Path) -> None:
    path.write_bytes(b"GGUF" + bytes(3000))


def _other_version(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[8] = 9
    path.write_bytes(content)


def _renamed(path: Path) -> None:
    content = path.read_bytes()
    path.unlink()
    path.with_name("0" * 40 + path.suffix).write_bytes(content)


@pytest.mark.parametrize("spoil", [_cut_off, _empty, _foreign, _other_version, _renamed])
def test_spoiled_file_is_left_out_when_the_store_opens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], None]
) -> None:
    path, _ = stored(tmp_path, [1], [2])
    spoil(path)
    with caplog.at_level(logging.WARNING, "llamacy.checkpoint"):
        store = DiskStore(tmp_path)
        assert store.get(FACTS, Prefix([1, 0])) is None
        assert store.get(FACTS, Prefix([2, 0])) is not None
    assert len(caplog.records) == 1
    assert store.stats.n_corrupt == 1


def test_spoiled_files_take_room_and_go_like_others(tmp_path: Path) -> None:
    first, _ = stored(tmp_path, [1], [2])
    damage(first)
    os.utime(first, (0, 0))
    store = DiskStore(tmp_path, 2 * file_size(snapshot_of([1])))
    store.put(snapshot_of([3]))
    assert not first.exists()
    assert store.get(FACTS, Prefix([2, 0])) is not None


def test_things_that_are_no_files_of_a_store_are_left_alone(tmp_path: Path) -> None:
    (path,) = stored(tmp_path, [1])
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ("1" * 40 + path.suffix)).mkdir()
    (tmp_path / ("2" * 40 + path.suffix)).symlink_to(path)
    os.mkfifo(tmp_path / ("3" * 40 + path.suffix))
    names = {entry.name for entry in tmp_path.iterdir()}
    store = DiskStore(tmp_path, capacity_bytes=2 * path.stat().st_size)
    assert (len(store), store.stats.n_corrupt) == (1, 0)
    store.clear()
    assert names - {entry.name for entry in tmp_path.iterdir()} == {path.name}


def test_file_that_goes_while_it_is_wanted_is_a_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = stored(tmp_path, [1], [1, 2])
    store = DiskStore(tmp_path)
    find = store._index.find

    def find_and_lose(*arguments: Any, **options: Any) -> Any:
        found = find(*arguments, **options)
        paths.pop().unlink() if paths else None
        return found

    monkeypatch.setattr(store._index, "find", find_and_lose)
    assert store.get(FACTS, Prefix([1, 2, 3])) is None
    assert (store.stats.n_misses, store.stats.n_hits, store.stats.n_corrupt) == (1, 0, 0)


def test_full_disk_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(tmp_path, [1])
    before = sorted(tmp_path.iterdir())

    def write_half(file: Any, snapshot: Any) -> None:
        file.write(snapshot.state[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    store = DiskStore(tmp_path)
    monkeypatch.setattr(directory, "write_snapshot", write_half)
    with pytest.raises(CheckpointError, match="No space left"):
        store.put(snapshot_of([2]))
    assert sorted(tmp_path.iterdir()) == before
    assert store.get(FACTS, Prefix([1, 0])) is not None


def test_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="no directory"):
        DiskStore(tmp_path / "file")


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", "x" * 5000, "/dev/null/x"])
def test_path_that_no_directory_can_have_is_refused(path: str) -> None:
    with pytest.raises(CheckpointError, match="director"):
        DiskStore(path)


def test_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    paths = stored(tmp_path, [1], [1, 2])
    store = DiskStore(tmp_path)
    paths[1].unlink()
    os.mkfifo(paths[1])
    hit = store.get(FACTS, Prefix([1, 2, 3]))
    assert hit is not None
    assert hit.snapshot.prefix.tokens.tolist() == [1]


def test_directory_that_goes_is_made_again(tmp_path: Path) -> None:
    (path,) = stored(tmp_path / "store", [1])
    store = DiskStore(tmp_path / "store")
    path.unlink()
    path.parent.rmdir()
    assert store.get(FACTS, Prefix([1, 0])) is None
    store.put(snapshot_of([2]))
    assert store.get(FACTS, Prefix([2, 0])) is not None


def test_what_killed_processes_left_goes_after_a_while(tmp_path: Path) -> None:
    stored(tmp_path, [1])
    old, young = (tmp_path / f".{'a' * 40}.{digit * 16}.tmp" for digit in "01")
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 2 * directory.ABANDONED_S,) * 2)
    assert len(DiskStore(tmp_path)) == 1
    assert (old.exists(), young.exists()) == (False, True)


def test_kill_during_writes_loses_at_most_the_one_being_written(tmp_path: Path) -> None:
    for round_ in range(4):
        folder = tmp_path / str(round_)
        writer = process("write", folder, 200)
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(30 + 40 * round_)]
        # somewhere within a write
        time.sleep(0.0007 * round_)
        os.kill(writer.pid, signal.SIGKILL)
        rest, err = writer.communicate(timeout=60)
        assert writer.returncode == -signal.SIGKILL, err
        told = [int(line) for line in [*lines, *rest.splitlines()]]
        assert told == list(range(len(told)))
        store = DiskStore(folder)
        assert store.stats.n_corrupt == 0
        assert len(told) <= len(store) <= len(told) + 1
        for index in told:
            hit = store.get(FACTS, Prefix([index % 16, index // 16]))
            assert hit is not None
            assert hit.n_elements == 2
            assert is_right(hit.snapshot)


def test_two_processes_at_once_find_nothing_wrong(tmp_path: Path) -> None:
    workers = [process("work", tmp_path, seed, 1000) for seed in (1, 2)]
    for worker in workers:
        out, err = worker.communicate(timeout=200)
        assert worker.returncode == 0, err.decode()
        # most is found: two processes in 20 files' room of 126 prompts
        assert int(out) > 100
    store = DiskStore(tmp_path, 40_000)
    assert store.n_bytes <= 40_000 + 2500
    assert store.stats.n_corrupt == 0
