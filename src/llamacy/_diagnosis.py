"""Says why llamacy can't be loaded, and what to do. Imported only when an import failed."""

from __future__ import annotations

import re
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_REINSTALL = "pip install --force-reinstall --no-cache-dir llamacy"

# What the loaders of Linux, macOS and musl say about a library that is not there.
_MISSING = (
    re.compile(r"(?P<library>[^\s:/]+\.so[^\s:]*): cannot open shared object file"),
    re.compile(r"Library not loaded: (?P<library>\S+)"),
    re.compile(r"Error loading shared library (?P<library>[^\s:]+):"),
)


def explain(error: ImportError) -> str:
    """Turn the failure of an import into a message that names what is missing.

    Parameters
    ----------
    error
        What Python raised when a module of llamacy was imported.

    Returns
    -------
    str
        What failed, which file or package is missing, and what to do.
    """
    text = str(error)
    if isinstance(error, ModuleNotFoundError) and error.name:
        if error.name.startswith("llamacy."):
            return _missing_module(error.name)
        package = error.name.split(".")[0]
        return f"llamacy needs the package {error.name!r}, which isn't installed: pip install {package}"
    for pattern in _MISSING:
        found = pattern.search(text)
        if found:
            return _missing_library(Path(found["library"]).name, text)
    if sys.platform == "win32" and "DLL load failed" in text:
        absent = [name for name in _own_libraries() if not (_PACKAGE / "_lib" / name).is_file()]
        if absent:
            return _missing_library(absent[0], text)
    return f"llamacy can't load its native code: {text}"


def _missing_module(name: str) -> str:
    parts = name.split(".")[1:]
    folder = _PACKAGE.joinpath(*parts[:-1])
    wanted = folder / (parts[-1] + EXTENSION_SUFFIXES[0])
    others = sorted(path.name for path in folder.glob(parts[-1] + ".*") if path.suffix in {".so", ".pyd", ".dylib"})
    if others:
        version = ".".join(map(str, sys.version_info[:2]))
        return (
            f"llamacy is built for another Python: this is {sys.implementation.name} {version}, which needs "
            f"{wanted}, "
            f"but only {', '.join(others)} is there. Install llamacy with this Python: "
            f"{sys.executable} -m {_REINSTALL}"
        )
    return (
        f"llamacy isn't built: {wanted} is missing. In a checkout run `pip install -e .`; elsewhere "
        f"reinstall it: "
        f"{_REINSTALL}"
    )


def _missing_library(library: str, text: str) -> str:
    folder = _PACKAGE / "_lib"
    stem = library.lower().removeprefix("lib")
    if stem.startswith("llamacy-"):
        return (
            f"llamacy can't load its native code: {library} is missing from {folder}. Reinstall llamacy "
            f"({_REINSTALL}); in a checkout, run `pip install -e .` again. [{text}]"
        )
    hint = _SYSTEM_LIBRARIES.get(re.split(r"[.\-]", stem)[0], "install the package of your system that has it")
    return f"llamacy can't load its native code: the system library {library} is missing: {hint}. [{text}]"


# Libraries that a build of llama.cpp links besides its own, by the name without lib- and version.
_SYSTEM_LIBRARIES = {
    "gomp": "install GCC's OpenMP runtime (Debian, Ubuntu: apt install libgomp1; Fedora: dnf install libgomp)",
    "omp": "install LLVM's OpenMP runtime (brew install libomp; apt install libomp5)",
    "stdc++": "install the C++ runtime (Debian, Ubuntu: apt install libstdc++6)",
    "cudart": "install the CUDA runtime of the version that llamacy was built with, or build llamacy without CUDA",
    "cublas": "install cuBLAS of the CUDA version that llamacy was built with, or build llamacy without CUDA",
    "cuda": "install the NVIDIA driver, or build llamacy without CUDA",
    "vulkan": "install the Vulkan loader (apt install libvulkan1), or build llamacy without Vulkan",
    "llama": "llamacy was built on an installed llama.cpp that is no longer there; install it or reinstall llamacy",
    "ggml": "llamacy was built on an installed llama.cpp that is no longer there; install it or reinstall llamacy",
    "mtmd": "llamacy was built on an installed llama.cpp that is no longer there; install it or reinstall llamacy",
}


def _own_libraries() -> list[str]:
    prefix, suffix = {"win32": ("", ".dll"), "darwin": ("lib", ".dylib")}.get(sys.platform, ("lib", ".so"))
    return [f"{prefix}llamacy-{name}{suffix}" for name in ("ggml-base", "ggml", "llama", "mtmd")]
