"""Every function of the mirrors is in the libraries that llamacy ships: calling it cannot fail at load."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from buildtools.headers import HEADERS, MIRRORS
from buildtools.mirrors import parse_mirrors

# Declared in ggml-cpu.h, defined nowhere: whoever calls it gets an extension module that does not load.
UNDEFINED = {"ggml_threadpool_get_n_threads"}


@pytest.fixture(scope="module")
def exported() -> set[str]:
    """Names of all symbols that the shipped libraries define, C++ ones without their parameters."""
    import llamacy  # the other tests of this folder need no installed package

    nm = shutil.which("nm")
    assert nm, "nm is not on PATH: it comes with the compiler"
    libraries = sorted(Path(llamacy.get_library_dir()).glob("*.so*"))
    assert libraries
    names: set[str] = set()
    for library in libraries:
        listing = subprocess.run(
            [nm, "-D", "-C", "--defined-only", str(library)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        names.update(line.split(" ", 2)[2].split("(")[0].split("@")[0] for line in listing.stdout.splitlines())
    return names


@pytest.mark.skipif(sys.platform != "linux", reason="reads ELF libraries")
@pytest.mark.parametrize("module", HEADERS)
def test_functions_of_the_mirror_are_exported_by_the_libraries(module: str, exported: set[str]) -> None:
    functions = set(parse_mirrors(MIRRORS, {})[module].declarations.functions)
    assert functions - exported <= UNDEFINED
