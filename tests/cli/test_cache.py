"""`llamacy cache`: a directory with snapshots, sound and damaged."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from llamacy.checkpoint.directory import ABANDONED_S, snapshot_name
from llamacy.checkpoint.disk import DiskStore
from llamacy.checkpoint.prefix import Prefix
from tests.checkpoint.processes import FACTS, snapshot_of

from .conftest import Run, one_error_line

DAY = 86_400


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with snapshots of 1, 2 and 3 tokens, used 30, 20 and 10 days ago."""
    path = tmp_path / "store"
    with DiskStore(path) as store:
        for n in (1, 2, 3):
            store.put(snapshot_of([5] * n, n_state_bytes=1_000_000))
    for n in (1, 2, 3):
        stamp = time.time() - (40 - 10 * n) * DAY
        os.utime(file(path, n), (stamp, stamp))
    return path


def file(folder: Path, n: int) -> Path:
    return folder / snapshot_name(snapshot_of([5] * n, n_state_bytes=1_000_000))


def damage(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    stat = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def left(folder: Path) -> list[int]:
    return [n for n in (1, 2, 3) if file(folder, n).exists()]


def test_list_shows_sizes_tokens_and_damage(run: Run, folder: Path) -> None:
    damage(file(folder, 2), 60)
    done = run("cache", "list", str(folder))
    lines = done.stdout.decode().splitlines()
    assert lines[0].split() == ["SNAPSHOT", "SIZE", "USED", "TOKENS", "MODEL"]
    assert lines[1].split()[:7] == [file(folder, 1).stem[:12], "1.0", "MB", "30", "d", "ago", "1"]
    assert "damaged" in lines[2]
    assert lines[3].split()[6:8] == ["3", "test"]
    assert done.stderr.decode().strip() == "3 snapshots, 3.0 MB"


def test_list_json_has_the_facts(run: Run, folder: Path) -> None:
    shown = json.loads(run("cache", "list", str(folder), "--json").stdout)
    assert [one["n_tokens"] for one in shown] == [1, 2, 3]
    assert shown[0]["path"] == str(file(folder, 1))
    assert shown[0]["fingerprint"] == dict(FACTS)
    assert shown[0]["problem"] is None


def test_verify_of_sound_files_is_fine(run: Run, folder: Path) -> None:
    done = run("cache", "verify", str(folder))
    assert done.stdout == b""
    assert done.stderr.decode().strip() == "3 snapshots, 0 of no use"


def test_one_file_is_told_in_the_singular(run: Run, folder: Path) -> None:
    for number in (1, 2):
        file(folder, number).unlink()
    assert run("cache", "list", str(folder)).stderr.decode().strip() == "1 snapshot, 1.0 MB"
    assert run("cache", "verify", str(folder)).stderr.decode().strip() == "1 snapshot, 0 of no use"
    done = run("cache", "prune", str(folder), "--max-size", "1", "--dry-run")
    assert done.stderr.decode().strip() == "1 file would go, 1.0 MB"


def test_verify_names_each_damaged_file(run: Run, folder: Path) -> None:
    damage(file(folder, 1), 60)
    damage(file(folder, 3), 500_000)
    done = run("cache", "verify", str(folder), check=False)
    assert done.returncode == 1
    lines = done.stdout.decode().splitlines()
    assert ["head is damaged" in lines[0], "state is damaged" in lines[1]] == [True, True]
    assert [file(folder, n).name in line for n, line in zip((1, 3), lines, strict=True)] == [True, True]
    assert left(folder) == [1, 2, 3]


def test_prune_removes_damaged_and_abandoned_files(run: Run, folder: Path) -> None:
    damage(file(folder, 2), 60)
    abandoned = folder / f".{'a' * 40}.{'0' * 16}.tmp"
    abandoned.write_bytes(b"half")
    os.utime(abandoned, (time.time() - 2 * ABANDONED_S,) * 2)
    notes = folder / "notes.txt"
    notes.write_text("mine")
    done = run("cache", "prune", str(folder))
    assert set(done.stdout.decode().split()) == {str(file(folder, 2)), str(abandoned)}
    assert left(folder) == [1, 3]
    assert (abandoned.exists(), notes.exists()) == (False, True)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--older-than", "15"], [3]),
        (["--older-than", "25"], [2, 3]),
        (["--max-size", "3M"], [1, 2, 3]),
        (["--max-size", "2100K"], [2, 3]),
        (["--max-size", "0"], []),
        (["--max-size", "1MiB", "--older-than", "25"], [3]),
        (["--max-size", "0", "--dry-run"], [1, 2, 3]),
    ],
)
def test_prune_removes_what_was_used_least_recently(
    run: Run, folder: Path, options: list[str], expected: list[int]
) -> None:
    done = run("cache", "prune", str(folder), *options)
    assert left(folder) == expected
    assert ("would go" in done.stderr.decode()) == ("--dry-run" in options)
    store = DiskStore(folder)
    assert [n for n in (1, 2, 3) if store.get(FACTS, Prefix([5] * n))] == expected


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["list", "nowhere"], "there is no such directory"),
        (["verify", ".", "--json"], "--json is an option of list"),
        (["list", ".", "--dry-run"], "options of prune"),
        (["verify", ".", "--max-size", "1G"], "options of prune"),
    ],
)
def test_wrong_use_is_one_line(run: Run, arguments: list[str], reason: str) -> None:
    assert reason in one_error_line(run("cache", *arguments, check=False))


@pytest.mark.parametrize("size", ["", "much", "-1", "1X", "9" * 20])
def test_size_that_is_none_is_wrong_usage(run: Run, size: str) -> None:
    done = run("cache", "prune", ".", f"--max-size={size}", check=False)
    assert done.returncode == 2
    assert "isn't a size" in done.stderr.decode()
