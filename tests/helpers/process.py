"""Run Python in a process of its own, and measure this one."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.helpers import REPO


def run_python(
    code: str,
    *args: str,
    options: Sequence[str] = (),
    env: dict[str, str] | None = None,
    cwd: Path | str | None = None,
    timeout: float = 120,
    check: bool = True,
    **kwargs: object,
) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter and return what it wrote.

    With `check`, an exit code other than 0 fails the test and shows both streams.
    """
    environment = dict(os.environ)
    environment.setdefault("GGML_NO_BACKTRACE", "1")
    environment["PYTHONPATH"] = os.pathsep.join([str(REPO), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    environment.update(env or {})
    kwargs.setdefault("capture_output", True)
    done = subprocess.run(
        [sys.executable, *options, "-c", code, *args],
        env=environment,
        cwd=cwd,
        timeout=timeout,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
        **kwargs,
    )
    if check and done.returncode != 0:
        raise AssertionError(f"exit code {done.returncode}\nstdout:\n{done.stdout}\nstderr:\n{done.stderr}")
    return done


def rss_bytes() -> int:
    """Return the resident memory of this process, after a garbage collection."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
