"""Which compiler builds, and for which processor: part of the key of a native build."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass

from buildtools.errors import BuildError
from buildtools.options import is_on

#: Variables that change what a compiler makes of the same source.
FLAG_VARIABLES = (
    "CFLAGS",
    "CXXFLAGS",
    "CPPFLAGS",
    "LDFLAGS",
    "CUDACXX",
    "CUDAFLAGS",
    "CUDAARCHS",
    "HIPCXX",
    "HIPFLAGS",
    "CMAKE_TOOLCHAIN_FILE",
    "MACOSX_DEPLOYMENT_TARGET",
    "SOURCE_DATE_EPOCH",
    "ARCHFLAGS",
)

#: x86 features as compilers spell them in macros, and as Linux spells them in /proc/cpuinfo.
_X86_FEATURES = {
    "__SSE3__": "pni",
    "__SSSE3__": "ssse3",
    "__SSE4_2__": "sse4_2",
    "__AVX__": "avx",
    "__F16C__": "f16c",
    "__FMA__": "fma",
    "__BMI2__": "bmi2",
    "__AVX2__": "avx2",
    "__AVXVNNI__": "avx_vnni",
    "__AVX512F__": "avx512f",
    "__AVX512BW__": "avx512bw",
    "__AVX512VL__": "avx512vl",
    "__AVX512DQ__": "avx512dq",
    "__AVX512CD__": "avx512cd",
    "__AVX512VBMI__": "avx512vbmi",
    "__AVX512VNNI__": "avx512_vnni",
    "__AVX512BF16__": "avx512_bf16",
    "__AVX512FP16__": "avx512_fp16",
    "__AMX_TILE__": "amx_tile",
    "__AMX_INT8__": "amx_int8",
    "__AMX_BF16__": "amx_bf16",
}

#: Options of ggml for x86 code beyond the first processors, and what /proc/cpuinfo calls it.
_X86_OPTIONS = {
    "GGML_SSE42": ("sse4_2",),
    "GGML_AVX": ("avx",),
    "GGML_F16C": ("f16c",),
    "GGML_FMA": ("fma",),
    "GGML_BMI2": ("bmi2",),
    "GGML_AVX2": ("avx2",),
    "GGML_AVX_VNNI": ("avx_vnni",),
    "GGML_AVX512": ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd"),
    "GGML_AVX512_VBMI": ("avx512vbmi",),
    "GGML_AVX512_VNNI": ("avx512_vnni",),
    "GGML_AVX512_BF16": ("avx512_bf16",),
    "GGML_AMX_TILE": ("amx_tile",),
    "GGML_AMX_INT8": ("amx_int8",),
    "GGML_AMX_BF16": ("amx_bf16",),
}


def configured_features(cmake_cache: str) -> list[str]:
    """Features of x86 processors that a configured build without `GGML_NATIVE` uses, as /proc/cpuinfo names them.

    Parameters
    ----------
    cmake_cache : str
        The text of CMakeCache.txt, which also has the options that nobody gave: ggml turns AVX2 and more on by itself.
    """
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        return []
    options = dict(re.findall(r"^(GGML_\w+):BOOL=(.*)$", cmake_cache, re.MULTILINE))
    if is_on(options.get("GGML_CPU_ALL_VARIANTS", "")):
        return []
    return [name for option, names in _X86_OPTIONS.items() if is_on(options.get(option, "")) for name in names]


@dataclass(frozen=True)
class Compiler:
    """The C++ compiler: how it is called and how it names itself."""

    command: tuple[str, ...]
    version: str

    def native_flags(self) -> str:
        """What `-march=native` stands for here; empty where the compiler can't say."""
        flag = "-mcpu=native" if platform.machine().lower() in {"arm64", "aarch64"} else "-march=native"
        found = _output([*self.command, flag, "-E", "-v", "-x", "c++", os.devnull])
        # Only the target switches: cache sizes and the like change nothing that the code may do.
        switches = re.findall(r"\s(-m(?:arch|cpu|tune|no-)?[=\w.+-]*|-target-feature \S+|-target-cpu \S+)", found)
        return " ".join(sorted(set(switches)))

    def native_features(self) -> tuple[str, ...]:
        """Features of the x86 processor at hand that a native build may use, as /proc/cpuinfo names them."""
        if platform.machine().lower() not in {"x86_64", "amd64"}:
            return ()
        macros = set(
            re.findall(
                r"#define (\w+) 1",
                _output([*self.command, "-march=native", "-dM", "-E", "-x", "c++", os.devnull]),
            )
        )
        return tuple(name for macro, name in _X86_FEATURES.items() if macro in macros)


def find_compiler() -> Compiler:
    """Find the C++ compiler that CMake and setuptools will take.

    Raises
    ------
    BuildError
        There is none.
    """
    if sys.platform == "win32":
        return Compiler(("cl",), f"MSVC {os.environ.get('VCTOOLSVERSION', 'default')}")
    wanted = os.environ.get("CXX")
    names = [wanted] if wanted else ["c++", "g++", "clang++"]
    for name in names:
        command = shlex.split(name)
        if command and shutil.which(command[0]):
            version = _output([*command, "--version"]).partition("\n")[0]
            return Compiler(tuple(command), version)
    raise BuildError(
        f"No C++ compiler found (looked for {', '.join(names)}): install one that knows C++17 (Debian and "
        "Ubuntu: apt install g++; Fedora: dnf install gcc-c++; macOS: xcode-select --install), or name yours "
        "in CXX."
    )


def fingerprint(compiler: Compiler, native: bool) -> dict[str, str]:
    """All that, beside sources and options, decides what a native build contains."""
    facts = {
        "compiler": f"{' '.join(compiler.command)}: {compiler.version}",
        "cc": os.environ.get("CC", ""),
        "platform": sysconfig.get_platform(),
        "libc": " ".join(platform.libc_ver()),
    }
    facts.update({name: os.environ[name] for name in FLAG_VARIABLES if os.environ.get(name)})
    if native:
        facts["processor"] = compiler.native_flags() or platform.processor()
    return facts


def _output(command: list[str]) -> str:
    """Both streams of a command, or nothing when it can't run."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            errors="replace",
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout + done.stderr
