"""Links an installed llama.cpp instead of building one (`LLAMACY_SYSTEM_LLAMA`)."""

from __future__ import annotations

import hashlib
import shutil
import sys
import sysconfig
from pathlib import Path

from buildtools import paths
from buildtools.cmake_build import NativeBuild
from buildtools.errors import BuildError

_TARGETS = ("llama", "ggml", "ggml-base", "mtmd")


def _prefixes(value: str) -> list[Path]:
    if value.strip().lower() in {"1", "on", "yes", "true"}:
        return [Path("/usr/local"), Path("/usr"), Path("/opt/homebrew")]
    return [Path(value).expanduser().resolve()]


def _library_folders(prefix: Path) -> list[Path]:
    triplet = sysconfig.get_config_var("MULTIARCH") or ""
    return [prefix / "lib", prefix / "lib64", *([prefix / "lib" / triplet] if triplet else [])]


def system_build(value: str, tree: Path, overlay: Path) -> NativeBuild:
    """Find an installed llama.cpp and describe it as a native build.

    Parameters
    ----------
    value : str
        The value of `LLAMACY_SYSTEM_LLAMA`: a prefix, or a yes, which looks into the usual ones.
    tree : Path
        The vendored tree, which lends `llama-ext.h`: installs of llama.cpp don't have it, their libraries do.
    overlay : Path
        Folder to make the tree-shaped copy of the headers in, as the drift check reads them.

    Raises
    ------
    BuildError
        No such install, or one that lacks a library or header.
    """
    for prefix in _prefixes(value):
        if (prefix / "include" / "llama.h").is_file():
            break
    else:
        looked = ", ".join(str(prefix / "include" / "llama.h") for prefix in _prefixes(value))
        raise BuildError(
            f"LLAMACY_SYSTEM_LLAMA={value}: no installed llama.cpp found (looked for {looked}). Give the "
            "prefix it was installed to, or unset the variable to build the vendored one."
        )
    suffix = {"darwin": ".dylib", "win32": ".lib"}.get(sys.platform, ".so")
    stem = "" if sys.platform == "win32" else "lib"
    for folder in _library_folders(prefix):
        if (folder / f"{stem}llama{suffix}").is_file():
            break
    else:
        raise BuildError(
            f"LLAMACY_SYSTEM_LLAMA={value}: {prefix} has llama.h, but no {stem}llama{suffix} in its lib folders."
        )
    missing = [name for name in _TARGETS if not (folder / f"{stem}{name}{suffix}").is_file()]
    if missing:
        raise BuildError(
            f"LLAMACY_SYSTEM_LLAMA={value}: {folder} lacks "
            f"{', '.join(f'{stem}{name}{suffix}' for name in missing)}; install llama.cpp with "
            "-DBUILD_SHARED_LIBS=ON -DLLAMA_BUILD_MTMD=ON."
        )
    digest = hashlib.sha256(str(folder).encode())
    shutil.rmtree(overlay, ignore_errors=True)
    flat = overlay / "flat"
    flat.mkdir(parents=True)
    for relative in paths.HEADERS:
        source = prefix / "include" / Path(relative).name
        if not source.is_file():
            source = tree / relative
        if not source.is_file():
            raise BuildError(
                f"LLAMACY_SYSTEM_LLAMA={value}: neither {prefix / 'include'} nor {tree} has {Path(relative).name}."
            )
        target = overlay / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        shutil.copyfile(source, flat / source.name)
        digest.update(source.read_bytes())
    for name in _TARGETS:
        digest.update(str((folder / f"{stem}{name}{suffix}").stat().st_mtime_ns).encode())
    return NativeBuild(
        library_folder=folder,
        include_folder=flat,
        link_names={name: name for name in _TARGETS},
        bundled=False,
        key="system-" + digest.hexdigest()[:20],
        facts={
            "llama_cpp": "system",
            "key": digest.hexdigest()[:20],
            "layout": "system",
            "library_folder": str(folder),
            "native": False,
            "cpu_features": [],
            "options": {},
        },
    )
