"""Where things are: the checkout, the vendored tree, the cache of native builds."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

#: Top of the checkout, or of an unpacked source distribution.
ROOT = Path(__file__).resolve().parent.parent
PIN_FILE = ROOT / "vendor" / "PIN.toml"
#: The tree that vendor_sync fills.
VENDORED_TREE = ROOT / "vendor" / "llama.cpp"
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "llamacy"
CMAKE_PROJECT = ROOT / "buildtools" / "cmake"

#: Inside the package: the native libraries, and the headers that `llamacy.get_include()` names.
LIBRARY_FOLDER = "_lib"
INCLUDE_FOLDER = "include"

#: Public headers of a llama.cpp tree, by their path in it.
HEADERS = (
    "include/llama.h",
    "src/llama-ext.h",
    "ggml/include/ggml.h",
    "ggml/include/ggml-alloc.h",
    "ggml/include/ggml-backend.h",
    "ggml/include/ggml-cpu.h",
    "ggml/include/ggml-opt.h",
    "ggml/include/ggml-rpc.h",
    "ggml/include/gguf.h",
    "tools/mtmd/mtmd.h",
    "tools/mtmd/mtmd-helper.h",
)


def tree() -> Path:
    """The llama.cpp tree to build: `LLAMACY_LLAMA_CPP_DIR`, else the vendored one."""
    own = os.environ.get("LLAMACY_LLAMA_CPP_DIR")
    return Path(own).expanduser().resolve() if own else VENDORED_TREE


def build_base(environ: Mapping[str, str]) -> Path:
    """The folder of intermediate files; each kind of build has its own, so that one doesn't undo the other."""
    base = ROOT / "build"
    for kind in ("SANITIZE", "LINETRACE", "SYSTEM_LLAMA", "WHEEL"):
        if environ.get(f"LLAMACY_{kind}", "") not in {"", "0"}:
            return base / kind.lower().replace("_", "-")
    return base


def cache_folder() -> Path:
    """The folder of native builds: `LLAMACY_BUILD_CACHE`, else one in the user's cache folder."""
    own = os.environ.get("LLAMACY_BUILD_CACHE")
    if own:
        return Path(own).expanduser().resolve()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "llamacy" / "native"
