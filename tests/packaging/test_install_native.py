"""Libraries and headers in the package folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from buildtools.cmake_build import NativeBuild
from buildtools.install_native import install


@pytest.fixture
def native(tmp_path: Path) -> NativeBuild:
    for name in ("lib", "include"):
        (tmp_path / "native" / name).mkdir(parents=True)
    (tmp_path / "native/lib/libllamacy-llama.so").write_bytes(b"llama")
    (tmp_path / "native/lib/libggml-cpu-x64.so").write_bytes(b"cpu")
    (tmp_path / "native/include/llama.h").write_text("// llama")
    folder = tmp_path / "native"
    return NativeBuild(folder / "lib", folder / "include", {}, True, "key", {"key": "key"})


def test_install_puts_libraries_headers_and_facts(native: NativeBuild, tmp_path: Path) -> None:
    package = tmp_path / "package"
    files = install(native, package)
    names = {path.relative_to(package).as_posix() for path in files}
    assert names == {"_lib/libllamacy-llama.so", "_lib/libggml-cpu-x64.so", "_lib/build.json", "include/llama.h"}
    assert {path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()} == names
    assert json.loads((package / "_lib/build.json").read_text())["key"] == "key"
    assert os.access(package / "_lib/libllamacy-llama.so", os.X_OK)


def test_install_removes_libraries_of_another_layout(native: NativeBuild, tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "_lib").mkdir(parents=True)
    (package / "_lib/libggml-cpu-haswell.so").write_bytes(b"old")
    install(native, package)
    assert not (package / "_lib/libggml-cpu-haswell.so").exists()


def test_install_again_copies_nothing(native: NativeBuild, tmp_path: Path) -> None:
    package = tmp_path / "package"
    install(native, package)
    before = (package / "_lib/libllamacy-llama.so").stat().st_ino
    install(native, package)
    assert (package / "_lib/libllamacy-llama.so").stat().st_ino == before


def test_install_other_build_replaces_by_rename(native: NativeBuild, tmp_path: Path) -> None:
    package = tmp_path / "package"
    install(native, package)
    target = package / "_lib/libllamacy-llama.so"
    with target.open("rb") as loaded:
        (native.library_folder / target.name).write_bytes(b"newer")
        install(NativeBuild(native.library_folder, native.include_folder, {}, True, "k2", {"key": "k2"}), package)
        # Who has the old one open keeps it whole.
        assert loaded.read() == b"llama"
    assert target.read_bytes() == b"newer"


def test_install_of_system_build_has_headers_only(native: NativeBuild, tmp_path: Path) -> None:
    package = tmp_path / "package"
    install(NativeBuild(native.library_folder, native.include_folder, {}, False, "s", {}), package)
    assert [path.name for path in (package / "_lib").iterdir()] == ["build.json"]
    assert (package / "include/llama.h").is_file()
