"""Filling vendor/llama.cpp: what arrives, and what happens when it can't."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from buildtools.errors import BuildError
from buildtools.paths import ROOT
from buildtools.vendor_sync import STAMP, is_current, sync

from .conftest import KEPT, Index, Place, files_below


def test_sync_absent_tree_holds_kept_files_only(place: Place) -> None:
    assert sync(place.tree, place.pin)
    assert files_below(place.tree) == KEPT
    assert (place.tree / "models/vocab-a.gguf").read_bytes() == b"GGUF" * 1000
    assert is_current(place.tree, place.pin)
    assert place.left_behind() == set()


def test_sync_current_tree_does_nothing(place: Place) -> None:
    sync(place.tree, place.pin)
    before = (place.tree / STAMP).stat().st_mtime_ns
    # Also with no place to get it from.
    shutil.rmtree(place.links)
    assert not sync(place.tree, place.pin)
    assert (place.tree / STAMP).stat().st_mtime_ns == before


def test_sync_force_replaces_tree(place: Place) -> None:
    sync(place.tree, place.pin)
    (place.tree / "CMakeLists.txt").write_text("edited")
    (place.tree / "stray.txt").write_text("stray")
    assert sync(place.tree, place.pin, force=True)
    assert files_below(place.tree) == KEPT
    assert (place.tree / "CMakeLists.txt").read_bytes() == b"project(tree)\n"


@pytest.mark.parametrize("stamp", [None, "", "b0 of another pin"])
def test_sync_half_written_or_older_tree_is_replaced(place: Place, stamp: str | None) -> None:
    place.tree.mkdir()
    (place.tree / "half.txt").write_text("half")
    if stamp is not None:
        (place.tree / STAMP).write_text(stamp)
    assert sync(place.tree, place.pin)
    assert files_below(place.tree) == KEPT


def test_sync_removes_what_a_killed_run_left(place: Place) -> None:
    leftover = place.tree.parent / ".llama.cpp.new-abc"
    (leftover / "tree").mkdir(parents=True)
    sync(place.tree, place.pin)
    assert place.left_behind() == set()


def test_sync_other_keep_list_fetches_anew(place: Place) -> None:
    sync(place.tree, place.pin)
    narrower = replace(place.pin, keep=("CMakeLists.txt",))
    assert sync(place.tree, narrower)
    assert files_below(place.tree) == {"CMakeLists.txt", STAMP}


def test_sync_wrong_digest_raises_and_leaves_old_tree(place: Place) -> None:
    sync(place.tree, place.pin)
    wrong = replace(place.pin, sha256="0" * 64)
    with pytest.raises(BuildError, match=r"has the sha256 [0-9a-f]{64} .* not 0{64}") as caught:
        sync(place.tree, wrong)
    assert "Nothing of it was unpacked" in str(caught.value)
    assert files_below(place.tree) == KEPT
    assert place.left_behind() == set()


def test_sync_truncated_archive_with_its_own_digest_raises(place: Place) -> None:
    place.archive.write_bytes(place.archive.read_bytes()[:-200])
    cut = replace(place.pin, sha256=_sha256(place.archive))
    with pytest.raises(BuildError, match="is damaged"):
        sync(place.tree, cut)
    assert not place.tree.exists()
    assert place.left_behind() == set()


def test_sync_archive_without_folder_raises(place: Place) -> None:
    with pytest.raises(BuildError, match=r"has no carrier-1.0/elsewhere/CMakeLists.txt"):
        sync(place.tree, replace(place.pin, folder="elsewhere"))
    assert not place.tree.exists()


def test_sync_archive_not_found_names_places(place: Place) -> None:
    place.archive.unlink()
    with pytest.raises(BuildError, match=r"carrier-1.0.tar.gz wasn't found \(asked .*links") as caught:
        sync(place.tree, place.pin)
    assert "LLAMACY_LLAMA_CPP_DIR" in str(caught.value)
    assert not place.tree.exists()
    assert place.left_behind() == set()


def test_sync_no_index_and_no_links_raises(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_FIND_LINKS")
    with pytest.raises(BuildError, match="no-index"):
        sync(place.tree, place.pin)


def test_sync_missing_links_folder_raises(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere/at/all")
    with pytest.raises(BuildError, match="/nowhere/at/all"):
        sync(place.tree, place.pin)


def test_sync_from_index_honours_pip_settings(place: Place, index: Index) -> None:
    sync(place.tree, place.pin)
    assert index.requests == ["/simple/carrier/", "/files/carrier-1.0.tar.gz"]
    assert files_below(place.tree) == KEPT


def test_sync_from_second_index_when_first_is_down(place: Place, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    # Port 9 (discard) refuses on any machine that doesn't run that service.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", index.url)
    sync(place.tree, place.pin)
    assert files_below(place.tree) == KEPT


def test_sync_settings_from_config_file(
    place: Place, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nindex-url = {index.url}\n")
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    sync(place.tree, place.pin)
    assert index.requests[0] == "/simple/carrier/"


def test_sync_no_network_raises_with_reason(place: Place, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(BuildError, match=r"wasn't found \(asked http://127.0.0.1:9/simple: ConnectError") as caught:
        sync(place.tree, place.pin)
    assert "check the network" in str(caught.value)
    assert not place.tree.exists()
    assert place.left_behind() == set()


def test_sync_download_cut_short_raises(place: Place, index: Index) -> None:
    index.cut = 100
    with pytest.raises(BuildError, match=r"Downloading carrier-1.0.tar.gz failed \(RemoteProtocolError"):
        sync(place.tree, place.pin)
    assert index.requests.count("/files/carrier-1.0.tar.gz") == 2
    assert not place.tree.exists()
    assert place.left_behind() == set()


def test_sync_busy_server_is_asked_again(place: Place, index: Index) -> None:
    index.fail_first = 1
    sync(place.tree, place.pin)
    assert files_below(place.tree) == KEPT


def test_sync_password_is_not_shown(place: Place, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:9/simple")
    with pytest.raises(BuildError) as caught:
        sync(place.tree, place.pin)
    assert "secret" not in str(caught.value)


_RUN = """
import resource, sys
from pathlib import Path
from buildtools.errors import BuildError
from buildtools.pin import Pin
from buildtools.vendor_sync import sync
limit = int(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    print("done" if sync(Path(sys.argv[1]), Pin(**{pin})) else "nothing")
except BuildError as error:
    print("error:", error)
"""


def _start(place: Place, limit: int = 0) -> subprocess.Popen[str]:
    script = textwrap.dedent(_RUN).replace("{pin}", repr(asdict(place.pin)))
    return subprocess.Popen(
        [sys.executable, "-c", script, str(place.tree), str(limit)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def test_sync_many_processes_at_once_one_does_it(place: Place) -> None:
    runs = [_start(place) for _ in range(4)]
    said = sorted(run.communicate(timeout=120)[0].strip() for run in runs)
    assert said == ["done", "nothing", "nothing", "nothing"]
    assert files_below(place.tree) == KEPT
    assert place.left_behind() == set()


@pytest.mark.skipif(sys.platform == "win32", reason="no file size limits")
def test_sync_file_too_large_says_no_room(place: Place) -> None:
    # The archive fits under the limit, the vocabulary in it does not.
    said = _start(place, 2000).communicate(timeout=120)[0]
    assert said.startswith("error: No room to unpack llama.cpp")
    assert not place.tree.exists()
    assert place.left_behind() == set()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root to mount")
def test_sync_full_disk_says_no_room(place: Place, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12k", "none", str(small)], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"can't mount: {mounted.stderr.decode().strip()}")
    place.tree = small / "llama.cpp"
    try:
        with pytest.raises(BuildError, match="No room to unpack"):
            sync(
                place.tree,
                replace(place.pin, keep=("CMakeLists.txt", "include/", "models/", "tools/"), drop=()),
            )
        assert not place.tree.exists()
        assert place.left_behind() == set()
    finally:
        subprocess.run(["umount", str(small)], check=True)


def _sha256(path: Path) -> str:
    import hashlib

    return hashlib.sha256(path.read_bytes()).hexdigest()
