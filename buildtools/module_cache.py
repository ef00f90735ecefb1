"""A cache of compiled extension modules, by content: the same C++ with the same flags is compiled once.

setuptools compiles everything anew for each kind of installation (in place, editable, wheel), of the same sources.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension

from buildtools import paths

#: Builds of one module that are kept: a few Pythons and kinds of build.
_KEEP = 12


def module_key(extension: Extension, compiler: list[str]) -> str:
    """A digest of everything that decides what a compiled module contains."""
    digest = hashlib.sha256()
    facts = [
        compiler,
        sysconfig.get_config_var("SOABI"),
        sysconfig.get_config_var("CFLAGS"),
        extension.name,
        extension.libraries,
        extension.library_dirs,
        extension.define_macros,
        extension.extra_compile_args,
        extension.extra_link_args,
        [os.environ.get(name, "") for name in ("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "ARCHFLAGS")],
    ]
    digest.update(json.dumps(facts, sort_keys=True).encode())
    # Declarations are in the C++ already; C headers are not.
    headers = {name for name in extension.depends if name.endswith((".h", ".hpp"))}
    headers.update(str(path) for folder in extension.include_dirs for path in Path(folder).glob("*.h"))
    for name in (*extension.sources, *sorted(headers)):
        digest.update(Path(name).name.encode() + b"\0" + hashlib.sha256(Path(name).read_bytes()).digest())
    return digest.hexdigest()[:24]


def fetch(name: str, key: str, target: Path) -> bool:
    """Copy a module out of the cache; False when it isn't there."""
    cached = _folder() / f"{name}-{key}"
    try:
        _copy(cached, target)
        cached.touch()
    except OSError:
        return False
    return True


def store(name: str, key: str, built: Path) -> None:
    """Put a module into the cache; a cache that can't be written is no reason to fail."""
    folder = _folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _copy(built, folder / f"{name}-{key}")
        kept = sorted(folder.glob(f"{name}-*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for old in kept[_KEEP:]:
            old.unlink()
    except OSError:
        return


def _folder() -> Path:
    return paths.cache_folder() / "modules"


def _copy(source: Path, target: Path) -> None:
    """Copy beside the target, then rename: a process that has the old file loaded keeps it whole."""
    if not source.is_file():
        raise FileNotFoundError(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".new-")
    os.close(handle)
    try:
        shutil.copyfile(source, name)
        Path(name).chmod(0o755)
        Path(name).replace(target)
    finally:
        Path(name).unlink(missing_ok=True)
