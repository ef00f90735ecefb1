"""Puts native libraries and headers into the package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from buildtools import paths
from buildtools.cmake_build import NativeBuild
from buildtools.errors import BuildError

FACTS_FILE = "build.json"


def install(native: NativeBuild, package: Path, strip: bool = False) -> list[Path]:
    """Bring `_lib` and `include` of a package folder in line with a native build.

    Files that the build doesn't have are removed: a library left over from another layout would be loaded by
    name.

    Returns
    -------
    list of Path
        Every file that the package now has of it.
    """
    libraries = package / paths.LIBRARY_FOLDER
    include = package / paths.INCLUDE_FOLDER
    wanted: dict[Path, Path] = {libraries / path.name: path for path in native.libraries()}
    wanted.update({include / path.name: path for path in sorted(native.include_folder.glob("*.h"))})
    for folder in (libraries, include):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            if old not in wanted and old.name != FACTS_FILE:
                shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
    facts = libraries / FACTS_FILE
    text = json.dumps({**native.facts, "stripped": strip}, indent=1, sort_keys=True) + "\n"
    fresh = facts.is_file() and facts.read_text(encoding="utf-8") == text
    for target, source in wanted.items():
        if fresh and target.is_file() and target.stat().st_mtime_ns >= source.stat().st_mtime_ns:
            continue
        _replace(source, target, strip and target.parent == libraries)
    facts.write_text(text, encoding="utf-8")
    return [*sorted(wanted), facts]


def _replace(source: Path, target: Path, strip: bool) -> None:
    """Copy beside the target, then rename: a process that runs with the old library keeps it whole."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".new-")
    os.close(handle)
    try:
        shutil.copyfile(source, name)
        if strip:
            _strip(Path(name))
        Path(name).chmod(0o755 if target.suffix != ".h" else 0o644)
        Path(name).replace(target)
    except OSError as error:
        raise BuildError(
            f"{target} can't be written ({error.strerror or error}): make room or fix its permissions."
        ) from error
    finally:
        Path(name).unlink(missing_ok=True)


def _strip(path: Path) -> None:
    """Take local symbols out of a library; they are a third of its size and serve nobody in a wheel."""
    program = shutil.which("strip")
    if program is None or sys.platform == "win32":
        return
    flags = ["-x"] if sys.platform == "darwin" else ["--strip-unneeded"]
    subprocess.run([program, *flags, str(path)], check=False, stdin=subprocess.DEVNULL)
