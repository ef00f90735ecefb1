"""Build options: honoured or refused, never ignored."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from buildtools.errors import BuildError
from buildtools.options import BuildOptions, ggml_options, is_on, parse_cmake_args, read_options
from buildtools.paths import ROOT, VENDORED_TREE

TREE = VENDORED_TREE


def options(**environ: str) -> BuildOptions:
    return read_options(TREE, environ)


def test_options_default() -> None:
    assert options() == BuildOptions(jobs=options().jobs)
    assert options().jobs >= 1


def test_ggml_options_names_backends_of_the_tree() -> None:
    assert {"GGML_CUDA", "GGML_VULKAN", "GGML_METAL", "GGML_NATIVE", "GGML_BLAS_VENDOR"} <= ggml_options(TREE)


@pytest.mark.parametrize(
    ("text", "definitions", "rest"),
    [
        ("", [], []),
        ("-DGGML_CUDA=on", [("GGML_CUDA", "on")], []),
        ("-DGGML_CUDA:BOOL=ON -D GGML_LTO=ON", [("GGML_CUDA", "ON"), ("GGML_LTO", "ON")], []),
        (
            "-DGGML_BLAS=ON;-DGGML_BLAS_VENDOR=OpenBLAS",
            [("GGML_BLAS", "ON"), ("GGML_BLAS_VENDOR", "OpenBLAS")],
            [],
        ),
        ("-DCMAKE_CUDA_ARCHITECTURES=80;90", [("CMAKE_CUDA_ARCHITECTURES", "80;90")], []),
        ("-DCMAKE_C_FLAGS='-O2 -pipe' -G Ninja", [("CMAKE_C_FLAGS", "-O2 -pipe")], ["-G", "Ninja"]),
    ],
)
def test_parse_cmake_args(text: str, definitions: list[tuple[str, str]], rest: list[str]) -> None:
    assert parse_cmake_args(text) == (definitions, rest)


@pytest.mark.parametrize("text", ["-DGGML_CUDA", "-DA='x"])
def test_parse_cmake_args_malformed_raises(text: str) -> None:
    with pytest.raises(BuildError, match="CMAKE_ARGS"):
        parse_cmake_args(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LLAMA_CUBLAS", "GGML_CUDA"),
        ("LLAMA_CUDA", "GGML_CUDA"),
        ("GGML_CUBLAS", "GGML_CUDA"),
        ("LLAMA_METAL", "GGML_METAL"),
        ("LLAMA_METAL_EMBED_LIBRARY", "GGML_METAL_EMBED_LIBRARY"),
        ("LLAMA_HIPBLAS", "GGML_HIP"),
        ("LLAMA_CLBLAST", "GGML_OPENCL"),
        ("LLAMA_VULKAN", "GGML_VULKAN"),
        ("LLAMA_SYCL", "GGML_SYCL"),
        ("LLAMA_SYCL_F16", "GGML_SYCL_F16"),
        ("LLAMA_RPC", "GGML_RPC"),
        ("LLAMA_NATIVE", "GGML_NATIVE"),
        ("LLAMA_AVX2", "GGML_AVX2"),
        ("LLAMA_BLAS", "GGML_BLAS"),
        ("LLAMA_BLAS_VENDOR", "GGML_BLAS_VENDOR"),
        ("LLAMA_OPENBLAS", "GGML_BLAS"),
        ("LLAMA_KOMPUTE", "GGML_VULKAN"),
        ("LLAMA_CUDA_FORCE_MMQ", "GGML_CUDA_FORCE_MMQ"),
        ("LLAMA_CURL", "no successor"),
    ],
)
def test_old_name_is_refused_with_the_new_one(old: str, new: str) -> None:
    for environ in ({"CMAKE_ARGS": f"-D{old}=on"}, {old: "on"}):
        with pytest.raises(BuildError) as caught:
            options(**environ)
        assert old in str(caught.value)
        assert new in str(caught.value)


@pytest.mark.parametrize("name", ["GGML_CUDA", "GGML_METAL", "GGML_VULKAN", "GGML_HIP"])
def test_backend_outside_cmake_args_is_refused(name: str) -> None:
    with pytest.raises(BuildError, match=f'CMAKE_ARGS="-D{name}=1"'):
        options(**{name: "1"})
    assert options(CMAKE_ARGS=f"-D{name}=1", **{name: "1"}).definition(name) == "1"


@pytest.mark.parametrize(
    "name", ["GGML_NO_BACKTRACE", "GGML_BACKEND_PATH", "GGML_CUDA_ENABLE_UNIFIED_MEMORY", "LLAMA_CACHE"]
)
def test_runtime_variable_is_left_alone(name: str) -> None:
    options(**{name: "1"})


@pytest.mark.parametrize("name", ["LLAMA_BUILD_MTMD=OFF", "BUILD_SHARED_LIBS=OFF", "GGML_STATIC=ON", "GGML_CPU=0"])
def test_option_that_llamacy_decides_is_refused(name: str) -> None:
    with pytest.raises(BuildError, match=name.partition("=")[0]):
        options(CMAKE_ARGS=f"-D{name}")


@pytest.mark.parametrize(
    ("name", "value"),
    [("LLAMACY_JOBS", "0"), ("LLAMACY_JOBS", "many"), ("LLAMACY_SANITIZE", "adress")],
)
def test_bad_value_is_refused(name: str, value: str) -> None:
    with pytest.raises(BuildError, match=value):
        options(**{name: value})


@pytest.mark.parametrize(
    ("name", "close"), [("GGML_CUDAA", "GGML_CUDA"), ("GGML_VULCAN", "GGML_VULKAN"), ("LLAMA_TOP", "docs")]
)
def test_unknown_name_is_refused_with_a_close_one(name: str, close: str) -> None:
    with pytest.raises(BuildError, match=f"{name}.*{close}"):
        options(CMAKE_ARGS=f"-D{name}=on")


def test_system_llama_contradictions_are_refused() -> None:
    with pytest.raises(BuildError, match="LLAMACY_WHEEL"):
        options(LLAMACY_SYSTEM_LLAMA="/usr", LLAMACY_WHEEL="1")
    with pytest.raises(BuildError, match="CMAKE_ARGS"):
        options(LLAMACY_SYSTEM_LLAMA="/usr", CMAKE_ARGS="-DGGML_LTO=ON")


def test_switches() -> None:
    on = options(LLAMACY_DEBUG="1", LLAMACY_WHEEL="yes", LLAMACY_LINETRACE="on", LLAMACY_JOBS="3")
    assert (on.debug, on.wheel, on.linetrace, on.jobs) == (True, True, True, 3)
    off = options(LLAMACY_DEBUG="0", LLAMACY_WHEEL="off", LLAMACY_LINETRACE="", LLAMACY_SYSTEM_LLAMA="0")
    assert (off.debug, off.wheel, off.linetrace, off.system_llama) == (False, False, False, "")


@pytest.mark.parametrize(
    ("value", "expected"), [("ON", True), ("1", True), ("OFF", False), ("NOTFOUND", False), ("", False)]
)
def test_is_on(value: str, expected: bool) -> None:
    assert is_on(value) is expected


def test_every_option_is_documented() -> None:
    text = (ROOT / "docs" / "building.md").read_text(encoding="utf-8")
    source = "\n".join(path.read_text(encoding="utf-8") for path in sorted(Path(ROOT, "buildtools").glob("*.py")))
    # Definitions that buildtools passes to its own CMake project are no options of the user.
    read = set(re.findall(r"\"(LLAMACY_[A-Z_]+)\"", source)) - {"LLAMACY_RELOCATABLE"}
    assert read
    assert {name for name in read if f"`{name}" not in text} == set()
