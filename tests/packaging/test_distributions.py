"""The source distribution: whole, free of build products, and buildable with no network."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from buildtools.paths import ROOT, VENDORED_TREE
from buildtools.pin import read_pin
from buildtools.vendor_sync import STAMP, is_current

pytestmark = [pytest.mark.slow_build, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    code = "import sys, setuptools.build_meta as backend; print(backend.build_sdist(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def names(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as tar:
        return {member.name for member in tar if member.isfile()}


def test_sdist_paths_are_short_enough_for_windows(names: set[str]) -> None:
    assert max(len(name) for name in names) < 140


def test_sdist_carries_the_tree_whole(sdist: Path, names: set[str]) -> None:
    top = sdist.name.removesuffix(".tar.gz")
    here = {
        f"{top}/vendor/llama.cpp/{path.relative_to(VENDORED_TREE).as_posix()}"
        for path in VENDORED_TREE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert f"{top}/vendor/llama.cpp/{STAMP}" in here
    assert here - names == set()


def test_sdist_carries_sources_and_tests(sdist: Path, names: set[str]) -> None:
    top = sdist.name.removesuffix(".tar.gz")
    wanted = ["pyproject.toml", "setup.py", "Makefile", "README.md", "LICENSE", "LICENSE-third-party.txt"]
    wanted += ["vendor/PIN.toml", "buildtools/cmake/CMakeLists.txt", "buildtools/cmake/spin.h"]
    for folder in ("src", "buildtools", "tests"):
        wanted += [
            path.relative_to(ROOT).as_posix()
            for path in (ROOT / folder).rglob("*")
            if path.suffix in {".py", ".pyx", ".pxd", ".pyi"} and "build" not in path.relative_to(ROOT).parts
        ]
    assert {f"{top}/{name}" for name in wanted} - names == set()


def test_sdist_carries_no_build_products(names: set[str]) -> None:
    bad = {".so", ".o", ".dylib", ".pyd", ".pyc"}
    assert [name for name in names if PurePosixPath(name).suffix in bad] == []
    assert [name for name in names if "/llamacy/_lib/" in name or "/llamacy/include/" in name] == []


def test_vendored_tree_is_what_the_pin_keeps() -> None:
    pin = read_pin()
    assert is_current(VENDORED_TREE, pin)
    stray = [
        path
        for path in VENDORED_TREE.rglob("*")
        if path.is_file() and not pin.keeps(PurePosixPath(path.relative_to(VENDORED_TREE).as_posix()))
    ]
    assert [path.name for path in stray] == [STAMP]


@pytest.mark.skipif(sys.platform != "linux", reason="looks at ELF files")
def test_sdist_builds_with_no_network_and_no_checkout(sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(tmp_path, filter="data")
        else:
            tar.extractall(tmp_path)
    source = tmp_path / sdist.name.removesuffix(".tar.gz")
    nowhere = "http://127.0.0.1:9"
    environ = {
        **os.environ,
        "PIP_NO_INDEX": "1",
        "HTTP_PROXY": nowhere,
        "HTTPS_PROXY": nowhere,
        "ALL_PROXY": nowhere,
        # The native libraries are those of the cache, as the tree in the archive is the same.
        "LLAMACY_FAST_COMPILE": "1",
    }
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-build-isolation",
        "--no-deps",
        "-w",
        str(tmp_path),
        str(source),
    ]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        content = wheel.namelist()
        licences = [name for name in content if ".dist-info/licenses/" in name]
    assert "llamacy/_lib/libllamacy-llama.so" in content
    assert "llamacy/_lib/build.json" in content
    assert {PurePosixPath(name).name for name in licences} == {"LICENSE", "LICENSE-third-party.txt"}
    # One file a library: links would have become copies.
    libraries = [name for name in content if name.startswith("llamacy/_lib/") and not name.endswith(".json")]
    assert all(name.endswith(".so") for name in libraries)
