"""The stubs say what the compiled modules are, and type checkers understand them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import REPO

pytest.importorskip("mypy", reason="mypy is not installed")

ALLOWLIST = Path("tests", "typing", "stubtest-allowlist.txt")


def _run(*command: str, cache: Path) -> str:
    """Return what a module said when it failed, else nothing."""
    environ = {**os.environ, "MYPY_CACHE_DIR": str(cache), "MYPY_FORCE_COLOR": "0"}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=REPO, env=environ, capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_stubs_match_compiled_modules(tmp_path: Path) -> None:
    options = ("--concise", "--mypy-config-file", "pyproject.toml", "--allowlist", str(ALLOWLIST))
    assert not _run("mypy.stubtest", "llamacy.core", *options, cache=tmp_path)


def test_types_of_public_api_are_what_users_expect(tmp_path: Path) -> None:
    assert not _run("mypy", "tests/typing", cache=tmp_path)
