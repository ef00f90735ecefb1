"""Builds native code against the libraries that llamacy uses."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from harness.cache import cache_dir

import llamacy

_LIBRARIES = ("llama", "ggml", "ggml-base")


def library_dir() -> Path:
    """Return the folder of the native libraries: `LLAMACY_BENCH_LIBS`, or that of the installed llamacy."""
    return Path(os.environ.get("LLAMACY_BENCH_LIBS") or llamacy.get_library_dir())


def include_dirs() -> list[Path]:
    """Return the folders of the headers: `LLAMACY_BENCH_INCLUDE`, or that of the installed llamacy."""
    own = os.environ.get("LLAMACY_BENCH_INCLUDE")
    return [Path(part) for part in own.split(os.pathsep)] if own else [Path(llamacy.get_include())]


def backend_dir() -> Path | None:
    """Return the folder that compute backends are loaded from, or None when they are linked in."""
    folder = library_dir()
    linked = any(folder.glob(f"lib{prefix}ggml-cpu.*") for prefix in ("", "llamacy-"))
    return None if linked else folder


def build(name: str, *, library: bool = False) -> Path:
    """Return a program, or a library, compiled when it isn't in the cache for this source, header and flags.

    Parameters
    ----------
    name
        Of the source in this folder, without ".cpp".
    library
        Make a shared library.

    Raises
    ------
    FileNotFoundError
        There is no compiler, or no libraries.
    subprocess.CalledProcessError
        It doesn't compile.
    """
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        raise FileNotFoundError("a C++ compiler is needed for native code: install one, or set CXX")
    folder = library_dir()
    flags = [
        "-std=c++17", "-O3", *(f"-I{include}" for include in include_dirs()), f"-L{folder}",
        *(f"-l{_link_name(folder, name)}" for name in _LIBRARIES), f"-Wl,-rpath,{folder}",
    ]  # fmt: skip
    if library:
        flags += ["-shared", "-fPIC"]
    source = Path(__file__).with_name(f"{name}.cpp")
    digest = hashlib.sha256("\0".join([compiler, *flags]).encode())
    digest.update(source.read_bytes())
    digest.update((include_dirs()[0] / "llama.h").read_bytes())
    program = cache_dir() / f"{name}-{digest.hexdigest()[:16]}"
    if not program.is_file():
        with tempfile.TemporaryDirectory(dir=program.parent) as work:
            fresh = Path(work) / name
            subprocess.run([compiler, str(source), *flags, "-o", str(fresh)], check=True)
            fresh.replace(program)
    return program


def _link_name(folder: Path, name: str) -> str:
    for prefix in ("llamacy-", ""):
        if any(folder.glob(f"lib{prefix}{name}.*")):
            return prefix + name
    raise FileNotFoundError(f"{folder} has no library lib{name} to link native code with")
