"""The lock between processes: one holds it at a time, also where its file is removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llamacy.starter import lock
from llamacy.starter.lock import file_lock


class Waited(Exception):
    """Another one holds the lock."""


def refused() -> None:
    raise Waited


def test_lock_keeps_others_out_and_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with file_lock(path, refused), pytest.raises(Waited), file_lock(path, refused):
        pass
    with file_lock(path, refused):
        assert path.exists()


@pytest.mark.skipif(os.name == "nt", reason="a file that is open can't be removed there")
@pytest.mark.parametrize("again", [False, True])
def test_lock_on_a_file_that_was_removed_meanwhile_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    path = tmp_path / "lock"
    tried = []
    real = lock._try_lock

    def remove_first(fd: int) -> bool:
        # as if who held it removed it between the opening of the file and the locking
        if not tried:
            path.unlink()
            if again:
                path.touch()
        tried.append(fd)
        return real(fd)

    monkeypatch.setattr(lock, "_try_lock", remove_first)
    with file_lock(path, refused), pytest.raises(Waited), file_lock(path, refused):
        pass
    assert len(tried) == 3
