"""The tools that the tests of the header mirrors need: a llama.cpp tree and a compiler."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
if str(ROOT) not in sys.path:  # buildtools is not installed: it belongs to the checkout
    sys.path.insert(0, str(ROOT))

from buildtools.headers import INCLUDE_FOLDERS  # noqa: E402


@pytest.fixture(scope="session")
def tree() -> Path:
    """The llama.cpp tree that the package is built from."""
    path = Path(os.environ.get("LLAMACY_LLAMA_CPP_DIR") or ROOT / "vendor" / "llama.cpp")
    if not (path / "include" / "llama.h").is_file():
        pytest.fail(f"{path} is no llama.cpp tree: run `make` first, it fetches the pinned one")
    return path


@pytest.fixture(scope="session")
def include_flags(tree: Path) -> list[str]:
    """The include path of code that cimports the mirrors."""
    return [f"-I{tree / folder}" for folder in INCLUDE_FOLDERS] + [f"-I{sysconfig.get_paths()['include']}"]


def _compiler(variable: str, *names: str) -> list[str]:
    command = shlex.split(os.environ.get(variable, ""))
    if command:
        return command
    for name in names:
        if found := shutil.which(name):
            return [found]
    return pytest.fail(f"no compiler: none of {', '.join(names)} is on PATH and {variable} is not set")


Compile = Callable[..., "subprocess.CompletedProcess[str]"]


def _checker(command: list[str], *defaults: str) -> Compile:
    def check(source: Path, *flags: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, "-fsyntax-only", *defaults, *flags, str(source)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return check


@pytest.fixture(scope="session")
def check_cxx() -> Compile:
    """Check a C++17 file for errors without generating code."""
    return _checker(_compiler("CXX", "g++", "c++", "clang++"), "-std=c++17", "-Wno-deprecated-declarations")


@pytest.fixture(scope="session")
def check_c() -> Compile:
    """Check a C11 file for errors without generating code."""
    return _checker(_compiler("CC", "gcc", "cc", "clang"), "-std=gnu11", "-Wno-deprecated-declarations")


@pytest.fixture(scope="session")
def gnu_c(check_c: Compile) -> Compile:
    """The C compiler, when it is GCC, which alone can list the functions that it saw declared."""
    version = subprocess.run([*_compiler("CC", "gcc", "cc"), "--version"], capture_output=True, text=True, check=True)
    if "Free Software Foundation" not in version.stdout:
        pytest.skip("the C compiler is not GCC: -aux-info is not available")
    return check_c
