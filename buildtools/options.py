"""What the user asked for: `LLAMACY_*` variables and `CMAKE_ARGS`, with names that no longer exist refused."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from buildtools.errors import BuildError

#: Names that users of older llama.cpp bindings know, and what became of them. Names not listed here, but
#: whose GGML_ form is an option of the tree, are found by that form.
_RENAMED = {
    "LLAMA_CUBLAS": "GGML_CUDA",
    "GGML_CUBLAS": "GGML_CUDA",
    "LLAMA_CUDA": "GGML_CUDA",
    "LLAMA_CUDA_F16": None,
    "GGML_CUDA_F16": None,
    "LLAMA_HIPBLAS": "GGML_HIP",
    "GGML_HIPBLAS": "GGML_HIP",
    "LLAMA_HIP_UMA": None,
    "GGML_HIP_UMA": None,
    "LLAMA_CLBLAST": "GGML_OPENCL",
    "GGML_CLBLAST": "GGML_OPENCL",
    "LLAMA_OPENBLAS": "GGML_BLAS with GGML_BLAS_VENDOR=OpenBLAS",
    "GGML_OPENBLAS": "GGML_BLAS with GGML_BLAS_VENDOR=OpenBLAS",
    "LLAMA_METAL": "GGML_METAL",
    "LLAMA_KOMPUTE": "GGML_VULKAN",
    "GGML_KOMPUTE": "GGML_VULKAN",
    "LLAMA_MPI": "GGML_RPC",
    "LLAMA_CURL": None,
    "LLAMA_QKK_64": None,
    "LLAMA_AVX512_VBMI": "GGML_AVX512_VBMI",
    "LLAMA_AVX512_VNNI": "GGML_AVX512_VNNI",
    "GGML_CUDA_DMMV_X": None,
    "LLAMA_CUDA_DMMV_X": None,
    "LLAMA_CUDA_MMV_Y": None,
    "GGML_CUDA_MMV_Y": None,
    "LLAMA_CUDA_FORCE_DMMV": None,
}

#: Switches of a backend. As environment variables they do nothing, and people set them expecting a GPU build.
_BACKENDS = (
    "BLAS",
    "CANN",
    "CUDA",
    "HIP",
    "METAL",
    "MUSA",
    "OPENCL",
    "OPENVINO",
    "RPC",
    "SYCL",
    "VULKAN",
    "WEBGPU",
    "ZENDNN",
)

#: What llamacy decides itself: option, the value it must have, why.
_FIXED = {
    "BUILD_SHARED_LIBS": (True, "the extension modules share one copy of each library"),
    "GGML_STATIC": (False, "the extension modules share one copy of each library"),
    "LLAMA_USE_SYSTEM_GGML": (False, "use LLAMACY_SYSTEM_LLAMA to link an installed llama.cpp with its ggml"),
    "LLAMA_BUILD_MTMD": (True, "the multimodal classes need libmtmd"),
    "GGML_CPU": (True, "every model needs the CPU backend"),
}

_FALSE = {"", "0", "off", "no", "false", "n", "ignore", "notfound"}


def is_on(value: str) -> bool:
    """Whether CMake, or a `LLAMACY_*` switch, takes `value` as true."""
    return value.strip().lower() not in _FALSE


@dataclass(frozen=True)
class BuildOptions:
    """The options of one build, as read from the environment."""

    debug: bool = False
    sanitize: str = ""
    wheel: bool = False
    linetrace: bool = False
    fast_compile: bool = False
    jobs: int = 1
    system_llama: str = ""
    #: -D definitions of CMAKE_ARGS, without their type.
    definitions: tuple[tuple[str, str], ...] = ()
    #: Everything else in CMAKE_ARGS, passed on as it is (`-G`, `--toolchain`, ...).
    other_arguments: tuple[str, ...] = ()

    def definition(self, name: str) -> str | None:
        return dict(self.definitions).get(name)


def ggml_options(tree: Path) -> set[str]:
    """Names of the `GGML_*` and `LLAMA_*` options that a llama.cpp tree declares."""
    names: set[str] = set()
    for relative in ("ggml/CMakeLists.txt", "CMakeLists.txt"):
        names.update(_find_names(tree / relative, r"^\s*(?:option|set)\s*\(\s*((?:GGML|LLAMA)_\w+)"))
    return names


def mentioned_options(tree: Path) -> set[str]:
    """Names of all `GGML_*` and `LLAMA_*` variables that any CMake file of a tree mentions."""
    names: set[str] = set()
    files = [tree / "CMakeLists.txt"]
    for folder in ("cmake", "ggml", "src", "tools/mtmd"):
        files += [*(tree / folder).rglob("CMakeLists.txt"), *(tree / folder).rglob("*.cmake")]
    for path in files:
        names.update(_find_names(path, r"\b((?:GGML|LLAMA)_\w+)"))
    return names


def _find_names(path: Path, pattern: str) -> list[str]:
    if not path.is_file():
        return []
    return re.findall(pattern, path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)


def replacement(name: str, known: set[str]) -> str | None:
    """What to say about an option name that no longer exists; None when the name is fine."""
    if name in _RENAMED:
        new = _RENAMED[name]
        if new is None:
            return f"{name} no longer exists in llama.cpp and has no successor: leave it out"
        return f"{name} no longer exists in llama.cpp: use {new}"
    if name.startswith("LLAMA_"):
        new = "GGML_" + name[len("LLAMA_") :]
        # llama.cpp still lists a few old names to warn about them, so the GGML_ form decides.
        if new in known:
            return f"{name} no longer exists in llama.cpp: use {new}"
    return None


def unknown_option(name: str, known: set[str]) -> str:
    """What to say about a definition that no CMake file read."""
    close = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.75)
    hint = f"; did you mean {' or '.join(close)}?" if close else "; docs/building.md lists the options"
    return f"CMAKE_ARGS sets {name}, which this llama.cpp doesn't know{hint}"


def parse_cmake_args(text: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Split CMAKE_ARGS into definitions and the rest.

    llama-cpp-python takes semicolons between arguments too, so `-DA=1;-DB=2` is read as two.
    """
    try:
        words = shlex.split(re.sub(r";(?=-)", " ", text))
    except ValueError as error:
        raise BuildError(f"CMAKE_ARGS can't be split into words ({error}): {text!r}; check its quotes.") from error
    definitions: list[tuple[str, str]] = []
    rest: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word == "-D" and position < len(words):
            word += words[position]
            position += 1
        match = re.fullmatch(r"-D([^:=]+)(?::\w+)?=(.*)", word, re.DOTALL)
        if match:
            definitions.append((match.group(1), match.group(2)))
        elif word.startswith("-D"):
            raise BuildError(f"CMAKE_ARGS has {word!r}, a definition without a value: write {word}=ON.")
        else:
            rest.append(word)
    return definitions, rest


def check_names(definitions: list[tuple[str, str]], environ: Mapping[str, str], tree: Path) -> None:
    """Refuse names that would be accepted and ignored.

    Raises
    ------
    BuildError
        An old or unknown option name in CMAKE_ARGS, an old one as an environment variable, a backend switch
        set outside CMAKE_ARGS, or an option that llamacy decides itself.
    """
    known = ggml_options(tree)
    for name, value in definitions:
        told = replacement(name, known)
        if told:
            raise BuildError(f"CMAKE_ARGS sets {name}={value}. {told}.")
        if name in _FIXED and is_on(value) is not _FIXED[name][0]:
            wanted, why = _FIXED[name]
            raise BuildError(
                f"CMAKE_ARGS sets {name}={value}, but llamacy builds with {name}={'ON' if wanted else 'OFF'}: {why}."
            )
    if any(name.startswith(("GGML_", "LLAMA_")) for name, _ in definitions):
        # CMake would not warn: ggml's own file reads every variable that starts with GGML_.
        mentioned = mentioned_options(tree)
        for name, _ in definitions:
            if name.startswith(("GGML_", "LLAMA_")) and name not in mentioned:
                raise BuildError(unknown_option(name, known) + ".")
    for name in sorted(environ):
        # Only names known as build options: variables that ggml reads at run time (GGML_NO_BACKTRACE, ...) are fine.
        told = replacement(name, known) if name.startswith("LLAMA_") or name in _RENAMED else None
        if told:
            raise BuildError(
                f"The environment sets {name}={environ[name]}, which no build reads. {told}, "
                f'in CMAKE_ARGS (CMAKE_ARGS="-D<option>=on" pip install ...), and unset {name}.'
            )
        if name in {f"GGML_{backend}" for backend in _BACKENDS} and name not in dict(definitions):
            raise BuildError(
                f"The environment sets {name}={environ[name]}, which no build reads: put it into CMAKE_ARGS "
                f'(CMAKE_ARGS="-D{name}={environ[name]}" pip install ...) and unset {name}.'
            )


def read_options(tree: Path, environ: Mapping[str, str] | None = None) -> BuildOptions:
    """Read and check the options of a build.

    Parameters
    ----------
    tree : Path
        The llama.cpp tree, whose CMake files say which options exist.
    environ : mapping, optional
        The environment; the process's own by default.

    Raises
    ------
    BuildError
        A name or value that can't be honoured.
    """
    environ = os.environ if environ is None else environ
    definitions, rest = parse_cmake_args(environ.get("CMAKE_ARGS", ""))
    check_names(definitions, environ, tree)
    jobs = environ.get("LLAMACY_JOBS") or environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or ""
    if jobs and not re.fullmatch(r"[1-9][0-9]{0,3}", jobs):
        raise BuildError(f"LLAMACY_JOBS (or CMAKE_BUILD_PARALLEL_LEVEL) is {jobs!r}: give a whole number from 1.")
    sanitize = environ.get("LLAMACY_SANITIZE", "").replace(" ", "")
    bad = [name for name in sanitize.split(",") if name and name not in {"address", "undefined", "thread", "leak"}]
    if bad:
        raise BuildError(f"LLAMACY_SANITIZE names {bad[0]!r}: give a list of address, undefined, thread, leak.")
    options = BuildOptions(
        debug=is_on(environ.get("LLAMACY_DEBUG", "")),
        sanitize=sanitize,
        wheel=is_on(environ.get("LLAMACY_WHEEL", "")),
        linetrace=is_on(environ.get("LLAMACY_LINETRACE", "")),
        fast_compile=is_on(environ.get("LLAMACY_FAST_COMPILE", "")),
        jobs=int(jobs) if jobs else _cores(),
        system_llama=environ.get("LLAMACY_SYSTEM_LLAMA", "") if is_on(environ.get("LLAMACY_SYSTEM_LLAMA", "")) else "",
        definitions=tuple(definitions),
        other_arguments=tuple(rest),
    )
    if options.system_llama and options.wheel:
        raise BuildError("LLAMACY_SYSTEM_LLAMA and LLAMACY_WHEEL are both set: a wheel carries its own libraries.")
    if options.system_llama and (definitions or rest):
        raise BuildError(
            "LLAMACY_SYSTEM_LLAMA and CMAKE_ARGS are both set: with an installed llama.cpp nothing is "
            "configured, so CMAKE_ARGS would be ignored. Unset one of them."
        )
    return options


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return os.cpu_count() or 1
