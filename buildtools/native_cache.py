"""The cache of native builds: one folder a key, published whole or not at all."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from buildtools.errors import BuildError
from buildtools.locks import file_lock

#: Part of every key; raise it when a change here makes older builds wrong.
SCHEMA = 1
_DONE = "build.json"


def key(facts: Mapping[str, object]) -> str:
    """The key of a native build: a digest of everything that decides what it contains."""
    text = json.dumps({"schema": SCHEMA, **facts}, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def hash_files(paths: list[Path], base: Path) -> str:
    """A digest of the names and contents of files."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.relative_to(base).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def hash_tree(tree: Path, folders: tuple[str, ...]) -> str:
    """A digest of a source tree that isn't the pinned one."""
    paths = [tree / "CMakeLists.txt"]
    for folder in folders:
        paths.extend(path for path in (tree / folder).rglob("*") if path.is_file())
    return hash_files([path for path in paths if path.is_file()], tree)


def fetch(folder: Path, name: str, facts: Mapping[str, object], build: Callable[[Path, Path], None]) -> Path:
    """The cached build `name`, building it first when it isn't there.

    Parameters
    ----------
    folder : Path
        The cache.
    name : str
        The key.
    facts : mapping
        What the key was made of; kept beside the build for people to read.
    build : callable
        Called with a work folder, which survives a failure so that the next try goes on from there, and an
        empty folder to fill.

    Returns
    -------
    Path
        The finished build.
    """
    final = folder / name
    if (final / _DONE).is_file():
        return final
    work = folder / f"{name}.work"
    staging = folder / f"{name}.new"

    def waiting() -> None:
        print(f"llamacy: another process builds {final}; waiting for it", flush=True)

    try:
        # One lock for the whole cache: two native builds at once would only slow each other down.
        with file_lock(folder / "lock", waiting):
            if (final / _DONE).is_file():
                return final
            for leftover in (staging, final):
                if leftover.exists():
                    shutil.rmtree(leftover)
            staging.mkdir(parents=True)
            try:
                build(work, staging)
                (staging / _DONE).write_text(
                    json.dumps({"key": name, **facts}, indent=1, sort_keys=True) + "\n", encoding="utf-8"
                )
                staging.replace(final)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
            shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise BuildError(
            f"The cache of native builds {folder} can't be written ({error.strerror or error}): make room or "
            "fix its permissions, or name another folder in LLAMACY_BUILD_CACHE."
        ) from error
    return final
