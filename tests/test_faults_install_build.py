"""Public fault cases of the area install-build that need no build; the others are in cimport and packaging."""

from __future__ import annotations

import itertools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import llamacy
from buildtools.errors import BuildError
from buildtools.options import read_options
from tests.helpers import REPO, data, vendor_dir
from tests.helpers.process import run_python


def _has_gpu() -> bool:
    return any(device.type.name in ("GPU", "IGPU") for device in llamacy.devices())


def test_ib_001_gpu_layers_without_a_gpu_are_warned_about() -> None:
    if _has_gpu():
        pytest.skip("this machine has a GPU")
    for make, n_gpu_layers in itertools.product((llamacy.Model, llamacy.Llama), (-1, 1, 99, "all")):
        with pytest.warns(UserWarning, match="GPU") as caught, make(data("llama.gguf"), n_gpu_layers=n_gpu_layers):
            pass
        assert "CMAKE_ARGS" in str(caught[0].message)
        assert caught[0].filename == __file__, "the warning points at the line of the caller"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n_gpu_layers", [None, 0, "auto"])
def test_ib_001_default_and_zero_are_not_warned_about(n_gpu_layers: object) -> None:
    with llamacy.Model(data("llama.gguf"), n_gpu_layers=n_gpu_layers) as model:
        assert model.devices == [] or _has_gpu()


def test_ib_001_backend_and_features_can_be_queried() -> None:
    backends = llamacy.backends()
    assert "CPU" in backends
    assert all(isinstance(value, str) for features in backends.values() for value in features.values())
    assert "CPU" in llamacy.system_info()
    (cpu,) = [device for device in llamacy.devices() if device.type.name == "CPU"]
    assert cpu.memory[1] > 0


# ggml's name of a feature -> the flags of /proc/cpuinfo, all of which a CPU needs for it
_FLAGS = {
    "SSE3": ["pni"],
    "SSSE3": ["ssse3"],
    "AVX": ["avx"],
    "AVX2": ["avx2"],
    "F16C": ["f16c"],
    "FMA": ["fma"],
    "BMI2": ["bmi2"],
    "AVX_VNNI": ["avx_vnni"],
    "AVX512": ["avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw"],
    "AVX512_VBMI": ["avx512vbmi"],
    "AVX512_VNNI": ["avx512_vnni"],
    "AVX512_BF16": ["avx512_bf16"],
    "AMX_INT8": ["amx_int8"],
}


@pytest.mark.skipif(platform.machine() != "x86_64" or not sys.platform.startswith("linux"), reason="x86-64 Linux")
def test_ib_003_ib_005_compiled_features_are_features_of_this_cpu() -> None:
    flags = set(re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[1].split())
    features = {name for name, value in llamacy.backends()["CPU"].items() if value == "1"}
    assert features & set(_FLAGS)
    for name in features & set(_FLAGS):
        assert set(_FLAGS[name]) <= flags, f"{name} was compiled in but this CPU doesn't have it"


def test_ib_005_missing_cpu_feature_is_an_error_with_its_name_and_no_crash(tmp_path: Path) -> None:
    # stands in for a CPU without a feature that the build uses: the check is the same one that runs at start
    source = (REPO / "src" / "llamacy" / "core" / "backend.pyx").read_text(encoding="utf-8")
    assert "_check_cpu()" in source
    header = (REPO / "src" / "llamacy" / "core" / "_cpu_features.h").read_text(encoding="utf-8")
    program = tmp_path / "features.cpp"
    plain = sorted(
        {flag for flags in _FLAGS.values() for flag in flags} | {"sse4_2", "amx_tile", "amx_bf16", "avx512_fp16"}
    )
    names = [*_FLAGS, *plain, "LLAMAFILE", "REPACK", "OPENMP", "NO_SUCH_FEATURE"]
    program.write_text(
        header
        + "\n#include <cstdio>\nint main() {\n"
        + "".join(f'  std::printf("{name} %d\\n", llamacy_cpu_has("{name}"));\n' for name in names)
        + "}\n"
    )
    compiler = "c++"
    subprocess.run([compiler, "-x", "c++", str(program), "-o", str(tmp_path / "features")], check=True)
    lines = subprocess.run([tmp_path / "features"], check=True, capture_output=True, text=True).stdout.splitlines()
    found = {name: int(value) for name, value in (line.split() for line in lines)}
    if platform.machine() == "x86_64" and sys.platform.startswith("linux"):
        flags = set(re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[1].split())
        for name, needed in _FLAGS.items():
            if found[name] >= 0:
                assert bool(found[name]) == (set(needed) <= flags), name
        # and under the names in which build.json has them
        assert {name: found[name] for name in plain} == {name: int(name in flags) for name in plain}
    # what is no CPU feature is never missing
    assert all(found[name] != 0 for name in ("LLAMAFILE", "REPACK", "OPENMP", "NO_SUCH_FEATURE"))


@pytest.mark.skipif(shutil.which("qemu-x86_64-static") is None, reason="needs qemu-user-static to be an old CPU")
@pytest.mark.parametrize("cpu", ["Conroe", "Nehalem", "SandyBridge", "Haswell"])
def test_ib_003_old_cpu_completes_or_is_told_what_it_lacks(cpu: str) -> None:
    code = f"""
import llamacy
try:
    with llamacy.Llama({str(data("target.gguf"))!r}, n_ctx=64, n_threads=1, n_threads_batch=1) as llm:
        print(llm.create_completion("the cat", max_tokens=8, temperature=0)["choices"][0]["text"])
except llamacy.BackendError as error:
    print("refused:", error)
"""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    python = [sys.executable, "-c", code]
    expected = subprocess.run(python, env=environ, check=True, capture_output=True, text=True).stdout
    done = subprocess.run(
        ["qemu-x86_64-static", "-cpu", cpu, *python],
        env=environ,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(Path(llamacy.get_library_dir(), "build.json").read_text(encoding="utf-8"))
    if facts["layout"] == "dynamic":
        assert done.stdout == expected
    else:
        assert done.stdout == expected or re.match(r"refused: .* uses .*, which this CPU does not have", done.stdout)


@pytest.mark.parametrize("options", [(), ("-X", "dev"), ("-I",)], ids=" ".join)
def test_ib_009_import_exits_with_zero(options: tuple[str, ...]) -> None:
    path = [entry for entry in sys.path if entry]
    code = "import sys; sys.path[:0] = sys.argv[1:]; import llamacy; llamacy.Llama; llamacy.devices()"
    assert run_python(code, *path, options=options).stderr == ""


def test_ib_009_running_python_is_one_that_is_supported() -> None:
    if sys.version_info < (3, 11):
        pytest.skip("no tomllib")
    import tomllib

    requires = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    assert tuple(int(part) for part in requires.removeprefix(">=").split(".")) <= sys.version_info[:2]


@pytest.mark.parametrize(
    ("name", "now"),
    [("LLAMA_CUBLAS", "GGML_CUDA"), ("LLAMA_METAL", "GGML_METAL"), ("LLAMA_OPENBLAS", "GGML_BLAS")],
)
@pytest.mark.parametrize("where", ["CMAKE_ARGS", "environment"])
def test_ib_011_option_names_of_old_are_refused_with_the_new_one(name: str, now: str, where: str) -> None:
    environ = {"CMAKE_ARGS": f"-D{name}=on"} if where == "CMAKE_ARGS" else {name: "on"}
    with pytest.raises(BuildError, match=now):
        read_options(vendor_dir(), environ)


def test_ib_013_paths_of_the_source_archive_are_short() -> None:
    # what MANIFEST.in and the pin let in; the archive itself is built in tests/packaging
    folders = ("src", "tests", "buildtools", "vendor", "benchmarks", "docs", "examples")
    longest = max(
        (
            path.relative_to(REPO).as_posix()
            for folder in folders
            for path in (REPO / folder).rglob("*")
            if path.is_file()
        ),
        key=len,
    )
    assert len(f"llamacy-0.1.0/{longest}") < 140, longest
