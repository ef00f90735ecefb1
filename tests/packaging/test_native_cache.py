"""The cache of native builds: keys that change with what is built, and builds that appear whole or not at all."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from buildtools import cmake_build, compiler, native_cache, paths
from buildtools.errors import BuildError
from buildtools.options import BuildOptions, ggml_options, read_options
from tests.helpers import vendor_dir


def key_of(options: BuildOptions, fingerprint: dict[str, str] | None = None, tree: Path = paths.VENDORED_TREE) -> str:
    definitions = dict(cmake_build.default_definitions(options))
    definitions.update(options.definitions)
    facts = cmake_build.build_facts(options, tree, definitions, fingerprint or {"compiler": "cc 1"})
    return native_cache.key(facts)


def _nothing(work: Path, staging: Path) -> None:
    pass


def test_key_is_stable() -> None:
    assert key_of(BuildOptions()) == key_of(BuildOptions())


@pytest.mark.parametrize(
    "change",
    [
        {"debug": True},
        {"wheel": True},
        {"sanitize": "address"},
        {"definitions": (("GGML_LTO", "ON"),)},
        {"definitions": (("GGML_NATIVE", "OFF"),)},
        {"other_arguments": ("-G", "Unix Makefiles")},
    ],
)
def test_key_changes_with_options(change: dict[str, object]) -> None:
    assert key_of(BuildOptions(**change)) != key_of(BuildOptions())  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [{"jobs": 7}, {"linetrace": True}, {"fast_compile": True}])
def test_key_ignores_what_native_libraries_do_not_see(change: dict[str, object]) -> None:
    assert key_of(BuildOptions(**change)) == key_of(BuildOptions())  # type: ignore[arg-type]


def test_key_changes_with_compiler() -> None:
    assert key_of(BuildOptions(), {"compiler": "cc 2"}) != key_of(BuildOptions(), {"compiler": "cc 1"})


@pytest.mark.parametrize("name", ["CFLAGS", "CXXFLAGS", "LDFLAGS", "CUDACXX"])
def test_fingerprint_has_flags(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = compiler.find_compiler()
    monkeypatch.delenv(name, raising=False)
    before = compiler.fingerprint(found, native=False)
    monkeypatch.setenv(name, "-DX")
    assert compiler.fingerprint(found, native=False) != before


def test_fingerprint_of_native_build_names_the_processor() -> None:
    found = compiler.find_compiler()
    assert compiler.fingerprint(found, native=True).get("processor")
    assert "processor" not in compiler.fingerprint(found, native=False)


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="Linux")
def test_native_features_are_those_of_this_processor() -> None:
    flags = set(Path("/proc/cpuinfo").read_text().split())
    assert set(compiler.find_compiler().native_features()) <= flags


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64")
def test_configured_features_are_those_that_cmake_turned_on() -> None:
    # what ggml's CMakeLists.txt says of a build with GGML_NATIVE=OFF and GGML_F16C=OFF
    cache = (
        "//ggml: enable SSE 4.2\nGGML_SSE42:BOOL=ON\nGGML_AVX:BOOL=ON\nGGML_AVX2:BOOL=ON\nGGML_F16C:BOOL=OFF\n"
        "GGML_AVX512:BOOL=OFF\nGGML_CPU_ALL_VARIANTS:BOOL={}\nGGML_LLAMAFILE:BOOL=ON\n"
    )
    assert compiler.configured_features(cache.format("OFF")) == ["sse4_2", "avx", "avx2"]
    assert compiler.configured_features(cache.format("ON")) == []


def test_options_of_features_are_options_of_the_tree() -> None:
    assert set(compiler._X86_OPTIONS) <= ggml_options(vendor_dir())


def test_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(BuildError, match="no-such-compiler"):
        compiler.find_compiler()


def test_key_of_own_tree_follows_its_sources(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    source = tmp_path / "src" / "llama.cpp"
    source.write_text("int a;\n")
    before = key_of(BuildOptions(), tree=tmp_path)
    assert before != key_of(BuildOptions())
    source.write_text("int b;\n")
    assert key_of(BuildOptions(), tree=tmp_path) != before


def test_key_of_edited_pin_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of(BuildOptions())
    pin = cmake_build.read_pin()
    monkeypatch.setattr(cmake_build, "read_pin", lambda: replace(pin, sha256="1" * 64))
    assert key_of(BuildOptions()) != before


def test_fetch_builds_once(tmp_path: Path) -> None:
    calls: list[Path] = []

    def build(work: Path, staging: Path) -> None:
        calls.append(staging)
        work.mkdir()
        (staging / "lib").mkdir()

    first = native_cache.fetch(tmp_path, "k", {"a": 1}, build)
    assert native_cache.fetch(tmp_path, "k", {"a": 1}, build) == first == tmp_path / "k"
    assert len(calls) == 1
    assert json.loads((first / "build.json").read_text()) == {"key": "k", "a": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["k", "lock"]


def test_fetch_failure_publishes_nothing_and_keeps_work(tmp_path: Path) -> None:
    def build(work: Path, staging: Path) -> None:
        work.mkdir(exist_ok=True)
        (work / "object.o").write_text("done so far")
        (staging / "half").write_text("half")
        raise BuildError("stopped")

    with pytest.raises(BuildError, match="stopped"):
        native_cache.fetch(tmp_path, "k", {}, build)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["k.work", "lock"]


def test_fetch_replaces_unfinished_build(tmp_path: Path) -> None:
    (tmp_path / "k").mkdir()
    (tmp_path / "k" / "half").write_text("half")
    done = native_cache.fetch(tmp_path, "k", {}, _nothing)
    assert [path.name for path in done.iterdir()] == ["build.json"]


def test_fetch_unwritable_cache_raises(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BuildError, match="LLAMACY_BUILD_CACHE"):
        native_cache.fetch(tmp_path / "file" / "cache", "k", {}, _nothing)


def test_fetch_many_processes_at_once_build_once(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        from buildtools.native_cache import fetch
        def build(work, staging):
            time.sleep(0.5)
            print("built")
        fetch(Path(sys.argv[1]), "k", {}, build)
        """
    )
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)], cwd=paths.ROOT, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    said = [run.communicate(timeout=120)[0] for run in runs]
    assert all(run.returncode == 0 for run in runs)
    assert sum("built\n" in text for text in said) == 1


def test_cuda_without_nvcc_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cmake_build, "_find_nvcc", lambda: False)
    monkeypatch.setenv("LLAMACY_BUILD_CACHE", str(tmp_path))
    options = read_options(paths.VENDORED_TREE, {"CMAKE_ARGS": "-DGGML_CUDA=on"})
    with pytest.raises(BuildError) as caught:
        cmake_build.native_build(options, paths.VENDORED_TREE)
    assert "GGML_CUDA=on" in str(caught.value)
    assert "nvcc isn't found" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_option_is_refused_after_configuring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLAMACY_BUILD_CACHE", str(tmp_path))
    options = read_options(paths.VENDORED_TREE, {"CMAKE_ARGS": "-DWITH_CUDA=on"})
    with pytest.raises(BuildError, match=r"WITH_CUDA.*docs/building.md"):
        cmake_build.native_build(options, paths.VENDORED_TREE)


def test_failing_configure_shows_the_reason_and_the_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLAMACY_BUILD_CACHE", str(tmp_path))
    # All CPU variants without dynamic backends is an error in ggml's own CMake files.
    options = read_options(paths.VENDORED_TREE, {"CMAKE_ARGS": "-DGGML_CPU_ALL_VARIANTS=ON"})
    with pytest.raises(BuildError, match=r"GGML_CPU_ALL_VARIANTS requires GGML_BACKEND_DL") as caught:
        cmake_build.native_build(options, paths.VENDORED_TREE)
    log = Path(str(caught.value).rsplit("The full log is ", 1)[1].rstrip("."))
    assert "CMake Error" in log.read_text()


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLAMACY_BUILD_CACHE", str(tmp_path / "own"))
    assert paths.cache_folder() == tmp_path / "own"
    monkeypatch.delenv("LLAMACY_BUILD_CACHE")
    if sys.platform.startswith("linux"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert paths.cache_folder() == tmp_path / "llamacy" / "native"
    assert not paths.cache_folder().is_relative_to(paths.ROOT)
