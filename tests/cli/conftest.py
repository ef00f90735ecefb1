"""Runs the command line as a user does: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs `llamacy` with arguments; streams are bytes, the cache folder is empty."""

    def call(*arguments: str | bytes, check: bool = True, env: dict[str, str] | None = None, **options: Any) -> Any:
        environment = {
            **os.environ,
            "LLAMACY_CACHE_DIR": str(tmp_path / "cache"),
            "PYTHONUTF8": "0",
            **(env or {}),
        }
        options.setdefault("stdin", subprocess.DEVNULL) if "input" not in options else None
        done = subprocess.run(
            [sys.executable, "-m", "llamacy", *arguments],
            capture_output=True,
            env=environment,
            timeout=120,
            check=False,
            **options,
        )
        if check and done.returncode != 0:
            raise AssertionError(
                f"exit status {done.returncode}\n{done.stdout!r}\n{done.stderr.decode(errors='replace')}"
            )
        return done

    return call


def one_error_line(done: subprocess.CompletedProcess[bytes], status: int = 1) -> str:
    """Check that a command failed with one line, and return the message."""
    text = done.stderr.decode("utf-8", "replace")
    assert done.returncode == status, text
    lines = text.splitlines()
    assert len(lines) == 1, text
    assert lines[0].startswith("llamacy: error: ")
    return lines[0].removeprefix("llamacy: error: ")
